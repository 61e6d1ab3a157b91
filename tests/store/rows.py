"""Rows and batches as the conformance suite wants them: everything has a default, a test says what it is about."""

from outlast.core.replies import TaskState
from outlast.core.units import Fence
from outlast.core.writes import (
    AttemptRow,
    Batch,
    DedupRow,
    HistoryRow,
    MessageRow,
    ParkedRow,
    RunMove,
    RunRow,
    TaskMove,
    TaskRow,
    TimerRow,
)

Row = RunRow | TaskRow | HistoryRow | ParkedRow | AttemptRow | TimerRow | DedupRow | MessageRow


def run_row(run_id: str = "run-1", **fields: object) -> RunRow:
    """Return an open run that needs no workflow task; its workflow id is made from its run id."""
    values: dict[str, object] = {
        "namespace": "default",
        "workflow_id": f"workflow of {run_id}",
        "run_id": run_id,
        "opened_no": 1,
        "original_run_id": run_id,
        "first_run_id": run_id,
        "type": "Order",
        "queue": "main",
        "started_at": 100,
        "next_event_id": 2,
        "fixed": b"fixed",
        "state": b"state",
    }
    return RunRow(**{**values, **fields})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def task_row(task_id: str = "task-1", **fields: object) -> TaskRow:
    """Return an enqueued task that is not ready."""
    values: dict[str, object] = {
        "namespace": "default",
        "task_id": task_id,
        "queue": "main",
        "type": "send",
        "enqueued_at": 100,
        "spec": b"spec",
        "status": b"status",
    }
    return TaskRow(**{**values, **fields})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def ready_task(task_id: str, order_key: int = 0, **fields: object) -> TaskRow:
    """Return a task that may be leased."""
    return task_row(task_id, ready=1, order_key=order_key, **fields)


def leased_task(task_id: str, **fields: object) -> TaskRow:
    """Return a task that a worker has."""
    return task_row(task_id, **{"state": TaskState.LEASED, "lease": 1, "lease_until": 900, "worker": "w", **fields})


def page(run_id: str = "run-1", first_event_id: int = 1, count: int = 1, blob: bytes = b"events") -> HistoryRow:
    """Return a page of a history."""
    return HistoryRow(run_id, first_event_id, count, blob)


def parked(n: int = 1, run_id: str = "run-1", blob: bytes = b"parked") -> ParkedRow:
    """Return a parked event."""
    return ParkedRow(run_id, n, blob)


def attempt(task_id: str = "task-1", lease: int = 1, **fields: object) -> AttemptRow:
    """Return how a lease ended."""
    values: dict[str, object] = {"attempt": lease, "outcome": "succeeded"}
    merged = {"namespace": "default", "task_id": task_id, "lease": lease, **values, **fields}
    return AttemptRow(**merged)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def timer(fire_at: int = 500, timer_id: str = "timer-1", kind: str = "run_timer", target: str = "run-1") -> TimerRow:
    """Return a timer."""
    return TimerRow(fire_at, timer_id, kind, target)


def dedup(key: str = "key-1", *, scope: str = "start", period: int = 1, id: str = "run-1") -> DedupRow:
    """Return what a request id has made."""
    return DedupRow("default", scope, key, id, "fingerprint", 1_000, period)


def message(sequence: int = 1, *, target: int = 2, incarnation: int = 1, blob: bytes = b"message") -> MessageRow:
    """Return a message to another shard."""
    return MessageRow(target, 0, incarnation, sequence, blob)


def move_of_run(row: RunRow) -> RunMove:
    """Return the move after which a stored run is as ``row`` says."""
    return RunMove(*(getattr(row, name) for name in RunMove.__struct_fields__))


def move_of_task(row: TaskRow) -> TaskMove:
    """Return the move after which a stored task is as ``row`` says."""
    return TaskMove(*(getattr(row, name) for name in TaskMove.__struct_fields__))


def put(batch: Batch, row: Row, *, new: bool) -> None:
    """Add ``row`` to ``batch``; a run or a task moves unless it is ``new``."""
    match row:
        case RunRow() if new:
            batch.runs[row.run_id] = row
        case RunRow():
            batch.run_moves[row.run_id] = move_of_run(row)
        case TaskRow() if new:
            batch.tasks[row.task_id] = row
        case TaskRow():
            batch.task_moves[row.task_id] = move_of_task(row)
        case HistoryRow():
            batch.history.append(row)
        case ParkedRow():
            batch.parked.append(row)
        case AttemptRow():
            batch.attempts.append(row)
        case TimerRow():
            batch.timers[row.fire_at, row.timer_id] = row
        case DedupRow():
            batch.dedup[row.namespace, row.scope, row.key] = row
        case MessageRow():
            batch.messages.append(row)


def batch_of(*rows: Row, fence: Fence, number: int, new: bool = True, at: int = 100) -> Batch:
    """Return a batch of shard 0 that holds ``rows``."""
    batch = Batch(0, fence, number, at)
    for row in rows:
        put(batch, row, new=new)
    return batch
