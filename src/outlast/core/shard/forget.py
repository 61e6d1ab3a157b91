"""Forgetting what closed long ago: out of memory, out of the counters, and with the next batch out of the store.

A run's activities are forgotten before the run: their rows would be found by nobody afterwards.
"""

from outlast.core.admin import Forget, Forgotten
from outlast.core.shard import queries
from outlast.core.shard.namespaces import is_ending
from outlast.core.shard.state import Shard


def forget(shard: Shard, request: Forget, *, namespace: str) -> Forgotten:
    """Remove those runs and tasks that closed before ``closed_before`` and that nothing waits for any more.

    Many are what is known of their own key. So none goes before the window of its key is over, however short the retention,
    unless its namespace goes with it.
    """
    before = request.closed_before
    if not is_ending(shard, namespace):
        before = min(before, shard.now - shard.config.idempotency_window)
    runs = sum(_forget_run(shard, run_id, before, namespace) for run_id in request.runs)
    tasks = sum(_forget_task(shard, task_id, before, namespace) for task_id in request.tasks)
    return Forgotten(runs=runs, tasks=tasks)


def _forget_run(shard: Shard, run_id: str, before: int, namespace: str) -> bool:
    run = shard.runs.get(run_id)
    if run is None or run.namespace != namespace or run.open or run.closed_at >= before:
        return False
    if run.pinned > shard.gate.committed:
        return False  # a batch on its way still writes it
    if queries.is_with_worker(shard, run_id):
        return False  # its history is being read
    del shard.runs[run_id]
    name = (run.namespace, run.workflow_id)
    if shard.latest.get(name) == run_id:
        del shard.latest[name]
    key = (namespace, "", run.status)
    shard.gather.moved[key] = shard.gather.moved.get(key, 0) - 1
    shard.gather.forgotten_runs[run_id] = None
    shard.forgotten[run_id] = shard.gather.number
    return True


def _forget_task(shard: Shard, task_id: str, before: int, namespace: str) -> bool:
    task = shard.tasks.get(task_id)
    if task is None or task.namespace != namespace or not task.closed or task.closed_at >= before:
        return False
    if task.pinned > shard.gate.committed:
        return False
    del shard.tasks[task_id]
    key = (namespace, task.queue, task.state)
    shard.gather.moved[key] = shard.gather.moved.get(key, 0) - 1
    shard.gather.forgotten_tasks[task_id] = None
    shard.forgotten[task_id] = shard.gather.number
    return True
