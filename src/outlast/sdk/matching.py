"""Whether the commands that code issued are those that its history has, and what to say when they are not."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from outlast.core import commands, events
from outlast.core.commands import ScheduleActivity
from outlast.core.payload import Payload, Payloads
from outlast.sdk.errors import Nondeterminism

SHOWN_MAX: Final = 60  # characters of an activity's arguments in an error
PATCH: Final = "patch"
REMEDY: Final = (
    "Nothing new was executed; the run is held. Choose one: deploy the code that made this history; "
    'let both paths live with if workflow.patched("name"): … around the changed lines; start the run over from before them.'
)

PAIRS: Final[dict[type, type]] = {
    commands.ScheduleActivity: events.ActivityTaskScheduled,
    commands.RequestCancelActivity: events.ActivityTaskCancelRequested,
    commands.StartTimer: events.TimerStarted,
    commands.CancelTimer: events.TimerCanceled,
    commands.RecordMarker: events.MarkerRecorded,
    commands.UpsertSearchAttributes: events.UpsertWorkflowSearchAttributes,
    commands.EnqueueDetached: events.TaskEnqueued,
    commands.CompleteWorkflow: events.WorkflowExecutionCompleted,
    commands.FailWorkflow: events.WorkflowExecutionFailed,
    commands.CancelWorkflow: events.WorkflowExecutionCanceled,
    commands.ContinueAsNew: events.WorkflowExecutionContinuedAsNew,
}
COMMAND_EVENTS: Final = frozenset(PAIRS.values())

Recorded = tuple[int, Any]  # event id, event


def same(command: Any, event: Any, scheduled_event_id: int) -> bool:
    """Say whether ``command`` is the one that made ``event``; the id is that of the activity a cancel is for."""
    kind = _kind_of(command)
    if PAIRS.get(kind) is not _kind_of(event):
        return False
    if kind is commands.ScheduleActivity:
        return bool(command.activity_id == event.activity_id and command.activity_type == event.activity_type)
    if kind is commands.StartTimer or kind is commands.CancelTimer:
        return bool(command.timer_id == event.timer_id)
    if kind is commands.RecordMarker:
        return bool(command.marker_name == event.marker_name) and (
            command.marker_name != PATCH or _patch_of(command) == _patch_of(event)
        )
    if kind is commands.RequestCancelActivity:
        return bool(event.scheduled_event_id == scheduled_event_id)
    if kind is commands.EnqueueDetached:
        return bool(command.task_type == event.task_type)
    return True


def optional(event: Any) -> bool:
    """Say whether code may have dropped what made ``event``: a patch that was declared finished."""
    return type(event) is events.MarkerRecorded and event.marker_name == PATCH and "deprecated" in (event.details or {})


def reordered(pairs: Sequence[tuple[ScheduleActivity, Recorded]]) -> tuple[ScheduleActivity, Recorded] | None:
    """Return the first activity of a turn that got another's arguments: the code started the same ones in another order.

    Arguments that are merely different are no disagreement: code may come to pass more or other ones.
    """
    moved = [(command, entry) for command, entry in pairs if _data(command.input) != _data(entry[1].input)]
    if not moved:
        return None
    now = sorted([_identity(command) for command, _ in moved])
    then = sorted([_identity(entry[1]) for _, entry in moved])
    return moved[0] if now == then else None


def _identity(item: Any) -> tuple[str, tuple[bytes, ...]]:
    return item.activity_type, _data(item.input)


def _data(payloads: Payloads) -> tuple[bytes, ...]:
    """Return what the values are: what is said beside them may change with the types of the code."""
    return tuple([payload.data for payload in payloads])


def disagreement(
    *, workflow_id: str, build: str, recorded: Recorded | None, command: Any, event_id: int, place: str
) -> Nondeterminism:
    """Return the error for the first place where history and code differ; one of the two may be missing."""
    history = "nothing more in this turn" if recorded is None else told(recorded[1])
    code = "nothing more in this turn" if command is None else told(command)
    where = f"        {place}" if place else ""
    made_by = f" (build {build})" if build else ""
    return Nondeterminism(
        f"run {workflow_id} and its code disagree at event {event_id}.\n"
        f"  history{made_by}  {history}\n"
        f"  code  {code}{where}\n"
        f"  Up to event {event_id - 1} they agree.",
        event_id=event_id,
        recorded=history,
        replayed=code,
        place=place,
        remedy=REMEDY,
    )


def told(item: Any) -> str:
    """Return a command or its event in words a user knows."""
    kind = _kind_of(item)
    tell = _TOLD.get(kind)
    return tell(item) if tell else str(kind.__name__)


def _activity(item: Any) -> str:
    return f"{item.activity_type}({_shown(item.input)}), activity {item.activity_id}"


def _shown(payloads: Payloads) -> str:
    """Return arguments for people: what is plain JSON, and no more of it than tells one call from another."""
    texts = [
        payload.data[:SHOWN_MAX].decode("utf-8", "replace") if payload.encoding == "json/plain" else "…"
        for payload in payloads[:3]
    ]
    text = ", ".join(texts)
    return text if len(text) < SHOWN_MAX else text[:SHOWN_MAX] + "…"


def _timer(item: Any) -> str:
    return f"a timer of {item.start_to_fire / 1_000_000_000:g} s, timer {item.timer_id}"


def _marker(item: Any) -> str:
    return f"workflow.{item.marker_name}({_patch_of(item) or '…'})"


def _kind_of(item: object) -> type:
    return type(item)


def _patch_of(item: Any) -> str:
    details: dict[str, Payload] = item.details or {}
    return details["id"].data.decode() if "id" in details else ""


_TOLD: Final[dict[type, Callable[[Any], str]]] = {
    commands.ScheduleActivity: _activity,
    events.ActivityTaskScheduled: _activity,
    commands.RequestCancelActivity: lambda item: f"cancel of activity {item.activity_id}",
    events.ActivityTaskCancelRequested: lambda item: f"cancel of the activity of event {item.scheduled_event_id}",
    commands.StartTimer: _timer,
    events.TimerStarted: _timer,
    commands.CancelTimer: lambda item: f"cancel of timer {item.timer_id}",
    events.TimerCanceled: lambda item: f"cancel of timer {item.timer_id}",
    commands.RecordMarker: _marker,
    events.MarkerRecorded: _marker,
    commands.UpsertSearchAttributes: lambda _: "workflow.set_search_attributes(…)",
    events.UpsertWorkflowSearchAttributes: lambda _: "workflow.set_search_attributes(…)",
    commands.EnqueueDetached: lambda item: f"{item.task_type}, enqueued",
    events.TaskEnqueued: lambda item: f"{item.task_type}, enqueued",
    commands.CompleteWorkflow: lambda _: "the run's result",
    events.WorkflowExecutionCompleted: lambda _: "the run's result",
    commands.FailWorkflow: lambda item: f"the run's failure: {item.failure.type}",
    events.WorkflowExecutionFailed: lambda item: f"the run's failure: {item.failure.type}",
    commands.CancelWorkflow: lambda _: "the run's end by cancel",
    events.WorkflowExecutionCanceled: lambda _: "the run's end by cancel",
    commands.ContinueAsNew: lambda _: "workflow.continue_as_new(…)",
    events.WorkflowExecutionContinuedAsNew: lambda _: "workflow.continue_as_new(…)",
}
