"""A history told by its steps: what was asked for, how it ended, how long it took. Bookkeeping is left out."""

from collections.abc import Iterable
from dataclasses import dataclass

from outlast.core import events as e
from outlast.core.failure import Failure
from outlast.core.run import PUBLISH
from outlast.gateway.values import told


@dataclass(slots=True)
class Step:
    """One thing a run did or waited for. ``ended_at`` is 0 while it goes on."""

    event_id: int
    kind: str  # "activity", "timer", "signal", "marker", "run", "task"
    name: str
    state: str
    began_at: int
    ended_at: int = 0
    attempt: int = 0
    detail: str = ""


def steps_of(events: Iterable[tuple[int, int, e.Event]]) -> list[Step]:
    """Return the steps of (event id, instant, event), in the order in which they began."""
    steps: dict[int, Step] = {}
    for event_id, at, event in events:
        begun = _begun(event_id, at, event)
        if begun is not None:
            steps[event_id] = begun
        else:
            _ended(steps, event_id, at, event)
    return list(steps.values())


def _begun(event_id: int, at: int, event: e.Event) -> Step | None:
    match event:
        case e.WorkflowExecutionStarted():
            return Step(event_id, "run", event.workflow_type, "started", at, at)
        case e.ActivityTaskScheduled():
            return Step(event_id, "activity", event.activity_type, "waiting", at)
        case e.TimerStarted():
            return Step(event_id, "timer", event.summary or "sleep", "waiting", at)
        case e.WorkflowExecutionSignaled():
            return Step(event_id, "signal", event.signal_name, "received", at, at)
        case e.MarkerRecorded():
            return _marked(event_id, at, event)
        case e.TaskEnqueued():
            return Step(event_id, "task", event.task_type, "enqueued", at, at)
        case e.WorkflowExecutionCancelRequested():
            return Step(event_id, "run", "cancel", "requested", at, at, detail=event.reason)
        case e.WorkflowTaskFailed():
            return Step(event_id, "run", "code", "failed", at, at, detail=_said(event.failure) or event.cause)
        case e.WorkflowTaskTimedOut():
            return Step(event_id, "run", "code", "timed out", at, at)
        case _:
            return _closed(event_id, at, event)


def _marked(event_id: int, at: int, event: e.MarkerRecorded) -> Step:
    """Return a marker with what it says: the name and the value of what was published, the text of a note."""
    details = event.details or {}
    names = [name for name in details if event.marker_name == PUBLISH]
    name = " ".join([event.marker_name, *names])
    return Step(event_id, "marker", name, "recorded", at, at, detail=", ".join(map(told, details.values())))


def _closed(event_id: int, at: int, event: e.Event) -> Step | None:
    match event:
        case e.WorkflowExecutionCompleted():
            return Step(event_id, "run", "", "completed", at, at)
        case e.WorkflowExecutionFailed():
            return Step(event_id, "run", "", "failed", at, at, detail=_said(event.failure))
        case e.WorkflowExecutionTimedOut():
            return Step(event_id, "run", "", "timed out", at, at)
        case e.WorkflowExecutionCanceled():
            return Step(event_id, "run", "", "canceled", at, at)
        case e.WorkflowExecutionTerminated():
            return Step(event_id, "run", "", "terminated", at, at, detail=event.reason)
        case e.WorkflowExecutionContinuedAsNew():
            return Step(event_id, "run", "", "continued as new", at, at, detail=event.new_run_id)
        case _:
            return None


def _ended(steps: dict[int, Step], event_id: int, at: int, event: e.Event) -> None:
    match event:
        case e.ActivityTaskStarted():
            if event.scheduled_event_id in steps:
                steps[event.scheduled_event_id].attempt = event.attempt
        case e.ActivityTaskCompleted():
            _end(steps, event.scheduled_event_id, "done", at)
        case e.ActivityTaskFailed():
            _end(steps, event.scheduled_event_id, "failed", at, _said(event.failure))
        case e.ActivityTaskTimedOut():
            _end(steps, event.scheduled_event_id, "timed out", at, event.timeout_type)
        case e.ActivityTaskCanceled():
            _end(steps, event.scheduled_event_id, "canceled", at)
        case e.TimerFired():
            _end(steps, event.started_event_id, "fired", at)
        case e.TimerCanceled():
            _end(steps, event.started_event_id, "canceled", at)
        case _:
            del event_id  # the bookkeeping of workflow tasks


def _end(steps: dict[int, Step], begun: int, state: str, at: int, detail: str = "") -> None:
    step = steps.get(begun)
    if step is not None:
        step.state, step.ended_at, step.detail = state, at, detail


def _said(failure: Failure | None) -> str:
    return f"{failure.type}: {failure.message}" if failure else ""
