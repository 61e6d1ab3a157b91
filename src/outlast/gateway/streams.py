"""How many streams are open: each holds a connection and a little memory for as long as somebody reads."""

from dataclasses import dataclass

from outlast.core import limits
from outlast.core.errors import Busy


@dataclass(slots=True)
class Streams:
    """How many streams are open."""

    open: int = 0

    def enter(self) -> None:
        """Count one more. Raises Busy at the bound."""
        if self.open >= limits.STREAMS_MAX:
            raise Busy(
                "too_many_streams",
                f"{self.open:,} streams are open, which is the bound.",
                remedy="Close streams that are not read, or read the history page by page.",
            )
        self.open += 1

    def leave(self) -> None:
        """Count one less."""
        self.open -= 1
