"""The catalogue of writes: the rows of a shard, the batch that changes them, and the pages that bring them back.

One commit is one ``Batch``: all of it or none, under its fence. Rows are merged within a batch, so that an entity moved ten
times is written once. Stored structs only ever append fields, each with a default, and do not inherit.
"""

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from outlast.core.admin import NamespaceInfo
from outlast.core.events import Headers
from outlast.core.failure import Failure
from outlast.core.payload import Payload, Payloads
from outlast.core.replies import TaskState
from outlast.core.retry import RetryPolicy
from outlast.core.units import Fence

# --- runs ------------------------------------------------------------------------------------------------------------


class RunRow(msgspec.Struct, array_like=True, gc=False, kw_only=True):
    """One run. ``state`` is an encoded RunState, ``fixed`` an encoded RunFixed (written once, at the start).

    ``opened_no`` orders the runs of one workflow id; ``ready_at`` > 0 says that the run needs a workflow task, and since when.
    """

    namespace: str
    workflow_id: str
    run_id: str
    opened_no: int
    original_run_id: str
    first_run_id: str
    type: str
    model: str = "replay"
    status: str = "running"
    queue: str
    build: str = ""
    principal: str = ""
    identity: str = ""
    started_at: int
    closed_at: int = 0
    next_event_id: int
    history_bytes: int = 0
    ready_at: int = 0
    reason: str = ""
    parent: str = ""
    fixed: bytes = b""
    state: bytes = b""
    outcome: bytes = b""  # encoded WorkflowOutcome once closed
    commit_no: int = 0
    extra: bytes = b""


