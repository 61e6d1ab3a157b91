"""One loop's connections to a server: what is sent in the same turn of the loop travels in one body.

Waits travel together too, and their replies come back one by one in the body of a single answer.
"""

import asyncio
import errno
import io
import os
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import aiohttp
import msgspec

from outlast.core.errors import Invalid
from outlast.core.inputs import AwaitTask, AwaitWorkflow, Poll, Request
from outlast.core.replies import Refused, Reply
from outlast.protocol.errors import exception_of
from outlast.protocol.wire import (
    CALL_PATH,
    CALLS_MAX,
    CALLS_PATH,
    MSGPACK,
    WAITS_PATH,
    decode_replies,
    decode_reply,
    encode,
    frames_in,
)

CONNECT_TIMEOUT: Final = 5.0  # seconds
ANSWER_TIMEOUT: Final = 30.0  # seconds for a request that is not held
HELD_SLACK: Final = 15.0  # seconds beyond what a held request asked for, and without a sign of life among waits
HELD_MIN: Final = 1.0  # seconds before which a server does not send waits back without replies
CONNECTIONS_MAX: Final = 256
BODY_BYTES: Final = 1024 * 1024  # about where a body of several requests ends and the next begins
OK: Final = 200


class Lost(Exception):
    """The answer was lost, or the server could not be reached: send it again. ``refused`` is the answer that came instead."""

    refused: Refused | None = None


class LineCall:
    """A request on the wire, and the future that will hold its reply; ``cancel_lost``: nobody hears of a lost one."""

    __slots__ = ("body", "cancel_lost", "future", "hold")

    def __init__(self, body: msgspec.Raw, future: "asyncio.Future[Reply]", *, cancel_lost: bool) -> None:
        self.body = body
        self.future = future
        self.cancel_lost = cancel_lost
        self.hold: _Hold | None = None
        future.add_done_callback(self._ended)

    def settle(self, reply: Reply) -> None:
        """Hand ``reply`` over, if somebody still waits."""
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: Exception) -> None:
        """Say that there is no reply."""
        if self.future.done():
            return
        if self.cancel_lost:
            self.future.cancel()
        else:
            self.future.set_exception(Lost(str(error)) if isinstance(error, Lost) else error)

    def _ended(self, future: "asyncio.Future[Reply]") -> None:
        if self.hold is not None:
            self.hold.one_less(given_up=future.cancelled())


