"""The feed: committed events of a namespace in order, by cursor, for as many readers as there are.

Readers share what is read: those at one place cost one look into the store, and who waits costs nothing until a commit
has something for the namespace. One page is read at a time, between turns of the engine.
"""

import asyncio
import hashlib
import re
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from outlast.core import codec, limits
from outlast.core.errors import Busy, Invalid
from outlast.core.feed import WITH_ROW, Entry, Place, What
from outlast.core.writes import Batch
from outlast.engine.reading import attempt_of
from outlast.protocol.feed import FORGOTTEN, NOW, TASK_ATTEMPT_ENDED, TASK_CLOSED, TASK_ENQUEUED, TASK_RETRIED
from outlast.protocol.transport import FeedEvent, FeedPage
from outlast.store.base import FeedFound

START: Final = Place(0)
END_OF_TIME: Final = Place(2**62)
PAGES_KEPT: Final = 16  # that were read last: readers who are awake are at the same few places
WOKEN_AT_ONCE: Final = 10  # readers that are woken in one turn of the loop, which takes them about a millisecond
WAKE_PAUSE: Final = (
    0.00025  # seconds to the next for each of them: readers take at most about half of the engine's time
)

_CURSOR: Final = re.compile(r"(\d{1,18})-(\d{1,9})-([0-9a-f]{8})([0-9a-f]{8})", re.ASCII)


class Feed(Protocol):
    """The part of a Store that has the feed."""

    async def read_feed(self, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound: ...


async def read_feed(store: Feed, namespace: str, *, after: str, limit: int) -> FeedPage:
    """Return up to ``limit`` events behind the cursor ``after``: from the oldest that is kept for "", none yet for "now".

    Raises Invalid: "cursor_expired" when events behind it are not kept any more, "invalid_cursor" for one of another feed.
    """
    asked = _asked(after)
    limit = min(limit, limits.FEED_PAGE_EVENTS)
    found = await store.read_feed(namespace, after=asked.place, events_max=limit, bytes_max=limits.FEED_PAGE_BYTES)
    mark = _mark(found.identity, found.incarnation), _mark(namespace)
    if asked.marks is not None:
        _require_of_here(asked, mark, namespace)
        _require_kept(asked.place, found)
    return _page(found, asked.place, limit, "".join(mark))


@dataclass(slots=True, frozen=True)
class Asked:
    """A place that is asked for. ``marks`` are those of its store and its namespace; None when it came without a cursor."""

    place: Place
    marks: tuple[str, str] | None = None


def _asked(after: str) -> Asked:
    if after == "":
        return Asked(START)
    if after == NOW:
        return Asked(END_OF_TIME)
    found = _CURSOR.fullmatch(after)
    if found is None:
        raise Invalid(
            "invalid_cursor",
            f'The cursor is "{after[:100]}", which no feed gave.',
            remedy=f'Give the cursor of the last event that came, "{NOW}", or none to begin with the oldest that is kept.',
        )
    return Asked(Place(int(found[1]), int(found[2])), (found[3], found[4]))


def _mark(*parts: object) -> str:
    """Return what tells a store or a namespace from others, in eight digits."""
    text = "\x1f".join(map(str, parts))
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=4).hexdigest()


def _require_of_here(asked: Asked, mark: tuple[str, str], namespace: str) -> None:
    assert asked.marks is not None
    if asked.marks[0] != mark[0]:
        raise Invalid(
            "invalid_cursor",
            f"The cursor belongs to the feed of another store ({asked.marks[0]}, this one is {mark[0]}).",
            remedy=f'Ask the engine that gave it, or begin anew: without a cursor, or with "{NOW}".',
        )
    if asked.marks[1] != mark[1]:
        raise Invalid(
            "invalid_cursor",
            f'The cursor belongs to the feed of another namespace; this one is "{namespace}".',
            remedy="Ask in the namespace that it was given in.",
        )


def _require_kept(place: Place, found: FeedFound) -> None:
    if place > (found.last + 1, 0):
        raise Invalid(
            "invalid_cursor",
            f"The cursor is at commit {place.number}; the store's last commit is {found.last}: an older copy was put back.",
            remedy=f'What came after that copy is gone. Begin anew: without a cursor, or with "{NOW}".',
        )
    if place < found.floor:
        raise Invalid(
            "cursor_expired",
            f"The cursor is at commit {place.number}; the feed is kept from behind commit {found.floor.number} on.",
            remedy="Begin anew without a cursor, and read what was missed from histories and lists.",
        )