class RunMove(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What moves of a run that is stored: these fields of its RunRow. All others stay as they are."""

    run_id: str
    status: str
    queue: str
    build: str
    closed_at: int
    next_event_id: int
    history_bytes: int
    ready_at: int
    reason: str
    state: bytes
    outcome: bytes
    commit_no: int


class RunFixed(msgspec.Struct, array_like=True, gc=False, kw_only=True):
    """What a run is born with and keeps."""

    run_timeout: int = 0
    task_timeout: int = 0
    memo: dict[str, Payload] | None = None
    tags: dict[str, str] | None = None
    headers: Headers | None = None
    start_request_id: str = ""
    start_fingerprint: str = ""
    previous_run_id: str = ""
    extra: dict[str, bytes] | None = None


class OpenActivity(msgspec.Struct, array_like=True, gc=False):
    """An activity without an outcome yet. The rest of it is in its task row."""

    activity_id: str
    task_id: str
    cancel_event_id: int = 0


class OpenTimer(msgspec.Struct, array_like=True, gc=False):
    started_event_id: int
    fire_at: int
    summary: str = ""


class RunState(msgspec.Struct, array_like=True, gc=False, kw_only=True):
    """The moving part of a run.

    The first group is derived: folding the history gives it. The second is authoritative: histories do not hold it.
    """

    activities: dict[int, OpenActivity] = {}  # by the id of the event that scheduled it
    timers: dict[str, OpenTimer] = {}
    signals: int = 0
    cancel_requested: bool = False
    search_attributes: dict[str, Payload] | None = None
    last_task_started_id: int = 0  # of the last completed workflow task
    last_task_completed_id: int = 0

    task_attempt: int = 1  # of the workflow task; > 1 only after failures
    task_failure: Failure | None = None
    task_retry_at: int = 0  # a failed workflow task is not offered before
    sticky_worker: str = ""
    places: dict[str, str] | None = None
    parked_bytes: int = 0
    parked_count: int = 0
    request_ids: dict[str, int] = {}  # of signals and cancels not covered by dedup rows any more; bounded
    last_event_end: int = 0  # the last event that the last completed turn made
    published: dict[str, Payload] | None = None  # derived: what the code has published, by name


class HistoryRow(msgspec.Struct, array_like=True, gc=False):
    """A page of a history: ``count`` events from ``first_event_id`` on. ``blob`` is msgpack of ``tuple[Timed, ...]``."""

    run_id: str
    first_event_id: int
    count: int
    blob: bytes


class ParkedRow(msgspec.Struct, array_like=True, gc=False):
    """An event that waits for the started workflow task to close. ``blob`` is msgpack of ``Timed``."""

    run_id: str
    n: int
    blob: bytes


# --- tasks -----------------------------------------------------------------------------------------------------------


class TaskRow(msgspec.Struct, array_like=True, gc=False, kw_only=True):
    """One task, standalone or an activity (then ``run_id`` and ``scheduled_event_id``).

    ``spec`` (encoded TaskSpec) never changes; ``status`` (encoded TaskStatus) does. ``ready`` is 1 while it may be leased:
    ENQUEUED and due. ``lease`` numbers its leases and never goes back; ``attempt`` counts the ones that count.
    """

    namespace: str
    task_id: str
    queue: str
    type: str
    build: str = ""
    state: TaskState = TaskState.ENQUEUED
    reason: str = ""
    ready: int = 0
    order_key: int = 0
    attempt: int = 0
    lease: int = 0
    lease_until: int = 0
    worker: str = ""
    run_at: int = 0
    enqueued_at: int = 0
    closed_at: int = 0
    run_id: str = ""
    scheduled_event_id: int = 0
    principal: str = ""
    identity: str = ""
    spec: bytes = b""
    status: bytes = b""
    commit_no: int = 0
    extra: bytes = b""
    priority: int = 3


class TaskMove(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What moves of a task that is stored: these fields of its TaskRow. All others stay as they are."""

    task_id: str
    queue: str
    build: str
    state: TaskState
    reason: str
    ready: int
    order_key: int
    attempt: int
    lease: int
    lease_until: int
    worker: str
    run_at: int
    closed_at: int
    status: bytes
    commit_no: int


class TaskSpec(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """What a task is born with. Spans in nanoseconds; ``close_by`` and ``start_by`` are instants, 0 for none."""

    input: Payloads = ()
    headers: Headers | None = None
    retry: RetryPolicy = RetryPolicy()
    start_to_close: int = 0
    heartbeat: int = 0
    start_by: int = 0
    close_by: int = 0
    priority: int = 3
    fairness_key: str = ""
    tags: dict[str, str] | None = None
    workflow_id: str = ""
    activity_id: str = ""
    operation_id: str = ""
    key: str = ""
    summary: str = ""
    extra: dict[str, bytes] | None = None
    fingerprint: str = ""  # of the request that made it
    delay: int = 0  # until it could first be taken: the instants above count from then


class TaskStatus(msgspec.Struct, array_like=True, gc=False, kw_only=True):
    """The moving part of a task."""

    started_at: int = 0  # of the current attempt
    begun: bool = False
    attempt_deadline: int = 0  # start-to-close of the current attempt
    heartbeat_deadline: int = 0
    details: Payload | None = None
    failure: Failure | None = None
    result: Payloads = ()
    lost_in_a_row: int = 0
    cancel_requested: bool = False
    cancel_reason: str = ""
    build: str = ""  # of the worker that holds it
    worker_identity: str = ""
    timers: tuple[str, ...] = ()  # ids of its rows in timers
    completion: bytes = b""  # digest of the winning completion, so that a repeat gets the winning answer
    poll_id: str = ""
    suspect: bool = False  # leased alone, because it was lost before with its worker
    lease_written: int = 0  # the lease end that is stored; heartbeats may be ahead of it in memory
    last_failure: Failure | None = None  # of the attempt before the one that `failure` or `result` is of
    retries: int = 0  # how often it was brought back; then the ends below stand in place of those it was born with
    start_by: int = 0
    close_by: int = 0
    key_lost: bool = False  # its key had made another task by the time it was brought back


class AttemptRow(msgspec.Struct, array_like=True, gc=False, kw_only=True):
    """How one lease of a task ended; written once. ``late`` = 1 for a word that came after the lease had ended: evidence."""

    namespace: str
    task_id: str
    lease: int
    attempt: int
    late: int = 0
    outcome: (
        str  # "succeeded", "failed", "canceled", "timeout:<kind>", "worker_lost", "returned"; "retried": brought back
    )
    worker: str = ""
    identity: str = ""
    build: str = ""
    started_at: int = 0
    ended_at: int = 0
    error_type: str = ""
    error_message: str = ""
    error_trace: str = ""
    commit_no: int = 0
    extra: bytes = b""


def run_after(row: RunRow, move: RunMove) -> RunRow:
    """Return the row of a run as it is once it has moved."""
    return msgspec.structs.replace(row, **msgspec.structs.asdict(move))


def task_after(row: TaskRow, move: TaskMove) -> TaskRow:
    """Return the row of a task as it is once it has moved."""
    return msgspec.structs.replace(row, **msgspec.structs.asdict(move))


# --- the rest --------------------------------------------------------------------------------------------------------


class TimerKind(StrEnum):
    RUN_TIMER = "run_timer"  # a user's sleep or timeout: target is the run
    RUN_TIMEOUT = "run_timeout"
    RUN_BACKOFF = "run_backoff"  # first workflow task of a delayed start
    TASK_DUE = "task_due"  # delay or retry
    TASK_START_BY = "task_start_by"  # schedule-to-start
    TASK_CLOSE_BY = "task_close_by"  # schedule-to-close


class TimerRow(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """Something to happen at ``fire_at``, never before. ``target`` is a run id or a task id."""

    fire_at: int
    timer_id: str
    kind: str
    target: str


class DedupRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a request id has already made. ``period`` groups rows that are dropped together; later than ``expires_at``."""

    namespace: str
    scope: str
    key: str
    id: str
    fingerprint: str
    expires_at: int
    period: int


class MessageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message to another shard: (source, incarnation, sequence) is its id."""

    target_shard: int
    source_shard: int
    incarnation: int
    sequence: int
    blob: bytes


class LabelsRow(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """All that a run or a task can be found by beside its columns: ``tag.NAME`` and ``attr.NAME`` with their values.

    It replaces what was there. ``of`` is "run" or "task", ``at`` when the run started or the task was enqueued.
    """

    id: str
    namespace: str
    of: str
    at: int
    items: tuple[tuple[str, str | int | float | bool], ...] = ()  # a list has an item for each of its values


class FeedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What commit ``number`` did in a namespace, for the feed: ``changes`` names rows of histories, attempts and tasks.

    A commit that did much has several rows; ``first`` counts the events of those before this one, ``count`` its own. ``changes``
    is an encoded core.feed.Changes.
    """

    namespace: str
    number: int
    first: int
    count: int
    at: int
    changes: bytes


@dataclass(slots=True)
class Batch:
    """Everything one commit changes. Keys are primary keys; a later row of the same entity replaces the earlier."""

    shard: int
    fence: Fence
    number: int  # dense per shard, from 1
    at: int
    runs: dict[str, RunRow] = field(default_factory=dict[str, RunRow])  # that the store does not have yet
    run_moves: dict[str, RunMove] = field(default_factory=dict[str, RunMove])  # of runs that it has
    history: list[HistoryRow] = field(default_factory=list[HistoryRow])
    parked: list[ParkedRow] = field(default_factory=list[ParkedRow])
    # run ids whose stored parked rows go, before `parked` is added
    unparked: dict[str, None] = field(default_factory=dict[str, None])
    tasks: dict[str, TaskRow] = field(default_factory=dict[str, TaskRow])  # that the store does not have yet
    task_moves: dict[str, TaskMove] = field(default_factory=dict[str, TaskMove])  # of tasks that it has
    attempts: list[AttemptRow] = field(default_factory=list[AttemptRow])
    timers: dict[tuple[int, str], TimerRow] = field(default_factory=dict[tuple[int, str], TimerRow])
    dropped_timers: dict[tuple[int, str], None] = field(default_factory=dict[tuple[int, str], None])
    dedup: dict[tuple[str, str, str], DedupRow] = field(default_factory=dict[tuple[str, str, str], DedupRow])
    counters: dict[tuple[str, str], int] = field(
        default_factory=dict[tuple[str, str], int]
    )  # (namespace, name) -> value
    messages: list[MessageRow] = field(default_factory=list[MessageRow])
    received: dict[tuple[int, int], int] = field(
        default_factory=dict[tuple[int, int], int]
    )  # (source, incarnation) -> mark
    lease_until: int = 0  # > 0: renew the shard's lease to this instant
    bytes: int = 0
    labels: dict[str, LabelsRow] = field(default_factory=dict[str, LabelsRow])  # by the id of the run or task
    # None: the namespace's row goes
    namespaces: dict[str, NamespaceInfo | None] = field(default_factory=dict[str, NamespaceInfo | None])
    # what goes with all that belongs to it, before anything is added
    forgotten_runs: dict[str, None] = field(default_factory=dict[str, None])
    forgotten_tasks: dict[str, None] = field(default_factory=dict[str, None])
    feed: list[FeedRow] = field(default_factory=list[FeedRow])

    def rows(self) -> int:
        """Return how many rows the batch writes or deletes."""
        return (
            len(self.runs) + len(self.run_moves) + len(self.history) + len(self.parked) + len(self.unparked)
            + len(self.tasks) + len(self.task_moves) + len(self.attempts) + len(self.timers)
            + len(self.dropped_timers) + len(self.dedup) + len(self.counters) + len(self.messages) + len(self.received)
            + len(self.labels) + len(self.namespaces) + len(self.forgotten_runs) + len(self.forgotten_tasks)
            + len(self.feed)
        )  # fmt: skip


class CommitOutcome(StrEnum):
    """What became of a batch. Anything but DONE makes the owner step down (ARCHITECTURE §3)."""

    DONE = "done"
    REFUSED = "refused"  # fenced: definitely nothing happened, and somebody else owns the shard
    FULL = "full"  # definitely nothing happened, for want of space
    LOCKED = "locked"  # definitely nothing happened: another program writes to the database
    UNKNOWN = "unknown"  # it may have happened, or not, or happen later


# --- loads -----------------------------------------------------------------------------------------------------------


class LoadKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Read entities by name. What is not there is absent from the page."""

    workflows: tuple[tuple[str, str], ...] = ()  # (namespace, workflow id) -> its latest run, by opened_no
    runs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    dedup: tuple[tuple[str, str, str], ...] = ()


class LoadReadyTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Read tasks with ready = 1 of one (namespace, queue, type), ordered by (order_key, task_id), after ``after``."""

    namespace: str
    queue: str
    type: str
    after: tuple[int, str]
    limit: int


class LoadTimers(msgspec.Struct, frozen=True, kw_only=True):
    """Read timers ordered by (fire_at, timer_id), after ``after``."""

    after: tuple[int, str]
    limit: int


class LoadReadyRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Read open runs with ready_at > 0, ordered by (ready_at, run_id), after ``after``."""

    after: tuple[int, str]
    limit: int


class LoadLeasedTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Read tasks in state LEASED, ordered by task_id, after ``after``."""

    after: str
    limit: int


Load = LoadKeys | LoadReadyTasks | LoadTimers | LoadReadyRuns | LoadLeasedTasks


@dataclass(slots=True)
class Page:
    """The answer to a load. Runs come with their parked rows, in order of ``n``."""

    runs: list[RunRow] = field(default_factory=list[RunRow])
    parked: list[ParkedRow] = field(default_factory=list[ParkedRow])
    tasks: list[TaskRow] = field(default_factory=list[TaskRow])
    timers: list[TimerRow] = field(default_factory=list[TimerRow])
    dedup: list[DedupRow] = field(default_factory=list[DedupRow])


@dataclass(slots=True, frozen=True)
class Claim:
    """What taking a shard over gives: the new fence, the number of the last commit, and the counters."""

    shard: int
    fence: Fence
    last_number: int
    last_at: int  # instant of the last commit: event times never go back behind it
    counters: dict[tuple[str, str], int]
    received: dict[tuple[int, int], int]
    namespaces: dict[str, NamespaceInfo] = field(default_factory=dict[str, NamespaceInfo])
