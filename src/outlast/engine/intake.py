"""What callers' own transactions left in the engine's database, taken in a few times a second."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from outlast.core.inputs import Request
from outlast.core.replies import Reply
from outlast.protocol.intake import Intake, hand_over

LOG: Final = logging.getLogger("outlast.engine")

TAKE_EVERY: Final = 0.2  # seconds between looks; an empty table is one small read
PATIENCE: Final = 30.0  # seconds without a sign of life: a database may be slow, and a batch is at most some megabytes
PAUSE_MAX: Final = 2.0  # seconds between tries while nothing can be taken
PRINCIPAL: Final = "intake"  # in whose name rows are taken: the database has let them in


@dataclass(slots=True, frozen=True)
class Pause:
    """A namespace that takes nothing before an instant; ``pause`` was how long it is left alone this time."""

    until: float
    pause: float


class Taker:
    """Hands rows of ``intake`` to the engine's door, by ``ask``; ``beat`` is called between batches."""

    def __init__(
        self,
        intake: Intake,
        ask: Callable[[Request, str], Awaitable[Reply]],
        *,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._intake = intake
        self._ask = ask
        self._now = now
        self._sleep = sleep
        self._pause = TAKE_EVERY
        self._paused = dict[str, Pause]()
        self.beat: Callable[[], None] = lambda: None

    async def take(self) -> None:
        """Take all that is there, or as much as goes now. Raises StoreError, after a pause that grows.

        A namespace that takes nothing is left alone for a while that grows, and no other one waits for it.
        """
        began = self._now()
        without = {namespace for namespace, paused in self._paused.items() if paused.until > began}
        tried = self._paused.keys() - without
        later = ""
        try:
            while True:
                done = await hand_over(self._intake, self._ask, without=without)
                for place, trouble in done.troubles.items():
                    LOG.warning("intake_trouble place=%d %s", place, trouble)
                self.beat()
                for namespace in done.busy.keys() - without:
                    self._leave_alone(namespace)
                tried -= done.busy.keys()
                without |= done.busy.keys()
                later = done.later
                if not done.more:
                    break
        except Exception:
            await self._wait()
            raise
        if later:
            await self._wait()
            return
        self._pause = TAKE_EVERY
        for namespace in tried:  # it takes again, or has nothing left
            del self._paused[namespace]

    def _leave_alone(self, namespace: str) -> None:
        before = self._paused.get(namespace)
        pause = TAKE_EVERY if before is None else min(2 * before.pause, PAUSE_MAX)
        self._paused[namespace] = Pause(self._now() + pause, pause)

    async def _wait(self) -> None:
        await self._sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_MAX)
