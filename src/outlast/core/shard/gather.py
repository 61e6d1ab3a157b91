"""Batching: what inputs change gathers here until the commit before it has returned (ARCHITECTURE §4).

Entities are noted as touched and written out once, when the batch is taken, however often they moved.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from outlast.core import codec
from outlast.core.admin import NamespaceInfo
from outlast.core.feed import BROUGHT_BACK, Changes, rows_of
from outlast.core.labels import labels_of
from outlast.core.payload import size_of
from outlast.core.replies import RunStatus, TaskState
from outlast.core.run import Run
from outlast.core.task import Task
from outlast.core.units import Fence
from outlast.core.writes import (
    AttemptRow,
    Batch,
    DedupRow,
    HistoryRow,
    LabelsRow,
    ParkedRow,
    RunMove,
    RunRow,
    TaskMove,
    TaskRow,
    TaskStatus,
    TimerRow,
)

RETRIED: Final = BROUGHT_BACK  # the outcome of the row that says that a task was brought back
ROW_BYTES = 200  # what a row takes beside its blobs, roughly; for the bound on a batch


class Closed(NamedTuple):
    """The end of a standalone task."""

    namespace: str
    task_id: str
    state: TaskState
    at: int


@dataclass(slots=True)
class Gather:
    """The batch that is being filled, number ``number``."""

    shard: int
    fence: Fence
    number: int
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    unparked: dict[str, None] = field(default_factory=dict[str, None])
    attempts: list[AttemptRow] = field(default_factory=list[AttemptRow])
    timers: dict[tuple[int, str], TimerRow] = field(default_factory=dict[tuple[int, str], TimerRow])
    dropped_timers: dict[tuple[int, str], None] = field(default_factory=dict[tuple[int, str], None])
    dedup: dict[tuple[str, str, str], DedupRow] = field(default_factory=dict[tuple[str, str, str], DedupRow])
    counters: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    moved: dict[tuple[str, str, TaskState | RunStatus], int] = field(
        default_factory=dict[tuple[str, str, TaskState | RunStatus], int]
    )  # by how much counters move with this batch
    namespaces: dict[str, NamespaceInfo | None] = field(default_factory=dict[str, NamespaceInfo | None])
    forgotten_runs: dict[str, None] = field(default_factory=dict[str, None])
    forgotten_tasks: dict[str, None] = field(default_factory=dict[str, None])
    # standalone tasks that have ended, and behind how many rows of attempts
    closed: list[tuple[Closed, int]] = field(default_factory=list[tuple[Closed, int]])
    renew: bool = False
    opened: int = 0  # runs made in this batch: orders them
    parked: int = 0  # events that were parked
    bytes: int = 0  # roughly

    @property
    def dirty(self) -> bool:
        return bool(
            self.runs
            or self.tasks
            or self.attempts
            or self.timers
            or self.dropped_timers
            or self.dedup
            or self.counters
            or self.namespaces
            or self.forgotten_runs
            or self.forgotten_tasks
            or self.renew
        )

    def rows(self) -> int:
        """Return roughly how many rows the batch will write or delete."""
        return (
            2 * len(self.runs) + self.parked + len(self.unparked) + len(self.tasks) + len(self.attempts)
            + len(self.timers) + len(self.dropped_timers) + len(self.dedup) + len(self.moved) + len(self.counters)
            + 4 * len(self.forgotten_runs) + 3 * len(self.forgotten_tasks)
        )  # fmt: skip

    def touch_run(self, run: Run) -> None:
        """Write ``run`` with this batch."""
        run.pinned = self.number
        if run.run_id not in self.runs:
            self.runs[run.run_id] = run
            self.bytes += 2 * ROW_BYTES

    def touch_task(self, task: Task) -> None:
        """Write ``task`` with this batch."""
        task.pinned = self.number
        if task.task_id not in self.tasks:
            self.tasks[task.task_id] = task
            self.bytes += ROW_BYTES + _moving_bytes(task.status)

    def close_task(self, task: Task) -> None:
        """Tell of the end of a standalone ``task``, behind the attempt that ended it."""
        self.closed.append((Closed(task.namespace, task.task_id, task.state, task.closed_at), len(self.attempts)))

    def set_timer(self, timer: TimerRow) -> None:
        """Write a timer's row."""
        key = (timer.fire_at, timer.timer_id)
        self.dropped_timers.pop(key, None)
        self.timers[key] = timer

    def drop_timer(self, fire_at: int, timer_id: str) -> None:
        """Delete a timer's row, whether it is stored yet or not."""
        key = (fire_at, timer_id)
        self.timers.pop(key, None)
        self.dropped_timers[key] = None

    def take(self, *, now: int, lease_until: int) -> Batch:
        """Return the batch as rows, and begin the next."""
        batch = Batch(shard=self.shard, fence=self.fence, number=self.number, at=now, lease_until=lease_until)
        for run in self.runs.values():
            self._take_run(batch, run)
        for task in self.tasks.values():
            if task.stored:
                batch.task_moves[task.task_id] = task_move(task, self.number)
            else:
                task.stored = True
                batch.tasks[task.task_id] = task_row(task, self.number)
                if task.spec.tags:
                    batch.labels[task.task_id] = LabelsRow(
                        id=task.task_id, namespace=task.namespace, of="task", at=task.enqueued_at,
                        items=labels_of(task.spec.tags, None),
                    )  # fmt: skip
        for row in self.attempts:
            row.commit_no = self.number
        batch.unparked = self.unparked
        batch.attempts = self.attempts
        batch.timers = self.timers
        batch.dropped_timers = self.dropped_timers
        batch.dedup = self.dedup
        batch.counters = self.counters
        batch.namespaces = self.namespaces
        batch.forgotten_runs = self.forgotten_runs
        batch.forgotten_tasks = self.forgotten_tasks
        batch.bytes = self.bytes
        batch.feed = rows_of(self.number, now, self._changes(batch))
        self._begin_next()
        return batch

    def _changes(self, batch: Batch) -> dict[str, Changes]:
        """Return what the batch does in each namespace, for the feed."""
        found: defaultdict[str, Changes] = defaultdict(Changes)
        for page in batch.history:
            found[self.runs[page.run_id].namespace].history.append((page.run_id, page.first_event_id, page.count))
        for task in batch.tasks.values():
            if not task.run_id:
                found[task.namespace].enqueued.append(task.task_id)
        told = 0
        for end, behind in [*self.closed, (None, len(self.attempts))]:
            for row in self.attempts[told:behind]:
                if not row.late:  # a late word ends nothing: it is evidence
                    mark = RETRIED if row.outcome == RETRIED else ""
                    found[row.namespace].tasks.append((row.task_id, row.lease, mark))
            told = behind
            if end is not None:
                found[end.namespace].tasks.append((end.task_id, end.at, end.state.value))
        return found

    def _take_run(self, batch: Batch, run: Run) -> None:
        if run.fresh:
            first = run.next_event_id - len(run.fresh)
            blob = codec.encode_events(run.fresh)
            run.history_bytes += len(blob)
            batch.history.append(HistoryRow(run.run_id, first, len(run.fresh), blob))
            run.fresh = []
        if run.parked:
            for n in range(run.parked_stored, len(run.parked)):
                batch.parked.append(ParkedRow(run.run_id, n, codec.encode_timed(run.parked[n])))
            run.parked_stored = len(run.parked)
        attributes = run.state.search_attributes
        if attributes is not run.labelled or (not run.stored and run.fixed.tags):
            run.labelled = attributes
            items = labels_of(run.fixed.tags, attributes)
            row = LabelsRow(id=run.run_id, namespace=run.namespace, of="run", at=run.started_at, items=items)
            batch.labels[run.run_id] = row
        if run.stored:
            batch.run_moves[run.run_id] = run_move(run, self.number)
        else:
            run.stored = True
            batch.runs[run.run_id] = run_row(run, self.number)

    def _begin_next(self) -> None:
        self.number += 1
        self.runs = {}
        self.tasks = {}
        self.unparked = {}
        self.attempts = []
        self.timers = {}
        self.dropped_timers = {}
        self.dedup = {}
        self.counters = {}
        self.moved = {}
        self.namespaces = {}
        self.forgotten_runs = {}
        self.forgotten_tasks = {}
        self.closed = []
        self.renew = False
        self.opened = 0
        self.parked = 0
        self.bytes = 0


