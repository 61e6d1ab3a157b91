"""Namespaces over the engine: made at once, served at once, held to their limits, and gone with all they held."""

import asyncio
from typing import Any

import pytest

from outlast.core.admin import (
    CreateNamespace,
    DeleteNamespace,
    DescribeWorkers,
    Forget,
    NamespaceInfo,
    NamespaceSettings,
    UpdateNamespace,
    WorkersInfo,
)
from outlast.core.errors import Busy, Conflict, Invalid, NotFound, TooLarge
from outlast.core.feed import Place
from outlast.core.inputs import CancelTask, DescribeTask, EnqueueTasks, ShardRequest, TerminateWorkflow
from outlast.core.limits import PAYLOAD_INLINE_BYTES_MAX
from outlast.core.payload import Payload
from outlast.core.replies import Refused, Reply, TasksEnqueued
from outlast.core.shard.config import ShardConfig
from outlast.core.units import HOUR
from outlast.core.writes import CommitOutcome, RunRow, TaskRow
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.protocol.transport import Count, QueueInfo, QueueType
from outlast.store.base import FeedFound, RunFilter, Store, StoreError, Stretch, TaskFilter
from outlast.store.memory.blobs import MemoryBlobStore
from tests.engine.doubles import FaultyStore, a_poll, a_start, a_task, run, running
from tests.engine.places import new_place


def shop(request_id: str = "r1", **settings: Any) -> CreateNamespace:
    """Return the request for a namespace."""
    return CreateNamespace(name="shop", request_id=request_id, settings=NamespaceSettings(**settings))


class SlowBlobs(MemoryBlobStore):
    """Blobs that are kept once they may be."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data`` when it may be."""
        self.asked.set()
        await self.may.wait()
        await super().put(digest, data)


class UnreadableLists:
    """The lists of a store, of which those of one namespace cannot be read."""

    def __init__(self, store: Store, namespace: str, fault: StoreError) -> None:
        self._store, self._namespace, self._fault = store, namespace, fault

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]:
        return await self._store.list_runs(filter)

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]:
        if filter.namespace == self._namespace:
            raise self._fault
        return await self._store.list_tasks(filter)

    async def read_feed(self, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound:
        return await self._store.read_feed(namespace, after=after, events_max=events_max, bytes_max=bytes_max)

    async def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        return await self._store.forget_feed(namespace, before=before, through=through, rows_max=rows_max)


async def swept(engine: Engine) -> None:
    """Do one round of the sweeper now."""
    await engine._sweeper.sweep()


def test_a_new_namespace_works_at_once_and_after_a_restart() -> None:
    async def work() -> None:
        store = new_place().store()
        async with running(store) as (engine, transport):
            other = InProcessTransport(engine, namespace="shop")
            with pytest.raises(NotFound):
                await other.call(a_task())
            made = await transport.call(shop(description="orders"))
            await other.call(a_task(task_id="t-1"))

            assert [info.name for info in await transport.list_namespaces()] == ["default", "shop"]
            assert (await transport.list_namespaces())[1] == made
        async with running(store) as (engine, transport):
            other = InProcessTransport(engine, namespace="shop")

            assert (await other.list_tasks()).tasks[0].task_id == "t-1"

    run(work)


def test_limits_of_a_namespace_hold_from_the_next_request_on() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(shop())
            other = InProcessTransport(engine, namespace="shop")
            big = Payload("json/plain", b'"' + b"x" * 2_000 + b'"')
            await other.call(a_task(input=(big,)))
            settings = NamespaceSettings(payload_bytes_max=1_000, starts_per_second=0.001, starts_burst=2)
            await transport.call(UpdateNamespace(name="shop", request_id="r2", settings=settings))

            with pytest.raises(TooLarge):
                await other.call(a_task(input=(big,)))
            await other.call(a_task())
            await other.call(a_start("w-1"))
            with pytest.raises(Busy) as caught:
                await other.call(a_start("w-2"))
            await transport.call(a_task(input=(big,)))

            assert caught.value.code == "rate_limited"
            assert float(caught.value.facts["retry_after"]) > 60

    run(work)


def test_faulty_items_take_nothing_of_the_rate_of_a_namespace() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(shop())
            other = InProcessTransport(engine, namespace="shop")
            settings = NamespaceSettings(starts_per_second=0.001, starts_burst=2)
            await transport.call(UpdateNamespace(name="shop", request_id="r2", settings=settings))

            bad = tuple(a_task(type="") for _ in range(5))
            first = await other.call(EnqueueTasks(items=(*bad, a_task())))
            none = await other.call(EnqueueTasks(items=bad))
            second = await other.call(EnqueueTasks(items=(a_task(), *bad)))
            with pytest.raises(Busy):
                await other.call(EnqueueTasks(items=(a_task(),)))

            assert isinstance(first, TasksEnqueued)
            assert isinstance(second, TasksEnqueued)
            assert isinstance(none, TasksEnqueued)
            assert [isinstance(item, Refused) for item in (first.items[-1], second.items[0])] == [False, False]
            assert all(isinstance(item, Refused) for item in none.items)

    run(work)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("", {}), ("Shop", {}), ("-shop", {}), ("a" * 64, {}), ("sh op", {}), ("shop", {"retention": -1}),
        ("shop", {"payload_bytes_max": 2**40}), ("shop", {"starts_per_second": float("nan")}),
        ("shop", {"description": "x" * 2_000}),
    ],
)  # fmt: skip
def test_a_namespace_that_cannot_be_is_refused(name: str, settings: dict[str, Any]) -> None:
    async def work() -> None:
        async with running() as (_, transport):
            wanted = NamespaceSettings(**settings)
            with pytest.raises((Invalid, TooLarge)):
                await transport.call(CreateNamespace(name=name, request_id="r", settings=wanted))

    run(work)


