"""One commit: a batch as the parameters of one statement, which is a transaction by itself, and what became of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import asyncpg
import msgspec

from outlast.core import codec
from outlast.core.writes import Batch, CommitOutcome, FeedRow, HistoryRow, LabelsRow
from outlast.query.predicate import Value
from outlast.store.compression import pack
from outlast.store.postgres import parts
from outlast.store.postgres.columns import BETWEEN, Separated, character_between, packed
from outlast.store.postgres.parts import Part, statement_of
from outlast.store.postgres.text import unescaped

KIND_TEXT: Final = 0
KIND_NUMBER: Final = 1
KIND_TRUTH: Final = 2

_tuple_of: Final = msgspec.structs.astuple


@dataclass(slots=True)
class Places:
    """Where the newest versions of rows lie that nobody but the shard's owner writes, as far as it knows (see parts.FENCE)."""

    shard: str = "(0,0)"
    counters: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def note(self, batch: Batch, shard: str, counters: Sequence[Sequence[str]] | None) -> None:
        """Take in what the statement of ``batch``, which was committed, has returned."""
        self.shard = shard
        for namespace, name, place in counters or ():
            self.counters[unescaped(namespace), unescaped(name)] = place
        gone = {name for name, info in batch.namespaces.items() if info is None}
        if gone:
            self.counters = {key: place for key, place in self.counters.items() if key[0] not in gone}


class Statement:
    """What a batch becomes: its parts, which make the text, and its parameters."""

    __slots__ = ("_columns", "parts", "places", "values")

    def __init__(self, batch: Batch, places: Places) -> None:
        fence = batch.fence
        self.places = places
        self.parts: list[Part] = []
        self._columns: list[tuple[str, Sequence[Any]]] = []
        _forget(self, batch)
        _write_runs(self, batch)
        _write_tasks(self, batch)
        _write_others(self, batch)
        fixed = [batch.shard, fence.incarnation, fence.epoch, batch.number, batch.at, batch.lease_until]
        try:
            self.values = self._packed(fixed, BETWEEN)
        except Separated:
            between = character_between(column for kind, column in self._columns if kind == "text")
            self.values = self._packed(fixed, between)

    def _packed(self, fixed: list[Any], between: str) -> list[Any]:
        values = [*fixed, between, self.places.shard]
        for kind, column in self._columns:
            values += packed(kind, column, between)
        return values

    @property
    def shape(self) -> tuple[Part, ...]:
        """Return what the text depends on."""
        return tuple(self.parts)

    @property
    def sql(self) -> str:
        """Return the text."""
        return statement_of(self.shape)

    def add(self, part: Part, rows: Iterable[Sequence[Any]], *, always: bool = False) -> None:
        """Add ``part`` for ``rows``, if there are any. ``always``: also when there are none.

        What nearly always comes together is added together: each set of parts is a statement of its own, which the database
        must read and plan once, and keep.
        """
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        if not columns:
            if not always:
                return
            columns = [()] * len(part.takes)
        self.parts.append(part)
        self._columns.append(("count", (len(columns[0]),)))
        self._columns += zip(part.takes, columns, strict=True)

    def add_all(self, chain: tuple[Part, ...], rows: Iterable[Sequence[Any]]) -> None:
        """Add the first part of ``chain`` for ``rows``, if there are any or not, and those that go on from it."""
        before = len(self.parts)
        self.add(chain[0], rows)
        if len(self.parts) > before:
            self.parts += chain[1:]


def _forget(to: Statement, batch: Batch) -> None:
    if batch.forgotten_runs:
        ids = [(run_id,) for run_id in batch.forgotten_runs]
        for part in parts.FORGET[:4]:
            to.add(part, ids)
        to.parts += parts.FORGET[4:]
    if batch.forgotten_tasks:
        ids = [(task_id,) for task_id in batch.forgotten_tasks]
        for part in parts.FORGET_TASKS[:3]:
            to.add(part, ids)
        to.parts += parts.FORGET_TASKS[3:]


def _write_runs(to: Statement, batch: Batch) -> None:
    if batch.run_moves or batch.runs or batch.history:
        to.add_all(parts.MOVE_RUNS, map(_tuple_of, batch.run_moves.values()))
        to.add_all(parts.ADD_RUNS, map(_tuple_of, batch.runs.values()))
        to.add(parts.ADD_HISTORY, map(_stored_history, batch.history), always=True)
    if batch.unparked or batch.parked:
        to.add(parts.DROP_PARKED, ((run_id,) for run_id in batch.unparked), always=True)
        to.add(parts.ADD_PARKED, map(_tuple_of, batch.parked), always=True)


