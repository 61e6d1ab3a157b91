"""The seam between the engine and its databases.

A store keeps the rows of one shard. It has one write path, ``commit``, and reads pages. It decides nothing. Every store
passes the one conformance suite in tests/store.
"""

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from outlast.core.admin import NamespaceInfo
from outlast.core.feed import Entry
from outlast.core.feed import Place as FeedPlace
from outlast.core.units import Fence
from outlast.core.writes import AttemptRow, Batch, Claim, CommitOutcome, HistoryRow, Load, Page, RunRow, TaskRow
from outlast.protocol.intake import Intake
from outlast.query.predicate import Predicate

Place = tuple[int, str]  # in a list: the instant that it is in order of, and the id
Row_co = TypeVar("Row_co", covariant=True)


class StoreError(Exception):
    """The store cannot be used; ``code`` is one of core.errors.CODES, ``remedy`` says what to do."""

    def __init__(self, code: str, fact: str, *, remedy: str) -> None:
        super().__init__(f"{fact} {remedy}")
        self.code = code
        self.fact = fact
        self.remedy = remedy


@dataclass(slots=True, frozen=True)
class Stretch(Generic[Row_co]):
    """Rows of a list in order, and the place that the list goes on behind; None when nothing is left.

    There may be fewer rows than were asked for, or none, and more behind ``next``: so far the list was looked through.
    """

    rows: Sequence[Row_co]
    next: Place | None


@dataclass(slots=True, frozen=True)
class Waiting:
    """Tasks of one type that may be leased now: how many, up to a bound, and since when the oldest that was looked at waits."""

    type: str
    ready: int
    since: int
    more: bool = False


@dataclass(slots=True, frozen=True)
class Turns:
    """Runs of one queue and type that need a workflow task, among the first that were looked at."""

    namespace: str
    queue: str
    type: str
    ready: int
    since: int


@dataclass(slots=True, frozen=True)
class Tally:
    """How many rows match, up to the place ``next``; None when that is all of them."""

    count: int
    next: Place | None


@dataclass(slots=True, frozen=True, kw_only=True)
class RunFilter:
    """Which runs to list; None or "" for any. Newest first, by (started_at, run_id), behind ``before``.

    ``scan`` bounds how many rows are looked at; 0 for all.
    """

    namespace: str
    type: str = ""
    status: str = ""
    workflow_id: str = ""
    before: Place | None = None
    limit: int = 50
    where: Predicate | None = None
    scan: int = 0


@dataclass(slots=True, frozen=True, kw_only=True)
class TaskFilter:
    """Which tasks to list, newest first by (enqueued_at, task_id), as RunFilter. ``standalone``: leave out activities.

    ``run_id``: the activities of that run, whose task ids begin with its id and a colon.
    """

    namespace: str
    type: str = ""
    state: str = ""
    queue: str = ""
    run_id: str = ""
    standalone: bool = False
    before: Place | None = None
    limit: int = 50
    where: Predicate | None = None
    scan: int = 0


@dataclass(slots=True, frozen=True)
class TaskNames:
    """What the feed tells of a task beside its id; ``run_id`` of an activity only."""

    type: str
    queue: str
    run_id: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class FeedFound:
    """What a feed has behind a place, as of one committed state.

    The rows that ``entries`` name are by their keys; one that is missing has been forgotten. ``more``: the bounds were met, there
    may be more behind the last entry. ``identity`` and ``incarnation`` tell this store from every other one, ``last`` is the
    number of its last commit. What is at ``floor`` or behind it (a place of the namespace) is not kept any more.
    """

    identity: int
    incarnation: int
    last: int
    floor: FeedPlace
    entries: Sequence[Entry]
    more: bool
    history: Mapping[tuple[str, int], HistoryRow]  # by (run id, first event id)
    attempts: Mapping[tuple[str, int], AttemptRow]  # by (task id, lease)
    tasks: Mapping[str, TaskNames]
    runs: Mapping[str, tuple[str, str]]  # workflow id and type, by run id; those of the tasks too


