"""A store that fails while a new owner reads: whichever read it is, all work is taken up and nothing is done twice."""

import asyncio

import pytest

from outlast.core.inputs import CompleteTasks, Completion, DescribeTask, EnqueueTasks, TaskSucceeded
from outlast.core.replies import CompletionsReply, TaskInfo, TaskState, Work
from outlast.core.shard.config import ShardConfig
from outlast.engine.inprocess import InProcessTransport
from outlast.store.base import StoreError
from tests.engine.doubles import FaultyStore, a_poll, a_start, a_task, run, running

FEW = ShardConfig(page_rows=4, window_max=12, window_low=4)
IDS = [f"t-{n}" for n in range(40)]


async def _fill(store: FaultyStore) -> None:
    async with running(store, config=FEW) as (_, transport):
        await transport.call(EnqueueTasks(items=tuple(a_task(task_id=name, key=name) for name in IDS)))
        for n in range(10):
            await transport.call(a_start(f"w-{n}"))


async def _take_all(transport: InProcessTransport) -> tuple[list[str], set[str]]:
    tasks: list[str] = []
    turns: set[str] = set()
    for n in range(200):
        work = await transport.call(a_poll(worker=f"w{n}", slots=5, workflow_slots=2, wait=50_000_000))
        assert isinstance(work, Work)
        tasks += [lease.token.task_id for lease in work.tasks]
        turns |= {turn.workflow_id for turn in work.workflow_tasks}
        if work.tasks:
            done = tuple(Completion(token=lease.token, outcome=TaskSucceeded()) for lease in work.tasks)
            reply = await transport.call(CompleteTasks(items=done, worker=f"w{n}"))
            assert reply == CompletionsReply(items=(None,) * len(done))
        if len(tasks) >= len(IDS) and len(turns) >= 10:
            break
    return tasks, turns


@pytest.mark.parametrize("inline", [True, False], ids=["reads inline", "reads apart"])
@pytest.mark.parametrize("failing", range(8))
def test_whichever_read_of_a_recovery_fails_all_open_work_is_taken_up_once(failing: int, inline: bool) -> None:
    async def work() -> None:
        store = FaultyStore(inline=inline)
        await _fill(store)
        again = FaultyStore(store.place, inline=inline)
        reads = 0
        inner = again.inner.load

        async def load(wanted: object) -> object:
            nonlocal reads
            reads += 1
            if reads == failing + 1:
                raise StoreError("unavailable", "The disk is away.", remedy="Wait.")
            return await inner(wanted)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

        again.inner.load = load  # type: ignore[method-assign,assignment]  # pyright: ignore[reportAttributeAccessIssue]
        async with running(again, config=FEW) as (_, transport):
            tasks, turns = await _take_all(transport)
            info = await transport.call(DescribeTask(task_id="t-39"))

        assert sorted(tasks) == sorted(IDS)
        assert turns == {f"w-{n}" for n in range(10)}
        assert reads > failing
        assert isinstance(info, TaskInfo)
        assert info.state is TaskState.SUCCEEDED

    run(work)


def test_new_work_waits_no_longer_than_the_store_is_away() -> None:
    async def work() -> None:
        store = FaultyStore()
        await _fill(store)
        again = FaultyStore(store.place)
        async with running(again, config=FEW) as (_, transport):
            again.load_faults.extend(StoreError("unavailable", "Away.", remedy="Wait.") for _ in range(3))
            calls = [asyncio.create_task(transport.call(a_task())) for _ in range(20)]

            made = await asyncio.gather(*calls)

        assert len({getattr(reply, "task_id", "") for reply in made}) == 20

    run(work)