def _write_tasks(to: Statement, batch: Batch) -> None:
    if batch.task_moves or batch.tasks or batch.attempts:
        to.add_all(parts.MOVE_TASKS, map(_tuple_of, batch.task_moves.values()))
        to.add_all(parts.ADD_TASKS, map(_tuple_of, batch.tasks.values()))
        to.add(parts.ADD_ATTEMPTS, (_tuple_of(row) for row in batch.attempts if not row.late), always=True)
        to.add(parts.ADD_LATE_ATTEMPTS, (_tuple_of(row) for row in batch.attempts if row.late))


def _write_others(to: Statement, batch: Batch) -> None:
    if batch.dropped_timers or batch.timers:
        to.add(parts.DROP_TIMERS, batch.dropped_timers, always=True)
        to.add(parts.SET_TIMERS, map(_tuple_of, batch.timers.values()), always=True)
    to.add(parts.SET_DEDUP, map(_tuple_of, batch.dedup.values()))
    gone = {name for name, info in batch.namespaces.items() if info is None}
    places = to.places.counters
    counters = [(key, value) for key, value in batch.counters.items() if key[0] not in gone]
    known = ((*key, value, places[key]) for key, value in counters if key in places)
    to.add(parts.MOVE_COUNTERS, known, always=True)
    to.add(parts.SET_COUNTERS, ((*key, value) for key, value in counters if key not in places), always=True)
    if batch.labels:
        to.add(parts.DROP_LABELS, ((id_,) for id_ in batch.labels if id_ not in batch.runs and id_ not in batch.tasks))
        to.add(parts.ADD_LABELS, (values for row in batch.labels.values() for values in _stored_labels(row)))
    if batch.namespaces:
        kept = [info for info in batch.namespaces.values() if info is not None]
        to.add(parts.SET_NAMESPACES, ((info.name, info.created_at, codec.encode_namespace(info)) for info in kept))
        names = [(name,) for name in gone]
        to.add(parts.DROP_NAMESPACES, names)
        to.add(parts.DROP_COUNTERS, names)
        to.add(parts.DROP_FEEDS, names)
        to.add(parts.DROP_FEED_FLOORS, names)
    to.add(parts.ADD_FEED, map(_stored_feed, batch.feed), always=True)
    to.add(parts.ADD_MESSAGES, map(_tuple_of, batch.messages))
    to.add(parts.SET_RECEIVED, ((*key, mark) for key, mark in batch.received.items()))


def kind_of(value: Value) -> tuple[int, str, Decimal]:
    """Return ``value`` as the table of labels holds it: its kind, the text, the number, exact."""
    if isinstance(value, bool):
        return KIND_TRUTH, "", Decimal(int(value))
    if isinstance(value, str):
        return KIND_TEXT, value, Decimal(0)
    return KIND_NUMBER, "", Decimal(value)


def _stored_labels(row: LabelsRow) -> Iterator[tuple[Any, ...]]:
    for n, (name, value) in enumerate(row.items):
        yield row.id, name, n, *kind_of(value), row.namespace, row.of, row.at


def _stored_history(row: HistoryRow) -> tuple[str, int, int, bytes]:
    return row.run_id, row.first_event_id, row.count, pack(row.blob)


def _stored_feed(row: FeedRow) -> tuple[str, int, int, int, int, bytes]:
    return row.namespace, row.number, row.first, row.count, row.at, pack(row.changes)


def outcome_of(error: BaseException) -> CommitOutcome:
    """Return what became of a batch whose statement ended in ``error``.

    Only what the server itself reported as an error of the statement is definite: it has then undone it all. A lost connection,
    a time-out, a cancel or the end of the session leave open whether it was committed, or will be.
    """
    if isinstance(error, asyncpg.DiskFullError):
        return CommitOutcome.FULL
    if isinstance(error, asyncpg.LockNotAvailableError):
        return CommitOutcome.LOCKED
    return CommitOutcome.UNKNOWN


def is_undone(error: BaseException) -> bool:
    """Say whether the server said that the statement was undone, and the session goes on."""
    return (
        isinstance(error, asyncpg.PostgresError)
        and not isinstance(error, (asyncpg.QueryCanceledError, asyncpg.PostgresConnectionError))
        and getattr(error, "severity_en", "") == "ERROR"
    )
