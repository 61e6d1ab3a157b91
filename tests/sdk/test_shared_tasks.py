"""Coroutines that never wait share an asyncio task; to each it looks like one of its own."""

import asyncio
import contextvars

import pytest

from outlast import App
from outlast.sdk.exceptions import TaskError

SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN", default="")


def test_context_variables_do_not_reach_the_next_handler() -> None:
    app = App("memory:")

    @app.task
    async def remember(n: int, wait: bool) -> str:
        before = SEEN.get()
        SEEN.set(f"set by {n}")
        if wait:
            await asyncio.sleep(0.001)
        return before + SEEN.get()

    with app:
        handles = remember.enqueue_many([(n, n % 3 == 0) for n in range(60)])
        assert [handle.result("30s") for handle in handles] == [f"set by {n}" for n in range(60)]


def test_a_handler_has_one_current_task_before_and_after_it_waits() -> None:
    app = App("memory:")
    alive: list[object] = []

    @app.task
    async def look(n: int) -> tuple[bool, bool]:
        before = asyncio.current_task()
        alive.append(before)
        async with asyncio.timeout(20):
            await asyncio.gather(asyncio.sleep(0.01 * (n % 3)), asyncio.sleep(0))
        return before is asyncio.current_task(), before is not None and "look " in before.get_name()

    with app:
        handles = look.enqueue_many([(n,) for n in range(30)])
        assert [handle.result("30s") for handle in handles] == [(True, True)] * 30
    assert len({id(task) for task in alive}) == 30


def test_a_cancellation_that_nobody_took_hits_no_other_handler() -> None:
    app = App("memory:")

    @app.task(max_attempts=1)
    async def cancel_myself(n: int) -> int:
        if n == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return n
        await asyncio.sleep(0)
        return n

    with app:
        handles = cancel_myself.enqueue_many([(n,) for n in range(10)])
        assert [handle.result("30s") for handle in handles] == list(range(10))


def test_a_cancelled_handler_may_tidy_up_and_others_go_on() -> None:
    app = App("memory:")
    tidied: list[int] = []

    @app.task(max_attempts=1, heartbeat="3s")
    async def linger(n: int) -> int:
        try:
            await asyncio.sleep(60 if n == 1 else 0)
        finally:
            await asyncio.sleep(0)
            tidied.append(n)
        return n

    with app:
        handles = linger.enqueue_many([(n,) for n in range(4)])
        assert [handles[n].result("30s") for n in (0, 2, 3)] == [0, 2, 3]
        assert handles[1].cancel()
        with pytest.raises(TaskError):
            handles[1].result("30s")
    assert sorted(tidied) == [0, 1, 2, 3]
