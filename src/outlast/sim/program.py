"""Random workflow programs and the deterministic interpreter that runs them, live and by replay.

A program is data: a list of operations in the input of the run. What it decides depends on its history alone, so any
prefix of a history must lead to the same commands again; the interpreter checks that wherever it reads a history.
"""

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core.failure import Failure, FailureKind
from outlast.core.payload import Payload
from outlast.core.retry import RetryPolicy
from outlast.core.units import MILLISECOND, SECOND
from outlast.sim.faults import log_uniform

QUEUES: Final = ("work", "more")
ACTIVITY_TYPES: Final = ("charge", "pack", "ship")
WORKFLOW_TYPES: Final = ("order", "return")
SIGNALS: Final = ("go", "stop")

Spec = dict[str, Any]  # what a handler is to do; see draw_spec
Operation = list[Any]


class Nondeterminism(Exception):
    """A history and the program that made it disagree."""


def payload(value: object) -> Payload:
    """Return ``value`` as a payload."""
    return Payload("json", json.dumps(value, separators=(",", ":")).encode())


def value_of(payloads: tuple[Payload, ...]) -> Any:
    """Return the first value of ``payloads``, None for none."""
    return json.loads(payloads[0].data) if payloads else None


# --- what is drawn -----------------------------------------------------------------------------------------------------


def draw_spec(chance: Random, span: int) -> Spec:
    """Return what one task's handler does and how it is retried. Spans in nanoseconds."""
    spec: Spec = {
        "span": int(log_uniform(chance, 0.05, 3.0) * span),
        "fails": chance.choice((0, 0, 0, 0, 1, 1, 2, 9)),
        "attempts": chance.choice((1, 2, 3, 5, 5, 0)),
        "first": int(chance.choice((0.05, 0.2, 0.6)) * SECOND),
    }
    if chance.random() < 0.1:
        spec["final"] = 1
    if chance.random() < 0.08:
        spec["next"] = int(0.4 * SECOND)
    if chance.random() < 0.06:
        spec["kills"] = chance.choice((1, 2, 9))  # attempts that take the worker with them
    if chance.random() < 0.12:
        spec["span"] = int(chance.uniform(3.0, 9.0) * SECOND)
    if chance.random() < 0.12:
        spec["heartbeat"] = int(chance.uniform(0.8, 2.5) * SECOND)
        spec["hangs"] = int(chance.random() < 0.3)
    if chance.random() < 0.2:
        spec["start_to_close"] = int(chance.uniform(0.3, 6.0) * SECOND)
    if chance.random() < 0.1:
        spec["schedule_to_start"] = int(chance.uniform(0.05, 4.0) * SECOND)
    if chance.random() < 0.1:
        spec["schedule_to_close"] = int(chance.uniform(0.5, 10.0) * SECOND)
    if not spec["attempts"] and (spec["fails"] >= 9 or not spec.keys().isdisjoint({"start_to_close", "heartbeat"})):
        spec["attempts"] = 4  # something has to end it
    return spec


def policy_of(spec: Spec) -> RetryPolicy:
    """Return the retry policy that ``spec`` asks for."""
    return RetryPolicy(
        attempts_max=spec["attempts"], first=spec["first"], factor=2.0, longest=2 * SECOND, final_types=("Fatal",)
    )


def draw_program(chance: Random, span: int, *, depth: int = 2) -> dict[str, Any]:
    """Return a random program with at most ``depth`` further runs after it."""
    operations: list[Operation] = []
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        draw = chance.random()
        if draw < 0.35:
            operations.append(["activity", draw_spec(chance, span)])
        elif draw < 0.47:
            operations.append(["parallel", [draw_spec(chance, span) for _ in range(chance.choice((2, 3, 5)))]])
        elif draw < 0.62:
            operations.append(["sleep", int(log_uniform(chance, 0.01, 4.0) * SECOND)])
        elif draw < 0.84:
            timeout = 0 if chance.random() < 0.25 else int(log_uniform(chance, 0.05, 5.0) * SECOND)
            operations.append(["wait", chance.choice(SIGNALS), timeout])
        elif draw < 0.89:
            operations.append(["marker", chance.randrange(1000)])
        elif draw < 0.93:
            operations.append(["enqueue", draw_spec(chance, span)])
        else:
            operations.append(["abandon", draw_spec(chance, span), int(chance.uniform(0.0, 1.0) * SECOND)])
    if depth and chance.random() < 0.3:
        operations.append(["continue", draw_program(chance, span, depth=depth - 1)["ops"]])
    else:
        operations.append(["fail"] if chance.random() < 0.12 else ["done"])
    return {"ops": operations, "obeys": int(chance.random() < 0.7)}


