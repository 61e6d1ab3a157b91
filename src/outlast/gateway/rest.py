"""What the REST handlers share: the body parsed, the reply expected, the answer written."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from outlast.core import limits
from outlast.core.errors import Invalid
from outlast.core.inputs import Request
from outlast.core.replies import Refused, Reply
from outlast.gateway.exchange import Answer, Exchange, malformed
from outlast.gateway.shapes import span
from outlast.protocol.errors import exception_of
from outlast.protocol.wire import encode

Shape = TypeVar("Shape", bound=msgspec.Struct)
Wanted = TypeVar("Wanted")

KEY_HEADER: Final = "idempotency-key"


async def parsed(exchange: Exchange, shape: type[Shape], *, or_nothing: bool = False) -> Shape:
    """Return the JSON body as ``shape``. With ``or_nothing`` an empty body means all defaults."""
    body = await exchange.body()
    if or_nothing and not body:
        return shape()
    if not exchange.is_json():
        raise Invalid("unsupported_encoding", "This address takes JSON.", remedy="Send application/json.")
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise malformed(error) from None


async def expect(exchange: Exchange, request: Request, kind: type[Wanted]) -> Wanted:
    """Return the engine's reply. Raises the refusal that came instead."""
    return checked(await exchange.ask(request), kind)


async def within(
    exchange: Exchange, request: Request, probe: Request, kind: type[Wanted], wait: float
) -> Wanted | None:
    """Return the reply to a request that is held, or None when it did not come within ``wait`` seconds.

    ``probe`` asks about the same thing and is answered at once, after ``request`` if that can be answered: so an outcome
    that is there is given also without waiting.
    """
    ticket = exchange.submit(request)
    await exchange.ask(probe)
    reply = await exchange.while_connected(ticket, wait=wait)
    return None if reply is None else checked(reply, kind)


def checked(reply: Reply, kind: type[Wanted]) -> Wanted:
    """Return ``reply``, which is of ``kind``. Raises the exception of a refusal."""
    if isinstance(reply, Refused):
        raise exception_of(reply)
    if not isinstance(reply, kind):
        raise TypeError(f"a {kind.__name__} was expected, a {type(reply).__name__} came")
    return reply


def idempotency_key(exchange: Exchange) -> str:
    """Return the caller's key, empty when there is none."""
    return exchange.headers.get(KEY_HEADER, "")


def wait_of(fields: Mapping[str, str]) -> float:
    """Return how many seconds an answer may be held. Raises Invalid."""
    text = fields.get("wait", "0")
    is_number = text.isascii() and text.replace(".", "", 1).isdigit()
    nanoseconds = span(float(text) if is_number else text, "wait")
    if nanoseconds > limits.POLL_WAIT_MAX:
        raise Invalid(
            "invalid_request",
            f"wait is {text}.",
            remedy=f"Wait at most {limits.POLL_WAIT_MAX // 1_000_000_000} s, and ask again.",
        )
    return nanoseconds / 1e9


def answer(body: Any, *, status: int = 200, replayed: bool = False) -> Answer:
    """Return ``body`` as JSON."""
    headers = (("idempotent-replayed", "true"),) if replayed else ()
    return Answer(status, encode(body, json=True), headers=headers)
