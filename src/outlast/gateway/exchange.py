"""One HTTP exchange as the handlers see it: what was asked, and what is answered."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from outlast.core import limits
from outlast.core.errors import Invalid, TooLarge, Unavailable
from outlast.core.inputs import Request
from outlast.core.replies import Refused, Reply
from outlast.engine.frontend import Engine
from outlast.engine.ticket import FutureTicket
from outlast.gateway.auth import Caller
from outlast.gateway.streams import Streams
from outlast.gateway.term import Term
from outlast.protocol.errors import exception_of
from outlast.protocol.opening import AS_STORED, HIDING, Opener, Value
from outlast.protocol.wire import JSON, MSGPACK, encode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Wanted = TypeVar("Wanted")
Shape = TypeVar("Shape", bound=msgspec.Struct)

KEY_HEADER: Final = "idempotency-key"
BODY_WITHIN: Final = 30.0  # seconds: who sends more slowly holds a connection for nothing

_MSGPACK_NAMES: Final = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})


class CallerGone(Exception):
    """The connection closed while the answer was waited for; nobody takes one."""


@dataclass(slots=True)
class Answer:
    """A response. ``headers`` come on top of content-type and content-length."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class StreamAnswer:
    """A response whose body comes piece by piece, for as long as somebody reads it."""

    pieces: AsyncGenerator[bytes]
    content_type: str
    on_end: Callable[[], None] = lambda: None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Exchange:
    """One request. ``params`` are the named parts of its path, ``query`` and ``taken`` what was read of query and body.

    ``opener`` codes the values of requests and opens those of replies; workers have them as they are stored.
    """

    engine: Engine
    namespace: str
    caller: Caller
    method: str
    headers: Mapping[str, str]
    query_string: bytes
    receive: Receive
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    path: str = ""
    request_id: str = ""
    streams: Streams = field(default_factory=Streams)
    term: Term = field(default_factory=Term)
    query: msgspec.Struct | None = None
    taken: msgspec.Struct | None = None
    raw: bytes = b""
    opener: Opener = AS_STORED

    @property
    def principal(self) -> str:
        """Who calls, by name."""
        return self.caller.name

    @property
    def over(self) -> bool:
        """Whether a stream is to end: the engine stops, or another policy holds by now."""
        return self.engine.stopped or self.term.over

    def asked(self, shape: type[Shape]) -> Shape:
        """Return the query, which the table says is of ``shape``."""
        assert isinstance(self.query, shape)
        return self.query

    def body_as(self, shape: type[Shape]) -> Shape:
        """Return the body, which the table says is of ``shape``."""
        assert isinstance(self.taken, shape)
        return self.taken

    def shown(self, value: Value) -> Value:
        """Return ``value`` as it is stored, without what the caller may not see; who may opens it with keys of its own."""
        return value if self.caller.sees else HIDING.open(value)

    async def expect(self, request: Request, kind: type[Wanted]) -> Wanted:
        """Return the engine's reply. Raises the refusal that came instead."""
        return checked(self.opener.open(await self.ask(request)), kind)

    async def within(self, request: Request, probe: Request, kind: type[Wanted], wait: float) -> Wanted | None:
        """Return the reply to a request that is held, or None when it did not come within ``wait`` seconds.

        ``probe`` asks about the same thing and is answered at once, after ``request`` if that can be answered: so an
        outcome that is there is given also without waiting.
        """
        ticket = self.submit(request)
        await self.ask(probe)
        reply = await self.while_connected(ticket, wait=wait)
        return None if reply is None else checked(self.opener.open(reply), kind)

    def idempotency_key(self) -> str:
        """Return the caller's key, empty when there is none. Raises Invalid for an empty one: it would protect nothing."""
        key = self.headers.get(KEY_HEADER)
        if key is None:
            return ""
        if not key.strip():
            raise Invalid(
                "invalid_request",
                "Idempotency-Key is empty.",
                remedy="Give the request a key, or leave the header out.",
            )
        return key

    def submit(self, request: Request) -> FutureTicket:
        """Hand ``request`` to the engine now, in the order of the calls. Raises Conflict for values without their key."""
        return self.engine.submit(self.opener.code(request), namespace=self.namespace, principal=self.principal)

    async def ask(self, request: Request) -> Reply:
        """Return the engine's reply."""
        return await self.engine.reply_to(self.submit(request))

    async def while_connected(self, ticket: FutureTicket, *, wait: float | None = None) -> Reply | None:
        """Return the reply to a request that may be held; None when it did not come within ``wait`` seconds.

        Raises CallerGone when the connection closes first, Unavailable when the policy ends first.
        """
        asking = asyncio.ensure_future(self.engine.reply_to(ticket))
        watching = asyncio.ensure_future(self.closed())
        try:
            with self.term.lasting(watching.cancel):
                await asyncio.wait({asking, watching}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if ticket.future.done():
                return ticket.future.result()
            if watching.done():
                raise self._ended()
            return None
        finally:
            watching.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})

    async def unless_gone(self, work: Coroutine[Any, Any, Wanted]) -> Wanted:
        """Return what ``work`` returns, which takes its time. Raises as ``while_connected`` does."""
        working = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(self.closed())
        try:
            with self.term.lasting(watching.cancel):
                await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise self._ended()
            return working.result()
        finally:
            watching.cancel()
            working.cancel()

    def _ended(self) -> Exception:
        if not self.term.over:
            return CallerGone()
        return Unavailable(
            "unavailable", "The server has read anew who may call, while this was held.", remedy="Ask again."
        )

    async def closed(self) -> None:
        """Return when the caller has closed the connection; to be awaited when the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def body(self) -> bytes:
        """Return the whole body. Raises TooLarge once it is over the limit, Unavailable when it comes too slowly."""
        try:
            async with asyncio.timeout(BODY_WITHIN):
                return await self._body()
        except TimeoutError:
            raise Unavailable(
                "timeout", f"The body did not come within {BODY_WITHIN:g} s.", remedy="Send it faster."
            ) from None

    async def _body(self) -> bytes:
        declared = self.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limits.REQUEST_BYTES_MAX:
            raise _too_large(int(declared))
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise CallerGone
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limits.REQUEST_BYTES_MAX:
                raise _too_large(size)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def require_json(self) -> None:
        """Raise Invalid unless the body is JSON, and not compressed."""
        name = self._content_type()
        if name != JSON:
            raise Invalid(
                "unsupported_encoding",
                f'The content type is "{name[:50]}"; this address takes JSON.',
                remedy=f"Send {JSON}.",
            )

    def is_json(self) -> bool:
        """Say whether the body is JSON rather than MessagePack. Raises Invalid for anything else."""
        name = self._content_type()
        if name in _MSGPACK_NAMES:
            return False
        if name == JSON:
            return True
        raise Invalid(
            "unsupported_encoding",
            f'The content type is "{name[:50]}".',
            remedy=f"Send {MSGPACK} or {JSON}.",
        )

    def _content_type(self) -> str:
        """Return what the body says it is. Raises Invalid for one that is compressed."""
        if self.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise Invalid(
                "unsupported_encoding",
                f'The body is encoded: "{self.headers["content-encoding"][:50]}".',
                remedy="Send it as it is: bodies are small, and a compressed one says nothing of its size.",
            )
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def wants_msgpack(self) -> bool:
        """Say whether the answer shall be MessagePack."""
        return any(name in self.headers.get("accept", "") for name in _MSGPACK_NAMES)


def answer(
    body: Any, *, status: int = 200, replayed: bool = False, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """Return ``body`` as JSON."""
    if replayed:
        headers = (*headers, ("idempotent-replayed", "true"))
    return Answer(status, encode(body, json=True), headers=headers)


def checked(reply: Reply, kind: type[Wanted]) -> Wanted:
    """Return ``reply``, which is of ``kind``. Raises the exception of a refusal."""
    if isinstance(reply, Refused):
        raise exception_of(reply)
    if not isinstance(reply, kind):
        raise TypeError(f"a {kind.__name__} was expected, a {type(reply).__name__} came")
    return reply


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        "body_too_large",
        f"The body has {size:,} bytes or more; {limits.REQUEST_BYTES_MAX:,} are allowed.",
        remedy="Send fewer items at a time.",
    )
