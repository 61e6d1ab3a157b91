"""The catalogue of replies: what requests are answered with, and the states of runs and tasks that they tell of.

They cross the wire like the requests in ``outlast.core.inputs``: fields are only ever appended, each with a default.
Instants and spans are integer nanoseconds.
"""

from enum import StrEnum

import msgspec

from outlast.core.admin import AdminReply
from outlast.core.events import Headers, Timed
from outlast.core.failure import Failure
from outlast.core.inputs import QueryToken, TaskToken, WorkflowToken
from outlast.core.payload import Payload, Payloads


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    TERMINATED = "terminated"
    TIMED_OUT = "timed_out"
    CONTINUED_AS_NEW = "continued_as_new"


class TaskState(StrEnum):
    """ENQUEUED, HELD, LEASED, RETRY_WAIT, UNCERTAIN may move; the others are terminal."""

    ENQUEUED = "enqueued"
    HELD = "held"
    LEASED = "leased"
    RETRY_WAIT = "retry_wait"
    UNCERTAIN = "uncertain"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"


class WorkflowStarted(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="workflow_started", tag_field="kind", kw_only=True
):
    """``started`` is False when an open run was returned; ``replayed`` when the same request had started it before."""

    workflow_id: str
    run_id: str
    started: bool = True
    replayed: bool = False
    polled: bool = True
    """False for a run that was started now and whose type no worker has polled its queue for in the last minute."""


class Refused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="refused", tag_field="kind", kw_only=True):
    """Nothing was recorded, and why. ``retryable`` means: the same request may succeed later."""

    code: str
    fact: str
    remedy: str = ""
    facts: dict[str, str] = {}
    retryable: bool = False


class WorkflowsStarted(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="workflows_started", tag_field="kind", kw_only=True
):
    items: tuple[WorkflowStarted | Refused, ...]


class Accepted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="accepted", tag_field="kind", kw_only=True):
    """It is recorded. ``changed`` is False when there was nothing to do (a repeat, or closed already)."""

    changed: bool = True


