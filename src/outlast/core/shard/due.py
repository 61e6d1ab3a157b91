"""What the passing of time brings: timers that are due, leases that have run out, waits that are over."""

from outlast.core import limits
from outlast.core.shard import matching, offers, queries, turns
from outlast.core.shard.admitted import Internal, LeaseEnded, TimerDue
from outlast.core.shard.state import Shard
from outlast.core.task import LEASED


def collect(shard: Shard) -> list[Internal]:
    """Return the inputs that are due now, timers in order of their instants; what needs no loading is done on the spot."""
    found: list[Internal] = []
    timers = shard.timers
    while timers.heap and timers.heap[0][0][0] <= shard.now and len(found) < limits.DUE_AT_ONCE:
        row = timers.pop()
        if (row.fire_at, row.timer_id) not in shard.gather.dropped_timers:
            found.append(TimerDue(row.fire_at, row.timer_id, row.kind, row.target))
    polls: list[str] = []
    for kind, target, n in shard.expiries.take(shard.now, limits.DUE_AT_ONCE - len(found)):
        if kind == "lease":
            task = shard.tasks.get(target)
            # Nearly all were answered long ago. One that runs is always in memory.
            if task is not None and task.lease == n and task.state is LEASED:
                found.append(LeaseEnded(target, n))
        elif kind == "poll":
            polls.append(target)
        else:
            _look(shard, kind, target, n)
    if polls:
        matching.match(shard)  # a poll that does not wait still gets what is there
        for key in polls:
            matching.end_wait(shard, key)
    return found


def _look(shard: Shard, kind: str, target: str, n: int) -> None:
    if kind == "query":
        queries.look(shard, n)
        return
    if kind == "host":
        matching.look_at_host(shard, target)
        return
    run = shard.runs.get(target)
    if kind == "sticky":
        if run is not None:
            offers.unstick(shard, run)
        offers.clear_places(shard)
    if run is None:
        if target in shard.away:
            shard.recalled[target] = None
        return
    if kind == "turn":
        turns.time_out(shard, run, dispatch=n)
    elif kind == "retry_turn":
        offers.offer(shard, run)


def next_wakeup(shard: Shard) -> int | None:
    """Return when something is due next, None for nothing. While leases run, a stall must be noticed: look often."""
    instants: list[int] = []
    if shard.timers.heap:
        instants.append(shard.timers.heap[0][0][0])
    expires_at = shard.expiries.next_at()
    if expires_at is not None:
        instants.append(expires_at)
    if shard.leased or shard.turns:
        instants.append(shard.now + shard.config.stall // 2)
    if shard.config.shard_lease:
        # A renewal that is on its way is waited for, but no longer than the lease holds.
        instants.append(shard.serve_until if shard.gather.renew else shard.renew_at)
    return min(instants, default=None)
