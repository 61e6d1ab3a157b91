"""The catalogue of commands: what workflow code asks for when it completes a workflow task.

Each command becomes exactly one event. They are checked in order and all or none are kept.
"""

import msgspec

from outlast.core.events import Headers, WorkflowExecutionSignaled
from outlast.core.failure import Failure
from outlast.core.payload import Payload, Payloads
from outlast.core.retry import RetryPolicy


class ScheduleActivity(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1, kw_only=True):
    """Ask for an activity. ``activity_id`` is its place in the run ("1", "2", …); spans in nanoseconds, 0 for none.

    ``operation_key`` is the user's explicit key for the operation id, else "" and the place counts.
    """

    activity_id: str
    activity_type: str
    task_queue: str
    input: Payloads = ()
    headers: Headers | None = None
    retry: RetryPolicy | None = None
    start_to_close: int = 0
    schedule_to_start: int = 0
    schedule_to_close: int = 0
    heartbeat: int = 0
    priority: int = 3
    operation_key: str = ""
    summary: str = ""


class RequestCancelActivity(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2, kw_only=True):
    activity_id: str


class StartTimer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3, kw_only=True):
    timer_id: str
    start_to_fire: int
    summary: str = ""


class CancelTimer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4, kw_only=True):
    timer_id: str


class RecordMarker(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5, kw_only=True):
    marker_name: str
    details: dict[str, Payload] | None = None
    failure: Failure | None = None


class UpsertSearchAttributes(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6, kw_only=True):
    search_attributes: dict[str, Payload]


class EnqueueDetached(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7, kw_only=True):
    """Enqueue a standalone task that outlives the run; ``place`` gives it its id."""

    place: str
    task_type: str
    task_queue: str
    input: Payloads = ()
    headers: Headers | None = None
    retry: RetryPolicy | None = None
    delay: int = 0
    start_to_close: int = 0
    schedule_to_start: int = 0
    schedule_to_close: int = 0
    heartbeat: int = 0
    priority: int = 3


class CompleteWorkflow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=20, kw_only=True):
    result: Payloads = ()


class FailWorkflow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21, kw_only=True):
    failure: Failure


class CancelWorkflow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=22, kw_only=True):
    details: Payloads = ()


class ContinueAsNew(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=23, kw_only=True):
    """End this run and start the next with fresh history.

    ``unreceived`` are the event ids of signals in this run's history that the code never received and ``signals`` those
    events themselves, one for each id: they are carried over, before the parked ones. Empty ``workflow_type`` or
    ``task_queue`` mean: the same.
    """

    workflow_type: str = ""
    task_queue: str = ""
    input: Payloads = ()
    headers: Headers | None = None
    run_timeout: int = 0
    memo: dict[str, Payload] | None = None
    search_attributes: dict[str, Payload] | None = None
    unreceived: tuple[int, ...] = ()
    signals: tuple[WorkflowExecutionSignaled, ...] = ()


Command = (
    ScheduleActivity
    | RequestCancelActivity
    | StartTimer
    | CancelTimer
    | RecordMarker
    | UpsertSearchAttributes
    | EnqueueDetached
    | CompleteWorkflow
    | FailWorkflow
    | CancelWorkflow
    | ContinueAsNew
)

CLOSING = (CompleteWorkflow, FailWorkflow, CancelWorkflow, ContinueAsNew)
