"""The one order key: start-time fair queueing by fairness key, less a bounded priority boost (ARCHITECTURE §8).

Reading ready tasks in order of the key is then fair and ages: a task of the lowest priority waits behind at most
``BOOST`` later ones of each higher step, never for ever.
"""

from outlast.core.shard.state import Fair, Shard
from outlast.core.task import Task

UNIT = 1_000  # cost of one task in the key's unit
BOOST = 1_000 * UNIT  # one step of priority is worth this many tasks
MIDDLE = 3  # the priority that is neither ahead nor behind; 1 comes first, 5 last
FAIR_COUNTER = "fair:"  # counter that keeps the pass of a queue over a change of owner


def order_key_of(shard: Shard, task: Task) -> int:
    """Return the key at which ``task`` stands in its queue from now on."""
    fair = fair_of(shard, task.namespace, task.queue)
    key = task.spec.fairness_key
    passed = fair.last.get(key, fair.floor)
    now_at = max(fair.virtual, passed) + UNIT
    fair.last[key] = now_at
    if len(fair.last) > shard.config.fair_keys_max:
        _forget_keys(fair, keep=shard.config.fair_keys_max // 2)
    if now_at > fair.highest:
        fair.highest = now_at
        if not fair.moved:
            fair.moved = True
            shard.fairs_moved.append(fair)
    return now_at - (MIDDLE - task.spec.priority) * BOOST


def _forget_keys(fair: Fair, *, keep: int) -> None:
    """Forget all keys but the ``keep`` whose passes are highest.

    Half go at once, so that the cost of one enqueue stays the same however many keys there are. A key that was forgotten, or
    never seen, is taken to stand at the highest pass among the forgotten: so none gets ahead of where it had come to.
    """
    last = fair.last
    by_pass = sorted(last, key=last.__getitem__)
    fair.floor = max(fair.floor, last[by_pass[-keep - 1]])
    fair.last = {key: last[key] for key in by_pass[-keep:]}


def fair_of(shard: Shard, namespace: str, queue: str) -> Fair:
    """Return the fair-queueing state of a queue. After a change of owner it goes on from where the queue's pass stood."""
    fair = shard.fair.get((namespace, queue))
    if fair is None:
        counter = (namespace, f"{FAIR_COUNTER}{queue}")
        passed = shard.counters.get(counter, 5 * BOOST)
        fair = Fair(counter=counter, virtual=passed, last={"": passed}, highest=passed)
        shard.fair[namespace, queue] = fair
    return fair


def given_out(shard: Shard, task: Task) -> None:
    """Move the queue's virtual time on to the task that was given out."""
    fair = fair_of(shard, task.namespace, task.queue)
    passed = task.order_key + (MIDDLE - task.spec.priority) * BOOST
    fair.virtual = max(fair.virtual, passed)