# --- running it --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Received:
    """A signal that has arrived and that the code has not asked for yet."""

    event_id: int
    name: str
    value: Any
    event: e.WorkflowExecutionSignaled


Wait = Generator[None, None, None]


@dataclass(slots=True)
class Interpreter:
    """One run of a program. Feed it what has happened, then take its commands."""

    program: dict[str, Any] = field(default_factory=dict[str, Any])
    type: str = ""
    queue: str = ""
    commands: list[c.Command] = field(default_factory=list[c.Command])
    signals: list[Received] = field(default_factory=list[Received])
    received: list[Any] = field(default_factory=list[Any])
    outcomes: dict[str, str] = field(default_factory=dict[str, str])  # by activity id, once closed
    opened: dict[str, int] = field(default_factory=dict[str, int])  # activity id -> event id, 0 not known yet
    by_event: dict[int, str] = field(default_factory=dict[int, str])
    timers: dict[str, str] = field(default_factory=dict[str, str])  # "open", "fired", "canceled"
    cancel_requested: bool = False
    closed: bool = False
    places: int = 0
    won: list[str] = field(default_factory=list[str])  # for each wait with a timeout, what ended it
    _body: Wait | None = None

    # -- what has happened --

    def feed(self, event_id: int, event: e.Event) -> None:
        """Take in one event that is not the echo of a command."""
        match event:
            case e.WorkflowExecutionStarted():
                self.type, self.queue = event.workflow_type, event.task_queue
                self.program = value_of(event.input)
                self.received = list(self.program.get("received", ()))
                for signal in event.carried_signals:
                    self._signal(event_id, signal)
                self._body = self._run()
            case e.WorkflowExecutionSignaled():
                self._signal(event_id, event)
            case e.WorkflowExecutionCancelRequested():
                self.cancel_requested = True
            case e.TimerFired():
                if self.timers.get(event.timer_id) != "open":
                    raise Nondeterminism(f"timer {event.timer_id} fired while {self.timers.get(event.timer_id)}")
                self.timers[event.timer_id] = "fired"
            case e.ActivityTaskCompleted():
                self._close(event.scheduled_event_id, "completed")
            case e.ActivityTaskFailed():
                self._close(event.scheduled_event_id, "failed")
            case e.ActivityTaskTimedOut():
                self._close(event.scheduled_event_id, "timed_out")
            case e.ActivityTaskCanceled():
                self._close(event.scheduled_event_id, "canceled")
            case _:
                pass

    def echo(self, event_id: int, command: c.Command) -> None:
        """Learn the event id that a command was given."""
        if isinstance(command, c.ScheduleActivity):
            self.opened[command.activity_id] = event_id
            self.by_event[event_id] = command.activity_id

    def turn(self) -> tuple[c.Command, ...]:
        """Run the code as far as it goes and return what it asks for."""
        self.commands = []
        if self._body is not None and not self.closed:
            next(self._body, None)
        return tuple(self.commands)

    def _signal(self, event_id: int, event: e.WorkflowExecutionSignaled) -> None:
        self.signals.append(Received(event_id, event.signal_name, value_of(event.input), event))

    def _close(self, scheduled_event_id: int, outcome: str) -> None:
        activity_id = self.by_event.get(scheduled_event_id)
        if activity_id is None:
            raise Nondeterminism(f"an activity closed that was never scheduled: event {scheduled_event_id}")
        if activity_id in self.outcomes:
            raise Nondeterminism(f"activity {activity_id} closed twice")
        self.outcomes[activity_id] = outcome

    # -- the code --

    def _run(self) -> Wait:
        for operation in self.program["ops"]:
            if self._stops():
                yield from self._cancel()
                return
            yield from self._operation(operation)
            if self.closed:
                return
        self._end(c.CompleteWorkflow(result=(payload(self.received),)))

    def _operation(self, operation: Operation) -> Wait:
        match operation:
            case ["activity", spec]:
                activity_id = self._schedule(spec)
                yield from self._until(lambda: activity_id in self.outcomes)
            case ["parallel", specs]:
                ids = [self._schedule(spec) for spec in specs]
                yield from self._until(lambda: all(one in self.outcomes for one in ids))
            case ["sleep", span]:
                timer_id = self._timer(span)
                yield from self._until(lambda: self.timers[timer_id] == "fired")
            case ["wait", name, timeout]:
                yield from self._wait(name, timeout)
            case ["marker", value]:
                self.commands.append(c.RecordMarker(marker_name="note", details={"value": payload(value)}))
            case ["enqueue", spec]:
                self.places += 1
                self.commands.append(
                    c.EnqueueDetached(
                        place=str(self.places), task_type=ACTIVITY_TYPES[0], task_queue=QUEUES[0],
                        input=(payload(spec),), retry=policy_of(spec), start_to_close=spec.get("start_to_close", 0),
                    )
                )  # fmt: skip
            case ["abandon", spec, span]:
                activity_id, timer_id = self._schedule(spec), self._timer(span)
                yield from self._until(lambda: activity_id in self.outcomes or self.timers[timer_id] == "fired")
                self._tidy()
                yield from self._until(lambda: activity_id in self.outcomes)
            case ["continue", operations]:
                self._continue(operations)
            case ["fail"]:
                failure = Failure(kind=FailureKind.APPLICATION, type="Refused", message="It was to fail.")
                self._end(c.FailWorkflow(failure=failure))
            case _:
                self._end(c.CompleteWorkflow(result=(payload(self.received),)))

    def _wait(self, name: str, timeout: int) -> Wait:
        timer_id = self._timer(timeout) if timeout else ""

        def here() -> bool:
            return any(signal.name == name for signal in self.signals)

        yield from self._until(lambda: here() or (timer_id != "" and self.timers[timer_id] == "fired"))
        if self._stops():
            return
        if here():
            place = next(n for n, signal in enumerate(self.signals) if signal.name == name)
            self.received.append(self.signals.pop(place).value)
            if timer_id:
                self.won.append("signal")
        elif timer_id:
            self.won.append("timeout")
        self._cancel_timers()

    def _continue(self, operations: list[Operation]) -> None:
        program = {"ops": operations, "obeys": self.program["obeys"], "received": self.received}
        self._end(
            c.ContinueAsNew(
                input=(payload(program),),
                unreceived=tuple(signal.event_id for signal in self.signals),
                signals=tuple(signal.event for signal in self.signals),
            )
        )

    def _cancel(self) -> Wait:
        self._tidy()
        yield from self._until(lambda: all(one in self.outcomes for one in self.opened), stoppable=False)
        self._end(c.CancelWorkflow(details=(payload(self.received),)))

    def _tidy(self) -> None:
        for activity_id in self.opened:
            if activity_id not in self.outcomes:
                self.commands.append(c.RequestCancelActivity(activity_id=activity_id))
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer_id, state in self.timers.items():
            if state == "open":
                self.timers[timer_id] = "canceled"
                self.commands.append(c.CancelTimer(timer_id=timer_id))

    def _until(self, ready: Any, *, stoppable: bool = True) -> Wait:
        while not ready():
            if stoppable and self._stops():
                return
            yield

    def _stops(self) -> bool:
        return self.cancel_requested and bool(self.program["obeys"])

    def _schedule(self, spec: Spec) -> str:
        self.places += 1
        activity_id = str(self.places)
        self.opened[activity_id] = 0
        self.commands.append(
            c.ScheduleActivity(
                activity_id=activity_id,
                activity_type=ACTIVITY_TYPES[self.places % len(ACTIVITY_TYPES)],
                task_queue=QUEUES[self.places % len(QUEUES)],
                input=(payload(spec),),
                retry=policy_of(spec),
                start_to_close=spec.get("start_to_close", 30 * SECOND),
                schedule_to_start=spec.get("schedule_to_start", 0),
                schedule_to_close=spec.get("schedule_to_close", 0),
                heartbeat=spec.get("heartbeat", 0),
            )
        )
        return activity_id

    def _timer(self, span: int) -> str:
        self.places += 1
        timer_id = str(self.places)
        self.timers[timer_id] = "open"
        self.commands.append(c.StartTimer(timer_id=timer_id, start_to_fire=max(span, MILLISECOND)))
        return timer_id

    def _end(self, command: c.Command) -> None:
        self.closed = True
        self.commands.append(command)


