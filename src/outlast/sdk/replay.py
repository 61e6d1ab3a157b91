"""A run of workflow code, brought up to date by events: replay what is recorded, then do one new turn.

Events are cut into turns. The events before a WorkflowTaskStarted that was followed by a WorkflowTaskCompleted were one
turn: they are applied one after another in the order of their ids, and after each the loop runs until everything waits
again, so that code resumes in the order of recorded events. The commands the code then has issued must be those that
follow the WorkflowTaskCompleted. Only the commands of the last turn, which nothing follows, are new.
"""

import contextvars
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from outlast.core import commands, events
from outlast.core.payload import Payloads
from outlast.core.replies import WorkflowTask
from outlast.sdk import guard, signals
from outlast.sdk.classes import no_query
from outlast.sdk.converter import Converter
from outlast.sdk.definition import WorkflowDefinition
from outlast.sdk.errors import HistoryGap, HoldsRun, Nondeterminism
from outlast.sdk.failures import exception_of, failure_of
from outlast.sdk.harmless import proof_of
from outlast.sdk.loop import Abandoned, Task, TimerHandle
from outlast.sdk.matching import COMMAND_EVENTS, Recorded, disagreement, optional, reordered, same
from outlast.sdk.operations import ActivityFuture, Received, canceled_by_others
from outlast.sdk.outcome import closing_command, turn_failure
from outlast.sdk.places import places_of
from outlast.sdk.runtime import CURRENT
from outlast.sdk.verbs import Verbs


class Turn(msgspec.Struct, frozen=True):
    """What one turn asks for. ``places`` says where the code waits: "activity:1", "timer:2", "signal:name" → "file:line"."""

    commands: tuple[commands.Command, ...]
    places: dict[str, str]
    closed: bool