def test_deleting_asks_for_the_name_twice_and_for_force() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(shop())
            await InProcessTransport(engine, namespace="shop").call(a_start("w-1"))

            with pytest.raises(Invalid):
                await transport.call(DeleteNamespace(name="shop", request_id="r2", confirm="shap", force=True))
            with pytest.raises(Conflict):
                await transport.call(DeleteNamespace(name="shop", request_id="r3", confirm="shop"))
            with pytest.raises(NotFound):
                await transport.call(DeleteNamespace(name="none", request_id="r4", confirm="none"))

    run(work)


def test_a_deleted_namespace_is_gone_with_all_it_held() -> None:
    async def work() -> None:
        place = new_place()
        store = place.store()
        async with running(store) as (engine, transport):
            await transport.call(shop())
            other = InProcessTransport(engine, namespace="shop")
            await other.call(a_start("w-1", tags={"plan": "pro"}))
            await other.call(a_task())
            await transport.call(a_task(task_id="mine"))
            await transport.call(DeleteNamespace(name="shop", request_id="r2", confirm="shop", force=True))
            with pytest.raises(NotFound) as caught:
                await other.call(a_task())
            for _ in range(5):
                await swept(engine)

            assert "being deleted" in caught.value.fact
            assert [info.name for info in await transport.list_namespaces()] == ["default"]
            found = await place.found()
            assert (found.runs, found.histories, found.labels) == (set(), set(), set())
            assert set(found.tasks) == {"mine"}
            assert isinstance(await transport.call(shop("r9")), NamespaceInfo)

    run(work)


def test_what_closed_before_the_retention_is_forgotten() -> None:
    async def work() -> None:
        place = new_place()
        store = place.store()
        async with running(store, config=ShardConfig(idempotency_window=1)) as (engine, transport):
            await transport.call(shop(retention=HOUR))
            other = InProcessTransport(engine, namespace="shop")
            for name in ("old", "open"):
                await other.call(a_start(name))
                await other.call(a_task(task_id=f"t-{name}"))
            await other.call(TerminateWorkflow(workflow_id="old", request_id="x"))
            await other.call(CancelTask(task_id="t-old"))
            await swept(engine)
            found = await place.found()
            await engine._sweeper.forget("shop", engine.clock.now() + 1)

            assert (len(found.runs), len(found.tasks)) == (2, 2)
            assert [info.workflow_id for info in (await other.list_runs()).runs] == ["open"]
            assert [info.task_id for info in (await other.list_tasks()).tasks] == ["t-open"]
            assert await other.count_runs() == Count(count=1)
            assert await other.count_tasks() == Count(count=1)
            with pytest.raises(NotFound):
                await other.call(DescribeTask(task_id="t-old"))

    run(work)


def test_queues_tell_their_depth_by_state() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            await transport.call(EnqueueTasks(items=tuple(a_task() for _ in range(3))))
            await transport.call(a_task(delay=HOUR))
            await transport.call(a_task(queue="bulk", type="copy"))
            await transport.call(a_start("w-1", queue="flows"))
            await transport.call(a_poll(slots=1, workflow_slots=0), timeout=5)

            found = await transport.list_queues()
            (none,) = (await transport.list_queues(queue="none")).items
            bulk, default, flows = found.items

            assert none == QueueInfo(queue="none")
            assert (bulk.queue, bulk.ready, bulk.types[0].type) == ("bulk", 1, "copy")
            assert (default.ready, default.delayed, default.leased, default.turns) == (2, 1, 1, 0)
            assert default.types == (QueueType(type="resize", ready=2, oldest_at=default.oldest_at),)
            assert (flows.queue, flows.turns, flows.ready) == ("flows", 1, 0)
            assert min(bulk.oldest_at, default.oldest_at, flows.oldest_at) > 0

    run(work)


