"""Work for threads, handed over in batches: one wake-up for many items, and one more thread at a time while some wait."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - an item


class Backlog(Generic[I]):
    """Items in order for whichever thread is free.

    Waking a thread costs more than a short handler, so ``put`` wakes one; each thread that takes an item and leaves others
    behind wakes the next before it runs its own, which may block.
    """

    def __init__(self) -> None:
        self._items: deque[I] = deque()
        self._sleeping = 0
        self._counting = threading.Lock()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def put(self, items: Iterable[I]) -> None:
        """Add ``items``. From any thread."""
        self._items.extend(items)
        self._wake()

    def take(self, idle: Callable[[], None] | None = None) -> I:
        """Return the next item, waiting for one; ``idle`` is called before it waits."""
        while True:
            try:
                item = self._items.popleft()
            except IndexError:
                if idle is not None:
                    idle()
                self._sleep()
                continue
            if self._items:
                self._wake()
            return item

    def _wake(self) -> None:
        if not self._sleeping:
            return
        with self._counting:
            if not self._sleeping:
                return
            self._sleeping -= 1
        self._bell.put(None)

    def _sleep(self) -> None:
        with self._counting:
            self._sleeping += 1
        if self._items:  # put before this thread was counted, so nobody was woken for it
            self._wake()
        self._bell.get()


def taken_once(ticket: list[bool]) -> bool:
    """Return True to one caller only, whichever comes first. From any thread."""
    try:
        ticket.pop()
    except IndexError:
        return False
    return True
