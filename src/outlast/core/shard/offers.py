"""Workflow tasks on offer: which runs need a turn, and which workers may take it.

A run that needs a turn has ``ready_at``. It waits a while for the worker that has it in memory, then for any. Nothing of
this is stored but ``ready_at``: on load the offer is made again (ARCHITECTURE §6).
"""

from collections import deque
from typing import Final, TypeVar

from outlast.core.inputs import Poll
from outlast.core.run import Run
from outlast.core.shard.state import Shard
from outlast.core.units import SECOND

TRIED_AFTER: Final = SECOND  # for which a worker that has come waits for what is held, so that the one before it may go
HELD_MAX: Final = 10_000  # of one queue and type; beyond them runs wait their time out

Name = TypeVar("Name", bound=tuple[str, ...])


def need(shard: Shard, run: Run) -> None:
    """Note that ``run`` has something to show to its code. While a turn is out, its end will see to it."""
    if not run.open or run.turn is not None:
        return
    if run.ready_at == 0:
        run.ready_at = shard.now
    shard.gather.touch_run(run)
    offer(shard, run)


def offer(shard: Shard, run: Run) -> None:
    """Put a run that needs a turn where a worker finds it, once."""
    if shard.held:
        _release(shard, run)
    if run.offered or run.turn is not None or not run.open or run.ready_at == 0:
        return
    if run.state.task_retry_at > shard.now:
        shard.expire_at(run.state.task_retry_at, "retry_turn", run.run_id, 0)
        held = shard.held.setdefault((run.namespace, run.queue, run.type), {})
        if len(held) < HELD_MAX:
            held[run.run_id] = None
        return
    run.offered = True
    worker = run.state.sticky_worker
    if worker and comes_back(shard, run.namespace, worker):
        _line_of(shard.sticky, (run.namespace, run.queue, run.type, worker)).append(run.run_id)
        shard.expire_at(shard.now + shard.config.sticky_timeout, "sticky", run.run_id, 0)
    else:
        run.state.sticky_worker = ""
        _line_of(shard.offers, (run.namespace, run.queue, run.type)).append(run.run_id)
    shard.hot[run.namespace, run.queue] = None


def try_soon(shard: Shard, poll: Poll, *, namespace: str) -> None:
    """Let runs whose code failed wait no longer than a moment: a worker has come that may have other code.

    Nothing is written for it: so a poll makes no batch of the rows of many runs, and a new owner only waits as was stored.
    """
    soon = shard.now + TRIED_AFTER
    for name in [(namespace, queue, type_name) for queue in poll.queues for type_name in poll.workflow_types]:
        for run_id in list(shard.held.get(name, ())):
            run = shard.runs.get(run_id)
            if run is None or run.turn is not None or not run.open:
                shard.held[name].pop(run_id, None)
            elif run.state.task_retry_at > soon:
                run.state.task_retry_at = soon
                offer(shard, run)
        if name in shard.held and not shard.held[name]:
            del shard.held[name]


def _release(shard: Shard, run: Run) -> None:
    name = (run.namespace, run.queue, run.type)
    held = shard.held.get(name)
    if held is not None and run.run_id in held:
        del held[run.run_id]
        if not held:
            del shard.held[name]


def _line_of(lines: dict[Name, deque[str]], name: Name) -> deque[str]:
    line = lines.get(name)
    if line is None:
        line = lines[name] = deque()
    return line


def comes_back(shard: Shard, namespace: str, worker: str) -> bool:
    """Say whether a worker polls, or has polled lately enough to be waited for."""
    seen = shard.workers.get((namespace, worker))
    if seen is None or seen.stopped:
        return False
    return seen.polls > 0 or shard.now - seen.seen_at < shard.config.sticky_timeout


def unstick_from(shard: Shard, run_id: str, worker: str) -> None:
    """Offer a run to any worker, whose own worker takes no more."""
    run = shard.runs.get(run_id)
    if run is None:
        shard.recalled[run_id] = None  # left memory meanwhile; it is offered again once it is back
    elif run.state.sticky_worker == worker:
        unstick(shard, run)


def unstick(shard: Shard, run: Run) -> None:
    """Offer a run to any worker, whose own worker did not come for it in time. Its old place is skipped when met."""
    if run.offered and run.turn is None and run.state.sticky_worker:
        run.state.sticky_worker = ""
        run.offered = False
        offer(shard, run)


def clear_places(shard: Shard) -> None:
    """Look at the queue of one worker for places that no longer stand, and drop the queue with the last of them.

    Done as often as a place runs out of time, queue after queue: so what workers leave that do not come back is not kept.
    """
    if not shard.sticky:
        return
    key = next(iter(shard.sticky))
    waiting = shard.sticky.pop(key)
    while waiting and not _stands(shard, waiting[0], key[3]):
        waiting.popleft()
    if waiting:
        shard.sticky[key] = waiting  # now the last to be looked at


def _stands(shard: Shard, run_id: str, worker: str) -> bool:
    run = shard.runs.get(run_id)
    return run is None or (run.offered and run.open and run.turn is None and run.state.sticky_worker == worker)


def withdraw(shard: Shard, run: Run) -> None:
    """Make the turn that is out void: its completion will find nothing."""
    if run.turn is not None:
        run.turn = None
        shard.turns -= 1


def take(shard: Shard, run_ids: deque[str], *, worker: str) -> Run | None:
    """Take the first run from a queue of offers that still stands there; ``worker`` is "" for a queue of any worker."""
    while run_ids:
        run_id = run_ids.popleft()
        run = shard.runs.get(run_id)
        if run is None:
            shard.recalled[run_id] = None  # left memory meanwhile; it is offered again once it is back
            continue
        if run.offered and run.open and run.turn is None and run.state.sticky_worker == worker:
            run.offered = False
            return run
    return None
