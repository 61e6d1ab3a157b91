"""What a completed workflow task asks for: commands to events, checked in order, all or none.

``decide`` reads the run and touches nothing; what earlier commands of the same turn did is seen through an overlay. So a
command that is refused leaves no trace.
"""

from typing import NoReturn, assert_never

import msgspec

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import limits
from outlast.core.errors import Invalid, TooLarge
from outlast.core.machines.asked import check_command
from outlast.core.payload import size_of
from outlast.core.retry import DEFAULT_POLICY
from outlast.core.run import PUBLISH, Run
from outlast.core.units import later, operation_id_of

ClosingCommand = c.CompleteWorkflow | c.FailWorkflow | c.CancelWorkflow | c.ContinueAsNew


class Decided(msgspec.Struct, gc=False):
    """What the commands come to. ``events`` get ids in order, directly behind WorkflowTaskCompleted."""

    events: list[e.Event] = []
    closing: ClosingCommand | None = None
    cancel: list[int] = []  # scheduled event ids of activities to be canceled
    unfire: set[str] = set()  # timers canceled although their firing is parked
    detached: list[tuple[str, c.EnqueueDetached]] = []


class _Overlay(msgspec.Struct, gc=False):
    run: Run
    now: int
    completed_id: int
    activities: dict[str, int]
    timers: dict[str, int]
    published: set[str]
    decided: Decided

    @property
    def next_id(self) -> int:
        return self.completed_id + 1 + len(self.decided.events)


def decide(run: Run, commands: tuple[c.Command, ...], *, completed_id: int, now: int) -> Decided:
    """Return what ``commands`` come to.

    Raises:
        Invalid: code "bad_command"; the whole turn fails.
    """
    if len(commands) > limits.COMMANDS_MAX:
        _refuse(f"The turn has {len(commands)} commands; {limits.COMMANDS_MAX} are allowed.")
    try:
        for command in commands:
            check_command(command)
    except (Invalid, TooLarge) as refusal:
        _refuse(refusal.fact)
    if len(commands) == 1 and isinstance(commands[0], c.CLOSING):
        return Decided(closing=commands[0])  # the last turn of most runs
    state = run.state
    overlay = _Overlay(
        run,
        now,
        completed_id,
        # Most turns begin with nothing open.
        activities={at.activity_id: id_ for id_, at in state.activities.items()} if state.activities else {},
        timers={id_: timer.started_event_id for id_, timer in state.timers.items()} if state.timers else {},
        published=set(state.published or ()),
        decided=Decided(),
    )
    for command in commands:
        if overlay.decided.closing is not None:
            break  # what comes behind a closing command is ignored
        _decide_one(overlay, command)
    return overlay.decided


def _decide_one(overlay: _Overlay, command: c.Command) -> None:
    events = overlay.decided.events
    match command:
        case c.ScheduleActivity():
            events.append(_schedule(overlay, command))
        case c.RequestCancelActivity():
            events.append(_cancel_activity(overlay, command))
        case c.StartTimer():
            events.append(_start_timer(overlay, command))
        case c.CancelTimer():
            events.append(_cancel_timer(overlay, command))
        case c.RecordMarker():
            _check_published(overlay, command)
            events.append(
                e.MarkerRecorded(
                    marker_name=command.marker_name,
                    details=command.details,
                    failure=command.failure,
                    workflow_task_completed_event_id=overlay.completed_id,
                )
            )
        case c.UpsertSearchAttributes():
            events.append(
                e.UpsertWorkflowSearchAttributes(
                    search_attributes=command.search_attributes,
                    workflow_task_completed_event_id=overlay.completed_id,
                )
            )
        case c.EnqueueDetached():
            events.append(_enqueue(overlay, command))
        case c.CompleteWorkflow() | c.FailWorkflow() | c.CancelWorkflow() | c.ContinueAsNew():
            overlay.decided.closing = command
        case _:
            assert_never(command)


def _check_published(overlay: _Overlay, command: c.RecordMarker) -> None:
    if command.marker_name != PUBLISH:
        return
    for name, value in (command.details or {}).items():
        if len(value.data) > limits.PUBLISHED_BYTES_MAX:
            _refuse(f"What is published as {name!r} has over {limits.PUBLISHED_BYTES_MAX} bytes.")
        overlay.published.add(name)
    if len(overlay.published) > limits.PUBLISHED_MAX:
        _refuse(
            f"The run would have published under {len(overlay.published)} names; {limits.PUBLISHED_MAX} are allowed."
        )


