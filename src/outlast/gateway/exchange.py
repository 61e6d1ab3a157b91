"""One HTTP exchange as the handlers see it: what was asked, and what is answered."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from outlast.core import limits
from outlast.core.errors import Invalid, TooLarge, Unavailable
from outlast.core.inputs import Request
from outlast.core.replies import Reply
from outlast.engine.frontend import Engine
from outlast.engine.ticket import FutureTicket
from outlast.protocol.wire import JSON, MSGPACK

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

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
class Exchange:
    """One request. ``params`` are the named parts of its path."""

    engine: Engine
    namespace: str
    principal: str
    method: str
    headers: Mapping[str, str]
    query_string: bytes
    receive: Receive
    params: Mapping[str, str] = field(default_factory=dict[str, str])

    def submit(self, request: Request) -> FutureTicket:
        """Hand ``request`` to the engine now, in the order of the calls."""
        return self.engine.submit(request, namespace=self.namespace, principal=self.principal)

    async def ask(self, request: Request) -> Reply:
        """Return the engine's reply."""
        return await self.engine.reply_to(self.submit(request))

    async def while_connected(self, ticket: FutureTicket, *, wait: float | None = None) -> Reply | None:
        """Return the reply to a request that may be held; None when it did not come within ``wait`` seconds.

        Raises CallerGone when the connection closes first.
        """
        asking = asyncio.ensure_future(self.engine.reply_to(ticket))
        watching = asyncio.ensure_future(self._closed())
        try:
            await asyncio.wait({asking, watching}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if ticket.future.done():
                return ticket.future.result()
            if watching.done():
                raise CallerGone
            return None
        finally:
            watching.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})

    async def _closed(self) -> None:
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

    def is_json(self) -> bool:
        """Say whether the body is JSON rather than MessagePack. Raises Invalid for anything else."""
        name = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if name in _MSGPACK_NAMES:
            return False
        if name == JSON:
            return True
        raise Invalid(
            "unsupported_encoding",
            f'The content type is "{name}".',
            remedy=f"Send {MSGPACK} or {JSON}.",
        )

    def wants_msgpack(self) -> bool:
        """Say whether the answer shall be MessagePack."""
        return any(name in self.headers.get("accept", "") for name in _MSGPACK_NAMES)

    def query(self, known: frozenset[str]) -> dict[str, str]:
        """Return the query's fields. Raises Invalid for one that is not ``known``, given twice, or not UTF-8."""
        fields: dict[str, str] = {}
        try:
            pairs = parse_qsl(
                self.query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50
            )
        except ValueError as error:
            raise Invalid(
                "invalid_request", f"The query cannot be read: {error}.", remedy="Encode it as UTF-8."
            ) from None
        for name, value in pairs:
            if name not in known:
                raise Invalid(
                    "unknown_field", f'The query has "{name}".', remedy=f"Use: {', '.join(sorted(known)) or 'none'}."
                )
            if name in fields:
                raise Invalid("invalid_request", f'The query has "{name}" twice.', remedy="Give it once.")
            fields[name] = value
        return fields


def malformed(error: msgspec.MsgspecError | RecursionError) -> Invalid:
    """Return the refusal of a body that cannot be decoded, saying where."""
    if isinstance(error, RecursionError):
        return Invalid("malformed_body", "The body is nested too deeply.", remedy="Send flatter data.")
    text = str(error)
    unknown = "unknown field" in text
    return Invalid(
        "unknown_field" if unknown else "malformed_body",
        f"The body cannot be decoded: {text}.",
        remedy="Leave that field out." if unknown else "Correct it at the place named.",
    )


def whole_number(fields: Mapping[str, str], name: str, default: int) -> int:
    """Return a whole number of the query. Raises Invalid."""
    text = fields.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):  # noqa: PLR2004 - fits 64 bits
        raise Invalid("invalid_request", f'{name} is "{text[:50]}".', remedy=f"Give {name} as a whole number.")
    return int(text)


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        "body_too_large",
        f"The body has {size:,} bytes or more; {limits.REQUEST_BYTES_MAX:,} are allowed.",
        remedy="Send fewer items at a time.",
    )
