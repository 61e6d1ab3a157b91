"""What the engine asks of the world: time, ids, somebody who watches."""

from typing import Protocol

from outlast.core.units import Instant
from outlast.core.writes import CommitOutcome


class Clock(Protocol):
    """The one clock of an engine. It never goes back, and never jumps ahead without saying so in the log."""

    def now(self) -> Instant:
        """Return the instant in nanoseconds."""
        ...

    @property
    def stepped(self) -> int:
        """By how many nanoseconds in all it has followed steps of the machine's clock ahead: time that did not pass."""
        ...


class Entropy(Protocol):
    """Where new ids come from."""

    def new_id(self) -> str:
        """Return a fresh id, ordered by time (UUIDv7)."""
        ...


class Observer(Protocol):
    """Is told what happened. It must return at once and must not raise."""

    def on_commit(self, outcome: CommitOutcome, *, rows: int, seconds: float) -> None: ...

    def on_step_down(self, reason: str) -> None: ...

    def on_claim(self, epoch: int) -> None: ...


class NobodyWatches:
    """An observer that keeps nothing."""

    def on_commit(self, outcome: CommitOutcome, *, rows: int, seconds: float) -> None:
        """Keep nothing."""

    def on_step_down(self, reason: str) -> None:
        """Keep nothing."""

    def on_claim(self, epoch: int) -> None:
        """Keep nothing."""
