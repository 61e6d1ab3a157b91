"""Sends items in batches: what arrives while no call may begin goes together in the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

BESIDE_MAX: Final = 50  # items in flight beside which another call begins: what comes in hundreds costs less in one

I = TypeVar("I")  # noqa: E741 - an item


class Sender(Generic[I]):
    """Gathers items and has ``send`` take them, in up to as many calls at a time as there are tasks in ``run``.

    Nothing waits on a timer to fill a batch. ``send`` returns when every item it was given has been answered for; it repeats
    what must be repeated itself.
    Belongs to one event loop.
    """

    def __init__(
        self,
        send: Callable[[list[I]], Awaitable[None]],
        *,
        items_max: int,
        bytes_max: int = 0,
        size: Callable[[I], int] | None = None,
    ) -> None:
        self._send = send
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._size = size
        self._waiting: deque[I] = deque()
        self._arrived = asyncio.Event()
        self._in_flight = 0  # items
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, items: Iterable[I]) -> None:
        """Take ``items`` up."""
        self._waiting.extend(items)
        if self._waiting:
            self._idle.clear()
            self._arrived.set()

    async def run(self) -> None:
        """Send for ever, one call at a time. What ``send`` raises ends it; the items of that call are put back."""
        while True:
            await self._arrived.wait()
            batch = self._take() if self._in_flight <= BESIDE_MAX else []
            if not batch:
                self._arrived.clear()
                continue
            self._in_flight += len(batch)
            try:
                await self._send(batch)
            except BaseException:
                self._waiting.extendleft(reversed(batch))
                raise
            finally:
                self._in_flight -= len(batch)
                if self._waiting:
                    self._arrived.set()
                elif not self._in_flight:
                    self._idle.set()

    async def drained(self) -> None:
        """Return when everything that was put has been answered for."""
        await self._idle.wait()

    def _take(self) -> list[I]:
        waiting = self._waiting
        if self._size is None:
            return [waiting.popleft() for _ in range(min(len(waiting), self._items_max))]
        batch: list[I] = []
        room = self._bytes_max
        while waiting and len(batch) < self._items_max:
            room -= self._size(waiting[0])
            if batch and room < 0:
                break
            batch.append(waiting.popleft())
        return batch
