"""What was committed, kept beside the store by the simulator's own hand, so that checkers need not trust the store."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from outlast.core import codec
from outlast.core import events as e
from outlast.core.counters import counter_of
from outlast.core.invariants import Broken, Reference
from outlast.core.replies import RunStatus
from outlast.core.task import TERMINAL
from outlast.core.units import Fence
from outlast.core.writes import (
    AttemptRow,
    Batch,
    DedupRow,
    ParkedRow,
    RunRow,
    RunState,
    TaskRow,
    TaskSpec,
    TaskStatus,
    TimerRow,
    run_after,
    task_after,
)
from outlast.sim.violation import Violation, require


@dataclass(slots=True)
class Change:
    """One commit, with what stood there before."""

    batch: Batch
    owner: str
    now: int  # true time
    runs: list[tuple[RunRow | None, RunRow]] = field(default_factory=list[tuple[RunRow | None, RunRow]])
    tasks: list[tuple[TaskRow | None, TaskRow]] = field(default_factory=list[tuple[TaskRow | None, TaskRow]])
    events: list[tuple[str, int, int, e.Event]] = field(default_factory=list[tuple[str, int, int, e.Event]])
    parked: list[tuple[str, int, e.Event]] = field(default_factory=list[tuple[str, int, e.Event]])
    counted: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])  # counts that moved
    forgotten_runs: list[RunRow] = field(default_factory=list[RunRow])
    forgotten_tasks: list[TaskRow] = field(default_factory=list[TaskRow])
    unparked: dict[str, list[e.Timed]] = field(default_factory=dict[str, list[e.Timed]])  # parked before, and no more


class Mirror:
    """All rows as of the last commit."""

    def __init__(self) -> None:
        self.fence = Fence(0, 0)
        self.number = 0
        self.runs: dict[str, RunRow] = {}
        self.states: dict[str, RunState] = {}
        self.history: dict[str, list[e.Timed]] = {}
        self.folds: dict[str, Reference] = {}
        self.parked: dict[str, dict[int, ParkedRow]] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.specs: dict[str, TaskSpec] = {}
        self.statuses: dict[str, TaskStatus] = {}
        self.attempts: dict[str, list[AttemptRow]] = {}
        self.timers: dict[tuple[int, str], TimerRow] = {}
        self.timers_of: dict[str, dict[tuple[int, str], TimerRow]] = {}
        self.dedup: dict[tuple[str, str, str], DedupRow] = {}
        self.counters: dict[tuple[str, str], int] = {}
        self.recount: Counter[tuple[str, str]] = Counter()
        self.open_runs: dict[str, None] = {}
        self.open_tasks: dict[str, None] = {}
        self.open_by_name: dict[tuple[str, str], str] = {}
        self.signal_ids: dict[tuple[str, str, str], str] = {}  # (namespace, workflow id, request id) -> run id
        self.recorded_signals: dict[tuple[str, str, str], None] = {}  # of them, those that a history holds
        self.versions: dict[str, list[tuple[int, int]]] = {}  # run id -> (batch number, events)
        self.gone: dict[str, int] = {}  # what was forgotten, run or task, with when it had closed
        self.gone_names: dict[tuple[str, str], None] = {}  # workflow ids that had runs which were forgotten

    def apply(self, batch: Batch, owner: str, now: int) -> Change:
        """Take one commit in and say what it changed."""
        change = Change(batch, owner, now)
        self.number = batch.number
        for run_id in batch.unparked:
            if run_id in self.parked:
                change.unparked[run_id] = self.parked_events(run_id)
                del self.parked[run_id]
        self._take_history(batch, change)
        for parked_row in batch.parked:
            parked = self.parked.setdefault(parked_row.run_id, {})
            require(parked_row.n not in parked, 13, "parked_row_written_twice", f"{parked_row.run_id} {parked_row.n}")
            parked[parked_row.n] = parked_row
            at, event = codec.decode_timed(parked_row.blob)
            change.parked.append((parked_row.run_id, at, event))
        for run_id, run in batch.runs.items():
            require(run_id not in self.runs and run_id not in self.gone, 6, "run_added_twice", run_id)
            self._take_run(batch, None, run, change)
        for run_id, run_move in batch.run_moves.items():
            require(run_id in self.runs, 6, "moved_run_missing", run_id)
            old_run = self.runs[run_id]
            self._take_run(batch, old_run, run_after(old_run, run_move), change)
        for task_id, task in batch.tasks.items():
            require(task_id not in self.tasks and task_id not in self.gone, 6, "task_added_twice", task_id)
            self._take_task(None, task, change)
        for task_id, task_move in batch.task_moves.items():
            require(task_id in self.tasks, 6, "moved_task_missing", task_id)
            old_task = self.tasks[task_id]
            self._take_task(old_task, task_after(old_task, task_move), change)
        for attempt in batch.attempts:
            self.attempts.setdefault(attempt.task_id, []).append(attempt)
        for key in batch.dropped_timers:
            if (timer := self.timers.pop(key, None)) is not None:
                self.timers_of[timer.target].pop(key, None)
        for key, timer in batch.timers.items():
            self.timers[key] = timer
            self.timers_of.setdefault(timer.target, {})[key] = timer
        self.dedup.update(batch.dedup)
        self.counters.update(batch.counters)
        self._forget(change)
        return change

    def _forget(self, change: Change) -> None:
        """Take out what a commit forgets. The caller checks that it might."""
        for run_id in change.batch.forgotten_runs:
            require(run_id in self.runs, 69, "forgotten_run_missing", run_id)
            run = self.runs.pop(run_id)
            change.forgotten_runs.append(run)
            self._count(change, (run.namespace, f"runs:{run.status}"), -1)
            of_run: tuple[dict[str, Any], ...] = (self.states, self.history, self.folds, self.parked, self.versions)
            for rows in of_run:
                rows.pop(run_id, None)
            self.gone[run_id] = run.closed_at
            self.gone_names[run.namespace, run.workflow_id] = None
        for task_id in change.batch.forgotten_tasks:
            require(task_id in self.tasks, 69, "forgotten_task_missing", task_id)
            task = self.tasks.pop(task_id)
            change.forgotten_tasks.append(task)
            self._count(change, (task.namespace, f"tasks:{task.queue}:{task.state.value}"), -1)
            of_task: tuple[dict[str, Any], ...] = (self.specs, self.statuses, self.attempts)
            for rows in of_task:
                rows.pop(task_id, None)
            self.gone[task_id] = task.closed_at

    def signals_of(self, run_id: str) -> int:
        """Return how many signals the run has taken, parked ones too."""
        events = [*self.history.get(run_id, ()), *self.parked_events(run_id)]
        return sum(isinstance(event, e.WorkflowExecutionSignaled) for _, event in events)

    def parked_events(self, run_id: str) -> list[e.Timed]:
        """Return the parked events of a run, in order."""
        rows = self.parked.get(run_id, {})
        return [codec.decode_timed(rows[n].blob) for n in sorted(rows)]

    def _take_history(self, batch: Batch, change: Change) -> None:
        for page in batch.history:
            history = self.history.setdefault(page.run_id, [])
            fold = self.folds.setdefault(page.run_id, Reference(page.run_id))
            require(page.first_event_id == len(history) + 1, 30, "history_not_dense",
                    f"{page.run_id}: page from {page.first_event_id} after {len(history)} events")  # fmt: skip
            events = codec.decode_events(page.blob)
            require(len(events) == page.count, 8, "page_count_wrong", f"{page.run_id} {page.count} {len(events)}")
            for at, event in events:
                history.append((at, event))
                try:
                    fold.take(at, event)
                except Broken as broken:
                    raise Violation(broken.finding.number, broken.finding.code, broken.finding.detail) from broken
                change.events.append((page.run_id, len(history), at, event))

    def _take_run(self, batch: Batch, old: RunRow | None, row: RunRow, change: Change) -> None:
        if old is not None:
            self._count(change, (old.namespace, counter_of("", RunStatus(old.status))), -1)
        self._count(change, (row.namespace, counter_of("", RunStatus(row.status))), +1)
        self.runs[row.run_id] = row
        self.states[row.run_id] = codec.decode_state(row.state)
        name = (row.namespace, row.workflow_id)
        self.versions.setdefault(row.run_id, []).append((batch.number, row.next_event_id - 1))
        if row.status == RunStatus.RUNNING.value:
            self.open_runs[row.run_id] = None
        else:
            self.open_runs.pop(row.run_id, None)
            if self.open_by_name.get(name) == row.run_id:
                del self.open_by_name[name]
        change.runs.append((old, row))

    def _take_task(self, old: TaskRow | None, row: TaskRow, change: Change) -> None:
        if old is not None:
            self._count(change, (old.namespace, counter_of(old.queue, old.state)), -1)
        self._count(change, (row.namespace, counter_of(row.queue, row.state)), +1)
        self.tasks[row.task_id] = row
        if old is None:
            self.specs[row.task_id] = codec.decode_spec(row.spec)
        self.statuses[row.task_id] = codec.decode_status(row.status)
        if row.state in TERMINAL:
            self.open_tasks.pop(row.task_id, None)
        else:
            self.open_tasks[row.task_id] = None
        change.tasks.append((old, row))

    def _count(self, change: Change, key: tuple[str, str], by: int) -> None:
        self.recount[key] += by
        change.counted[key] = None
