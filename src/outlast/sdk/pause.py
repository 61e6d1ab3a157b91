"""Pauses between repeats: doubling, and spread so that what failed together does not come back together."""

import asyncio
import random
from typing import Final

_CHANCE: Final = random.Random()  # noqa: S311 - spreads repeats, hides nothing


class Pause:
    """One series of repeats. Spans in seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self.next = first  # the longest that the next pause may take; the shortest is half of it
        self._first = first
        self._longest = longest

    async def wait(self) -> None:
        """Wait, and make the next pause twice as long."""
        span, self.next = self.next, min(self.next * 2, self._longest)
        await asyncio.sleep(span * (0.5 + _CHANCE.random() / 2))

    def reset(self) -> None:
        """Begin with the first pause again."""
        self.next = self._first
