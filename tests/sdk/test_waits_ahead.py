"""Handles of one batch share their waits, and mean what they meant alone."""

import asyncio
import threading

import pytest

from outlast import App
from outlast.core.replies import TaskState
from outlast.sdk.ahead import AHEAD_MAX
from outlast.sdk.exceptions import TaskError


def test_a_loop_over_a_large_batch_gives_every_result() -> None:
    app = App("memory:")

    @app.task
    async def double(x: int) -> int:
        return 2 * x

    count = AHEAD_MAX * 2 + 7
    with app:
        handles = double.enqueue_many([(n,) for n in range(count)])
        assert [handle.result("30s") for handle in handles] == [2 * n for n in range(count)]
        assert handles[3].result("30s") == 6
        assert handles[-1].result("30s") == 2 * (count - 1)


def test_one_slow_task_times_out_and_can_be_asked_again() -> None:
    app = App("memory:")
    go = threading.Event()

    @app.task
    def wait(slow: bool) -> bool:
        return go.wait(30) if slow else True

    with app:
        slow, quick = wait.enqueue_many([(True,), (False,)])
        with pytest.raises(TimeoutError):
            slow.result("100ms")
        assert quick.result("30s") is True
        assert slow.describe().state is TaskState.LEASED
        go.set()
        assert slow.result("30s") is True


def test_a_failure_in_a_batch_is_raised_by_its_own_handle() -> None:
    app = App("memory:")

    @app.task(max_attempts=1)
    async def odd_fails(x: int) -> int:
        if x % 2:
            raise ValueError(x)
        return x

    with app:
        handles = odd_fails.enqueue_many([(n,) for n in range(4)])
        assert handles[0].result("30s") == 0
        with pytest.raises(TaskError):
            handles[1].result("30s")
        with pytest.raises(TaskError):
            handles[1].result("30s")
        assert handles[2].result("30s") == 2


def test_a_cancelled_waiter_leaves_the_other_waits_alone() -> None:
    app = App("memory:")
    go = threading.Event()

    @app.task
    def wait(x: int) -> int:
        go.wait(30)
        return x

    async def main() -> list[int]:
        handles = await wait.aenqueue_many([(n,) for n in range(3)])
        first = asyncio.create_task(handles[0].aresult())
        second = asyncio.create_task(handles[0].aresult())
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go.set()
        return [await second, *[await handle.aresult("30s") for handle in handles]]

    with app:
        assert asyncio.run(main()) == [0, 0, 1, 2]


def test_handles_of_a_batch_work_on_several_loops() -> None:
    app = App("memory:")

    @app.task
    async def same(x: int) -> int:
        return x

    with app:
        handles = same.enqueue_many([(n,) for n in range(4)])
        assert handles[0].result("30s") == 0
        assert asyncio.run(handles[1].aresult("30s")) == 1
        assert handles[2].result("30s") == 2
        assert asyncio.run(handles[3].aresult("30s")) == 3
