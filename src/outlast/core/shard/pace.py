"""The time of a shard beside the clock of its owner, which may be behind the shard's last commit.

It was another machine's clock that was fast, or this one was set back. Standing still until the clock has caught up would
keep every lease and timer from ending; going on at the distance would fire all to come as much too early. So it goes on, a
little slower than the clock, until they agree: as the clock of one process does that is set back.
"""

from dataclasses import dataclass
from typing import Final

SLEW: Final = 20  # one part in this many of the distance is lost as the clock goes on


@dataclass(slots=True, frozen=True)
class Pace:
    """All in nanoseconds. At ``began`` by the clock the shard's time is ``ahead`` of it, 0 when they agree."""

    began: int
    ahead: int

    def time(self, clock: int) -> int:
        """Return the shard's time at an instant of the clock; never less for a later one."""
        return clock + max(0, self.ahead - max(0, clock - self.began) // SLEW)

    def clock(self, time: int) -> int:
        """Return the instant of the clock from which on the shard's time is ``time`` or later."""
        left = time - self.began - self.ahead
        if left <= 0:
            return self.began + left
        return min(time, self.began - (-left * SLEW // (SLEW - 1)))