class WorkflowRun(Verbs):
    """One run in memory. Not for two threads at once; any thread may take the next turn."""

    __slots__ = (
        "_build",
        "_context",
        "_main",
        "_pending",
        "_proof",
        "_signal_methods",
        "closed",
        "instance",
        "next_event_id",
    )

    def __init__(
        self,
        definition: WorkflowDefinition,
        converter: Converter,
        *,
        namespace: str = "",
        workflow_id: str = "",
        run_id: str = "",
        tracing: bool = False,
    ) -> None:
        guard.install()
        super().__init__(definition, converter, namespace=namespace, workflow_id=workflow_id, run_id=run_id)
        if tracing:
            self._traced = []
        self.next_event_id = 1  # the first event that was not seen yet
        self.closed = False
        self._main: Task | None = None
        self._build = ""
        self._pending: list[Recorded] = []
        self.asking = False
        self.instance: Any = None  # of a workflow class
        self._signal_methods: set[Task] = set()
        # What a converter of the user's gives is not known, so nothing can be proved of code that handles it.
        # Of a class only the run would be looked at, not its other methods.
        plain = type(converter) is Converter and definition.create is None
        self._proof = proof_of(definition) if plain else None
        self._context = contextvars.Context()
        self._context.run(CURRENT.set, self)

    def advance(self, task: WorkflowTask) -> Turn:
        """Bring the run up to ``task`` and return what its code asks for now.

        ``task.events`` are the whole history or go on where this instance stopped (``next_event_id``).

        Raises:
            HistoryGap: They do neither; drop the run and read its history from the start.
            Nondeterminism: The code issued other commands than are recorded. Nothing of it is to be kept.
            WorkflowTaskFailure: The turn failed for a reason that is not the run's own. Drop the run.
        """
        try:
            return self.replay(task.events, first_event_id=task.first_event_id)
        except Nondeterminism as error:
            found = self._traced_again(task) if self._traced is None and task.first_event_id == 1 else None
            error = found or error
            if not self.definition.fail_on_nondeterminism:
                raise error from None
            return Turn((commands.FailWorkflow(failure=self.converter.sealed(failure_of(error))),), {}, closed=True)

    def replay(self, timed: Sequence[events.Timed], *, first_event_id: int = 1) -> Turn:
        """As ``advance``, over bare events. Those of a closed run are checked to their end and give no commands."""
        seen = self.next_event_id - first_event_id
        if seen < 0 or self.disposed:
            raise HistoryGap(
                f"Run {self.workflow_id or self.run_id} was seen up to event {self.next_event_id - 1}; "
                f"the events that came begin with {first_event_id}."
            )
        try:
            with self.loop.enter():
                return self._context.run(self._process, timed, seen, first_event_id)
        except HoldsRun:
            raise
        except Abandoned as error:
            raise turn_failure(error) from None

    def abandon(self) -> None:
        """Give up the turn that runs now, from another thread: it ends with WorkflowTaskFailure when it next yields."""
        self.loop.abandoned = True

    def close(self) -> None:
        """Dispose of the run. Its coroutines end without issuing anything and without a warning."""
        if self.disposed:
            return
        self.disposed = True
        self.replaying = True
        if self.loop.at_rest:
            self.loop.dispose()
        else:
            with self.loop.enter():
                self._context.run(self.loop.dispose)
        # All that refers back to the run: it is freed now, and not when a collector looks, thousands of runs later.
        self._context, self._main = contextvars.Context(), None
        refers = (self.timers, self.activities, self.conditions, self.mailboxes, self.scheduled, self._signal_methods)
        for held in (*refers, self.unawaited):
            held.clear()

    # Cutting events into turns.

    def _process(self, timed: Sequence[events.Timed], seen: int, first_event_id: int) -> Turn:
        started: tuple[int, int, events.WorkflowTaskStarted] | None = None
        turn: tuple[list[Recorded], int, int, events.WorkflowTaskStarted] | None = None
        recorded: list[Recorded] = []
        pending = self._pending
        event_id = first_event_id + seen - 1
        for at, event in timed[seen:] if seen else timed:
            event_id += 1
            kind = type(event)
            if kind in COMMAND_EVENTS:
                recorded.append((event_id, event))
            elif kind in _APPLY:
                pending.append((event_id, event))
            elif kind is events.WorkflowTaskStarted:
                if turn is not None:
                    self._replay_turn(*turn, recorded)
                    turn, recorded = None, []
                started = (event_id, at, cast("events.WorkflowTaskStarted", event))
            elif kind is events.WorkflowTaskCompleted:
                if started is None:
                    raise HistoryGap(f"Event {event_id} completes a workflow task that was not started.")
                turn = (pending, *started)
                pending, started = [], None
                self._build = cast("events.WorkflowTaskCompleted", event).build
            elif kind is events.WorkflowTaskFailed or kind is events.WorkflowTaskTimedOut:
                started = None
        if turn is not None:
            self._replay_turn(*turn, recorded)
        self._pending = pending
        self.next_event_id = event_id + 1
        if started is None or self.closed:
            return Turn((), {}, closed=self.closed)
        self._pending = []
        return self._live_turn(pending, *started)

    def _replay_turn(
        self,
        pending: list[Recorded],
        event_id: int,
        at: int,
        started: events.WorkflowTaskStarted,
        recorded: list[Recorded],
    ) -> None:
        self.replaying = True
        self.markers = [event for _, event in recorded if type(event) is events.MarkerRecorded]
        issued = self._run_turn(pending, event_id, at, started)
        self._check(issued, recorded, event_id + 2)

    def _live_turn(self, pending: list[Recorded], event_id: int, at: int, started: events.WorkflowTaskStarted) -> Turn:
        self.replaying = False
        self.markers = []
        issued = self._run_turn(pending, event_id, at, started)
        # Each command becomes one event; they follow the completion, which follows the started event.
        first = event_id + 2
        for future in self.scheduled:
            self._opened(future, first + future.index)
        self.next_event_id = first + len(issued)
        self.replaying = True
        places = {} if self.closed else places_of(self)
        return Turn(tuple(issued), places, closed=self.closed)

    def _opened(self, future: ActivityFuture, event_id: int) -> None:
        future.scheduled_event_id = event_id
        self.activities[event_id] = future

    def _run_turn(
        self, pending: list[Recorded], event_id: int, at: int, started: events.WorkflowTaskStarted
    ) -> list[commands.Command]:
        self.now_ns = at
        self.history_length = event_id
        self.suggest_continue_as_new = started.suggest_continue_as_new
        self.issued = []
        self.scheduled = []
        self.started_timers = {}
        self.turn_events = pending
        self._ended_now = None
        if self._traced is not None:
            self._traced.clear()
        loop = self.loop
        for place, (number, event) in enumerate(pending):
            _APPLY[type(event)](self, number, event)
            if loop.has_ready or self.conditions:
                self._run_code()
            if self.violation is not None:
                raise turn_failure(self.violation)
            main = self._main
            if main is not None and main.done():
                self._keep_signals(pending[place + 1 :])
                self._close(main)
                break
        loop.let_go()
        return self._taken()

    def _run_code(self, *, asking: bool = True) -> None:
        """Run the user's code until it waits; ``asking`` whether what it waits for holds now.

        What it calls is watched, unless this is a replay or it is proved to be harmless; our own code is not.
        """
        proof = self._proof
        self.watching = not self.replaying and (proof is None or not proof.holds()) and guard.watch()
        try:
            self.loop.run_ready()
            if asking and self.conditions:
                self.look_again()
        finally:
            if self.watching:
                guard.unwatch()
                self.watching = False

    def _keep_signals(self, left: list[Recorded]) -> None:
        """Take in the signals behind the event that ended the code: the next run of the chain may want them."""
        for event_id, event in left:
            if type(event) is events.WorkflowExecutionSignaled:
                self.mailbox(event.signal_name).signals.append(Received(event_id, event))

    def _taken(self) -> list[commands.Command]:
        """Return the turn's commands without those that were taken back, and renumber what refers to them."""
        if None not in self.issued:
            return self.issued  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
        kept: list[commands.Command] = []
        index_of: dict[int, int] = {}
        traced: list[str] = []
        for index, command in enumerate(self.issued):
            if command is not None:
                index_of[index] = len(kept)
                kept.append(command)
                if self._traced is not None:
                    traced.append(self._traced[index])
        self.scheduled = [future for future in self.scheduled if future.index in index_of]
        for future in self.scheduled:
            future.index = index_of[future.index]
        if self._traced is not None:
            self._traced[:] = traced
        return kept

    def _close(self, main: Task) -> None:
        self.closed = True
        self.issue(closing_command(self, main))

    # Checking what was issued against what is recorded.

    def _check(self, issued: list[commands.Command], recorded: list[Recorded], first: int) -> None:
        place = 0
        for command in issued:
            while place < len(recorded) and not self._same(command, recorded[place][1]):
                if not optional(recorded[place][1]):
                    raise self._disagreement(issued.index(command), command, recorded[place], first)
                place += 1
            if place == len(recorded):
                raise self._disagreement(issued.index(command), command, None, first)
            place += 1
        for left in recorded[place:]:
            if not optional(left[1]):
                raise self._disagreement(-1, None, left, first)
        if self.scheduled:
            self._open_recorded(issued, recorded, first)

    def _same(self, command: commands.Command, event: Any) -> bool:
        target = 0
        if type(command) is commands.RequestCancelActivity:
            target = self.canceled.get(command.activity_id, 0)
        return same(command, event, target)

    def _open_recorded(self, issued: list[commands.Command], recorded: list[Recorded], first: int) -> None:
        entries = {
            event.activity_id: (event_id, event)
            for event_id, event in recorded
            if type(event) is events.ActivityTaskScheduled
        }
        for future in self.scheduled:
            self._opened(future, entries[future.activity_id][0])
        if len(self.scheduled) > 1:
            pairs = [
                (command, entries[command.activity_id])
                for command in issued
                if type(command) is commands.ScheduleActivity
            ]
            swapped = reordered(pairs)
            if swapped is not None:
                command, entry = swapped
                raise self._disagreement(issued.index(command), command, entry, first)

    def _disagreement(self, index: int, command: Any, recorded: Recorded | None, first: int) -> Nondeterminism:
        place = self._traced[index] if self._traced and 0 <= index < len(self._traced) else ""
        return disagreement(
            workflow_id=self.workflow_id or self.run_id,
            build=self._build,
            recorded=recorded,
            command=command,
            event_id=recorded[0] if recorded else first + max(index, 0),
            place=place or self.definition.place,
        )

    def _traced_again(self, task: WorkflowTask) -> Nondeterminism | None:
        """Replay once more, this time noting the line of each command: too dear to do always."""
        again = WorkflowRun(
            self.definition,
            self.converter,
            namespace=self.namespace,
            workflow_id=self.workflow_id,
            run_id=self.run_id,
            tracing=True,
        )
        try:
            again.replay(task.events)
        except Nondeterminism as found:
            return found
        except HoldsRun:
            return None
        finally:
            again.close()
        return None

    # Applying one event.

    def on_started(self, _event_id: int, event: events.WorkflowExecutionStarted) -> None:
        self.begin(event)
        try:
            args, kwargs = self.converter.payloads_to_arguments(self.definition.parameters, event.input)
            begin = self.definition.function if self.definition.create is None else self._begin_object
            self._main = self.loop.start(begin(*args, **kwargs), name="main")
        except Exception as error:  # the stored input does not fit the code: hold the run, do not lose it
            raise turn_failure(error) from error

    async def _begin_object(self, *args: Any, **kwargs: Any) -> Any:
        """Make the object of a class and run its run; signals that an earlier run of the chain handed on come first."""
        create = self.definition.create
        assert create is not None
        self.instance = create()
        for name in self.definition.signals:
            carried = self.mailbox(name).signals
            while carried:
                self._call_signal_method(carried.popleft().event)
        return await self.definition.function(self.instance, *args, **kwargs)

    def _call_signal_method(self, event: events.WorkflowExecutionSignaled) -> None:
        task = self.loop.create_task(self._signal_method(event))
        self._signal_methods.add(task)
        task.add_done_callback(self._signal_methods.discard)

    async def _signal_method(self, event: events.WorkflowExecutionSignaled) -> None:
        """Call the method of a signal. What it raises holds the run: the signal is not lost, better code takes it."""
        method = self.definition.signals[event.signal_name]
        try:
            args, kwargs = signals.arguments_of(self.converter, event.signal_name, event.input, method.parameters)
            waits = method.function(self.instance, *args, **kwargs)
            if waits is not None and inspect.isawaitable(waits):
                await waits
        except Exception as error:  # noqa: BLE001 - whatever the user's method raises
            self.report(turn_failure(error))

    def query(self, name: str, input: Payloads) -> Payloads:
        """Return what the query method ``name`` says of the run as it stands.

        Raises:
            UnsupportedHere: There is no such method.
            Exception: Whatever the method raises.
        """
        method = self.definition.queries.get(name)
        if method is None:
            raise no_query(name, self.definition)
        args, kwargs = self.converter.payloads_to_arguments(method.parameters, input)
        self.asking = True
        try:
            with self.loop.enter():
                value = self._context.run(method.function, self.instance, *args, **kwargs)
        finally:
            self.asking = False
        return (self.converter.to_payload(value, path="result", declared=method.parameters.result),)

    def on_signaled(self, event_id: int, event: events.WorkflowExecutionSignaled) -> None:
        if event.signal_name in self.definition.signals:
            self._call_signal_method(event)
            return
        mailbox = self.mailbox(event.signal_name)
        mailbox.signals.append(Received(event_id, event))
        mailbox.wake()

    def on_cancel_requested(self, _event_id: int, _event: events.WorkflowExecutionCancelRequested) -> None:
        self.cancel_requested = True
        self.cancel_main()

    def cancel_main(self) -> None:
        """Cancel the main task, unless a shield is up: then when it comes down."""
        if self.shields:
            self.cancel_waiting = True
        elif self._main is not None and not self._main.done():
            waiter = getattr(self._main, "_fut_waiter", None)
            if isinstance(waiter, ActivityFuture):
                waiter.absorbing = True
            self._main.cancel()

    def on_timer_fired(self, _event_id: int, event: events.TimerFired) -> None:
        handle: TimerHandle | None = self.timers.pop(event.timer_id, None)
        if handle is not None:
            self.loop.fire(handle)

    def _activity(self, scheduled_event_id: int) -> ActivityFuture | None:
        future = self.activities.pop(scheduled_event_id, None)
        if future is None:
            raise HistoryGap(f"An activity has ended that this run did not schedule at event {scheduled_event_id}.")
        return None if future.done() else future

    def on_activity_completed(self, _event_id: int, event: events.ActivityTaskCompleted) -> None:
        future = self._activity(event.scheduled_event_id)
        if future is None:
            return
        try:
            result = event.result
            value = (
                self.converter.from_payload(result[0], future.definition.parameters.result, path=future.definition.name)
                if result
                else None
            )
        except Exception as error:  # noqa: BLE001 - raised where the code waits, with the line of the wait
            future.set_exception(error)
        else:
            future.set_result(value)
        if future.absorbing:
            # The activity ended in spite of the cancel. Its result has gone to the code; the cancel follows at the
            # code's next wait, so that neither is lost.
            self._run_code(asking=False)
            self.cancel_main()

    def on_activity_failed(self, _event_id: int, event: Any) -> None:
        future = self._activity(event.scheduled_event_id)
        if future is not None:
            error = exception_of(self.converter.opened(event.failure), task=future.definition.name)
            future.set_exception(error)
            if future.absorbing:
                self._run_code(asking=False)
                self.cancel_main()

    def on_activity_canceled(self, _event_id: int, event: events.ActivityTaskCanceled) -> None:
        future = self._activity(event.scheduled_event_id)
        if future is None:
            return
        if future.requested:
            future.end_canceled()
        else:
            future.set_exception(canceled_by_others(future))


_APPLY: Final[dict[type, Callable[[WorkflowRun, int, Any], None]]] = {
    events.WorkflowExecutionStarted: WorkflowRun.on_started,
    events.WorkflowExecutionSignaled: WorkflowRun.on_signaled,
    events.WorkflowExecutionCancelRequested: WorkflowRun.on_cancel_requested,
    events.TimerFired: WorkflowRun.on_timer_fired,
    events.ActivityTaskCompleted: WorkflowRun.on_activity_completed,
    events.ActivityTaskFailed: WorkflowRun.on_activity_failed,
    events.ActivityTaskTimedOut: WorkflowRun.on_activity_failed,
    events.ActivityTaskCanceled: WorkflowRun.on_activity_canceled,
}
