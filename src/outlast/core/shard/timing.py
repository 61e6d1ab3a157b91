"""Timers: rows of what must happen at an instant, the next of them in memory."""

from outlast.core.shard.state import Shard
from outlast.core.writes import TimerRow


def set_timer(shard: Shard, timer: TimerRow) -> None:
    """Have ``timer`` come up at its instant, never before."""
    shard.gather.set_timer(timer)
    shard.timers.put((timer.fire_at, timer.timer_id), timer, number=shard.gather.number)
    shard.timers.evict(number=shard.gather.number)


def drop_timer(shard: Shard, timer: TimerRow) -> None:
    """Have ``timer`` not come up. Memory may still hold it; whoever it comes up for looks whether it still stands."""
    shard.gather.drop_timer(timer.fire_at, timer.timer_id)
