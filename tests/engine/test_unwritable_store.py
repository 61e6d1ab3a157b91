"""The engine on a store that takes nothing for a while: no room, or the lock of another program."""

import asyncio
import logging
from pathlib import Path

import pytest

from outlast.core.errors import StoreFull, Unavailable
from outlast.core.inputs import DescribeTask
from outlast.core.replies import CompletionsReply, TaskEnqueuedReply, TaskInfo, TaskState, Work
from outlast.core.writes import CommitOutcome
from outlast.store.sqlite.store import SqliteStore
from tests.engine.doubles import FaultyStore, a_poll, a_task, done_with, json_of, run, running


def test_a_file_without_room_costs_one_line_without_a_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        store = SqliteStore(tmp_path / "a.db", allow_network_disk=True)
        async with running(store) as (_, transport):
            assert store._writer is not None
            store._writer.execute("PRAGMA max_page_count = 1").fetchall()
            with pytest.raises(StoreFull):
                await transport.call(a_task(input=(json_of(b'"' + b"x" * 200_000 + b'"'),)))

    with caplog.at_level(logging.INFO, "outlast"):
        run(work)

    assert [record.getMessage() for record in caplog.records] == [
        "the shard is not served: The store is full: nothing can be written."
    ]
    assert caplog.records[0].exc_info is None


def test_a_full_store_says_so_and_serves_again_without_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            store.outcomes.append(CommitOutcome.FULL)

            with pytest.raises(StoreFull) as refused:
                await transport.call(a_task())
            ready_while_full = engine.health().ready
            while not engine.health().ready:  # noqa: ASYNC110 - health is asked for, as a probe does
                await asyncio.sleep(0.01)
            await transport.call(a_task())

            assert refused.value.code == "store_full"
            assert refused.value.remedy
            assert not ready_while_full
            assert len((await transport.list_tasks()).tasks) == 1

    caplog.set_level(logging.WARNING)
    run(work)
    assert caplog.text.count("the shard is not served") == 1


def test_a_store_that_another_program_writes_to_says_so_and_serves_again() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            store.outcomes.append(CommitOutcome.LOCKED)

            with pytest.raises(Unavailable) as refused:
                await transport.call(a_task())
            while not engine.health().ready:  # noqa: ASYNC110 - health is asked for, as a probe does
                await asyncio.sleep(0.01)
            await transport.call(a_task())

            assert refused.value.code == "store_locked"
            assert "lock" in refused.value.remedy
            assert len((await transport.list_tasks()).tasks) == 1

    run(work)


@pytest.mark.parametrize("outcome", [CommitOutcome.FULL, CommitOutcome.LOCKED])
def test_a_worker_waits_a_store_out_that_takes_nothing(outcome: CommitOutcome) -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (_, transport):
            enqueued = await transport.call(a_task())
            polled = await transport.call(a_poll())
            assert isinstance(enqueued, TaskEnqueuedReply)
            assert isinstance(polled, Work)
            store.outcomes.append(outcome)

            reply = await transport.call(done_with(polled))

            assert reply == CompletionsReply(items=(None,))
            info = await transport.call(DescribeTask(task_id=enqueued.task_id))
            assert isinstance(info, TaskInfo)
            assert info.state is TaskState.SUCCEEDED

    run(work)
