"""An engine on a real PostgreSQL server that goes away in the midst of things, loses connections, or ends sessions."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outlast.core.inputs import AwaitTask, CompleteTasks, Completion, EnqueueTasks, TaskSucceeded
from outlast.core.replies import (
    CompletionsReply,
    TaskEnqueuedReply,
    TaskOutcomeReply,
    TaskState,
    Work,
    WorkflowStarted,
)
from outlast.engine.inprocess import InProcessTransport
from outlast.store.postgres import claiming
from outlast.store.postgres.connection import READER, WRITER
from outlast.store.postgres.session import READERS
from outlast.store.postgres.store import TENDERS, PostgresStore
from tests.engine.cut import When, cutting
from tests.engine.doubles import a_poll, a_signal, a_start, a_task, done_with, run, running
from tests.store.cluster import DURABLE, Cluster

pytestmark = pytest.mark.one_store

IN_FLIGHT = 250
END = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name LIKE '{}'"
OURS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outlast%'"


@pytest.fixture
def url(cluster: Cluster) -> Generator[str]:
    """The address of a database in which nothing is."""
    with cluster.database() as address:
        yield address


def store_at(url: str) -> PostgresStore:
    return PostgresStore(url, allow_weak=True)


async def ask(url: str, sql: str) -> Any:
    """Return the first value of a statement, asked in a session of its own."""
    session = await asyncpg.connect(url)
    try:
        return await session.fetchval(sql)
    finally:
        await session.close()


async def lease_all(transport: InProcessTransport, count: int) -> set[str]:
    """Poll until ``count`` tasks have been given out, and say that they are done; return their ids."""
    given = set[str]()
    while len(given) < count:
        work = await transport.call(a_poll(slots=100))
        assert isinstance(work, Work)
        ids = [lease.token.task_id for lease in work.tasks]
        assert given.isdisjoint(ids)
        given.update(ids)
        assert isinstance(await transport.call(done_with(work)), CompletionsReply)
    return given


async def enqueue(transport: InProcessTransport) -> None:
    await transport.call(a_task(task_id="t-1", key="once"))
    assert [info.task_id for info in (await transport.list_tasks()).tasks] == ["t-1"]


async def start(transport: InProcessTransport) -> None:
    assert isinstance(await transport.call(a_start("w-1")), WorkflowStarted)
    assert len((await transport.list_runs()).runs) == 1


async def signal(transport: InProcessTransport) -> None:
    await transport.call(a_start("w-1"))
    await transport.call(a_signal("w-1"))
    assert len((await transport.list_runs()).runs) == 1


async def lease(transport: InProcessTransport) -> None:
    await transport.call(a_task(task_id="t-1"))
    work = await transport.call(a_poll())
    assert isinstance(work, Work)
    assert [(lease.token.task_id, lease.attempt) for lease in work.tasks] == [("t-1", 1)]


async def complete(transport: InProcessTransport) -> None:
    await transport.call(a_task(task_id="t-1"))
    work = await transport.call(a_poll())
    assert isinstance(work, Work)
    done = CompleteTasks(worker="w1", items=(Completion(token=work.tasks[0].token, outcome=TaskSucceeded()),))
    assert await transport.call(done) == CompletionsReply(items=(None,))
    outcome = await transport.call(AwaitTask(task_id="t-1"))
    assert isinstance(outcome, TaskOutcomeReply)
    assert outcome.state is TaskState.SUCCEEDED


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commit", range(3))
@pytest.mark.parametrize("act", [enqueue, start, signal, lease, complete])
def test_a_connection_that_is_cut_at_a_commit_has_each_request_take_effect_once(
    url: str, cluster: Cluster, act: Callable[[InProcessTransport], Awaitable[None]], commit: int, when: When
) -> None:
    events = (act is start) + 2 * (act is signal)

    async def work(folder: Path) -> None:
        async with cutting(folder, cluster.socket) as (cutter, socket):
            store = Cuts(url.replace(cluster.socket, socket))
            store.cut = lambda: setattr(cutter, "when", when)
            store.cut_at = commit
            async with running(store) as (_, transport):
                await act(transport)
            assert cutter.cuts <= 1
            assert cutter.cuts == (store.commits > commit)
        assert await ask(url, "SELECT count(*) FROM outlast.tasks") == (act in {enqueue, lease, complete})
        assert await ask(url, "SELECT count(*) FROM outlast.runs") == (act in {start, signal})
        assert await ask(url, "SELECT coalesce(sum(count), 0) FROM outlast.history") == events
        assert await ask(url, "SELECT count(*) FROM outlast.attempts WHERE late = 0") == (act is complete)

    with tempfile.TemporaryDirectory(prefix="outlast-cut-") as folder:
        run(lambda: work(Path(folder)))


class Cuts(PostgresStore):
    """A store that says before its commit of number ``cut_at``, counted from 0, that it is to be cut."""

    cut: Callable[[], None]
    cut_at = -1
    commits = 0

    def __init__(self, url: str) -> None:
        super().__init__(url, allow_weak=True)

    async def commit(self, batch: Any) -> Any:
        if self.commits == self.cut_at:
            self.cut()
        self.commits += 1
        return await super().commit(batch)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_that_is_killed_while_a_new_owner_reads_delays_it_and_all_work_is_taken_up() -> None:
    async def work(cluster: Cluster) -> None:
        url = cluster.url(await asyncio.to_thread(cluster.empty_database))
        async with running(PostgresStore(url)) as (_, transport):
            await transport.call(EnqueueTasks(items=tuple(a_task() for _ in range(IN_FLIGHT))))
        async with running(PostgresStore(url)) as (_, transport):
            await asyncio.to_thread(cluster.kill)
            left = asyncio.create_task(lease_all(transport, IN_FLIGHT))
            await asyncio.to_thread(cluster.start)
            assert len(await left) == IN_FLIGHT

    with Cluster(*DURABLE) as cluster:
        run(lambda: work(cluster))


def test_work_goes_on_each_time_that_the_sessions_of_an_engine_are_ended(url: str) -> None:
    async def work() -> None:
        async with running(store_at(url)) as (_, transport):
            for n in range(5):
                ended = await ask(url, END.format("outlast%"))
                reply = await transport.call(a_task(task_id=f"t-{n}"))
                given = await lease_all(transport, 1)

                assert ended
                assert isinstance(reply, TaskEnqueuedReply)
                assert given == {f"t-{n}"}

    run(work)


def test_sessions_that_are_ended_again_and_again_leave_no_more_than_before(url: str) -> None:
    async def work() -> None:
        async with running(store_at(url)) as (_, transport):
            for _ in range(20):
                await ask(url, END.format("outlast reader%"))
                await asyncio.gather(*(transport.list_tasks() for _ in range(8)))

            assert await ask(url, OURS) <= 1 + READERS + TENDERS

    run(work)


def test_every_session_of_a_store_has_the_documented_settings(url: str) -> None:
    async def shown(session: Any, settings: dict[str, str]) -> dict[str, str]:
        """Return what is otherwise; those of TCP mean nothing on a socket of this machine."""
        units = {
            name: await session.fetchval(f"SELECT setting FROM pg_settings WHERE name = '{name}'")
            for name in settings
            if not name.startswith("tcp_")
        }
        return {name: value for name, value in units.items() if value != settings[name]}

    async def work() -> None:
        store = store_at(url)
        await store.open()
        await store.claim(owner="a", now=1, lease_until=0)
        assert store._owner is not None
        assert await shown(store._owner.session, WRITER) == {}
        assert await store.read(lambda reads: shown(reads._session, READER)) == {}
        assert await store.tend(lambda tending: shown(tending._session, WRITER)) == {}
        assert await store._owner.session.fetchval("SHOW application_name") == claiming.name_of(0)
        assert await store._owner.session.fetchval("SHOW synchronous_commit") == "on"
        await store.close()

    run(work)
