"""The catalogue of events: the language of histories.

Names, numbers and field names are those of Temporal's public API where it has them; our own kinds have numbers from
1000. An event's id is its place in its history (dense, from 1), so it is stored once per page and not in the event.
Fields are only ever appended, each with a default; a number is never used again.
"""

from typing import Final

import msgspec

from outlast.core.failure import Failure
from outlast.core.payload import Payload, Payloads
from outlast.core.retry import RetryPolicy

Headers = dict[str, Payload]


class WorkflowExecutionStarted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1, kw_only=True):
    workflow_type: str
    task_queue: str
    input: Payloads = ()
    headers: Headers | None = None
    run_id: str
    original_run_id: str  # seeds chance; copied on reset, new on continue-as-new
    first_run_id: str
    continued_run_id: str = ""
    initiator: str = ""  # "", "continue_as_new", "retry", "cron"
    attempt: int = 1
    run_timeout: int = 0
    task_timeout: int = 0
    first_task_backoff: int = 0
    memo: dict[str, Payload] | None = None
    search_attributes: dict[str, Payload] | None = None
    tags: dict[str, str] | None = None
    identity: str = ""
    principal: str = ""
    build: str = ""
    request_id: str = ""
    retry: RetryPolicy | None = None
    parent: tuple[str, str, str, int] | None = None  # namespace, workflow id, run id, initiated event id
    carried_signals: "tuple[WorkflowExecutionSignaled, ...]" = ()
    extra: dict[str, bytes] | None = None


class WorkflowExecutionCompleted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2, kw_only=True):
    result: Payloads = ()
    workflow_task_completed_event_id: int = 0
    new_run_id: str = ""


class WorkflowExecutionFailed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3, kw_only=True):
    failure: Failure
    retry_state: str = "retry_policy_not_set"
    workflow_task_completed_event_id: int = 0
    new_run_id: str = ""


class WorkflowExecutionTimedOut(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4, kw_only=True):
    retry_state: str = "timeout"
    new_run_id: str = ""


class WorkflowTaskScheduled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5, kw_only=True):
    task_queue: str = ""
    start_to_close_timeout: int = 0
    attempt: int = 1


class WorkflowTaskStarted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6, kw_only=True):
    """Its instant is the run's clock for the turn it opens."""

    scheduled_event_id: int
    identity: str = ""
    history_bytes: int = 0
    suggest_continue_as_new: bool = False
    request_id: str = ""


class WorkflowTaskCompleted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    identity: str = ""
    build: str = ""
    sdk: str = ""  # name and version
    sdk_flags: tuple[int, ...] = ()
    places: dict[str, str] | None = None  # operation key -> "file:line" of the user's code that waits for it
    extra: dict[str, bytes] | None = None


class WorkflowTaskTimedOut(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    timeout_type: str = "start_to_close"


class WorkflowTaskFailed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    cause: (
        str  # "workflow_worker_unhandled_failure", "non_deterministic_error", "bad_command", "force_close_command", ...
    )
    failure: Failure | None = None
    identity: str = ""
    build: str = ""
    new_run_id: str = ""


class ActivityTaskScheduled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10, kw_only=True):
    activity_id: str  # the worker's name for it: its place in the run
    activity_type: str
    task_queue: str
    input: Payloads = ()
    headers: Headers | None = None
    retry: RetryPolicy
    start_to_close: int = 0
    schedule_to_start: int = 0
    schedule_to_close: int = 0
    heartbeat: int = 0
    priority: int = 3
    operation_id: str = ""
    workflow_task_completed_event_id: int = 0
    summary: str = ""
    task_id: str = ""
    extra: dict[str, bytes] | None = None


class ActivityTaskStarted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=11, kw_only=True):
    """Written together with the event that closes the activity, with the number of the last attempt."""

    scheduled_event_id: int
    identity: str = ""
    attempt: int = 1
    started_at: int = 0
    last_failure: Failure | None = None
    build: str = ""


class ActivityTaskCompleted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=12, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    result: Payloads = ()
    identity: str = ""


