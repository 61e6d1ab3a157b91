"""A store as a whole: every row that it holds, by kind and in the order of keys, in one form for all stores.

It is what a move, a backup and a restore are made of. Blobs of rows are carried as they are stored; texts and numbers as
Python has them, so that the same rows give the same digest whichever store they are read from.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from outlast.core.writes import (
    AttemptRow,
    DedupRow,
    FeedRow,
    HistoryRow,
    MessageRow,
    ParkedRow,
    RunRow,
    TaskRow,
    TimerRow,
)
from outlast.store.base import StoreError
from outlast.store.standing import Standing

BATCH_ROWS: Final = 2_000  # rows that are read and written at once
BATCH_BYTES: Final = 8 * 1024 * 1024  # about so many bytes of them at most

Row = tuple[Any, ...]
Change = Callable[["Kind", Sequence[Row]], Sequence[Row]]
Say = Callable[[str, int], None]  # what is being done to which kind of row, and how many of them are done


@dataclass(slots=True, frozen=True)
class Kind:
    """One kind of row, in order of ``key``. ``texts`` says of each column whether it is a text, ``blobs`` which may be large."""

    name: str
    columns: tuple[str, ...]
    texts: tuple[bool, ...]
    blobs: tuple[int, ...]
    key: tuple[str, ...]

    def weight(self, row: Row) -> int:
        """Return about how many bytes a row has: those of its blobs; texts are bounded."""
        return sum([len(row[n]) for n in self.blobs])

    def place_of(self, column: str) -> int:
        """Return where ``column`` stands in a row."""
        return self.columns.index(column)


def _kind(name: str, row: type[msgspec.Struct], *key: str) -> Kind:
    fields = msgspec.structs.fields(row)
    return Kind(
        name,
        tuple(field.name for field in fields),
        tuple(isinstance(field.type, type) and issubclass(field.type, str) for field in fields),
        tuple(n for n, field in enumerate(fields) if field.type is bytes),
        key,
    )


class _Counter(msgspec.Struct):
    namespace: str
    name: str
    value: int


class _Received(msgspec.Struct):
    source: int
    incarnation: int
    mark: int


class _Namespace(msgspec.Struct):
    name: str
    created_at: int
    settings: bytes


class _Floor(msgspec.Struct):
    namespace: str
    number: int
    seen: int


class _Label(msgspec.Struct):
    """``value`` is a text, a number or a truth value; a number that is whole is an int."""

    id: str
    name: str
    n: int
    value: Any
    namespace: str
    of: str
    at: int


class _Intake(msgspec.Struct):
    """What a transaction in PostgreSQL left for the engine there; instants in microseconds, ``offered_at`` may be None."""

    place: int
    namespace: str
    id: str
    form: str
    body: bytes
    entered_at: int
    offered_at: int | None
    trouble: str


INTAKE: Final = _kind("intake", _Intake, "place")
LABELS: Final = _kind("labels", _Label, "id", "name", "n")
TASKS: Final = _kind("tasks", TaskRow, "task_id")
KINDS: Final = (
    _kind("namespaces", _Namespace, "name"),
    _kind("runs", RunRow, "run_id"),
    _kind("history", HistoryRow, "run_id", "first_event_id"),
    _kind("parked", ParkedRow, "run_id", "n"),
    TASKS,
    _kind("attempts", AttemptRow, "task_id", "lease", "late"),
    _kind("timers", TimerRow, "fire_at", "timer_id"),
    _kind("dedup", DedupRow, "namespace", "scope", "key"),
    LABELS,
    _kind("counters", _Counter, "namespace", "name"),
    _kind("outbox", MessageRow, "target_shard", "source_shard", "incarnation", "sequence"),
    _kind("received", _Received, "source", "incarnation"),
    _kind("feed", FeedRow, "namespace", "number", "first"),
    _kind("feed_floors", _Floor, "namespace"),
    INTAKE,
)
WORK: Final = frozenset(
    {"namespaces", "runs", "tasks", "dedup", "outbox", "feed", "intake"}
)  # what an empty store has none of


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Which store it is, under which fence it was last owned, and the number and instant of its last commit."""

    identity: int
    incarnation: int
    epoch: int
    number: int
    at: int


class Sum(msgspec.Struct, frozen=True):
    """How many rows of a kind there are, and the SHA-256 of all of them in order."""

    rows: int
    digest: str


class Blobs(Protocol):
    """Large payloads, by the hash of their content."""

    async def names(self) -> set[str]:
        """Return the names of all that are there, whose they may be."""
        ...

    async def put(self, digest: str, data: bytes) -> None: ...

    async def get(self, digest: str) -> bytes: ...