def _moving_bytes(status: TaskStatus) -> int:
    """Return roughly how long a status is, which is written anew with every move of its task."""
    if not status.result and status.failure is None and status.last_failure is None and status.details is None:
        return 0
    size = size_of(status.result)
    if status.details is not None:
        size += len(status.details.data)
    for failure in (status.failure, status.last_failure):
        if failure is not None:
            size += len(failure.message) + len(failure.trace) + sum(len(item.data) for item in failure.details)
    return size


def run_row(run: Run, number: int) -> RunRow:
    """Return the row that a new ``run`` begins with."""
    return RunRow(
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        opened_no=run.opened_no,
        original_run_id=run.original_run_id,
        first_run_id=run.first_run_id,
        type=run.type,
        status=run.status,
        queue=run.queue,
        build=run.build,
        principal=run.principal,
        identity=run.identity,
        started_at=run.started_at,
        closed_at=run.closed_at,
        next_event_id=run.next_event_id,
        history_bytes=run.history_bytes,
        ready_at=run.ready_at,
        reason=run.reason,
        parent=run.parent,
        fixed=codec.encode_fixed(run.fixed),
        state=codec.encode_state(run.state),
        outcome=codec.encode_outcome(run.outcome) if run.outcome else b"",
        commit_no=number,
    )