class ActivityTaskFailed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=13, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    failure: Failure
    retry_state: str
    identity: str = ""


class ActivityTaskTimedOut(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    timeout_type: str
    failure: Failure
    retry_state: str


class ActivityTaskCancelRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=15, kw_only=True):
    scheduled_event_id: int
    workflow_task_completed_event_id: int = 0


class ActivityTaskCanceled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=16, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    details: Payloads = ()
    latest_cancel_requested_event_id: int = 0
    identity: str = ""


class TimerStarted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=17, kw_only=True):
    timer_id: str
    start_to_fire: int
    fire_at: int
    workflow_task_completed_event_id: int = 0
    summary: str = ""


class TimerFired(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=18, kw_only=True):
    timer_id: str
    started_event_id: int


class TimerCanceled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=19, kw_only=True):
    timer_id: str
    started_event_id: int
    workflow_task_completed_event_id: int = 0
    identity: str = ""


class WorkflowExecutionCancelRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=20, kw_only=True):
    reason: str = ""
    identity: str = ""
    request_id: str = ""


class WorkflowExecutionCanceled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21, kw_only=True):
    details: Payloads = ()
    workflow_task_completed_event_id: int = 0


class MarkerRecorded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=25, kw_only=True):
    """A value that workflow code put into its history: ``side_effect``, ``patch``, ``note``, ``local_activity``."""

    marker_name: str
    details: dict[str, Payload] | None = None
    failure: Failure | None = None
    headers: Headers | None = None
    workflow_task_completed_event_id: int = 0


class WorkflowExecutionSignaled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=26, kw_only=True):
    signal_name: str
    input: Payloads = ()
    headers: Headers | None = None
    identity: str = ""
    request_id: str = ""
    sent_by: str = ""  # principal


class WorkflowExecutionTerminated(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=27, kw_only=True):
    reason: str = ""
    details: Payloads = ()
    identity: str = ""


class WorkflowExecutionContinuedAsNew(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=28, kw_only=True):
    new_run_id: str
    workflow_type: str
    task_queue: str
    input: Payloads = ()
    headers: Headers | None = None
    run_timeout: int = 0
    task_timeout: int = 0
    memo: dict[str, Payload] | None = None
    search_attributes: dict[str, Payload] | None = None
    initiator: str = "continue_as_new"
    workflow_task_completed_event_id: int = 0


class UpsertWorkflowSearchAttributes(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=40, kw_only=True):
    search_attributes: dict[str, Payload]
    workflow_task_completed_event_id: int = 0


class TaskEnqueued(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1000, kw_only=True):
    """A detached standalone task was enqueued by workflow code, in the commit of this event."""

    task_id: str
    task_type: str
    task_queue: str
    input: Payloads = ()
    workflow_task_completed_event_id: int = 0


Event = (
    WorkflowExecutionStarted
    | WorkflowExecutionCompleted
    | WorkflowExecutionFailed
    | WorkflowExecutionTimedOut
    | WorkflowTaskScheduled
    | WorkflowTaskStarted
    | WorkflowTaskCompleted
    | WorkflowTaskTimedOut
    | WorkflowTaskFailed
    | ActivityTaskScheduled
    | ActivityTaskStarted
    | ActivityTaskCompleted
    | ActivityTaskFailed
    | ActivityTaskTimedOut
    | ActivityTaskCancelRequested
    | ActivityTaskCanceled
    | TimerStarted
    | TimerFired
    | TimerCanceled
    | WorkflowExecutionCancelRequested
    | WorkflowExecutionCanceled
    | MarkerRecorded
    | WorkflowExecutionSignaled
    | WorkflowExecutionTerminated
    | WorkflowExecutionContinuedAsNew
    | UpsertWorkflowSearchAttributes
    | TaskEnqueued
)

CLOSING: Final = (
    WorkflowExecutionCompleted,
    WorkflowExecutionFailed,
    WorkflowExecutionTimedOut,
    WorkflowExecutionCanceled,
    WorkflowExecutionTerminated,
    WorkflowExecutionContinuedAsNew,
)

Timed = tuple[int, Event]  # the instant at which it was recorded, and the event