_ECHOES: Final[dict[type[Any], type[Any]]] = {
    c.ScheduleActivity: e.ActivityTaskScheduled,
    c.RequestCancelActivity: e.ActivityTaskCancelRequested,
    c.StartTimer: e.TimerStarted,
    c.CancelTimer: e.TimerCanceled,
    c.RecordMarker: e.MarkerRecorded,
    c.EnqueueDetached: e.TaskEnqueued,
    c.CompleteWorkflow: e.WorkflowExecutionCompleted,
    c.FailWorkflow: e.WorkflowExecutionFailed,
    c.CancelWorkflow: e.WorkflowExecutionCanceled,
    c.ContinueAsNew: e.WorkflowExecutionContinuedAsNew,
}


def is_echo(command: c.Command, event: e.Event) -> bool:
    """Return whether ``event`` is what ``command`` must have become."""
    if type(event) is not _ECHOES[type(command)]:
        return False
    match command:
        case c.ScheduleActivity():
            assert isinstance(event, e.ActivityTaskScheduled)
            return (command.activity_id, command.activity_type, command.input, command.task_queue) == (
                event.activity_id, event.activity_type, event.input, event.task_queue,
            )  # fmt: skip
        case c.StartTimer():
            assert isinstance(event, e.TimerStarted)
            return (command.timer_id, command.start_to_fire) == (event.timer_id, event.start_to_fire)
        case c.CancelTimer():
            assert isinstance(event, e.TimerCanceled)
            return command.timer_id == event.timer_id
        case c.CompleteWorkflow():
            assert isinstance(event, e.WorkflowExecutionCompleted)
            return command.result == event.result
        case c.ContinueAsNew():
            assert isinstance(event, e.WorkflowExecutionContinuedAsNew)
            return command.input == event.input
        case _:
            return True