def _page(found: FeedFound, after: Place, limit: int, mark: str) -> FeedPage:
    events: list[FeedEvent] = []
    for entry in found.entries:
        skip = max(0, after.seen - entry.before) if entry.number == after.number else 0
        events += _events(entry, found, skip, min(entry.events, skip + limit - len(events)), mark)
    if found.entries and (found.more or len(events) < _events_in(found, after)):
        return FeedPage(events=tuple(events), next=events[-1].cursor, more=True)
    return FeedPage(events=tuple(events), next=_cursor(found.last + 1, 0, mark))


def _events_in(found: FeedFound, after: Place) -> int:
    return sum(
        entry.events - (max(0, after.seen - entry.before) if entry.number == after.number else 0)
        for entry in found.entries
    )


def _events(entry: Entry, found: FeedFound, first: int, end: int, mark: str) -> Iterator[FeedEvent]:
    """Yield the events of ``entry`` from number ``first`` to before ``end``, counted from 0."""
    if entry.what is What.HISTORY:
        yield from _of_history(entry, found, first, end, mark)
    elif first < end:
        yield _of_task(entry, found, mark)


def _of_history(entry: Entry, found: FeedFound, first: int, end: int, mark: str) -> Iterator[FeedEvent]:
    page = found.history.get((entry.id, entry.key))
    workflow_id, type_ = found.runs.get(entry.id, ("", ""))
    recorded = None if page is None else codec.decode_events(page.blob)
    for n in range(first, end):
        at, event = (entry.at, None) if recorded is None else recorded[n]
        yield FeedEvent(
            cursor=_cursor(entry.number, entry.before + n + 1, mark),
            commit=entry.number,
            at=at,
            kind=FORGOTTEN if event is None else type(event).__name__,
            type=type_,
            workflow_id=workflow_id,
            run_id=entry.id,
            event_id=entry.key + n,
            event=event,
            gone=event is None,
        )


_KINDS: Final = {
    What.ENQUEUED: TASK_ENQUEUED,
    What.ATTEMPT: TASK_ATTEMPT_ENDED,
    What.CLOSED: TASK_CLOSED,
    What.RETRIED: TASK_RETRIED,
}


def _of_task(entry: Entry, found: FeedFound, mark: str) -> FeedEvent:
    names = found.tasks.get(entry.id)
    row = found.attempts.get((entry.id, entry.key)) if entry.what in WITH_ROW else None
    at = entry.at
    if entry.what is What.CLOSED:
        at = entry.key
    elif row is not None:
        at = row.ended_at
    run_id = "" if names is None else names.run_id
    return FeedEvent(
        cursor=_cursor(entry.number, entry.before + 1, mark),
        commit=entry.number,
        at=at,
        kind=_KINDS[entry.what],
        type="" if names is None else names.type,
        workflow_id=found.runs.get(run_id, ("", ""))[0],
        run_id=run_id,
        task_id=entry.id,
        queue="" if names is None else names.queue,
        state=entry.state,
        attempt=None if row is None else attempt_of(row),
        gone=names is None or (entry.what in WITH_ROW and row is None),
    )


def _cursor(number: int, seen: int, mark: str) -> str:
    return f"{number}-{seen}-{mark}"


