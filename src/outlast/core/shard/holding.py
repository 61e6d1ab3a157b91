"""Which worker holds what, in memory: counted when a lease begins or is read, until it ends."""

from outlast.core.shard.state import Shard
from outlast.core.task import Task


def hold(shard: Shard, task: Task) -> None:
    """Keep the running lease of ``task`` in memory: when it ends, and who has how many."""
    shard.leased += 1
    seen = shard.workers.get((task.namespace, task.worker))
    if seen is None:
        seen = shard.worker(task.namespace, task.worker)
        seen.seen_at = 0  # only known from its lease
        seen.identity, seen.build = task.status.worker_identity, task.status.build
    seen.leases += 1
    if task.status.suspect:
        seen.suspect = task.task_id
    shard.expiries.put(task.expiry(), "lease", task.task_id, task.lease)


def unhold(shard: Shard, worker: str, task: Task) -> None:
    """Note that ``worker`` holds ``task`` no longer."""
    shard.leased -= 1
    seen = shard.workers.get((task.namespace, worker))
    if seen is None:
        return
    seen.leases = max(0, seen.leases - 1)
    if seen.suspect == task.task_id:
        seen.suspect = ""
        _wake_polls(shard)
    elif seen.suspect and seen.leases == 0:
        _wake_polls(shard)


def leave(shard: Shard, task: Task) -> None:
    """Count a lease no more that is over and must stay in its row, so that its worker is served as one without it."""
    if task.task_id not in shard.stranded:
        shard.stranded.add(task.task_id)
        unhold(shard, task.worker, task)


def _wake_polls(shard: Shard) -> None:
    """Look at every held poll again: a worker that was kept for a suspect task may take work now."""
    for queue in shard.polls:
        shard.hot[queue] = None