def test_workers_are_those_that_poll() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            polling = asyncio.create_task(transport.call(a_poll(worker="w-7", wait=20 * 10**9), timeout=25))
            found = WorkersInfo()
            while not found.items:
                await asyncio.sleep(0.01)
                reply = await transport.call(DescribeWorkers())
                assert isinstance(reply, WorkersInfo)
                found = reply
            polling.cancel()

            assert [info.worker for info in found.items] == ["w-7"]
            assert found.items[0].polls == 1

    run(work)


def test_a_namespace_made_by_a_commit_without_an_answer_is_served() -> None:
    async def work() -> None:
        store = FaultyStore()
        store.unknown_happens = True
        async with running(store) as (engine, transport):
            store.outcomes.append(CommitOutcome.UNKNOWN)
            reply = await engine.submit(shop(), namespace="default", principal="").future  # and it is not sent again
            await transport.call(a_task())  # which is when the shard is served again

            assert isinstance(reply, Refused)
            assert reply.code == "unavailable"
            await InProcessTransport(engine, namespace="shop").call(a_task())

    run(work)


@pytest.mark.one_store  # only in memory the old one has gone by then
def test_a_namespace_made_again_in_the_commit_that_ends_the_old_one_is_served() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(shop())
            ending = DeleteNamespace(name="shop", request_id="r2", confirm="shop")
            await engine.submit(ending, namespace="default", principal="").future  # the sweeper hears of it first

            again = await engine.submit(shop("r9"), namespace="default", principal="").future

            assert isinstance(again, NamespaceInfo)
            assert engine.knows("shop")

    run(work)


def test_a_namespace_deleted_while_a_big_payload_is_kept_takes_nothing_more() -> None:
    async def work() -> None:
        blobs = SlowBlobs()
        async with running(blobs=blobs) as (engine, transport):
            await transport.call(shop())
            big = Payload("json/plain", b"x" * (PAYLOAD_INLINE_BYTES_MAX + 1))
            asked = engine.submit(a_task(input=(big,)), namespace="shop", principal="")
            await blobs.asked.wait()
            await transport.call(DeleteNamespace(name="shop", request_id="r2", confirm="shop"))
            blobs.may.set()

            reply = await asked.future

            assert isinstance(reply, Refused)
            assert reply.code == "namespace_not_found"

    run(work)


@pytest.mark.parametrize(
    ("fault", "said"),
    [(StoreError("store_damaged", "A page cannot be read.", remedy="Restore it."), "StoreError"), (None, "is away")],
    ids=["the store fails", "the shard refuses"],
)
def test_a_namespace_that_cannot_be_swept_keeps_nothing_in_the_others(
    fault: StoreError | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        place = new_place()
        store = place.store()
        async with running(store, config=ShardConfig(idempotency_window=1)) as (engine, transport):
            for name in ("a-bad", "shop"):
                settings = NamespaceSettings(retention=1)
                await transport.call(CreateNamespace(name=name, request_id=f"r-{name}", settings=settings))
                other = InProcessTransport(engine, namespace=name)
                await other.call(a_task(task_id=f"t-{name}"))
                await other.call(CancelTask(task_id=f"t-{name}"))
            sweeper, ask = engine._sweeper, engine._sweeper.ask

            async def refuse_bad(request: ShardRequest, namespace: str) -> Reply:
                if namespace == "a-bad":
                    return Refused(code="unavailable", fact="The shard is away.", remedy="Wait.", retryable=True)
                return await ask(request, namespace)

            sweeper.ask = refuse_bad
            if fault is not None:
                sweeper.store = UnreadableLists(store, "a-bad", fault)
            await sweeper.sweep()

            assert set((await place.found()).tasks) == {"t-a-bad"}

    run(work)
    assert "the namespace a-bad was not swept to its end" in caplog.text
    assert said in caplog.text


def test_the_shard_is_not_asked_to_forget_what_a_key_still_binds() -> None:
    async def work() -> None:
        async with running(config=ShardConfig(idempotency_window=HOUR)) as (engine, transport):
            await transport.call(shop(retention=1))
            other = InProcessTransport(engine, namespace="shop")
            await other.call(a_task(task_id="t"))
            await other.call(CancelTask(task_id="t"))
            sweeper, ask, asked = engine._sweeper, engine._sweeper.ask, list[ShardRequest]()

            async def listen(request: ShardRequest, namespace: str) -> Reply:
                asked.append(request)
                return await ask(request, namespace)

            sweeper.ask = listen
            await sweeper.sweep()
            kept = list(asked)
            sweeper.kept_min = 0
            await sweeper.sweep()

            assert kept == []
            assert [type(request) for request in asked] == [Forget]

    run(work)
