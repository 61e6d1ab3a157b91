"""Rates as arithmetic: how much may be had now of something that comes back over time."""

from dataclasses import dataclass
from typing import Final

from outlast.core.units import SECOND

SLACK: Final = (
    1e-6  # tokens: sums of fractions miss the whole by less, and who waited as long as was said must be served
)


@dataclass(slots=True)
class Bucket:
    """Tokens that come back at a rate, up to a burst. ``left`` is below zero while it owes some."""

    left: float
    at: int

    def take(self, wanted: int, *, rate: float, burst: float, now: int) -> float:
        """Take ``wanted`` tokens and return 0, or take none and return the seconds until they are there.

        More than fit at once may be taken from a full bucket, as they could never be had otherwise; it then owes them.
        """
        self.left = min(burst, self.left + max(0, now - self.at) / SECOND * rate)
        self.at = max(self.at, now)  # a clock that goes back and on again must not give the same second twice
        needed = min(float(wanted), burst)
        if self.left >= needed - SLACK:
            self.left -= wanted
            return 0.0
        return (needed - self.left) / rate
