"""The transport over HTTP: MessagePack bodies, repeats with the same ids until the answer has come, from any loop.

Requests that are sent in the same turn of a loop travel in one body, so that many callers cost one exchange.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from outlast.core import limits
from outlast.core.admin import NamespaceInfo
from outlast.core.errors import Invalid, Refusal, Unavailable
from outlast.core.inputs import Poll, Request
from outlast.core.limits import FEED_PAGE_EVENTS
from outlast.core.replies import Refused, Reply
from outlast.protocol.again import PAUSE_FIRST, longer, send_again
from outlast.protocol.errors import exception_of
from outlast.protocol.halves import halves_of, joined
from outlast.protocol.transport import (
    ANY_RUNS,
    ANY_TASKS,
    Attempt,
    Count,
    FeedPage,
    HistoryPage,
    Listing,
    Queues,
    RunsAsked,
    TasksAsked,
)
from outlast.protocol.version import HEADER, PROTOCOL
from outlast.protocol.wire import (
    MSGPACK,
    decode_attempts,
    decode_count,
    decode_feed,
    decode_history,
    decode_listing,
    decode_namespaces,
    decode_queues,
)
from outlast.sdk.line import ANSWER_TIMEOUT, Line, Lost, body_of

LOGGER: Final = logging.getLogger("outlast.worker")
NOT_THERE: Final = "Look at the address, and whether a server is up there: outlast serve, or outlast dev app.py."
HELD_READ_MAX: Final = 20.0  # seconds for which a read may be held: well within the time an answer may take

Value = TypeVar("Value")


def _check(address: str, token: str) -> None:
    """Refuse what no request can be sent to or with: asking again would not help."""
    try:
        parts = urlsplit(address)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that there is not, half a bracket
        whole = False
    if not whole or any(sign.isspace() for sign in address):
        raise Invalid("invalid_request", f'The server\'s address is "{address}".', remedy="Write http://HOST:PORT.")
    if not token.isprintable():
        raise Invalid(
            "invalid_request", "The token has a line end or another control character.", remedy="Give it whole."
        )


class HttpTransport:
    """``protocol.transport.Transport`` to a server at ``address``, for example ``http://127.0.0.1:7070``."""

    def __init__(
        self,
        address: str,
        *,
        namespace: str = "default",
        token: str = "",
        on_lost: Callable[[], Awaitable[None]] | None = None,
        patience: float = ANSWER_TIMEOUT,
    ) -> None:
        """``on_lost`` is awaited whenever an answer was lost, before the request is sent again; it may raise to end that.

        ``patience`` is for how many seconds a read whose answer was lost is sent again.
        """
        _check(address, token)
        self.namespace = namespace
        self.address = address.rstrip("/")
        self._root = f"{self.address}/api/v1/namespaces/{quote(namespace, safe='')}/"
        self._headers = {HEADER: str(PROTOCOL), "accept": MSGPACK}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._on_lost = on_lost
        self._patience = patience
        self._lines: dict[int, Line] = {}
        self._silent = False  # a poll was lost, and none has been answered since

    async def call(self, request: Request, *, timeout: float | None = None) -> Reply:
        """Send ``request`` and return its reply, as the Transport protocol says."""
        loop = asyncio.get_running_loop()
        if timeout is None:
            return await self._until_answered(request, None)
        ends = loop.time() + timeout
        try:
            async with asyncio.timeout(timeout):
                return await self._until_answered(request, ends)
        except TimeoutError:
            raise Unavailable(
                "timeout",
                f"There was no answer from {self.address} within {timeout:g} s.",
                remedy="Look whether the server is up, or wait longer.",
            ) from None

    def ask(self, request: Request) -> "HeldCall":
        """Send ``request`` once from the running loop; if no reply comes, the future of what is returned is cancelled."""
        line = self._line(asyncio.get_running_loop())
        return HeldCall(line.loop, line.put(request, body_of(request), cancel_lost=True))

    def forget(self, call: "HeldCall") -> None:
        """Say that nobody waits for the reply to ``call``. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            call.loop.call_soon_threadsafe(call.future.cancel)

    async def read_history(
        self, workflow_id: str, run_id: str, *, first_event_id: int = 1, wait: float = 0.0
    ) -> HistoryPage:
        """Return committed events of a run."""
        fields = {"workflow_id": workflow_id, "run_id": run_id, "first_event_id": str(first_event_id)}
        if wait:
            fields["wait"] = f"{min(wait, HELD_READ_MAX):.3f}s"
        return await self._read("worker/history", fields, decode_history)

    async def read_attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return await self._read("worker/attempts", {"task_id": task_id}, decode_attempts)

    async def list_runs(self, asked: RunsAsked = ANY_RUNS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of runs, newest first."""
        return await self._read("worker/runs", _fields(asked, cursor, limit), decode_listing)

    async def count_runs(self, asked: RunsAsked = ANY_RUNS) -> Count:
        """Return how many runs match."""
        return await self._read("worker/runs/count", _fields(asked), decode_count)

    async def list_tasks(self, asked: TasksAsked = ANY_TASKS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of tasks, newest first."""
        return await self._read("worker/tasks", _fields(asked, cursor, limit), decode_listing)

    async def count_tasks(self, asked: TasksAsked = ANY_TASKS) -> Count:
        """Return how many tasks match."""
        return await self._read("worker/tasks/count", _fields(asked), decode_count)

    async def list_queues(self, *, queue: str = "") -> Queues:
        """Return the queues that have open work."""
        return await self._read("worker/queues", {"queue": queue}, decode_queues)

    async def list_namespaces(self) -> tuple[NamespaceInfo, ...]:
        """Return every namespace by name."""
        return await self._read("worker/namespaces", {}, decode_namespaces)

    async def read_feed(self, *, after: str = "", limit: int = FEED_PAGE_EVENTS, wait: float = 0.0) -> FeedPage:
        """Return committed events behind a cursor, held until there are some."""
        fields = {"after": after, "limit": str(limit), "wait": f"{wait:g}"}
        return await self._read("worker/feed", fields, decode_feed)

    async def close(self) -> None:
        """Close this loop's connections; those of other loops close with them."""
        line = self._lines.pop(id(asyncio.get_running_loop()), None)
        if line is not None:
            await line.session.close()

    async def _until_answered(self, request: Request, ends: float | None) -> Reply:
        loop = asyncio.get_running_loop()
        pause = PAUSE_FIRST
        while True:
            refusal: Refusal
            try:
                reply = await self._ask(self._line(loop), request)
            except Lost as lost:
                if isinstance(request, Poll):
                    self._say_silent(lost)
                if self._on_lost is not None:
                    await self._on_lost()
                refusal = Unavailable("timeout", f"{self.address} does not answer: {lost}.", remedy=NOT_THERE)
            else:
                if self._silent and isinstance(request, Poll):
                    self._silent = False
                    LOGGER.info("server_answers address=%s", self.address)
                if not isinstance(reply, Refused):
                    return reply
                refusal = exception_of(reply)
                if not send_again(request, reply):
                    raise refusal
            if ends is not None and loop.time() + pause >= ends:
                raise refusal
            await asyncio.sleep(pause)
            pause = longer(pause)

    def _say_silent(self, lost: Lost) -> None:
        """Log that a worker has no server, once until it has one."""
        if not self._silent:
            self._silent = True
            LOGGER.warning("server_unreachable address=%s error=%s; the worker keeps trying", self.address, lost)

    async def _ask(self, line: "Line", request: Request) -> Reply:
        body = body_of(request)
        if len(body) > limits.REQUEST_BYTES_MAX and (halves := halves_of(request)) is not None:
            first, second = halves
            return joined(await self._ask(line, first), await self._ask(line, second))
        return await line.ask(request, body)

    async def _read(self, path: str, fields: dict[str, str], decode: Callable[[bytes], Value]) -> Value:
        """Read, again if the answer is lost, for as long as there is patience."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._patience
        pause = PAUSE_FIRST
        while True:
            try:
                return decode(await self._line(loop).get(path, {name: text for name, text in fields.items() if text}))
            except (Lost, msgspec.MsgspecError) as error:
                if self._on_lost is not None:
                    await self._on_lost()
                if loop.time() + pause >= ends:
                    if isinstance(error, Lost) and error.refused is not None:
                        raise exception_of(error.refused) from error
                    raise Unavailable(
                        "timeout", f"{self.address} does not answer: {error}.", remedy=NOT_THERE
                    ) from error
            await asyncio.sleep(pause)
            pause = longer(pause)

    def _line(self, loop: asyncio.AbstractEventLoop) -> "Line":
        line = self._lines.get(id(loop))
        if line is None or line.loop is not loop or line.session.closed:
            for key, other in list(self._lines.items()):
                if other.loop.is_closed():
                    del self._lines[key]
            line = Line(loop, self._root, self._headers)
            self._lines[id(loop)] = line
        return line


def _fields(asked: RunsAsked | TasksAsked, cursor: str = "", limit: int | None = None) -> dict[str, str]:
    """Return what is asked for as the fields of an address; what is empty or not asked is left out."""
    fields = {"cursor": cursor, "limit": "" if limit is None else str(limit)}
    for name, value in msgspec.structs.asdict(asked).items():
        fields[name] = ("true" if value else "") if isinstance(value, bool) else value
    return fields


class HeldCall:
    """A request that was sent once; ``future`` belongs to ``loop``."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Reply]") -> None:
        self.loop = loop
        self.future = future
