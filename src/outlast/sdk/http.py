"""The transport over HTTP: MessagePack bodies, repeats with the same ids until the answer has come, from any loop.

Requests that are sent in the same turn of a loop travel in one body, so that many callers cost one exchange.
"""

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from outlast.core import limits
from outlast.core.errors import Invalid, Refusal, Unavailable
from outlast.core.inputs import Poll, Request
from outlast.core.replies import Refused, Reply
from outlast.protocol.again import PAUSE_FIRST, longer, may_wait, send_again
from outlast.protocol.errors import exception_of
from outlast.protocol.halves import halves_of, joined
from outlast.protocol.transport import Attempt, Count, HistoryPage, Listing
from outlast.protocol.version import HEADER, PROTOCOL
from outlast.protocol.wire import (
    CALL_PATH,
    CALLS_MAX,
    CALLS_PATH,
    MSGPACK,
    decode_attempts,
    decode_count,
    decode_history,
    decode_listing,
    decode_replies,
    decode_reply,
    encode,
)

LOGGER: Final = logging.getLogger("outlast.worker")

CONNECT_TIMEOUT: Final = 5.0  # seconds
ANSWER_TIMEOUT: Final = 30.0  # seconds for a request that is not held
HELD_SLACK: Final = 15.0  # seconds beyond what a held request asked for
CONNECTIONS_MAX: Final = 256
BODY_BYTES: Final = 1024 * 1024  # about where a body of several requests ends and the next begins

Value = TypeVar("Value")


class Lost(Exception):
    """The answer was lost, or the server could not be reached: send it again."""