class Store(Protocol):
    """The rows of a shard."""

    reads_inline: bool
    """Whether ``load`` and the other reads finish without waiting (they may then be called from a loop at once)."""

    @property
    def intake(self) -> Intake | None:
        """Where transactions of callers leave rows in the store's own database; None where they cannot."""
        ...

    async def open(self) -> None:
        """Make the schema if there is none, migrate it if it is old. Raises StoreError."""
        ...

    async def close(self) -> None: ...

    async def claim(self, *, owner: str, now: int, lease_until: int) -> Claim:
        """Take the shard over: raise the epoch in a commit of its own, then read what a new owner needs.

        Raises StoreError when another owner's lease still runs at ``now`` (code "not_owner").
        """
        ...

    async def release(self, fence: Fence) -> None:
        """Give the shard back, if it is still held under ``fence``: the next owner need not wait for the lease's end."""
        ...

    async def commit(self, batch: Batch) -> CommitOutcome:
        """Write all of ``batch`` or nothing, in one transaction that first locks the shard's row and compares the fence.

        Never raises for what a database may do: every doubt is UNKNOWN. The batch number must be the last one plus 1.
        FULL and REFUSED are definite: nothing was written.

        ``runs`` and ``tasks`` are added, ``run_moves`` and ``task_moves`` change rows that are stored. Runs that close make
        room for runs that open; ``unparked`` comes before ``parked``, ``dropped_timers`` before ``timers``.
        ``feed`` rows are added as they are, in the same transaction: ``read_feed`` shows no commit without them. A namespace
        whose row goes takes its feed along.
        Of several late attempt rows of one lease the first stays. A row that is there already, or is to move and is not
        there, makes the batch UNKNOWN with nothing written: it is a mistake of the owner's.
        """
        ...

    async def load(self, load: Load) -> Page:
        """Read committed rows. What an acknowledged commit wrote is seen."""
        ...

    async def read_history(self, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
        """Return pages in order, from the one that holds ``first_event_id``, until ``events_max`` events are covered."""
        ...

    async def read_attempts(self, task_id: str) -> list[AttemptRow]:
        """Return how the leases of a task ended, in order of (lease, late)."""
        ...

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]: ...

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]: ...

    async def count_runs(self, filter: RunFilter) -> Tally:
        """Return how many runs match among those that may be looked at; ``limit`` says nothing here."""
        ...

    async def count_tasks(self, filter: TaskFilter) -> Tally: ...

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]:
        """Return what waits in a queue, by type: counted to QUEUE_COUNT_MAX each, the oldest of the first QUEUE_HEAD_ROWS."""
        ...

    async def read_turns(self) -> list[Turns]:
        """Return the first QUEUE_COUNT_MAX runs that need a workflow task, counted by queue and type."""
        ...

    async def read_namespaces(self) -> dict[str, NamespaceInfo]:
        """Return the committed namespaces by name."""
        ...

    async def read_counters(self, namespace: str) -> dict[str, int]:
        """Return the committed counters of a namespace by name."""
        ...

    async def read_feed(self, namespace: str, *, after: FeedPlace, events_max: int, bytes_max: int) -> FeedFound:
        """Return what the feed of a namespace has behind ``after``, in order (core/feed.py).

        Bounds, of which at least one entry is left over: about ``events_max`` events, and ``bytes_max`` bytes of the rows that
        the entries name. Everything in the answer is of one committed state, and every commit of that state is in it: who
        has read up to ``last`` will never see an event appear before that place.
        """
        ...

    async def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        """Drop from the beginning of a feed what commits before the instant ``before``, or up to number ``through``, wrote.

        About ``rows_max`` rows are dropped at once, and never a part of a commit; return how many. The place up to which it was
        dropped is kept in the same transaction (``FeedFound.floor``). Histories and tasks stay.
        """
        ...

    async def forget_dedup(self, *, before_period: int) -> int:
        """Drop the dedup rows of whole periods that are over; return how many."""
        ...

    async def named_blobs(self, digests: AbstractSet[str]) -> set[str]:
        """Return those of ``digests`` that a committed row names; one that cannot be ruled out is among them.

        It reads everything, in slices beside the work: for a look once a day. A row that is committed meanwhile may be missed.
        """
        ...


class BlobStore(Protocol):
    """Payload data above PAYLOAD_INLINE_BYTES_MAX, by content hash (sha256, hex). Durable before ``put`` returns."""

    @property
    def unused(self) -> bool:
        """Whether there has never been a blob: then nothing can refer to one."""
        ...

    async def put(self, digest: str, data: bytes) -> None: ...

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError (code "store_damaged") when it is missing or does not have this hash."""
        ...

    async def aged(self, *, now: int) -> set[str]:
        """Return the blobs that were last put so long before ``now`` that no commit under way can still name them."""
        ...

    async def sweep(self, referenced: Container[str], *, now: int) -> int:
        """Remove what is aged at ``now`` and not in ``referenced``; return how many."""
        ...