@dataclass(slots=True)
class _Readers:
    """Those who wait for the next event of one namespace."""

    waiting: dict[asyncio.Event, None] = field(default_factory=dict[asyncio.Event, None])
    left: deque[asyncio.Event] = field(default_factory=deque[asyncio.Event])  # that this round has not woken yet
    again: bool = False  # a commit has come since the round began
    alarm: asyncio.TimerHandle | None = None  # the next of the round, or the end of the pause behind it

    def wake_soon(self) -> None:
        """Wake everybody, a few at a time; when a round is under way, with another one behind it."""
        self.again = True
        if self.alarm is None:
            self._wake_some()

    def wake_now(self) -> None:
        """Wake everybody."""
        for moved in self.waiting:
            moved.set()

    def stop(self) -> None:
        """Wake nobody any more."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    def _wake_some(self) -> None:
        self.alarm = None
        if not self.left:
            if not self.again:
                return
            self.again = False
            self.left.extend(self.waiting)
        count = min(len(self.left), WOKEN_AT_ONCE)
        for _ in range(count):
            self.left.popleft().set()
        self.alarm = asyncio.get_running_loop().call_later(count * WAKE_PAUSE, self._wake_some)


class Feeds:
    """The feeds of one engine, on its loop."""

    def __init__(self, store: Feed) -> None:
        self._store = store
        self._one_at_a_time = asyncio.Lock()
        self._pages: OrderedDict[tuple[str, str, int], tuple[int, FeedPage]] = OrderedDict()
        self._commits = 0
        self._clears = 0
        self._readers: dict[str, _Readers] = {}
        self._count = 0
        self._closed = False

    async def read(self, namespace: str, *, after: str, limit: int) -> FeedPage:
        """Return a page, as ``read_feed`` does; other work goes on before and after it."""
        key = (namespace, after, limit)
        if (page := self._kept(key)) is not None:
            return page
        async with self._one_at_a_time:
            if (page := self._kept(key)) is not None:
                return page
            commits, clears = self._commits, self._clears
            page = await read_feed(self._store, namespace, after=after, limit=limit)
            if after != NOW and clears == self._clears:
                self._pages[key] = (commits, page)
                while len(self._pages) > PAGES_KEPT:
                    self._pages.popitem(last=False)
            await asyncio.sleep(0)
            return page

    async def wait(self, namespace: str, *, after: str, limit: int, wait: float) -> FeedPage:
        """Return a page as soon as it has an event, or an empty one after ``wait`` seconds."""
        page = await self.read(namespace, after=after, limit=limit)
        if page.events or wait <= 0:
            return page
        ends = asyncio.get_running_loop().time() + wait
        with self.watch(namespace) as moved:
            try:
                async with asyncio.timeout_at(ends):
                    while not page.events and not self._closed:
                        page = await self.read(namespace, after=page.next, limit=limit)
                        if not page.events:
                            await moved.wait()
                            moved.clear()
            except TimeoutError:
                pass  # then there is none
        return page

    @contextmanager
    def watch(self, namespace: str) -> Generator[asyncio.Event]:
        """Give an event that is set when there may be something new. Clear it, then read, then wait for it.

        Raises Busy when as many wait as may.
        """
        if self._count >= limits.FEED_READERS_MAX:
            raise Busy(
                "too_many_streams",
                f"{self._count:,} readers wait for events, which is the bound.",
                remedy="Close readers that are not needed, or ask without wait.",
            )
        moved = asyncio.Event()
        readers = self._readers.setdefault(namespace, _Readers())
        readers.waiting[moved] = None
        self._count += 1
        try:
            yield moved
        finally:
            self._count -= 1
            del readers.waiting[moved]
            if not readers.waiting and self._readers.get(namespace) is readers:
                readers.stop()
                del self._readers[namespace]

    def committed(self, batch: Batch) -> None:
        """Tell those who wait for what ``batch`` has written."""
        self._commits += 1
        if batch.forgotten_runs or batch.forgotten_tasks:
            self._clear()
        if self._readers:
            for row in batch.feed:
                if (readers := self._readers.get(row.namespace)) is not None:
                    readers.wake_soon()

    def anything_may_have_moved(self) -> None:
        """Tell everybody to look: a commit may have happened of which nobody has heard."""
        self._commits += 1
        for readers in self._readers.values():
            readers.wake_soon()

    def dropped(self) -> None:
        """Take in that the beginning of a feed was dropped."""
        self._clear()

    def close(self) -> None:
        """Answer those who wait, and hold nobody from here on."""
        self._closed = True
        for readers in self._readers.values():
            readers.wake_now()

    def _clear(self) -> None:
        """Keep no page, nor one whose read is on its way: it may show what is gone by now."""
        self._clears += 1
        self._pages.clear()

    def _kept(self, key: tuple[str, str, int]) -> FeedPage | None:
        found = self._pages.get(key)
        if found is None:
            return None
        commits, page = found
        # What stands behind a place stays there. Only the end moves on.
        return page if page.events or commits == self._commits else None