class WholeStore(Protocol):
    """A store that nobody works on meanwhile, or one state of a store that somebody works on."""

    shown: str
    url: str
    takes_intake: bool
    """Whether an engine on it takes what transactions of others left."""
    blobs: Blobs
    """Those that the store itself keeps; settings may name another place."""

    async def close(self) -> None: ...

    def marks(self) -> tuple[int, ...]:
        """Return what tells the database from copies of it, beside what it says itself."""
        ...

    async def position(self) -> Position: ...

    async def standing(self) -> Standing | None: ...

    async def count(self, kind: Kind) -> int: ...

    def rows(self, kind: Kind) -> AsyncIterator[Sequence[Row]]:
        """Give the rows of a kind in order of its key, some at a time."""
        ...

    async def begin(self, row: Standing) -> None:
        """Remove every row and take the standing ``row``, in one commit."""
        ...

    async def write(self, kind: Kind, rows: Sequence[Row]) -> None:
        """Add rows, which are there when this returns as far as a later commit is."""
        ...

    async def settle(self) -> None:
        """Make what the store derives from the rows that were written."""
        ...

    async def stand(self, row: Standing | None, *, lease_step: int = 0, incarnation: int = 0) -> None:
        """Take the standing ``row`` in one commit, if nobody has taken the store over since it was opened. Raises StoreError.

        To be marked as moved it must have in its intake what was there when that was read.

        ``lease_step`` is added to the number of every lease, ``incarnation`` is the one from now on; 0 leaves them.
        """
        ...

    async def open_up(self, position: Position) -> None:
        """Become the store that ``position`` tells of, and fit to be worked on, in one commit."""
        ...


class Tally:
    """Counts rows and takes their digest; how they were grouped makes no difference."""

    def __init__(self) -> None:
        self._rows = 0
        self._digest = hashlib.sha256()
        self._encode = msgspec.msgpack.Encoder().encode

    def add(self, rows: Sequence[Row]) -> int:
        """Count ``rows``; return how many there were until now."""
        self._rows += len(rows)
        self._digest.update(b"".join(map(self._encode, rows)))
        return self._rows

    def sum(self) -> Sum:
        """Return what was counted."""
        return Sum(self._rows, self._digest.hexdigest())


def batches(kind: Kind, rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Give rows in lists that are bounded in number and bytes."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += kind.weight(row)
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def carry(source: WholeStore, target: WholeStore, *, say: Say, change: Change | None = None) -> dict[str, Sum]:
    """Write every row of ``source`` to ``target``, as ``change`` makes them; return what was written, by kind."""
    sums: dict[str, Sum] = {}
    for kind in KINDS:
        tally = Tally()
        async for rows in source.rows(kind):
            changed = change(kind, rows) if change is not None else rows
            await target.write(kind, changed)
            say(f"copy {kind.name}", tally.add(changed))
        sums[kind.name] = tally.sum()
    await target.settle()
    return sums


async def summed(store: WholeStore, *, say: Say) -> dict[str, Sum]:
    """Return the sums of every kind of row, read from the store."""
    sums: dict[str, Sum] = {}
    for kind in KINDS:
        tally = Tally()
        async for rows in store.rows(kind):
            say(f"verify {kind.name}", tally.add(rows))
        sums[kind.name] = tally.sum()
    return sums


def compare(wanted: Mapping[str, Sum], found: Mapping[str, Sum], *, shown: str) -> None:
    """Raise StoreError unless ``found``, read from the store called ``shown``, is what is ``wanted``."""
    wrong = [
        f"{name} ({found[name].rows} rows, {wanted[name].rows} wanted)"
        for name in wanted
        if found[name] != wanted[name]
    ]
    if wrong:
        raise StoreError(
            "store_damaged",
            f"{shown} does not hold what it was given: {', '.join(wrong)} differ.",
            remedy="Look at its disk and its log, then begin anew; nothing else was changed.",
        )


async def carry_blobs(source: Blobs, target: Blobs, *, say: Say, gone: set[str] | None = None) -> set[str]:
    """Bring to ``target`` what it lacks of ``source``, and read back what was brought; return the names that both have now.

    Who sweeps ``source`` meanwhile removes what no row names: given a set ``gone`` those names are added to it. Without one
    nobody may, and what is missing raises StoreError.
    """
    names = await source.names()
    missing = sorted(names - await target.names())
    for n, name in enumerate(missing, 1):
        try:
            data = await source.get(name)
        except StoreError:
            if gone is None or name in await source.names():
                raise
            gone.add(name)
            continue
        await target.put(name, data)
        await target.get(name)  # it raises when it is not what its name says
        say("copy payloads", n)
    return names - gone if gone else names