class HttpTransport:
    """``protocol.transport.Transport`` to a server at ``address``, for example ``http://127.0.0.1:7070``."""

    def __init__(
        self,
        address: str,
        *,
        namespace: str = "default",
        token: str = "",
        on_lost: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``on_lost`` is awaited whenever an answer was lost, before the request is sent again; it may raise to end that."""
        if not address.startswith(("http://", "https://")):
            raise Invalid("invalid_request", f'The server\'s address is "{address}".', remedy="Write http://HOST:PORT.")
        self.namespace = namespace
        self.address = address.rstrip("/")
        self._root = f"{self.address}/api/v1/namespaces/{quote(namespace, safe='')}/"
        self._headers = {HEADER: str(PROTOCOL), "accept": MSGPACK}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._on_lost = on_lost
        self._lines: dict[int, _Line] = {}
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

    async def read_history(self, workflow_id: str, run_id: str, *, first_event_id: int = 1) -> HistoryPage:
        """Return committed events of a run."""
        fields = {"workflow_id": workflow_id, "run_id": run_id, "first_event_id": str(first_event_id)}
        return await self._read("worker/history", fields, decode_history)

    async def read_attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return await self._read("worker/attempts", {"task_id": task_id}, decode_attempts)

    async def list_runs(
        self,
        *,
        type: str = "",
        status: str = "",
        workflow_id: str = "",
        query: str = "",
        cursor: str = "",
        limit: int = 50,
    ) -> Listing:
        """Return a page of runs, newest first."""
        fields = {
            "type": type,
            "status": status,
            "workflow_id": workflow_id,
            "query": query,
            "cursor": cursor,
            "limit": str(limit),
        }
        return await self._read("worker/runs", fields, decode_listing)

    async def count_runs(self, *, type: str = "", status: str = "", workflow_id: str = "", query: str = "") -> Count:
        """Return how many runs match."""
        fields = {"type": type, "status": status, "workflow_id": workflow_id, "query": query}
        return await self._read("worker/runs/count", fields, decode_count)

    async def list_tasks(
        self,
        *,
        type: str = "",
        state: str = "",
        queue: str = "",
        run_id: str = "",
        query: str = "",
        cursor: str = "",
        limit: int = 50,
    ) -> Listing:
        """Return a page of tasks, newest first."""
        fields = {
            "type": type,
            "state": state,
            "queue": queue,
            "run_id": run_id,
            "query": query,
            "cursor": cursor,
            "limit": str(limit),
        }
        return await self._read("worker/tasks", fields, decode_listing)

    async def count_tasks(
        self, *, type: str = "", state: str = "", queue: str = "", run_id: str = "", query: str = ""
    ) -> Count:
        """Return how many tasks match."""
        fields = {"type": type, "state": state, "queue": queue, "run_id": run_id, "query": query}
        return await self._read("worker/tasks/count", fields, decode_count)

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
                refusal = Unavailable(
                    "timeout", f"{self.address} does not answer: {lost}.", remedy="Look whether the server is up."
                )
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

    async def _ask(self, line: "_Line", request: Request) -> Reply:
        body = body_of(request)
        if len(body) > limits.REQUEST_BYTES_MAX and (halves := halves_of(request)) is not None:
            first, second = halves
            return joined(await self._ask(line, first), await self._ask(line, second))
        return await line.ask(request, body)

    async def _read(self, path: str, fields: dict[str, str], decode: Callable[[bytes], Value]) -> Value:
        """Read, again if the answer is lost, for as long as an answer may take."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + ANSWER_TIMEOUT
        pause = PAUSE_FIRST
        while True:
            try:
                return decode(await self._line(loop).get(path, {name: text for name, text in fields.items() if text}))
            except (Lost, msgspec.MsgspecError) as error:
                if self._on_lost is not None:
                    await self._on_lost()
                if loop.time() + pause >= ends:
                    raise Unavailable(
                        "timeout", f"{self.address} does not answer: {error}.", remedy="Look whether the server is up."
                    ) from error
            await asyncio.sleep(pause)
            pause = longer(pause)

    def _line(self, loop: asyncio.AbstractEventLoop) -> "_Line":
        line = self._lines.get(id(loop))
        if line is None or line.loop is not loop or line.session.closed:
            for key, other in list(self._lines.items()):
                if other.loop.is_closed():
                    del self._lines[key]
            line = _Line(loop, self._root, self._headers)
            self._lines[id(loop)] = line
        return line


class _Line:
    """One loop's connections to the server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, root: str, headers: dict[str, str]) -> None:
        self.loop = loop
        self._root = root
        self._waiting: list[tuple[msgspec.Raw, asyncio.Future[Reply]]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self.session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def ask(self, request: Request, body: bytes) -> Reply:
        """Return the reply to ``request``, which is ``body`` on the wire. Raises Lost when it did not come."""
        if may_wait(request):
            return decode_reply_or_lose(await self._post(CALL_PATH, body, held_for(request)))
        future: asyncio.Future[Reply] = self.loop.create_future()
        self._waiting.append((msgspec.Raw(body), future))
        if len(self._waiting) == 1:
            self.loop.call_soon(self._flush)
        return await future

    async def get(self, path: str, fields: dict[str, str]) -> bytes:
        """Return the body at ``path``. Raises Lost, or the refusal that came instead."""
        try:
            async with self.session.get(
                self._root + path, params=fields, timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT)
            ) as response:
                body = await response.read()
                status = response.status
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: the session was closed
            raise Lost(said(error)) from error
        if status == 200:  # noqa: PLR2004 - OK
            return body
        refused = decode_reply_or_lose(body)
        if isinstance(refused, Refused) and not refused.retryable:
            raise exception_of(refused)
        raise Lost(refused.fact if isinstance(refused, Refused) else f"status {status}")

    def _flush(self) -> None:
        """Send what has gathered in this turn of the loop, in bodies of a bounded size."""
        waiting, self._waiting = self._waiting, []
        part: list[tuple[msgspec.Raw, asyncio.Future[Reply]]] = []
        size = 0
        for raw, future in waiting:
            length = len(memoryview(raw))
            if part and (size + length > BODY_BYTES or len(part) == CALLS_MAX):
                self._spawn(part)
                part, size = [], 0
            part.append((raw, future))
            size += length
        self._spawn(part)

    def _spawn(self, calls: list[tuple[msgspec.Raw, "asyncio.Future[Reply]"]]) -> None:
        task = self.loop.create_task(self._send(calls), name="outlast-http")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, calls: list[tuple[msgspec.Raw, "asyncio.Future[Reply]"]]) -> None:
        calls = [(raw, future) for raw, future in calls if not future.done()]
        try:
            if len(calls) == 1:
                body = await self._post(CALL_PATH, bytes(calls[0][0]), ANSWER_TIMEOUT)
                replies: tuple[Reply, ...] = (decode_reply_or_lose(body),)
            elif calls:
                body = await self._post(CALLS_PATH, encode(tuple(raw for raw, _ in calls)), ANSWER_TIMEOUT)
                replies = decode_replies_or_lose(body, len(calls))
            else:
                return
        except Exception as error:  # noqa: BLE001 - every caller must hear of it, whatever it is
            for _, future in calls:
                if not future.done():
                    future.set_exception(Lost(str(error)) if isinstance(error, Lost) else error)
            return
        for (_, future), reply in zip(calls, replies, strict=True):
            if not future.done():
                future.set_result(reply)

    async def _post(self, path: str, body: bytes, timeout: float) -> bytes:
        try:
            async with self.session.post(
                self._root + path,
                data=body if len(body) < BODY_BYTES else io.BytesIO(body),
                headers={"content-type": MSGPACK},
                timeout=aiohttp.ClientTimeout(total=timeout, connect=CONNECT_TIMEOUT),
            ) as response:
                return await response.read()
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # as above
            raise Lost(said(error)) from error


def body_of(request: Request) -> bytes:
    """Return ``request`` as bytes. Raises Invalid for text or numbers that have none."""
    try:
        return encode(request)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
        raise Invalid(
            "invalid_request",
            f"The request cannot be written: {error}.",
            remedy="Text must be valid Unicode without lone surrogates, whole numbers must fit into 64 bits.",
        ) from None


def held_for(request: Request) -> float:
    """Return how many seconds an answer to a held request may take before it counts as lost."""
    return request.wait / 1e9 + HELD_SLACK if isinstance(request, Poll) else ANSWER_TIMEOUT


def decode_reply_or_lose(body: bytes) -> Reply:
    """Return the reply in ``body``; what is none (a proxy's page) counts as a lost answer."""
    try:
        return decode_reply(body)
    except msgspec.MsgspecError as error:
        raise Lost(f"the answer is none of ours ({error})") from error


def decode_replies_or_lose(body: bytes, wanted: int) -> tuple[Reply, ...]:
    """Return ``wanted`` replies. Raises the refusal of the whole, and Lost for what is neither."""
    try:
        replies = decode_replies(body)
    except msgspec.MsgspecError:
        refused = decode_reply_or_lose(body)
        if isinstance(refused, Refused):
            return (refused,) * wanted
        raise Lost("the answer has one reply for many requests") from None
    if len(replies) != wanted:
        raise Lost(f"the answer has {len(replies)} replies for {wanted} requests")
    return replies


def said(error: BaseException) -> str:
    """Return what went wrong in a few words."""
    return str(error) or type(error).__name__
