"""The memory store: ``Tables`` behind the seam. What it holds ends with the process."""

import logging
from collections.abc import Set as AbstractSet
from typing import Final

from outlast.core.admin import NamespaceInfo
from outlast.core.errors import InvariantBroken
from outlast.core.feed import Place as FeedPlace
from outlast.core.units import Fence
from outlast.core.writes import AttemptRow, Batch, Claim, CommitOutcome, HistoryRow, Load, Page, RunRow, TaskRow
from outlast.protocol.intake import Intake
from outlast.store.base import FeedFound, RunFilter, StoreError, Stretch, Tally, TaskFilter, Turns, Waiting
from outlast.store.memory import reading
from outlast.store.memory.tables import Tables

_log: Final = logging.getLogger("outlast.store")


class MemoryStore:
    """A shard's rows in memory. Closing keeps them: the same object can be opened again, as a file can."""

    def __init__(self, *, shard: int = 0, tables: Tables | None = None) -> None:
        self.reads_inline = True
        self.intake: Intake | None = None
        self.tables = tables or Tables(shard=shard)
        self.last_fault = ""
        self._open = False

    async def open(self) -> None:
        """Make the store usable."""
        self._open = True

    async def close(self) -> None:
        """End its use; closing twice is the same as once."""
        self._open = False

    async def claim(self, *, owner: str, now: int, lease_until: int) -> Claim:
        """Raise the epoch. Raises StoreError "not_owner" while another owner's lease runs."""
        return self._tables().claim(owner=owner, now=now, lease_until=lease_until)

    async def release(self, fence: Fence) -> None:
        """End the lease of ``fence``, if it is the current one."""
        self._tables().release(fence)

    async def commit(self, batch: Batch) -> CommitOutcome:
        """Write ``batch`` or nothing; UNKNOWN (nothing written) for one that no database would take."""
        try:
            outcome = self._tables().apply(batch)
        except InvariantBroken as error:
            self.last_fault = f"{type(error).__name__}: {error}"
            _log.exception("commit_failed number=%d", batch.number)
            return CommitOutcome.UNKNOWN
        if outcome is CommitOutcome.REFUSED:
            self.last_fault = f"batch {batch.number} under {batch.fence} was fenced"
        return outcome

    async def load(self, load: Load) -> Page:
        """Return the page."""
        return self._tables().load(load)

    async def read_history(self, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
        """Return pages from the one that holds ``first_event_id`` until ``events_max`` events are covered."""
        return reading.read_history(self._tables(), run_id, first_event_id=first_event_id, events_max=events_max)

    async def read_attempts(self, task_id: str) -> list[AttemptRow]:
        """Return how the leases of a task ended."""
        return reading.read_attempts(self._tables(), task_id)

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]:
        """Return runs, newest first."""
        return reading.list_runs(self._tables(), filter)

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]:
        """Return tasks, newest first."""
        return reading.list_tasks(self._tables(), filter)

    async def count_runs(self, filter: RunFilter) -> Tally:
        """Return how many runs match."""
        return reading.count_runs(self._tables(), filter)

    async def count_tasks(self, filter: TaskFilter) -> Tally:
        """Return how many tasks match."""
        return reading.count_tasks(self._tables(), filter)

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]:
        """Return what waits in a queue, by type."""
        return reading.read_waiting(self._tables(), namespace, queue)

    async def read_turns(self) -> list[Turns]:
        """Return which queues' runs need a workflow task."""
        return reading.read_turns(self._tables())

    async def read_namespaces(self) -> dict[str, NamespaceInfo]:
        """Return the namespaces by name."""
        return dict(self._tables().namespaces)

    async def read_counters(self, namespace: str) -> dict[str, int]:
        """Return the counters of a namespace."""
        return {name: value for (of, name), value in self._tables().counters.items() if of == namespace}

    async def read_feed(self, namespace: str, *, after: FeedPlace, events_max: int, bytes_max: int) -> FeedFound:
        """Return what a feed has behind ``after``."""
        return reading.read_feed(self._tables(), namespace, after=after, events_max=events_max, bytes_max=bytes_max)

    async def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        """Drop the oldest rows of a feed; return how many."""
        return self._tables().forget_feed(namespace, before=before, through=through, rows_max=rows_max)

    async def forget_dedup(self, *, before_period: int) -> int:
        """Drop the dedup rows of periods before ``before_period``; return how many."""
        tables = self._tables()
        over = [key for key, row in tables.dedup.items() if row.period < before_period]
        for key in over:
            del tables.dedup[key]
        return len(over)

    async def named_blobs(self, digests: AbstractSet[str]) -> set[str]:
        """Return those of ``digests`` that a row names."""
        return reading.named_blobs(self._tables(), digests)

    def _tables(self) -> Tables:
        if not self._open:
            raise StoreError("unavailable", "The memory store is not open.", remedy="Open it first.")
        return self.tables
