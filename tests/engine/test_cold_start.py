"""An engine that finds much to do: it serves at once, and reads what is there in pages."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from outlast.core import limits
from outlast.core.inputs import CompleteTasks, Completion, EnqueueTask, EnqueueTasks, TaskSucceeded, TaskToken
from outlast.core.replies import CompletionsReply, TaskEnqueuedReply, Work
from outlast.core.units import HOUR
from outlast.core.writes import Load, Page
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.server.clock import GuardedClock
from outlast.store.base import Store
from outlast.store.memory.blobs import MemoryBlobStore
from tests.engine.doubles import ENTROPY, a_poll, a_task, polled_tasks, run
from tests.engine.places import Place, new_place

PENDING = 20_000
HELD = 2_000
DELAYED = 5_000


@dataclass(slots=True)
class Pages:
    """How many rows a store has read, page by page."""

    rows: list[int] = field(default_factory=list[int])

    def count(self, store: Store) -> Store:
        """Have the pages of ``store`` counted; return it."""
        load = store.load

        async def counted(wanted: Load) -> Page:
            page = await load(wanted)
            self.rows.append(len(page.tasks) + len(page.runs) + len(page.timers))
            return page

        store.load = counted  # type: ignore[method-assign]
        return store


async def _engine(store: Store) -> tuple[Engine, InProcessTransport]:
    engine = Engine(store, MemoryBlobStore(), clock=GuardedClock(), entropy=ENTROPY)
    await engine.start()
    return engine, InProcessTransport(engine, namespace="default")


async def _fill(place: Place) -> None:
    engine, transport = await _engine(place.store())
    for _ in range(PENDING // 1000):
        await _enqueue(transport, [a_task(start_to_close=HOUR) for _ in range(1000)])
    for _ in range(DELAYED // 1000):
        await _enqueue(transport, [a_task(delay=HOUR) for _ in range(1000)])
    await polled_tasks(transport, HELD, slots=HELD)
    await engine.stop()


async def _enqueue(transport: InProcessTransport, tasks: Sequence[EnqueueTask]) -> None:
    await transport.call(EnqueueTasks(items=tuple(tasks)))


@pytest.mark.slow
def test_an_engine_serves_at_once_whatever_it_finds_and_reads_it_in_pages() -> None:
    async def work() -> None:
        place, pages = new_place(), Pages()
        await _fill(place)
        store = pages.count(place.store())
        began = time.monotonic()
        engine, transport = await _engine(store)
        made = await transport.call(a_task(type="urgent"))
        given = await transport.call(a_poll(task_types=("urgent",), slots=1))
        served, read = time.monotonic() - began, sum(pages.rows)
        done = set[str]()
        while len(done) < PENDING - HELD:
            polled = await transport.call(a_poll(slots=1000, workflow_slots=0))
            assert isinstance(polled, Work)
            assert polled.tasks
            done |= {lease.token.task_id for lease in polled.tasks}
            reply = await transport.call(_completed([lease.token for lease in polled.tasks]))
            assert isinstance(reply, CompletionsReply)
        await engine.stop()

        assert isinstance(made, TaskEnqueuedReply)
        assert isinstance(given, Work)
        assert [lease.token.task_id for lease in given.tasks] == [made.task_id]
        assert served < 5
        # Every lease, and the next timers; of what waits nothing but what is asked for.
        assert HELD <= read <= HELD + limits.WINDOW_LOW + 2 * limits.PAGE_ROWS
        assert max(pages.rows) <= limits.PAGE_ROWS

    run(work)


def _completed(tokens: list[TaskToken]) -> CompleteTasks:
    return CompleteTasks(items=tuple(Completion(token=token, outcome=TaskSucceeded()) for token in tokens), worker="w1")
