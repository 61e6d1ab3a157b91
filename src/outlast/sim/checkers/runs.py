"""Runs, histories and timers: invariants 13, 30 to 35, 39 to 43 and 49."""

from outlast.core import events as e
from outlast.core.counters import is_count
from outlast.core.inputs import Poll
from outlast.core.invariants import run_findings
from outlast.core.replies import RunStatus, TaskState, Work
from outlast.core.task import TERMINAL
from outlast.core.units import SECOND
from outlast.core.writes import RunRow
from outlast.sim.mirror import Change
from outlast.sim.program import Nondeterminism, replay, value_of
from outlast.sim.scene import Scene
from outlast.sim.violation import Violation, require


class Runs:
    """Watches every run's row beside its history."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._fired: dict[tuple[str, str], None] = {}
        self._turns_out: dict[str, None] = {}

    def given_out(self, request: Poll, reply: Work) -> None:
        """Note which runs have a turn in a worker's hands."""
        for task in reply.workflow_tasks:
            self._turns_out[task.run_id] = None
            state = self._scene.mirror.states.get(task.run_id)
            if state is not None and state.sticky_worker not in ("", request.worker):
                self._scene.coverage.hit("sticky_timeout")

    def committed(self, change: Change) -> None:
        """Check each run that a commit has touched."""
        mirror = self._scene.mirror
        for run_id, _, _, event in change.events:
            self._event(change, run_id, event)
        for run_id, _, event in change.parked:
            self._parked(change, run_id, event)
        for run_id, events in change.unparked.items():
            self._unparked(run_id, events)
        for old, row in change.runs:
            if row.status == RunStatus.RUNNING.value:
                name = (row.namespace, row.workflow_id)
                other = mirror.open_by_name.setdefault(name, row.run_id)
                require(other == row.run_id, 32, "two_open_runs", f"{name}: {other} and {row.run_id}")
            if old is not None and old.status != RunStatus.RUNNING.value:
                require((old.status, old.outcome, old.next_event_id) == (row.status, row.outcome, row.next_event_id), 30,
                        "closed_run_moved", row.run_id)  # fmt: skip
            self._row(row)
            self._notice(change, old, row)
        touched = {row.run_id: None for _, row in change.runs} | {
            row.run_id: None for _, row in change.tasks if row.run_id
        }
        for run_id in touched:
            self._activities(run_id)
        for key in (*change.batch.counters, *change.counted):
            if is_count(key[1]):  # what fairness remembers is no count
                stored, counted = mirror.counters.get(key, 0), mirror.recount.get(key, 0)
                require(stored == counted, 29, "counter_not_a_recount", f"{key} is {stored}, counted {counted}")

    def _row(self, row: RunRow) -> None:
        mirror = self._scene.mirror
        fold = mirror.folds.get(row.run_id)
        require(fold is not None, 30, "run_without_history", row.run_id)
        assert fold is not None
        timers = mirror.timers_of.get(row.run_id, {}).values()
        parked = mirror.parked_events(row.run_id)
        for finding in run_findings(row, mirror.states[row.run_id], fold, parked, timers):
            raise Violation(finding.number, finding.code, finding.detail)

    def _activities(self, run_id: str) -> None:
        """Check that each open activity has a task that will end, or has ended with its word parked."""
        mirror = self._scene.mirror
        fold = mirror.folds[run_id]
        ended: dict[int, None] = {}
        for _, event in mirror.parked_events(run_id):
            if isinstance(
                event, e.ActivityTaskCompleted | e.ActivityTaskFailed | e.ActivityTaskTimedOut | e.ActivityTaskCanceled
            ):
                require(event.scheduled_event_id not in ended, 33, "activity_with_two_outcomes", f"{run_id} {event}")
                ended[event.scheduled_event_id] = None
        for number, (activity_id, task_id, _) in fold.activities.items():
            task = mirror.tasks.get(task_id)
            require(task is not None, 36, "activity_without_task", f"{run_id} {activity_id}")
            assert task is not None
            require((task.state in TERMINAL) == (number in ended), 33, "activity_and_task_disagree",
                    f"{run_id} activity {activity_id}: task {task.state}, end parked {number in ended}")  # fmt: skip

    def _event(self, change: Change, run_id: str, event: e.Event) -> None:
        mirror, hit = self._scene.mirror, self._scene.coverage.hit
        row = mirror.runs.get(run_id) or change.batch.runs.get(run_id)
        match event:
            case e.TimerFired():
                self._fire(change, run_id, event)
            case e.WorkflowExecutionStarted():
                assert row is not None
                for signal in event.carried_signals:
                    key = (row.namespace, row.workflow_id, signal.request_id)
                    mirror.signal_ids.setdefault(key, run_id)
                    mirror.recorded_signals[key] = None
            case e.WorkflowExecutionSignaled():
                assert row is not None
                key = (row.namespace, row.workflow_id, event.request_id)
                mirror.recorded_signals[key] = None
                known = mirror.signal_ids.setdefault(key, run_id)
                twice = known != run_id or sum(
                    isinstance(other, e.WorkflowExecutionSignaled) and other.request_id == event.request_id
                    for _, other in mirror.history[run_id]
                ) > 1  # fmt: skip
                require(not twice, 49, "signal_recorded_twice", key)
            case e.WorkflowExecutionFailed() if event.failure.type == "HistoryLimit":
                hit("history_limit")
                most = self._scene.config.knobs.history_events_max
                require(
                    len(mirror.history[run_id]) > most,
                    39,
                    "ended_under_its_limit",
                    f"{run_id}: {len(mirror.history[run_id])}",
                )
            case e.WorkflowExecutionContinuedAsNew():
                hit("continued_as_new")
                self._continued(change, run_id, event)
            case e.WorkflowTaskTimedOut():
                hit("workflow_task_timed_out")
                self._turns_out.pop(run_id, None)
            case e.WorkflowTaskCompleted() | e.WorkflowTaskFailed():
                self._turns_out.pop(run_id, None)
            case e.WorkflowExecutionTerminated():
                if run_id in self._turns_out:
                    hit("terminate_during_task")
                assert row is not None
                if any(other.workflow_id == row.workflow_id and other.namespace == row.namespace
                       for other in change.batch.runs.values()):  # fmt: skip
                    hit("start_terminated_existing")
            case e.TaskEnqueued():
                hit("detached_enqueued")
                require(event.task_id in mirror.tasks, 6, "detached_task_missing", event.task_id)
            case _:
                pass

    def _parked(self, change: Change, run_id: str, event: e.Event) -> None:
        hit = self._scene.coverage.hit
        row = self._scene.mirror.runs[run_id]
        if isinstance(event, e.TimerFired):
            hit("timer_parked")
            self._fire(change, run_id, event)
        elif isinstance(event, e.WorkflowExecutionSignaled):
            hit("signal_parked")
            self._scene.mirror.signal_ids.setdefault((row.namespace, row.workflow_id, event.request_id), run_id)

    def _unparked(self, run_id: str, events: list[e.Timed]) -> None:
        """Check that a signal leaves its parking place for a history only, its run's own or that of the next run."""
        row = self._scene.mirror.runs[run_id]
        for _, event in events:
            if isinstance(event, e.WorkflowExecutionSignaled):
                key = (row.namespace, row.workflow_id, event.request_id)
                require(key in self._scene.mirror.recorded_signals, 49, "parked_signal_lost", key)

    def _fire(self, change: Change, run_id: str, event: e.TimerFired) -> None:
        key = (run_id, event.timer_id)
        if key in self._fired:
            return  # parked before, recorded now
        self._fired[key] = None
        started = next(
            old for _, old in self._scene.mirror.history[run_id]
            if isinstance(old, e.TimerStarted) and old.timer_id == event.timer_id
        )  # fmt: skip
        early = started.fire_at - change.now
        require(
            early <= self._scene.config.skew,
            40,
            "timer_fired_early",
            f"{run_id} {event.timer_id}: {early / 1e6:.1f} ms",
        )
        quiet = self._scene.healed_at and started.fire_at > self._scene.healed_at + 12 * SECOND
        if quiet:
            late = change.now - started.fire_at
            require(late < 2 * SECOND, 41, "timer_fired_late", f"{run_id} {event.timer_id}: {late / 1e6:.1f} ms")

    def _continued(self, change: Change, run_id: str, event: e.WorkflowExecutionContinuedAsNew) -> None:
        mirror = self._scene.mirror
        require(event.new_run_id in change.batch.runs, 35, "continued_without_next", run_id)
        first = mirror.history[event.new_run_id][0][1]
        assert isinstance(first, e.WorkflowExecutionStarted)
        require(first.continued_run_id == run_id, 35, "next_run_of_another", event.new_run_id)
        if first.carried_signals:
            self._scene.coverage.hit("continued_with_signals")

    def _notice(self, change: Change, old: RunRow | None, row: RunRow) -> None:
        hit = self._scene.coverage.hit
        if row.run_id in change.unparked:
            turned = any(
                run_id == row.run_id and isinstance(event, e.WorkflowTaskCompleted)
                for run_id, _, _, event in change.events
            )
            hit("parked_flushed_by_task" if turned else "parked_flushed_at_load")
            canceled = {event.timer_id for run_id, _, _, event in change.events
                        if run_id == row.run_id and isinstance(event, e.TimerCanceled)}  # fmt: skip
            if any((row.run_id, timer_id) in self._fired for timer_id in canceled):
                hit("parked_timer_canceled")
        if (old is None or old.status != row.status) and row.status != RunStatus.RUNNING.value:
            point = {"canceled": "run_canceled", "terminated": "run_terminated", "timed_out": "run_timed_out",
                     "failed": "run_failed"}.get(row.status)  # fmt: skip
            if point:
                hit(point)

    # -- at the end --

    def finish(self) -> None:
        """Replay every history and go through every chain."""
        mirror = self._scene.mirror
        for run_id, history in mirror.history.items():
            try:
                replay(history)
            except Nondeterminism as error:
                raise Violation(34, "nondeterminism", f"{run_id}: {error}") from error
        chains: dict[str, list[RunRow]] = {}
        for row in mirror.runs.values():
            chains.setdefault(row.first_run_id, []).append(row)
        for chain in chains.values():
            chain.sort(key=lambda row: row.opened_no)
            self._chain(chain)
        for task in mirror.tasks.values():
            if task.run_id:
                run = mirror.runs[task.run_id]
                require(
                    run.status == RunStatus.RUNNING.value or task.state in TERMINAL,
                    61,
                    "activity_outlives_run",
                    task.task_id,
                )
            require(task.state is not TaskState.LEASED, 20, "lease_left_over", task.task_id)
        left = [
            timer for timer in mirror.timers.values() if timer.target in mirror.runs or timer.target in mirror.tasks
        ]
        require(not left, 42, "timers_left_over", left[:3])

    def _chain(self, chain: list[RunRow]) -> None:
        """Check that the signals of a chain were received once each, in the order in which they were accepted."""
        mirror = self._scene.mirror
        accepted: dict[str, list[object]] = {}
        before: list[str] = []  # request ids that the run before handed on
        whole = chain[0].run_id == chain[0].first_run_id  # else what came before has been forgotten
        for row in chain:
            history = mirror.history[row.run_id]
            first = history[0][1]
            assert isinstance(first, e.WorkflowExecutionStarted)
            carried = [signal.request_id for signal in first.carried_signals]
            require(
                carried == before or (row is chain[0] and not whole),
                35,
                "carried_signals_differ",
                f"{row.run_id}: {carried}, left over were {before}",
            )
            run, _ = replay(history)
            recorded = [event for _, event in history if isinstance(event, e.WorkflowExecutionSignaled)]
            before = [signal.event.request_id for signal in run.signals]
            # What was parked when the run continued never got an id in it: it goes to the next run alone.
            following = next((other for other in chain if other.opened_no > row.opened_no), None)
            if following is not None:
                start = mirror.history[following.run_id][0][1]
                assert isinstance(start, e.WorkflowExecutionStarted)
                passed_on = [signal.request_id for signal in start.carried_signals]
                require(passed_on[: len(before)] == before, 49, "signals_dropped_on_the_way",
                        f"{row.run_id}: {before} left over, {passed_on} carried")  # fmt: skip
                recorded += start.carried_signals[len(before) :]
                before = passed_on
            for event in recorded:
                accepted.setdefault(event.signal_name, []).append(value_of(event.input))
            received = run.received
            names = {name: [value for value in received if value in values] for name, values in accepted.items()}
            for name, values in names.items():
                require(values == accepted[name][: len(values)], 49, "signals_out_of_order",
                        f"{row.run_id} {name}: received {values} of {accepted[name]}")  # fmt: skip