def run_move(run: Run, number: int) -> RunMove:
    """Return what of a stored ``run`` may have moved, as it is now."""
    return RunMove(
        run.run_id,
        run.status,
        run.queue,
        run.build,
        run.closed_at,
        run.next_event_id,
        run.history_bytes,
        run.ready_at,
        run.reason,
        codec.encode_state(run.state),
        codec.encode_outcome(run.outcome) if run.outcome else b"",
        number,
    )


def task_row(task: Task, number: int) -> TaskRow:
    """Return the row that a new ``task`` begins with."""
    return TaskRow(
        namespace=task.namespace,
        task_id=task.task_id,
        queue=task.queue,
        type=task.type,
        build=task.build,
        state=task.state,
        reason=task.reason,
        ready=int(task.ready),
        order_key=task.order_key,
        attempt=task.attempt,
        lease=task.lease,
        lease_until=task.lease_until,
        worker=task.worker,
        run_at=task.run_at,
        enqueued_at=task.enqueued_at,
        closed_at=task.closed_at,
        run_id=task.run_id,
        scheduled_event_id=task.scheduled_event_id,
        principal=task.principal,
        identity=task.identity,
        spec=codec.encode_spec(task.spec),
        status=codec.encode_status(task.status),
        commit_no=number,
        priority=task.spec.priority,
    )


def task_move(task: Task, number: int) -> TaskMove:
    """Return what of a stored ``task`` may have moved, as it is now."""
    return TaskMove(
        task.task_id,
        task.queue,
        task.build,
        task.state,
        task.reason,
        int(task.ready),
        task.order_key,
        task.attempt,
        task.lease,
        task.lease_until,
        task.worker,
        task.run_at,
        task.closed_at,
        codec.encode_status(task.status),
        number,
    )


def run_of(row: RunRow, parked: list[ParkedRow]) -> Run:
    """Open up a row that was read, with its parked events."""
    run = Run(
        namespace=row.namespace,
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        opened_no=row.opened_no,
        original_run_id=row.original_run_id,
        first_run_id=row.first_run_id,
        type=row.type,
        queue=row.queue,
        build=row.build,
        principal=row.principal,
        identity=row.identity,
        started_at=row.started_at,
        fixed=codec.decode_fixed(row.fixed),
        state=codec.decode_state(row.state),
        status=RunStatus(row.status),
        closed_at=row.closed_at,
        next_event_id=row.next_event_id,
        history_bytes=row.history_bytes,
        ready_at=row.ready_at,
        reason=row.reason,
        parent=row.parent,
        outcome=codec.decode_outcome(row.outcome) if row.outcome else None,
        stored=True,
        pinned=row.commit_no,
    )
    run.labelled = run.state.search_attributes
    run.parked = [codec.decode_timed(item.blob) for item in parked]
    run.parked_stored = len(run.parked)
    return run


def task_of(row: TaskRow) -> Task:
    """Open up a row that was read."""
    return Task(
        namespace=row.namespace,
        task_id=row.task_id,
        queue=row.queue,
        type=row.type,
        spec=codec.decode_spec(row.spec),
        status=codec.decode_status(row.status),
        build=row.build,
        state=row.state,
        reason=row.reason,
        ready=bool(row.ready),
        order_key=row.order_key,
        attempt=row.attempt,
        lease=row.lease,
        lease_until=row.lease_until,
        worker=row.worker,
        run_at=row.run_at,
        enqueued_at=row.enqueued_at,
        closed_at=row.closed_at,
        run_id=row.run_id,
        scheduled_event_id=row.scheduled_event_id,
        principal=row.principal,
        identity=row.identity,
        stored=True,
        pinned=row.commit_no,
    )
