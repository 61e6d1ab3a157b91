"""Who watches which run: told when a commit has written events of it, and at no cost while nothing is written."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from outlast.core.writes import Batch


class Watches:
    """The watched runs of one engine, on its loop."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def watch(self, run_id: str) -> Generator[asyncio.Event]:
        """Give an event that is set with each commit that writes events of the run. Clear it, then read, then wait for it."""
        moved = asyncio.Event()
        self._events.setdefault(run_id, set()).add(moved)
        try:
            yield moved
        finally:
            watching = self._events[run_id]
            watching.discard(moved)
            if not watching:
                del self._events[run_id]

    def committed(self, batch: Batch) -> None:
        """Tell who watches what ``batch`` has written."""
        if not self._events:
            return
        for page in batch.history:
            for moved in self._events.get(page.run_id, ()):
                moved.set()

    def anything_may_have_moved(self) -> None:
        """Tell everybody to look: a commit may have happened of which nobody has heard."""
        for watching in self._events.values():
            for moved in watching:
                moved.set()
