"""What a node believes the time is: true time with an offset, a drift and jumps, all within a stated bound."""

from outlast.sim.kernel import Kernel


class NodeClock:
    """The wall clock of one node. It is never further than ``skew`` nanoseconds from true time."""

    def __init__(self, kernel: Kernel, *, offset: int = 0, drift: float = 0.0, skew: int = 0) -> None:
        self._kernel = kernel
        self._offset = offset
        self._drift = drift
        self._skew = skew
        self._base = kernel.now

    def now(self) -> int:
        """Return the instant that this node's clock shows."""
        true = self._kernel.now
        error = self._offset + int((true - self._base) * self._drift)
        return true + max(-self._skew, min(self._skew, error))

    def true_of(self, instant: int) -> int:
        """Return the earliest true time, from now on, at which the clock shows ``instant`` or more."""
        ahead = instant - self.now()
        if ahead <= 0:
            return self._kernel.now
        # A drifting clock reaches it a little earlier or later; one more look then is cheaper than exact arithmetic.
        return self._kernel.now + max(1, int(ahead / (1.0 + self._drift)))

    def jump(self, offset: int) -> None:
        """Step the clock, forward or back, to ``offset`` from true time."""
        self._offset = max(-self._skew, min(self._skew, offset))
        self._base = self._kernel.now
