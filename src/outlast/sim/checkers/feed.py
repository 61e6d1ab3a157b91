"""The feed: invariant 65. A reader that goes on from its cursors sees every committed event once, in the order of the commits.

The reader is beside the cluster: it looks between commits, in pages of any size, now and then loses what it had not worked
off, and goes on from the cursor that it has kept. What it must see is taken from the rows that were committed, not from
what was written for the feed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from outlast.core.errors import Invalid
from outlast.core.feed import Place
from outlast.core.task import TERMINAL
from outlast.engine.feed import read_feed
from outlast.engine.shard.inline import inline
from outlast.protocol.transport import FeedEvent, FeedPage
from outlast.sim.mirror import Change
from outlast.sim.scene import Scene
from outlast.sim.violation import Violation, require
from outlast.store.base import FeedFound
from outlast.store.memory.reading import read_feed as read_tables
from outlast.store.memory.tables import Tables

Told = tuple[str, str, int]  # kind, id of the run or task, and which of its events
_READ = 0.3  # how often a commit is followed by a look
_CRASH = 0.1  # how often a reader loses what it had not worked off
_LOST_MAX = 12  # events at once: one that lost more would fall back faster than it reads, and never come to the end
_PRUNE = 0.02  # how often the beginning of a feed is dropped
_LIMITS = (1, 2, 3, 7, 200)
_BYTES = (1, 400, 2_000, 10**6)


class Feed:
    """Reads the feeds of all namespaces."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = scene.kernel.stream("feed", "reader")
        self._readers: dict[str, Reader] = {}
        self._source: Source | None = None

    def read_from(self, tables: Tables) -> None:
        """Read what is stored in ``tables``."""
        self._source = Source(tables)

    def committed(self, change: Change) -> None:
        """Note what must be told of a commit, and let readers look."""
        for namespace, told in self._told_by(change):
            reader = self._readers.setdefault(namespace, Reader(namespace, self._scene))
            reader.wanted.setdefault(change.batch.number, []).append(told)
        for reader in self._readers.values():
            if self._chance.random() < _READ:
                self._look(reader)

    def finish(self) -> None:
        """Let every reader read to the end, and check that nothing was left out."""
        for reader in self._readers.values():
            while self._look(reader).more:
                pass
            reader.settle()
            require(not reader.wanted, 65, "feed_left_out_commits", f"{reader.namespace}: {list(reader.wanted)[:5]}")

    def _told_by(self, change: Change) -> Iterator[tuple[str, Told]]:
        mirror = self._scene.mirror
        for run_id, event_id, _, event in change.events:
            yield mirror.runs[run_id].namespace, (type(event).__name__, run_id, event_id)
        for attempt in change.batch.attempts:
            if not attempt.late:
                kind = "TaskRetried" if attempt.outcome == "retried" else "TaskAttemptEnded"
                yield attempt.namespace, (kind, attempt.task_id, attempt.attempt)
        for old, row in change.tasks:
            if not row.run_id and old is None:
                yield row.namespace, ("TaskEnqueued", row.task_id, 0)
            back = sum(other.task_id == row.task_id and other.outcome == "retried" for other in change.batch.attempts)
            closed = back + (row.state in TERMINAL) - (old is not None and old.state in TERMINAL)
            if row.run_id or not closed:
                continue
            ends_closed = row.state in TERMINAL
            if closed > ends_closed:
                self._scene.coverage.hit("closed_and_brought_back")
            for _ in range(closed - ends_closed):  # it was brought back from these: no row has their state
                yield row.namespace, ("TaskClosed", row.task_id, 0)
            if ends_closed:
                yield row.namespace, (f"TaskClosed {row.state.value}", row.task_id, 0)

    def _look(self, reader: "Reader") -> FeedPage:
        assert self._source is not None
        chance, hit = self._chance, self._scene.coverage.hit
        if chance.random() < _CRASH and reader.kept:
            hit("feed_reader_crashed")
            reader.lose(len(reader.kept) - chance.randrange(min(len(reader.kept), _LOST_MAX) + 1))
            if reader.is_within_a_commit():
                hit("feed_resumed_within_a_commit")
        self._source.bytes_max = chance.choice(_BYTES)
        page = inline(read_feed(self._source, reader.namespace, after=reader.cursor, limit=chance.choice(_LIMITS)))
        if page.more:
            hit("feed_page_was_full")
        reader.take(page)
        if not page.more and chance.random() < _PRUNE:
            self._prune(reader)
        return page

    def _prune(self, reader: "Reader") -> None:
        """Drop what the reader has seen, or a part of it, and check that who had seen less is told."""
        assert self._source is not None
        tables, hit = self._source.tables, self._scene.coverage.hit
        old = reader.cursors[self._chance.randrange(len(reader.cursors))] if reader.cursors else ""
        through = self._chance.randint(0, tables.held.last_number)
        tables.forget_feed(reader.namespace, before=0, through=through, rows_max=self._chance.choice((1, 5, 1_000)))
        hit("feed_pruned")
        reader.settle()
        if not old:
            return
        floor = tables.feed_floors.get(reader.namespace, Place(0))
        number, seen = (int(part) for part in old.split("-")[:2])
        try:
            inline(read_feed(self._source, reader.namespace, after=old, limit=1))
        except Invalid as refusal:
            require(refusal.code == "cursor_expired" and (number, seen) < floor, 65, "feed_refused_a_good_cursor", old)
            hit("feed_cursor_expired")
        else:
            require((number, seen) >= floor, 65, "feed_hid_a_gap", f"{old} is behind {floor}")