def _schedule(overlay: _Overlay, command: c.ScheduleActivity) -> e.Event:
    run = overlay.run
    if command.activity_id in overlay.activities:
        _refuse(f"Activity {command.activity_id} is open already.")
    if not command.activity_id:
        _refuse("An activity needs an id.")
    if size_of(command.input) > limits.REQUEST_BYTES_MAX:
        _refuse(f"The arguments of activity {command.activity_id} are over {limits.REQUEST_BYTES_MAX} bytes.")
    event_id = overlay.next_id
    overlay.activities[command.activity_id] = event_id
    position = command.operation_key or f"activity {command.activity_id}"
    start_to_close = command.start_to_close
    if not start_to_close and not command.schedule_to_close:
        start_to_close = limits.START_TO_CLOSE
    return e.ActivityTaskScheduled(
        activity_id=command.activity_id,
        activity_type=command.activity_type,
        task_queue=command.task_queue,
        input=command.input,
        headers=command.headers,
        retry=command.retry or DEFAULT_POLICY,
        start_to_close=start_to_close,
        schedule_to_start=command.schedule_to_start,
        schedule_to_close=command.schedule_to_close,
        heartbeat=command.heartbeat,
        priority=command.priority,
        operation_id=operation_id_of(run.namespace, run.original_run_id, position),
        workflow_task_completed_event_id=overlay.completed_id,
        summary=command.summary,
        task_id=f"{run.run_id}:{event_id}",
    )


def _cancel_activity(overlay: _Overlay, command: c.RequestCancelActivity) -> e.Event:
    scheduled_event_id = overlay.activities.get(command.activity_id)
    if scheduled_event_id is None:
        _refuse(f"Activity {command.activity_id} is not open; it cannot be canceled.")
    overlay.decided.cancel.append(scheduled_event_id)
    return e.ActivityTaskCancelRequested(
        scheduled_event_id=scheduled_event_id, workflow_task_completed_event_id=overlay.completed_id
    )


def _start_timer(overlay: _Overlay, command: c.StartTimer) -> e.Event:
    if command.timer_id in overlay.timers:
        _refuse(f"Timer {command.timer_id} is open already.")
    if not command.timer_id or not 0 <= command.start_to_fire <= limits.SPAN_MAX:
        _refuse(f"Timer {command.timer_id!r} lasts {command.start_to_fire} ns; 0 to {limits.SPAN_MAX} are allowed.")
    overlay.timers[command.timer_id] = overlay.next_id
    return e.TimerStarted(
        timer_id=command.timer_id,
        start_to_fire=command.start_to_fire,
        fire_at=later(overlay.now, command.start_to_fire),
        workflow_task_completed_event_id=overlay.completed_id,
        summary=command.summary,
    )


def _cancel_timer(overlay: _Overlay, command: c.CancelTimer) -> e.Event:
    started_event_id = overlay.timers.pop(command.timer_id, None)
    if started_event_id is None:
        _refuse(f"Timer {command.timer_id} is not open; it cannot be canceled.")
    overlay.decided.unfire.add(command.timer_id)
    return e.TimerCanceled(
        timer_id=command.timer_id,
        started_event_id=started_event_id,
        workflow_task_completed_event_id=overlay.completed_id,
    )


def _enqueue(overlay: _Overlay, command: c.EnqueueDetached) -> e.Event:
    if not command.place:
        _refuse("A detached task needs a place.")
    task_id = detached_id(overlay.run, command.place)
    if any(task_id == other for other, _ in overlay.decided.detached):
        _refuse(f"A detached task has place {command.place} already.")
    overlay.decided.detached.append((task_id, command))
    return e.TaskEnqueued(
        task_id=task_id,
        task_type=command.task_type,
        task_queue=command.task_queue,
        input=command.input,
        workflow_task_completed_event_id=overlay.completed_id,
    )


def detached_id(run: Run, place: str) -> str:
    """Return the id of the standalone task that code of ``run`` enqueues at ``place``."""
    return f"{run.run_id}:d{place}"


def _refuse(fact: str) -> NoReturn:
    raise Invalid("bad_command", fact, remedy="The workflow task failed; nothing of it was recorded.")