class PendingActivity(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """An activity that has not ended. ``run_at`` is when it may be taken."""

    activity_id: str
    scheduled_event_id: int
    task_id: str
    type: str
    queue: str
    state: TaskState
    reason: str = ""
    attempt: int = 0
    attempts_max: int = 0
    run_at: int = 0
    worker: str = ""
    last_failure: Failure | None = None


class PendingTimer(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """A timer that has not fired; ``summary`` says what it is for."""

    timer_id: str
    started_event_id: int
    fire_at: int
    summary: str = ""


class WorkflowInfo(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="workflow_info", tag_field="kind", kw_only=True
):
    """What is known of a run. Instants in nanoseconds, 0 for not yet; ``why`` says in words what it waits for."""

    namespace: str
    workflow_id: str
    run_id: str
    first_run_id: str
    type: str
    queue: str
    status: RunStatus
    build: str
    started_at: int
    closed_at: int
    events: int
    history_bytes: int
    cancel_requested: bool
    task_state: str = ""  # "", "ready", "started", "backoff": of the workflow task
    task_attempt: int = 0
    task_failure: Failure | None = None
    worker: str = ""
    activities: tuple[PendingActivity, ...] = ()
    timers: tuple[PendingTimer, ...] = ()
    places: dict[str, str] | None = None
    tags: dict[str, str] | None = None
    memo: dict[str, Payload] | None = None
    search_attributes: dict[str, Payload] | None = None
    result: Payloads = ()
    failure: Failure | None = None
    why: str = ""
    parked: int = 0
    why_at: int = 0  # the instant that `why` speaks of, 0 for none
    polled: bool = True  # whether a worker that can take its next turn has been seen lately
    warning: str = ""  # what will go wrong unless something is done
    published: dict[str, Payload] | None = None  # what its code has published, by name


class WorkflowOutcome(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="workflow_outcome", tag_field="kind", kw_only=True
):
    """How a run ended; ``new_run_id`` when another run of the chain follows."""

    workflow_id: str
    run_id: str
    status: RunStatus
    result: Payloads = ()
    failure: Failure | None = None
    new_run_id: str = ""


class TaskEnqueuedReply(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="task_enqueued", tag_field="kind", kw_only=True
):
    task_id: str
    replayed: bool = False
    polled: bool = True
    """False for a task that was made now and whose type no worker has polled its queue for in the last minute."""


class TasksEnqueued(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_enqueued", tag_field="kind", kw_only=True
):
    items: tuple[TaskEnqueuedReply | Refused, ...]


class TasksRetried(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_retried", tag_field="kind", kw_only=True
):
    """One answer for each task of a RetryTasks, in order; ``changed`` is False for one that has not ended."""

    items: tuple[Accepted | Refused, ...]


class TaskInfo(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="task_info", tag_field="kind", kw_only=True):
    """What is known of a task or an activity. Instants are nanoseconds since 1970, 0 for none; ``why`` is what it waits for."""

    namespace: str
    task_id: str
    type: str
    queue: str
    state: TaskState
    reason: str = ""
    attempt: int = 0
    attempts_max: int = 0
    priority: int = 3
    enqueued_at: int = 0
    run_at: int = 0
    started_at: int = 0
    closed_at: int = 0
    lease_until: int = 0
    worker: str = ""
    workflow_id: str = ""
    run_id: str = ""
    tags: dict[str, str] | None = None
    details: Payload | None = None
    result: Payloads = ()
    failure: Failure | None = None
    cancel_requested: bool = False
    why: str = ""
    polled: bool = True
    retries: int = 0  # how often it was brought back after it had ended
    expires_at: int = 0  # when its lease ends unless its worker is heard of, or sooner when the attempt's own time does
    heard_at: int = 0  # when the worker that has it was last heard of, as far as the engine knows
    worker_identity: str = ""  # of that worker, for people


class TaskOutcomeReply(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="task_outcome", tag_field="kind", kw_only=True
):
    task_id: str
    state: TaskState
    reason: str = ""
    attempt: int = 0
    result: Payloads = ()
    failure: Failure | None = None


class TaskLease(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """A task given to a worker. ``deadline`` is when the attempt must have ended, ``lease`` how long until a heartbeat."""

    token: TaskToken
    type: str
    queue: str
    attempt: int
    attempts_max: int
    input: Payloads = ()
    headers: Headers | None = None
    operation_id: str = ""
    workflow_id: str = ""
    run_id: str = ""
    activity_id: str = ""
    lease: int = 0
    start_to_close: int = 0
    heartbeat: int = 0
    details: Payload | None = None
    last_failure: Failure | None = None
    enqueued_at: int = 0
    started_at: int = 0
    deadline: int = 0
    begin_needed: bool = False
    priority: int = 3


class WorkflowTask(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """One turn of workflow code. ``events`` begin at ``first_event_id`` and end with the shown pair scheduled, started.

    ``first_event_id`` is 1 unless the worker has the run in memory; then it is the id after the last one it has seen
    acknowledged (``previous_event_id``). ``events`` is filled by the engine from the store when the core leaves it empty.
    """

    token: WorkflowToken
    workflow_id: str
    run_id: str
    original_run_id: str
    type: str
    queue: str
    attempt: int
    first_event_id: int
    started_event_id: int
    previous_event_id: int = 0  # the last event of the history that the last completed turn made
    events: tuple[Timed, ...] = ()
    timeout: int = 0
    next_event_id_to_read: int = 0  # > 0: the history goes on; read the page that starts with this id
    started_at: int = 0  # the run's clock for this turn
    identity: str = ""
    suggest_continue_as_new: bool = False  # the history has grown long


class QueryTask(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """A question to the code of a run, as its history up to ``last_event_id`` (its whole history) has made it."""

    token: QueryToken
    workflow_id: str
    type: str
    queue: str
    last_event_id: int
    name: str
    input: Payloads = ()
    headers: Headers | None = None


class Work(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="work", tag_field="kind", kw_only=True):
    """The answer to a poll."""

    tasks: tuple[TaskLease, ...] = ()
    workflow_tasks: tuple[WorkflowTask, ...] = ()
    stop: bool = False  # the engine stops: ask another, or later
    queries: tuple[QueryTask, ...] = ()


class Begun(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="begun", tag_field="kind", kw_only=True):
    """One answer per token: None for go ahead."""

    items: tuple[Refused | None, ...]


class HeartbeatAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """``action`` is "continue", "cancel" (stop in good order) or "stop" (the lease is lost; change nothing more)."""

    action: str
    lease_until: int = 0


class HeartbeatReply(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="heartbeats", tag_field="kind", kw_only=True
):
    items: tuple[HeartbeatAnswer, ...]


class CompletionsReply(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="completions", tag_field="kind", kw_only=True
):
    """One answer per item, in order: None for recorded."""

    items: tuple[Refused | None, ...]


class WorkflowTaskReply(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """``last_event_id``: the history's end that this completion made; the worker's cache goes on from it."""

    refused: Refused | None = None
    last_event_id: int = 0


class WorkflowTasksReply(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="workflow_tasks", tag_field="kind", kw_only=True
):
    done: tuple[WorkflowTaskReply, ...] = ()
    not_done: tuple[WorkflowTaskReply, ...] = ()


class QueryAnswered(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="query_answered", tag_field="kind", kw_only=True
):
    """What the code of the run said; ``failure`` when it raised instead."""

    result: Payloads = ()
    failure: Failure | None = None


Reply = (
    WorkflowStarted
    | WorkflowsStarted
    | Accepted
    | WorkflowInfo
    | WorkflowOutcome
    | TaskEnqueuedReply
    | TasksEnqueued
    | TaskInfo
    | TaskOutcomeReply
    | Work
    | Begun
    | HeartbeatReply
    | CompletionsReply
    | WorkflowTasksReply
    | QueryAnswered
    | Refused
    | AdminReply
    | TasksRetried
)
