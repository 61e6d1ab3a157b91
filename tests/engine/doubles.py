"""Stores that fail as told, and an engine that is started and stopped around a test."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Any

from outlast.core.admin import NamespaceInfo
from outlast.core.feed import Place
from outlast.core.inputs import (
    CompleteTasks,
    Completion,
    EnqueueTask,
    Poll,
    SignalWorkflow,
    StartWorkflow,
    TaskSucceeded,
)
from outlast.core.payload import Payload
from outlast.core.replies import TaskLease, Work
from outlast.core.units import Fence
from outlast.core.writes import AttemptRow, Batch, Claim, CommitOutcome, HistoryRow, Load, Page, RunRow, TaskRow
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.protocol.transport import Transport
from outlast.server.clock import GuardedClock, SystemEntropy
from outlast.store.base import (
    BlobStore,
    FeedFound,
    RunFilter,
    Store,
    StoreError,
    Stretch,
    Tally,
    TaskFilter,
    Turns,
    Waiting,
)
from outlast.store.memory.blobs import MemoryBlobStore
from outlast.store.memory.tables import Tables
from tests.engine import places

ENTROPY = SystemEntropy()
new_id = ENTROPY.new_id


class FaultyStore:
    """A store whose commits, claims and loads go as ``outcomes``, ``claim_faults`` and ``load_faults`` say.

    An UNKNOWN outcome has happened if ``unknown_happens``; ``gate`` holds commits back while it is clear.
    """

    def __init__(self, place: places.Place | Tables | None = None, *, inline: bool = True) -> None:
        self.place = places.MemoryPlace(place) if isinstance(place, Tables) else place or places.new_place()
        self.inner = self.place.store()
        self.reads_inline = inline and self.inner.reads_inline
        self.intake = self.inner.intake
        self.outcomes: deque[CommitOutcome | Exception] = deque()
        self.claim_faults: deque[StoreError] = deque()
        self.load_faults: deque[Exception] = deque()
        self.unknown_happens = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.held = asyncio.Event()  # a commit is held back
        self.commits = 0
        self.claims: list[Fence] = []
        self.released: list[Fence] = []
        self.opened = 0

    async def open(self) -> None:
        self.opened += 1
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def claim(self, *, owner: str, now: int, lease_until: int) -> Claim:
        if self.claim_faults:
            raise self.claim_faults.popleft()
        claim = await self.inner.claim(owner=owner, now=now, lease_until=lease_until)
        self.claims.append(claim.fence)
        return claim

    async def release(self, fence: Fence) -> None:
        self.released.append(fence)
        await self.inner.release(fence)

    async def commit(self, batch: Batch) -> CommitOutcome:
        if not self.gate.is_set():
            self.held.set()
        await self.gate.wait()
        self.commits += 1
        outcome = self.outcomes.popleft() if self.outcomes else CommitOutcome.DONE
        if outcome is CommitOutcome.DONE or (
            outcome not in {CommitOutcome.FULL, CommitOutcome.LOCKED} and self.unknown_happens
        ):
            done = await self.inner.commit(batch)
            assert done is CommitOutcome.DONE or outcome is not CommitOutcome.DONE
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def load(self, load: Load) -> Page:
        if self.load_faults:
            raise self.load_faults.popleft()
        if not self.reads_inline:
            await asyncio.sleep(0)
        return await self.inner.load(load)

    async def read_history(self, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
        if not self.reads_inline:
            await asyncio.sleep(0)
        return await self.inner.read_history(run_id, first_event_id=first_event_id, events_max=events_max)

    async def read_attempts(self, task_id: str) -> list[AttemptRow]:
        return await self.inner.read_attempts(task_id)

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]:
        return await self.inner.list_runs(filter)

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]:
        return await self.inner.list_tasks(filter)

    async def count_runs(self, filter: RunFilter) -> Tally:
        return await self.inner.count_runs(filter)

    async def count_tasks(self, filter: TaskFilter) -> Tally:
        return await self.inner.count_tasks(filter)

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]:
        return await self.inner.read_waiting(namespace, queue)

    async def read_turns(self) -> list[Turns]:
        return await self.inner.read_turns()

    async def read_namespaces(self) -> dict[str, NamespaceInfo]:
        return await self.inner.read_namespaces()

    async def read_counters(self, namespace: str) -> dict[str, int]:
        return await self.inner.read_counters(namespace)

    async def read_feed(self, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound:
        return await self.inner.read_feed(namespace, after=after, events_max=events_max, bytes_max=bytes_max)

    async def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        return await self.inner.forget_feed(namespace, before=before, through=through, rows_max=rows_max)

    async def forget_dedup(self, *, before_period: int) -> int:
        return await self.inner.forget_dedup(before_period=before_period)

    async def named_blobs(self, digests: AbstractSet[str]) -> set[str]:
        return await self.inner.named_blobs(digests)


class CountedFeed:
    """A feed whose reads are counted."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reads = 0
        self.ended = 0

    async def read_feed(self, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound:
        self.reads += 1
        found = await self.store.read_feed(namespace, after=after, events_max=events_max, bytes_max=bytes_max)
        self.ended += 1
        return found


@asynccontextmanager
async def running(
    store: Store | None = None, blobs: BlobStore | None = None, **settings: Any
) -> AsyncGenerator[tuple[Engine, InProcessTransport]]:
    """Give a started engine and a transport to it; stop it in the end."""
    engine = Engine(
        store or places.new_place().store(),
        blobs or MemoryBlobStore(),
        clock=GuardedClock(),
        entropy=ENTROPY,
        **settings,
    )
    await engine.start()
    try:
        yield engine, InProcessTransport(engine, namespace="default")
    finally:
        await engine.stop()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine, bounded."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work()

    asyncio.run(bounded())


def a_task(**fields: Any) -> EnqueueTask:
    """Return an enqueue with fresh ids."""
    chosen: dict[str, Any] = {"task_id": new_id(), "type": "resize", "queue": "default", "key": new_id()}
    return EnqueueTask(**{**chosen, **fields})


def a_start(workflow_id: str, **fields: Any) -> StartWorkflow:
    """Return a start with fresh ids."""
    chosen: dict[str, Any] = {"type": "order", "queue": "default", "run_id": new_id(), "request_id": new_id()}
    chosen["workflow_id"] = workflow_id
    return StartWorkflow(**{**chosen, **fields})


def a_signal(workflow_id: str, **fields: Any) -> SignalWorkflow:
    """Return a signal with a fresh id."""
    chosen: dict[str, Any] = {"workflow_id": workflow_id, "name": "approve", "request_id": new_id()}
    return SignalWorkflow(**{**chosen, **fields})


def a_poll(**fields: Any) -> Poll:
    """Return a poll for the types that the other makers use."""
    chosen: dict[str, Any] = {
        "poll_id": new_id(),
        "worker": "w1",
        "queues": ("default",),
        "task_types": ("resize",),
        "workflow_types": ("order",),
        "slots": 10,
        "workflow_slots": 10,
        "wait": 5_000_000_000,
    }
    return Poll(**{**chosen, **fields})


async def polled_tasks(transport: Transport, count: int, *, slots: int = 10) -> Work:
    """Poll until ``count`` tasks have been given out; return them as one answer.

    A poll is answered with what is at hand: what came in while the front of a queue was being read comes with the next one.
    """
    leases: list[TaskLease] = []
    while len(leases) < count:
        got = await transport.call(a_poll(slots=slots), timeout=20)
        assert isinstance(got, Work)
        assert got.tasks
        leases += got.tasks
    return Work(tasks=tuple(leases))


def json_of(data: bytes) -> Payload:
    """Return a JSON payload."""
    return Payload("json/plain", data)


def done_with(polled: Work) -> CompleteTasks:
    """The word of a worker that has done all it was given."""
    return CompleteTasks(
        worker="w1", items=tuple(Completion(token=lease.token, outcome=TaskSucceeded()) for lease in polled.tasks)
    )
