"""A small engine in memory for the tests of replay: it turns commands into events by the rules of a run.

``Stage`` plays a workflow in one of three ways, which must not differ: with the run kept in memory between turns, with
the run rebuilt from its whole history for each turn, or kept in memory with every turn checked by a replay beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import WorkflowToken
from outlast.core.payload import Payload
from outlast.core.replies import WorkflowTask
from outlast.core.units import SECOND
from outlast.sdk.converter import Converter
from outlast.sdk.definition import WorkflowDefinition
from outlast.sdk.errors import failure_of
from outlast.sdk.replay import Turn, WorkflowRun
from outlast.sdk.task import Task
from outlast.sdk.workflows import Workflow

MODES: Final = ("kept", "rebuilt", "checked")
START: Final = 1_700_000_000 * SECOND
CONVERTER: Final = Converter()


def task(function: Callable[..., Any]) -> Task[..., Any]:
    """Return ``function`` as a task of no app."""
    return Task(function, home=None, declared={})


def definition_of(function: Callable[..., Any], **declared: Any) -> WorkflowDefinition:
    """Return ``function`` as a workflow's definition."""
    return Workflow(function, home=None, declared=declared).definition  # type: ignore[arg-type]


def workflow_task(timed: list[e.Timed], *, first: int = 1, run_id: str = "run-1") -> WorkflowTask:
    """Return a turn over ``timed``, which begin with event ``first``."""
    return WorkflowTask(
        token=WorkflowToken(run_id, 1, 1, 1),
        workflow_id="order-7",
        run_id=run_id,
        original_run_id=run_id,
        type="",
        queue="default",
        attempt=1,
        first_event_id=first,
        started_event_id=first + len(timed) - 1,
        events=tuple(timed),
    )


@dataclass(slots=True)
class Open:
    """An activity or timer that is open."""

    event_id: int
    command: Any
    due_at: int = 0


