"""Events of a run as they are committed: page by page, held until there are some, and as a stream that can be resumed.

The cursor of a stream is the run and the event, so that who comes back with the last one it has seen misses nothing and
gets nothing twice, whichever engine answers then.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

import msgspec

from outlast.core.errors import Invalid, Refusal
from outlast.core.inputs import DescribeWorkflow
from outlast.core.replies import RunStatus, WorkflowInfo
from outlast.core.run import STATUS_OF
from outlast.gateway.exchange import Answer, CallerGone, Exchange, StreamAnswer
from outlast.gateway.given import ClosedOut
from outlast.gateway.giving import events_out
from outlast.protocol.transport import HistoryPage
from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.gateway")

HEARTBEAT: Final = 15.0  # seconds of silence after which a comment keeps proxies from closing the connection
EVENT_STREAM: Final = "text/event-stream"
RETRY: Final = b"retry: 1000\n\n"  # the milliseconds after which a browser comes back
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
END: Final = "end"  # after the cursor of a closed run: nothing follows


class Silence:
    """How long a stream has said nothing, and whether anybody still listens. To be closed in the end."""

    def __init__(self, exchange: Exchange, moved: asyncio.Event) -> None:
        """``moved`` is set when there may be news, when the engine stops, or when the policy ends."""
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._closing = asyncio.ensure_future(exchange.closed())
        self._closing.add_done_callback(lambda _: moved.set())
        self._until_closed = ExitStack()
        self._until_closed.enter_context(exchange.term.lasting(moved.set))

    def close(self) -> None:
        """Listen no more."""
        self._closing.cancel()
        self._until_closed.close()

    def broken(self) -> None:
        """Say that something was said."""
        self._since = self._loop.time()

    async def ended(self) -> bool:
        """Return True when there may be news, False at the heartbeat. Raises CallerGone when nobody listens any more."""
        if not self._closing.done():
            try:
                async with asyncio.timeout_at(self._since + HEARTBEAT):
                    await self._moved.wait()
            except TimeoutError:
                return False
        if self._closing.done():
            raise CallerGone
        return True


@dataclass(slots=True, frozen=True)
class Place:
    """Where a reader of a run's events is. ``ended``: it has seen the end."""

    run_id: str
    event_id: int = 0
    ended: bool = False

    def __str__(self) -> str:
        return f"{self.run_id}:{self.event_id}" + (f":{END}" if self.ended else "")


async def history_after(
    exchange: Exchange, workflow_id: str, run_id: str, *, after: int, limit: int, wait: float
) -> tuple[HistoryPage, bool]:
    """Return at most ``limit`` events after ``after`` and whether the last of them closes the run.

    When there is none yet and the run is open, the answer comes with the next commit that has one, or empty after ``wait``
    seconds.
    """
    reading = exchange.engine.read_history(exchange.namespace, workflow_id, run_id, first_event_id=after + 1, wait=wait)
    page = exchange.opener.open(_cut(await exchange.unless_gone(reading) if wait else await reading, limit))
    if page.events:
        return page, closes(page)
    return page, await _is_closed(exchange, page, after)


async def event_stream(exchange: Exchange, workflow_id: str, run_id: str, *, after: int) -> Answer | StreamAnswer:
    """Return the events of a run from ``after`` or Last-Event-ID on, as they come, ``closed`` in the end.

    204, which tells a browser to stay away, when the caller has seen the end. Raises NotFound, Busy, Invalid.
    """
    place = place_of(exchange.headers.get("last-event-id", ""))
    if place is None:
        place = Place(run_id, after)
    elif run_id and place.run_id != run_id:
        raise _no_place(str(place))
    if place.ended:
        return Answer(204)
    page = await _read(exchange, workflow_id, place.run_id, place.event_id)
    closed = not page.events and await _is_closed(exchange, page, place.event_id)
    exchange.streams.enter()
    pieces = _pieces(exchange, page, place.event_id, closed=closed)
    return StreamAnswer(pieces, EVENT_STREAM, on_end=exchange.streams.leave)


def place_of(text: str) -> Place | None:
    """Return the place that a Last-Event-ID names, None when there is none. Raises Invalid."""
    if not text:
        return None
    run_id, _, rest = text.partition(":")
    number, _, end = rest.partition(":")
    if not run_id or not _NUMBER.fullmatch(number) or end not in {"", END}:
        raise _no_place(text)
    return Place(run_id, int(number), ended=end == END)


def closes(page: HistoryPage) -> bool:
    """Say whether the last event of ``page`` closes the run."""
    return bool(page.events) and type(page.events[-1][1]) in STATUS_OF


async def _pieces(exchange: Exchange, page: HistoryPage, after: int, *, closed: bool) -> AsyncGenerator[bytes]:
    """Give one piece for each page of events, a comment after a while of silence, and ``closed`` in the end."""
    yield RETRY
    with exchange.engine.watches.watch(page.run_id) as moved, closing(Silence(exchange, moved)) as silence:
        moved.set()  # what was committed since the page was read
        while not exchange.over:
            if page.events:
                yield b"".join(_message(page.run_id, event.event_id, event) for event in events_out(page))
                silence.broken()
                after = page.first_event_id + len(page.events) - 1
                closed = closes(page)
            if closed:
                yield _end(page.run_id, after)
                return
            while not page.next_event_id and not await silence.ended():
                yield b": still here\n\n"
                silence.broken()
            moved.clear()
            try:
                page = await _read(exchange, page.workflow_id, page.run_id, after)
            except (Refusal, StoreError) as error:
                # The reader comes back with its cursor and is told then what is wrong.
                LOG.info("stream_ended request=%s code=%s", exchange.request_id, error.code)
                return


async def _read(exchange: Exchange, workflow_id: str, run_id: str, after: int) -> HistoryPage:
    reader = exchange.engine.reader
    page = await reader.read_history(exchange.namespace, workflow_id, run_id, first_event_id=after + 1)
    return exchange.opener.open(page)


async def _is_closed(exchange: Exchange, page: HistoryPage, after: int) -> bool:
    """Say whether a run without events after ``after`` has closed. Raises Invalid when it has never come that far."""
    request = DescribeWorkflow(workflow_id=page.workflow_id, run_id=page.run_id)
    info = await exchange.expect(request, WorkflowInfo)
    if after > info.events:
        raise Invalid(
            "invalid_cursor",
            f"The run has {info.events} events; those after event {after} are asked for.",
            remedy="Ask with the id of the last event that came.",
        )
    return info.status is not RunStatus.RUNNING and after == info.events


def _message(run_id: str, event_id: int, event: msgspec.Struct) -> bytes:
    return b"id: %s\ndata: %s\n\n" % (str(Place(run_id, event_id)).encode(), msgspec.json.encode(event))


def _end(run_id: str, event_id: int) -> bytes:
    body = msgspec.json.encode(ClosedOut(run_id=run_id, last=event_id))
    return b"id: %s\nevent: closed\ndata: %s\n\n" % (str(Place(run_id, event_id, ended=True)).encode(), body)


def _cut(page: HistoryPage, limit: int) -> HistoryPage:
    if len(page.events) <= limit:
        return page
    following = page.first_event_id + limit
    return msgspec.structs.replace(page, events=page.events[:limit], next_event_id=following)


def _no_place(text: str) -> Invalid:
    return Invalid(
        "invalid_cursor",
        f'Last-Event-ID is "{text[:100]}", which is no place in this stream.',
        remedy="Send the id of the last event that came, or none.",
    )
