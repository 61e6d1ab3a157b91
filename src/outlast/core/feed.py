"""The feed as it is stored: which rows each commit wrote, namespace by namespace, so that its events can be read in order.

A stored row only names rows of histories, attempts and tasks, which are read when somebody reads the feed: writing it costs one
row a commit, and no index.

The events of a namespace are ordered by (commit number, place in the commit). Within one commit those of one run are in the
order of its history and those of one task in the order of its life; between entities there is no order that means
anything.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from outlast.core import limits
from outlast.core.writes import FeedRow


class Place(NamedTuple):
    """A place in a feed: all events of the commits before ``number`` are behind it, and the first ``seen`` of that one."""

    number: int
    seen: int = 0


class What(StrEnum):
    """What an entry of the feed is about."""

    HISTORY = "history"  # a page of a history, with all its events
    ENQUEUED = "enqueued"  # a standalone task came
    ATTEMPT = "attempt"  # a lease of a task or activity ended
    CLOSED = "closed"  # a standalone task ended
    RETRIED = "retried"  # a standalone task was brought back


WITH_ROW: Final = frozenset({What.ATTEMPT, What.RETRIED})  # of which a row among the attempts tells more
BROUGHT_BACK: Final = "retried"  # in the place of the state in which a task has closed


class Changes(msgspec.Struct, array_like=True, gc=False):
    """What one commit did in one namespace. Activities come and go in the history of their run: only attempts are told."""

    history: list[tuple[str, int, int]] = []  # run id, first event id, count
    enqueued: list[str] = []  # task ids
    # in the order of their lives: task id, lease or instant of the close, state closed in, "" for the end of a lease
    tasks: list[tuple[str, int, str]] = []

    def entries(self) -> int:
        """Return how many there are of all kinds."""
        return len(self.history) + len(self.enqueued) + len(self.tasks)

    def events(self) -> int:
        """Return how many events of the feed they stand for."""
        return sum(count for _, _, count in self.history) + self.entries() - len(self.history)


class Entry(NamedTuple):
    """One row that a commit wrote, or what it did to a task. ``before`` counts the events of the commit before its own."""

    number: int
    before: int
    at: int
    what: What
    id: str  # of the run or task
    key: int = 0  # the first event id, the lease, or the instant of the close
    events: int = 1
    state: str = ""  # that a task has closed in

    @property
    def end(self) -> Place:
        """The place behind it."""
        return Place(self.number, self.before + self.events)


_encode: Final = msgspec.msgpack.Encoder().encode
_changes: Final = msgspec.msgpack.Decoder(Changes)


def rows_of(number: int, at: int, changes: dict[str, Changes]) -> list[FeedRow]:
    """Return the rows that keep what commit ``number`` did, by namespace."""
    rows: list[FeedRow] = []
    for namespace, whole in changes.items():
        first = 0
        for part in (whole,) if whole.entries() <= limits.FEED_ROW_ENTRIES else _parts(whole):
            count = part.events()
            rows.append(FeedRow(namespace, number, first, count, at, _encode(part)))
            first += count
    return rows


def entries_of(rows: Iterable[FeedRow], *, after: Place, events_max: int) -> list[Entry]:
    """Return the entries with an event behind ``after``, until they have ``events_max`` such events or more.

    ``rows`` are those of one namespace, in order. Raises msgspec.MsgspecError for a row that does not hold what it must.
    """
    found: list[Entry] = []
    covered = 0
    for row in rows:
        if (row.number, row.first + row.count) <= after:
            continue
        for entry in _entries(row):
            if entry.end <= after:
                continue
            found.append(entry)
            covered += entry.events - _behind(entry, after)
            if covered >= events_max:
                return found
    return found


def _behind(entry: Entry, after: Place) -> int:
    """Return how many events of ``entry`` are not behind ``after``."""
    return max(0, after.seen - entry.before) if entry.number == after.number else 0


def _entries(row: FeedRow) -> Iterator[Entry]:
    changes = _changes.decode(row.changes)
    number, at, before = row.number, row.at, row.first
    for run_id, first_event_id, count in changes.history:
        yield Entry(number, before, at, What.HISTORY, run_id, first_event_id, count)
        before += count
    for task_id in changes.enqueued:
        yield Entry(number, before, at, What.ENQUEUED, task_id)
        before += 1
    for task_id, key, state in changes.tasks:
        if state in {"", BROUGHT_BACK}:
            yield Entry(number, before, at, What.RETRIED if state else What.ATTEMPT, task_id, key)
        else:
            yield Entry(number, before, at, What.CLOSED, task_id, key, 1, state)
        before += 1


def _parts(whole: Changes) -> Iterator[Changes]:
    size = limits.FEED_ROW_ENTRIES
    for name in Changes.__struct_fields__:
        kind = getattr(whole, name)
        for begin in range(0, len(kind), size):
            yield Changes(**{name: kind[begin : begin + size]})