def replay(history: list[e.Timed]) -> tuple[Interpreter, tuple[c.Command, ...]]:
    """Run a program over its history from event 1 and return it with the commands of the turn that the history ends in.

    The commands are empty when the history does not end with a started workflow task.

    Raises:
        Nondeterminism: a turn of the history has other commands than the program gives.
    """
    run = Interpreter()
    at = 0
    commands: tuple[c.Command, ...] = ()
    while at < len(history):
        event = history[at][1]
        if not isinstance(event, e.WorkflowTaskStarted):
            run.feed(at + 1, event)
            at += 1
            continue
        after = history[at + 1][1] if at + 1 < len(history) else None
        if after is None:
            return run, run.turn()
        if not isinstance(after, e.WorkflowTaskCompleted):
            at += 1  # an attempt that came to nothing
            continue
        commands = run.turn()
        at = _match(run, commands, history, at + 2)
    return run, ()


def _match(run: Interpreter, commands: tuple[c.Command, ...], history: list[e.Timed], at: int) -> int:
    for command in commands:
        found = history[at][1] if at < len(history) else None
        if found is None or not is_echo(command, found):
            raise Nondeterminism(f"event {at + 1} is {type(found).__name__}, the program asks for {command}")
        run.echo(at + 1, command)
        at += 1
    return at


def signals_shown(history: Sequence[e.Timed]) -> int:
    """Return how many signals the code of a run has seen: those before the last turn that it completed."""
    shown = signals = pending = 0
    for _, event in history:
        if isinstance(event, e.WorkflowExecutionSignaled):
            signals += 1
        elif isinstance(event, e.WorkflowTaskStarted):
            pending = signals
        elif isinstance(event, e.WorkflowTaskCompleted):
            shown = pending
    return shown
