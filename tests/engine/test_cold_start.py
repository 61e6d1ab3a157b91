"""An engine that finds much to do: it serves at once, and reads what is there in pages."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from outlast.core.inputs import CompleteTasks, Completion, EnqueueTask, EnqueueTasks, TaskSucceeded, TaskToken
from outlast.core.replies import CompletionsReply, TaskEnqueuedReply, Work
from outlast.core.units import HOUR
from outlast.core.writes import Load, Page
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.server.clock import GuardedClock
from outlast.store.memory.blobs import MemoryBlobStore
from outlast.store.sqlite.store import SqliteStore
from tests.engine.doubles import ENTROPY, a_poll, a_task, run

PENDING = 20_000
HELD = 2_000
DELAYED = 5_000


class Counted(SqliteStore):
    """A store that notes how large its pages are."""

    largest = 0

    async def load(self, load: Load) -> Page:
        page = await super().load(load)
        self.largest = max(self.largest, len(page.tasks), len(page.runs), len(page.timers))
        return page


async def _engine(store: SqliteStore) -> tuple[Engine, InProcessTransport]:
    engine = Engine(store, MemoryBlobStore(), clock=GuardedClock(), entropy=ENTROPY)
    await engine.start()
    return engine, InProcessTransport(engine, namespace="default")


async def _fill(path: Path) -> None:
    engine, transport = await _engine(SqliteStore(path, allow_network_disk=True))
    for _ in range(PENDING // 1000):
        await _enqueue(transport, [a_task(start_to_close=HOUR) for _ in range(1000)])
    for _ in range(DELAYED // 1000):
        await _enqueue(transport, [a_task(delay=HOUR) for _ in range(1000)])
    polled = await transport.call(a_poll(slots=HELD))
    assert isinstance(polled, Work)
    assert len(polled.tasks) == HELD
    await engine.stop()


async def _enqueue(transport: InProcessTransport, tasks: Sequence[EnqueueTask]) -> None:
    await transport.call(EnqueueTasks(items=tuple(tasks)))


@pytest.mark.slow
def test_an_engine_serves_at_once_whatever_it_finds_and_reads_it_in_pages(tmp_path: Path) -> None:
    async def work() -> None:
        await _fill(tmp_path / "o.db")
        store = Counted(tmp_path / "o.db", allow_network_disk=True)
        began = time.monotonic()
        engine, transport = await _engine(store)
        made = await transport.call(a_task(type="urgent"))
        given = await transport.call(a_poll(task_types=("urgent",), slots=1))
        served = time.monotonic() - began
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
        assert store.largest <= 1000

    run(work)


def _completed(tokens: list[TaskToken]) -> CompleteTasks:
    return CompleteTasks(items=tuple(Completion(token=token, outcome=TaskSucceeded()) for token in tokens), worker="w1")
