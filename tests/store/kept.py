"""A store under test, driven without an event loop in sight."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from outlast.core.units import Fence
from outlast.core.writes import Batch, Claim, CommitOutcome, Load, LoadKeys, Page, RunRow, TaskRow
from outlast.store.base import Store
from tests.store.rows import Row, batch_of

T = TypeVar("T")


class Kept:
    """A store, the claim it was last taken over with, and the number of its last commit.

    ``make`` makes another store over what this one has stored: the same file, or the same tables.
    """

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self.store = make()
        self.fence = Fence(0, 0)
        self.number = 0
        try:
            self.run(self.store.open())
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.run(self.store.close())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` gives."""
        return self._loop.run_until_complete(work)

    def claim(self, owner: str = "a", *, now: int = 1, lease_until: int = 0) -> Claim:
        """Take the shard over and remember its fence and number."""
        claim = self.run(self.store.claim(owner=owner, now=now, lease_until=lease_until))
        self.fence, self.number = claim.fence, claim.last_number
        return claim

    def next_batch(self, *rows: Row, new: bool = True, at: int = 100) -> Batch:
        """Return a batch with the number that is due."""
        return batch_of(*rows, fence=self.fence, number=self.number + 1, new=new, at=at)

    def commit(self, batch: Batch) -> CommitOutcome:
        """Commit ``batch`` and count it if it is done."""
        outcome = self.run(self.store.commit(batch))
        if outcome is CommitOutcome.DONE:
            self.number = batch.number
        return outcome

    def write(self, *rows: Row, new: bool = True, at: int = 100) -> None:
        """Commit ``rows``, which must be done."""
        outcome = self.commit(self.next_batch(*rows, new=new, at=at))
        assert outcome is CommitOutcome.DONE, getattr(self.store, "last_fault", outcome)

    def move(self, *rows: Row) -> None:
        """Commit ``rows`` as moves of what is stored."""
        self.write(*rows, new=False)

    def load(self, load: Load) -> Page:
        """Return a page."""
        return self.run(self.store.load(load))

    def find_run(self, run_id: str = "run-1") -> RunRow | None:
        """Return a run, if it is there."""
        runs = self.load(LoadKeys(runs=(run_id,))).runs
        return runs[0] if runs else None

    def read_run(self, run_id: str = "run-1") -> RunRow:
        """Return a run, which must be there."""
        found = self.find_run(run_id)
        assert found is not None
        return found

    def find_task(self, task_id: str = "task-1") -> TaskRow | None:
        """Return a task, if it is there."""
        tasks = self.load(LoadKeys(tasks=(task_id,))).tasks
        return tasks[0] if tasks else None

    def read_task(self, task_id: str = "task-1") -> TaskRow:
        """Return a task, which must be there."""
        found = self.find_task(task_id)
        assert found is not None
        return found

    def reopen(self) -> None:
        """Close the store and open another one over the same rows."""
        self.run(self.store.close())
        self.store = self._make()
        self.run(self.store.open())