class Line:
    """One loop's connections to the server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, root: str, headers: dict[str, str]) -> None:
        self.loop = loop
        self._root = root
        self._calls: list[LineCall] = []  # gathered in this turn of the loop
        self._waits: list[LineCall] = []  # those that may be held
        self._flushing = False
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
        if isinstance(request, Poll):
            return decode_reply_or_lose(await self._post(CALL_PATH, body, request.wait / 1e9 + HELD_SLACK))
        return await self.put(request, body)

    def put(self, request: Request, body: bytes, *, cancel_lost: bool = False) -> "asyncio.Future[Reply]":
        """Send ``request`` with what else is sent in this turn of the loop; a reply that is lost raises Lost, or cancels."""
        future: asyncio.Future[Reply] = self.loop.create_future()
        gathered = self._waits if isinstance(request, AwaitTask | AwaitWorkflow) else self._calls
        gathered.append(LineCall(msgspec.Raw(body), future, cancel_lost=cancel_lost))
        self._flush_soon()
        return future

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
        if status == OK:
            return body
        refused = decode_reply_or_lose(body)
        if isinstance(refused, Refused) and not refused.retryable:
            raise exception_of(refused)
        lost = Lost(refused.fact if isinstance(refused, Refused) else f"status {status}")
        lost.refused = refused if isinstance(refused, Refused) else None
        raise lost

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has gathered in this turn of the loop, in bodies of a bounded size."""
        self._flushing = False
        calls, self._calls = self._calls, []
        waits, self._waits = [asked for asked in self._waits if not asked.future.done()], []
        for part in _parts_of(calls):
            self._spawn(self._send(part))
        for part in _parts_of(waits):
            sending = self._spawn(self._hold(part))
            _Hold(sending, part)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self.loop.create_task(work, name="outlast-http")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task

    async def _send(self, calls: "Sequence[LineCall]") -> None:
        calls = [asked for asked in calls if not asked.future.done()]
        try:
            if len(calls) == 1:
                body = await self._post(CALL_PATH, bytes(calls[0].body), ANSWER_TIMEOUT)
                replies: tuple[Reply, ...] = (decode_reply_or_lose(body),)
            elif calls:
                body = await self._post(CALLS_PATH, encode([asked.body for asked in calls]), ANSWER_TIMEOUT)
                replies = decode_replies_or_lose(body, len(calls))
            else:
                return
        except Exception as error:  # noqa: BLE001 - every caller must hear of it, whatever it is
            _fail(calls, error)
            return
        for asked, reply in zip(calls, replies, strict=True):
            asked.settle(reply)

    async def _hold(self, waits: "Sequence[LineCall]") -> None:
        """Have the replies to ``waits`` as they come; those that have none when the exchange ends are asked for again."""
        began = self.loop.time()
        try:
            async with self._posting(
                WAITS_PATH,
                encode([asked.body for asked in waits]),
                aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=HELD_SLACK),
            ) as response:
                if response.status != OK:
                    refused = decode_reply_or_lose(await response.read())
                    for asked in waits:
                        asked.settle(refused)
                    return
                buffer = bytearray()
                async for part in response.content.iter_any():
                    buffer += part
                    for frame in frames_in(buffer):
                        for place, reply in frame:
                            waits[place].settle(reply)
        except (aiohttp.ClientError, OSError, RuntimeError, msgspec.MsgspecError, IndexError) as error:
            _fail(waits, Lost(said(error)))
            return
        except Exception as error:  # noqa: BLE001 - as above
            _fail(waits, error)
            return
        left = [asked for asked in waits if not asked.future.done()]
        if left and self.loop.time() - began < HELD_MIN:
            _fail(left, Lost("the server sent waits back without their replies"))
        elif left:
            self._waits += left
            self._flush_soon()

    async def _post(self, path: str, body: bytes, timeout: float) -> bytes:
        try:
            async with self._posting(
                path, body, aiohttp.ClientTimeout(total=timeout, connect=CONNECT_TIMEOUT)
            ) as response:
                return await response.read()
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # as in get
            raise Lost(said(error)) from error

    def _posting(
        self, path: str, body: bytes, timeout: aiohttp.ClientTimeout
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        data = body if len(body) < BODY_BYTES else io.BytesIO(body)
        return self.session.post(self._root + path, data=data, headers={"content-type": MSGPACK}, timeout=timeout)


class _Hold:
    """An exchange over waits, whose connection is closed when nobody waits for what is left of it."""

    __slots__ = ("_given_up", "_left", "_sending")

    def __init__(self, sending: "asyncio.Task[None]", waits: "Sequence[LineCall]") -> None:
        self._sending = sending
        self._left = len(waits)
        self._given_up = False
        for asked in waits:
            asked.hold = self

    def one_less(self, *, given_up: bool) -> None:
        """Take note that a wait has ended; one that was given up is not known to the server to have."""
        self._left -= 1
        self._given_up = self._given_up or given_up
        if not self._left and self._given_up:
            self._sending.cancel()


def _parts_of(gathered: "Sequence[LineCall]") -> "list[list[LineCall]]":
    """Return ``gathered`` in parts that go in one body each, by number and size."""
    parts: list[list[LineCall]] = []
    room = 0
    for asked in gathered:
        length = len(memoryview(asked.body))
        if not parts or length > room or len(parts[-1]) == CALLS_MAX:
            parts.append([])
            room = BODY_BYTES
        parts[-1].append(asked)
        room -= length
    return parts


def _fail(calls: "Sequence[LineCall]", error: Exception) -> None:
    for asked in calls:
        asked.fail(error)


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
    number = error.os_error.errno if type(error) is aiohttp.ClientConnectorError else None
    if number is not None and number in errno.errorcode:
        return os.strerror(number)  # the address is told beside it
    return str(error) or type(error).__name__
