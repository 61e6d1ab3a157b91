"""What an engine does now and then beside requests: rounds that are watched, and begun anew when one fails or hangs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.engine")

PERIODS: Final = 3  # without a sign of life for so many periods, a round is held to hang


@dataclass(slots=True)
class Rounds:
    """Rounds of ``work``, each begun ``every`` seconds after the last one ended, or soon when called.

    A long round says that it is alive by ``beat``. One that has not for PERIODS periods is cut off and begun anew.
    """

    name: str
    work: Callable[[], Awaitable[None]]
    every: float
    first: float | None = None
    patience: float = 0.0
    """Seconds without a sign of life after which it is held to hang; 0 for PERIODS periods."""
    alive_at: float = field(default_factory=monotonic)
    failing: str = ""
    """Why the last round came to nothing, in a sentence; what is served does not suffer from it."""
    _called: asyncio.Event = field(default_factory=asyncio.Event)
    _bound: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Go round until cancelled."""
        pause = self.every if self.first is None else self.first
        self.alive_at = monotonic() + pause - self.every
        while True:
            await self._rest(pause)
            pause = self.every
            try:
                async with asyncio.timeout(self._hangs_after()) as self._bound:
                    await self.work()
            except Exception as error:  # noqa: BLE001 - whatever a round raises, it is begun anew
                if isinstance(error, TimeoutError) and self._bound is not None and self._bound.expired():
                    LOG.error("the round %s hung for %g s and is begun anew", self.name, self._hangs_after())  # noqa: TRY400
                else:
                    self._failed(error, pause)
            else:
                self.alive_at = monotonic()
                if self.failing:
                    LOG.info("the round %s works again", self.name)
                self.failing = ""
            finally:
                self._bound = None

    def _failed(self, error: Exception, pause: float) -> None:
        self.alive_at = monotonic()  # it goes round, if to no end
        failing = f"The round {self.name} of the engine failed: {type(error).__name__}. See the log."
        if isinstance(error, StoreError):
            # The store is away or refuses, which is known and lasts: one line until it is another thing, or works again.
            failing = f"The round {self.name} of the engine failed: {error.fact}"
            if failing != self.failing:
                LOG.warning("the round %s failed and is tried again: %s %s", self.name, error.fact, error.remedy)
        else:
            LOG.error("the round %s failed and is begun anew in %g s", self.name, pause, exc_info=error)
        self.failing = failing

    def call(self) -> None:
        """Have the next round begin soon."""
        self._called.set()

    def beat(self) -> None:
        """Take note that the round that runs gets on."""
        self.alive_at = monotonic()
        if self._bound is not None:
            self._bound.reschedule(asyncio.get_running_loop().time() + self._hangs_after())

    def age(self) -> float:
        """Return how many seconds ago it last showed that it is alive."""
        return max(0.0, monotonic() - self.alive_at)

    def overdue(self) -> str:
        """Return a sentence when it shows no life, "" when all is well."""
        age = self.age()
        if age <= self._hangs_after():
            return ""
        return (
            f"The round {self.name} of the engine has not got on for {age:.0f} s; it is begun every {self.every:g} s."
        )

    def _hangs_after(self) -> float:
        return self.patience or PERIODS * self.every

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._called.wait()
        except TimeoutError:
            pass  # it is time all the same
        self._called.clear()
