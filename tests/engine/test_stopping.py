"""An engine that stops while leases are on their way: nobody waits for their end in the next one."""

import asyncio

from outlast.core.replies import TaskState, Work
from outlast.core.units import SECOND
from outlast.core.writes import HistoryRow
from tests.engine.doubles import FaultyStore, a_poll, a_start, a_task, run, running
from tests.engine.places import new_place


async def some_turns() -> None:
    """Let the engine take in what was asked, as far as it comes without a commit."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_leases_on_their_way_when_the_engine_stops_are_handed_back() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            await transport.call(a_task(task_id="t-1"))
            store.gate.clear()
            poll = asyncio.create_task(transport.call(a_poll()))
            await store.held.wait()

            stop = asyncio.create_task(engine.stop())
            await some_turns()
            store.gate.set()
            await stop

            assert await poll == Work(stop=True)
            assert (await store.place.found()).tasks["t-1"] is TaskState.ENQUEUED

    run(work)


def test_a_turn_whose_history_is_still_read_when_the_engine_stops_is_handed_back() -> None:
    async def work() -> None:
        place, read = new_place(), asyncio.Event()
        async with running(FaultyStore(place)) as (_, transport):
            await transport.call(a_start("w-1"))
        store = FaultyStore(place, inline=False)
        async with running(store) as (engine, transport):

            async def read_for_ever(run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
                read.set()
                return await asyncio.get_running_loop().create_future()  # it never comes

            store.read_history = read_for_ever  # type: ignore[method-assign]
            poll = asyncio.create_task(transport.call(a_poll()))
            await read.wait()

            await engine.stop()

            assert await poll == Work(stop=True)
        async with running(FaultyStore(place)) as (_, transport):
            again = await transport.call(a_poll(worker="w2", wait=SECOND))

            assert isinstance(again, Work)
            assert [task.workflow_id for task in again.workflow_tasks] == ["w-1"]

    run(work)