@dataclass(slots=True)
class Source:
    """The store's feed, with pages of as many bytes as the chance wants."""

    tables: Tables
    bytes_max: int = 10**6

    async def read_feed(self, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound:
        """Return what a feed has behind ``after``."""
        return read_tables(
            self.tables, namespace, after=after, events_max=events_max, bytes_max=min(bytes_max, self.bytes_max)
        )


@dataclass(slots=True)
class Reader:
    """One reader: where it is, what it has seen and may still lose, and what it must have seen by then."""

    namespace: str
    scene: Scene
    cursor: str = ""
    behind: str = ""  # the cursor behind which ``kept`` begins
    kept: list[FeedEvent] = field(default_factory=list[FeedEvent])
    wanted: dict[int, list[Told]] = field(default_factory=dict[int, list[Told]])
    cursors: list[str] = field(default_factory=list[str])

    def lose(self, count: int) -> None:
        """Go back to as many events as were worked off."""
        del self.kept[count:]
        self.cursor = self.kept[-1].cursor if self.kept else self.behind

    def is_within_a_commit(self) -> bool:
        """Say whether the last commit that was seen was not seen whole."""
        return bool(self.kept) and sum(event.commit == self.kept[-1].commit for event in self.kept) < len(
            self.wanted.get(self.kept[-1].commit, ())
        )

    def take(self, page: FeedPage) -> None:
        """Take in a page; what stands at the end of the feed by then must be whole."""
        self.kept += page.events
        self.cursor = page.next
        if not page.more and len(self.kept) > 40:
            self.settle()

    def settle(self) -> None:
        """Compare all that was seen with what was committed; called at the end of the feed."""
        seen: dict[int, list[Told]] = {}
        before = 0
        for event in self.kept:
            require(event.commit >= before, 65, "feed_out_of_order", f"{event.cursor} after commit {before}")
            before = event.commit
            seen.setdefault(event.commit, []).append(_told(event))
        for number, all_told in seen.items():
            told = _without_states_left(all_told)
            wanted = self.wanted.pop(number, [])
            if sorted(told) != sorted(wanted):
                raise Violation(65, "feed_tells_other_events", f"commit {number}: {told} for {wanted}")
            self._require_order(told)
        late = [number for number in self.wanted if self._is_passed(number)]
        require(not late, 65, "feed_left_out_commits", f"{self.namespace}: {late[:5]}, at {self.cursor}")
        self.cursors += [event.cursor for event in self.kept]
        del self.cursors[:-200]
        self.kept.clear()
        self.behind = self.cursor

    def _is_passed(self, number: int) -> bool:
        return number < int(self.cursor.partition("-")[0])

    def _require_order(self, told: list[Told]) -> None:
        last: dict[str, int] = {}
        closed: dict[str, bool] = {}
        for kind, id_, n in told:
            if kind.startswith("Task") and id_ in closed:
                fits = closed[id_] is (kind == "TaskRetried")
                require(
                    fits, 65, "feed_out_of_order", f"{id_}: {kind} when it was {'closed' if closed[id_] else 'open'}"
                )
            closed[id_] = kind.startswith("TaskClosed")
            if kind == "TaskRetried":
                last.pop(id_, None)  # its attempts count anew
            if not kind.startswith("Task") or kind == "TaskAttemptEnded":
                require(last.get(id_, 0) <= n, 65, "feed_out_of_order", f"{id_}: {n} after {last.get(id_)}")
                last[id_] = n


def _without_states_left(told: list[Told]) -> list[Told]:
    """Return ``told`` without the states of those ends from which a task was brought back within the same commit."""
    back: set[str] = set()
    found: list[Told] = []
    for kind, id_, n in reversed(told):
        left = kind.startswith("TaskClosed") and id_ in back
        if kind == "TaskRetried":
            back.add(id_)
        elif left:
            back.discard(id_)
        found.append(("TaskClosed" if left else kind, id_, n))
    return found[::-1]


def _told(event: FeedEvent) -> Told:
    if event.event_id:
        return event.kind, event.run_id, event.event_id
    if event.attempt is not None:
        return event.kind, event.task_id, event.attempt.attempt
    return f"{event.kind} {event.state}".strip(), event.task_id, 0
