"""Ready tasks: from being made to standing where pollers find them."""

from typing import Final

from outlast.core.errors import TooLarge
from outlast.core.shard import timing
from outlast.core.shard.fairness import order_key_of
from outlast.core.shard.freshness import note
from outlast.core.shard.state import Shard, TaskQueue
from outlast.core.shard.window import BEFORE_ALL, Window
from outlast.core.task import ENQUEUED, Task
from outlast.core.units import later
from outlast.core.writes import TimerKind, TimerRow


def add(shard: Shard, task: Task, *, delay: int) -> None:
    """Take a new task in; it becomes ready now or after ``delay``."""
    queues = shard.queues.get(task.namespace)
    if queues is None:
        queues = shard.queues[task.namespace] = set()
    queues.add(task.queue)
    shard.tasks[task.task_id] = task
    if shard.absent:
        shard.absent.pop(("task", task.task_id), None)
    shard.count_task(task, None)
    if not task.run_id:  # an activity's id is made from that of its run
        note(shard, task.task_id)
    spec = task.spec
    if spec.start_by or spec.close_by:
        set_deadlines(shard, task)
    task.run_at = shard.now
    if delay:
        task.run_at = later(shard.now, delay)
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_DUE, task.run_at))
        shard.gather.touch_task(task)
    else:
        make_ready(shard, task)


def set_deadlines(shard: Shard, task: Task) -> None:
    """Have the task end at the instants by which it must have begun, or ended."""
    if task.start_by:
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_START_BY, task.start_by))
    if task.close_by:
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_CLOSE_BY, task.close_by))


def task_timer(task: Task, kind: TimerKind, at: int) -> TimerRow:
    """Return the row of one of a task's timers; it has at most one of each kind."""
    return TimerRow(at, f"{task.task_id}/{kind.value}", kind.value, task.task_id)


def make_ready(shard: Shard, task: Task) -> None:
    """Let ``task`` be given to a worker from now on."""
    was = task.state
    task.state = ENQUEUED
    task.ready = True
    if task.order_key == 0:
        task.order_key = order_key_of(shard, task)
    shard.count_task(task, was)
    shard.gather.touch_task(task)
    put_in_window(shard, task)


def put_in_window(shard: Shard, task: Task) -> None:
    """Put a ready task where pollers find it, or leave it to its row if the window does not reach so far."""
    if task.in_window:
        return
    name = (task.namespace, task.queue, task.type)
    window = shard.ready.get(name)
    if window is None:
        if len(shard.ready) >= shard.config.names_max:
            return  # it is read when somebody polls for it
        window = window_of(shard, name)
    number = shard.gather.number
    if not window.put((task.order_key, task.task_id), task.task_id, number=number):
        return
    task.in_window = True
    shard.hot[task.namespace, task.queue] = None
    for task_id in window.evict(number=number):
        if (dropped := shard.tasks.get(task_id)) is not None:
            dropped.in_window = False


def window_of(shard: Shard, name: TaskQueue) -> Window[str]:
    """Return the window on the ready tasks of one (namespace, queue, type)."""
    window = shard.ready.get(name)
    if window is not None:
        return window
    if len(shard.ready) >= shard.config.names_max:
        _drop_unpolled(shard)
    window = shard.ready[name] = Window(shard.config.window_max, shard.config.window_low)
    uncommitted = shard.gather.number if shard.gather.tasks else shard.in_flight
    if uncommitted:
        window.left_out.append((uncommitted, BEFORE_ALL))  # rows of it may have become ready before there was a window
    shard.short.append(name)
    return window


def _drop_unpolled(shard: Shard) -> None:
    """Leave to their rows the ready tasks of types for which no worker has polled lately."""
    unpolled = [
        name
        for name, window in shard.ready.items()
        if (name[0], name[1], f"t:{name[2]}") not in shard.types_seen and not window.loading
    ]
    for name in unpolled:
        for _, task_id in shard.ready.pop(name).heap:
            if (task := shard.tasks.get(task_id)) is not None:
                task.in_window = False


_NONE: Final[frozenset[str]] = frozenset()


def require_queues(shard: Shard, namespace: str, queues: set[str]) -> None:
    """Refuse tasks for more queues than a namespace may have.

    Raises:
        TooLarge: code "limit_exceeded".
    """
    known = shard.queues.get(namespace, _NONE)
    if queues <= known:
        return
    new = queues - known
    if len(known) + len(new) > shard.config.queues_max:
        raise TooLarge(
            "limit_exceeded",
            f'Namespace {namespace} has had tasks in {len(known):,} queues; "{min(new)}" would be one more than the '
            f"{shard.config.queues_max:,} that it may have.",
            remedy="Use one of its queues: tell tasks apart by type, key or fairness key instead of by queue.",
        )