@dataclass
class Stage:
    """One run and its engine. Words are those of a history; times in seconds."""

    mode: str = "kept"
    run_id: str = "run-1"
    now: int = START
    history: list[e.Timed] = field(default_factory=list[e.Timed])
    turns: list[tuple[c.Command, ...]] = field(default_factory=list[tuple[c.Command, ...]])
    activities: dict[str, Open] = field(default_factory=dict[str, Open])
    timers: dict[str, Open] = field(default_factory=dict[str, Open])
    closed: c.Command | None = None
    places: dict[str, str] = field(default_factory=dict[str, str])
    ready: bool = False
    run: WorkflowRun | None = None
    definition: WorkflowDefinition | None = None

    # What comes from outside.

    def start(self, function: Any, *args: Any, carried: tuple[e.WorkflowExecutionSignaled, ...] = ()) -> "Stage":
        self.definition = function if isinstance(function, WorkflowDefinition) else definition_of(function)
        self._record(
            e.WorkflowExecutionStarted(
                workflow_type=self.definition.name,
                task_queue="default",
                input=CONVERTER.arguments_to_payloads(self.definition.parameters, args, {}),
                run_id=self.run_id,
                original_run_id=self.run_id,
                first_run_id=self.run_id,
                carried_signals=carried,
            )
        )
        return self

    def complete(self, activity_id: str, result: Any = None) -> "Stage":
        return self.finish(activity_id, CONVERTER.to_payload(result, path="result"))

    def finish(self, activity_id: str, payload: Payload) -> "Stage":
        scheduled = self._end(activity_id)
        self._record(
            e.ActivityTaskCompleted(scheduled_event_id=scheduled, started_event_id=len(self.history), result=(payload,))
        )
        return self

    def fail(self, activity_id: str, error: BaseException | Failure) -> "Stage":
        scheduled = self._end(activity_id)
        self._record(
            e.ActivityTaskFailed(
                scheduled_event_id=scheduled,
                started_event_id=len(self.history),
                failure=error if isinstance(error, Failure) else failure_of(error),
                retry_state="maximum_attempts_reached",
            )
        )
        return self

    def time_out(self, activity_id: str) -> "Stage":
        scheduled = self._end(activity_id)
        failure = Failure(kind=FailureKind.TIMEOUT, type="start_to_close", message="It took too long.")
        self._record(
            e.ActivityTaskTimedOut(
                scheduled_event_id=scheduled,
                started_event_id=len(self.history),
                timeout_type="start_to_close",
                failure=failure,
                retry_state="timeout",
            )
        )
        return self

    def confirm_cancel(self, activity_id: str) -> "Stage":
        scheduled = self._end(activity_id)
        self._record(e.ActivityTaskCanceled(scheduled_event_id=scheduled, started_event_id=len(self.history)))
        return self

    def fire(self, timer_id: str) -> "Stage":
        opened = self.timers.pop(timer_id)
        self.now = max(self.now, opened.due_at)
        self._record(e.TimerFired(timer_id=timer_id, started_event_id=opened.event_id))
        return self

    def signal(self, name: str, value: Any = None) -> "Stage":
        payload = CONVERTER.to_payload(value, path="value")
        self._record(e.WorkflowExecutionSignaled(signal_name=name, input=(payload,)))
        return self

    def cancel(self) -> "Stage":
        self._record(e.WorkflowExecutionCancelRequested(reason="asked"))
        return self

    def fail_turn(self) -> "Stage":
        """Record a workflow task that was started and failed."""
        scheduled = self._show_pair()
        self._append(
            e.WorkflowTaskFailed(scheduled_event_id=scheduled, started_event_id=scheduled + 1, cause="worker_lost")
        )
        return self

    # Turns.

    def turn(self, *, during: Callable[["Stage"], object] | None = None) -> tuple[c.Command, ...]:
        """Have the code do one turn; what ``during`` records arrives while it is at work."""
        assert self.definition is not None
        scheduled = self._show_pair()
        turn = self._advance()
        parked: list[e.Timed] = []
        if during is not None:
            parked = self._parked(during)
        self._append(e.WorkflowTaskCompleted(scheduled_event_id=scheduled, started_event_id=scheduled + 1, build="v1"))
        completed = len(self.history)
        for command in turn.commands:
            parked = self._obey(command, completed, parked)
        self.turns.append(turn.commands)
        self.places = turn.places
        self.ready = bool(parked) and self.closed is None
        if self.closed is None:
            self.history.extend(parked)
        if self.mode == "checked":
            self.replay()
        return turn.commands

    def play(self, answer: Callable[[str, tuple[Any, ...]], Any], *, turns: int = 100) -> c.Command:
        """Go on until the run is closed: activities are answered in order, else the next timer fires."""
        for _ in range(turns):
            self.turn()
            if self.closed is not None:
                return self.closed
            if self.activities:
                activity_id, opened = next(iter(self.activities.items()))
                args = tuple(CONVERTER.from_payload(payload) for payload in opened.command.input)
                self.complete(activity_id, answer(opened.command.activity_type, args))
            elif self.timers:
                self.fire(min(self.timers, key=lambda timer_id: (self.timers[timer_id].due_at, int(timer_id))))
            else:
                raise AssertionError("The run waits for something that nobody sends.")
        raise AssertionError(f"The run is still open after {turns} turns.")

    def replay(self, definition: WorkflowDefinition | None = None) -> Turn:
        """Replay the whole history in a new run; raises what that finds."""
        chosen = definition or self.definition
        assert chosen is not None
        run = WorkflowRun(chosen, CONVERTER, workflow_id="order-7")
        try:
            return run.replay(self.history)
        finally:
            run.close()

    @property
    def result(self) -> Any:
        """What the run ended with: its value, its failure, or the command that closed it."""
        if isinstance(self.closed, c.CompleteWorkflow):
            return CONVERTER.from_payload(self.closed.result[0])
        if isinstance(self.closed, c.FailWorkflow):
            return self.closed.failure
        return self.closed

    def close(self) -> None:
        if self.run is not None:
            self.run.close()

    # The engine's part.

    def _advance(self) -> Turn:
        assert self.definition is not None
        if self.run is None or self.mode == "rebuilt":
            self.close()
            self.run = WorkflowRun(self.definition, CONVERTER, workflow_id="order-7")
        first = self.run.next_event_id
        return self.run.advance(workflow_task(self.history[first - 1 :], first=first, run_id=self.run_id))

    def _show_pair(self) -> int:
        self._append(e.WorkflowTaskScheduled(task_queue="default"))
        scheduled = len(self.history)
        self._append(e.WorkflowTaskStarted(scheduled_event_id=scheduled))
        self.ready = False
        return scheduled

    def _parked(self, during: Callable[["Stage"], object]) -> list[e.Timed]:
        kept, self.history = self.history, []
        during(self)
        parked, self.history = self.history, kept
        return parked

    def _obey(self, command: c.Command, completed: int, parked: list[e.Timed]) -> list[e.Timed]:
        event_id = len(self.history) + 1
        match command:
            case c.ScheduleActivity():
                self.activities[command.activity_id] = Open(event_id, command)
                assert command.retry is not None
                self._append(
                    e.ActivityTaskScheduled(
                        activity_id=command.activity_id,
                        activity_type=command.activity_type,
                        task_queue=command.task_queue,
                        input=command.input,
                        retry=command.retry,
                        workflow_task_completed_event_id=completed,
                    )
                )
            case c.RequestCancelActivity():
                opened = self.activities.get(command.activity_id)
                scheduled = opened.event_id if opened else self._scheduled_id(command.activity_id)
                self._append(e.ActivityTaskCancelRequested(scheduled_event_id=scheduled))
            case c.StartTimer():
                due_at = self.now + command.start_to_fire
                self.timers[command.timer_id] = Open(event_id, command, due_at)
                self._append(
                    e.TimerStarted(
                        timer_id=command.timer_id,
                        start_to_fire=command.start_to_fire,
                        fire_at=due_at,
                        summary=command.summary,
                    )
                )
            case c.CancelTimer():
                opened = self.timers.pop(command.timer_id, None)
                parked = [
                    timed
                    for timed in parked
                    if not (isinstance(timed[1], e.TimerFired) and timed[1].timer_id == command.timer_id)
                ]
                self._append(
                    e.TimerCanceled(timer_id=command.timer_id, started_event_id=opened.event_id if opened else 0)
                )
            case c.RecordMarker():
                self._append(e.MarkerRecorded(marker_name=command.marker_name, details=command.details))
            case c.UpsertSearchAttributes():
                self._append(e.UpsertWorkflowSearchAttributes(search_attributes=command.search_attributes))
            case c.EnqueueDetached():
                self._append(
                    e.TaskEnqueued(
                        task_id=f"{self.run_id}:d{command.place}", task_type=command.task_type, task_queue="default"
                    )
                )
            case c.CompleteWorkflow():
                self.closed = command
                self._append(e.WorkflowExecutionCompleted(result=command.result))
            case c.FailWorkflow():
                self.closed = command
                self._append(e.WorkflowExecutionFailed(failure=command.failure))
            case c.CancelWorkflow():
                self.closed = command
                self._append(e.WorkflowExecutionCanceled())
            case c.ContinueAsNew():
                self.closed = command
                self._append(
                    e.WorkflowExecutionContinuedAsNew(
                        new_run_id="run-2", workflow_type="", task_queue="", input=command.input
                    )
                )
        return parked

    def _scheduled_id(self, activity_id: str) -> int:
        return next(
            number
            for number, (_, event) in enumerate(self.history, 1)
            if isinstance(event, e.ActivityTaskScheduled) and event.activity_id == activity_id
        )

    def _end(self, activity_id: str) -> int:
        opened = self.activities.pop(activity_id)
        self._append(e.ActivityTaskStarted(scheduled_event_id=opened.event_id, attempt=1))
        return opened.event_id

    def _record(self, event: e.Event) -> None:
        self._append(event)
        self.ready = True

    def _append(self, event: e.Event) -> None:
        self.now += 1_000_000
        self.history.append((self.now, event))


def digest(turns: list[tuple[c.Command, ...]]) -> str:
    """Return the commands of all turns as text that two runs can be compared by."""
    return msgspec.json.encode(turns).decode()


def text(value: str) -> Payload:
    """Return ``value`` as the payload the converter makes of it."""
    return CONVERTER.to_payload(value, path="value")
