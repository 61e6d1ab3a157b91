"""The loop by itself: what asyncio asks of it, in one order, and what it refuses."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlast.sdk.errors import SandboxViolation
from outlast.sdk.loop import REFUSED, Abandoned, TimerHandle, WorkflowLoop, loop_of


@dataclass
class Clock:
    """Timers that fire when a test says so."""

    at: float = 0.0
    made: int = 0
    open: dict[str, TimerHandle] = field(default_factory=dict[str, TimerHandle])
    dropped: list[str] = field(default_factory=list[str])
    errors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def start(self, handle: TimerHandle, delay: float) -> str:
        self.made += 1
        self.open[str(self.made)] = handle
        return str(self.made)

    def drop(self, timer_id: str) -> None:
        if self.open.pop(timer_id, None) is not None:
            self.dropped.append(timer_id)

    def now(self) -> float:
        return self.at

    def lost(self, context: dict[str, Any]) -> None:
        self.errors.append(context)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop(clock: Clock) -> WorkflowLoop:
    return loop_of(clock)


def run(loop: WorkflowLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    with loop.enter():
        task = loop.create_task(coroutine)
        loop.run_ready()
    return task.result() if task.done() else task


def test_callbacks_run_in_the_order_in_which_they_were_asked_for(loop: WorkflowLoop) -> None:
    order: list[int] = []
    with loop.enter():
        for number in range(5):
            loop.call_soon(order.append, number)
        loop.call_soon(loop.call_soon, order.append, 99)
        loop.call_soon(order.append, 5).cancel()
        loop.run_ready()

    assert order == [0, 1, 2, 3, 4, 99]


def test_tasks_and_futures_hash_by_their_number(loop: WorkflowLoop) -> None:
    async def nothing() -> None:
        return None

    with loop.enter():
        made = [loop.create_task(nothing()), loop.create_future(), loop.create_task(nothing())]
        loop.run_ready()

    assert [hash(one) for one in made] == [1, 2, 3]
    assert list({made[2], made[0], made[1]}) == made


def test_a_timer_fires_only_when_it_is_told_to(loop: WorkflowLoop, clock: Clock) -> None:
    async def sleeps() -> str:
        await asyncio.sleep(5)
        return "woke"

    task = run(loop, sleeps())
    clock.at = 1e9
    with loop.enter():
        loop.run_ready()
        assert not task.done()
        loop.fire(clock.open.pop("1"))
        loop.run_ready()

    assert task.result() == "woke"


def test_a_timeout_drops_its_timer_when_the_work_is_done(loop: WorkflowLoop, clock: Clock) -> None:
    async def quick() -> str:
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        return await asyncio.wait_for(asyncio.sleep(0, "done"), 7)

    assert run(loop, quick()) == "done"
    assert clock.dropped == ["1", "2"]


def test_the_clock_of_the_loop_is_the_runs(loop: WorkflowLoop, clock: Clock) -> None:
    clock.at = 42.5

    async def reads() -> float:
        return asyncio.get_running_loop().time()

    assert run(loop, reads()) == 42.5


def test_a_callback_that_raises_does_not_end_the_loop(loop: WorkflowLoop, clock: Clock) -> None:
    order: list[int] = []

    def fails() -> None:
        raise SystemExit(1)

    with loop.enter():
        loop.call_soon(fails)
        loop.call_soon(order.append, 1)
        loop.run_ready()

    assert order == [1]
    assert isinstance(clock.errors[0]["exception"], SystemExit)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_reaches_outside_the_run_is_refused_with_a_remedy(loop: WorkflowLoop, name: str) -> None:
    with pytest.raises(SandboxViolation) as caught:
        getattr(loop, name)()

    assert name in str(caught.value)
    assert caught.value.remedy == REFUSED[name]


def test_a_loop_that_is_given_up_stops_at_the_next_callback(loop: WorkflowLoop) -> None:
    def again() -> None:
        loop.abandoned = loop.numbers > 100
        loop.numbers += 1
        loop.call_soon(again)

    with loop.enter():
        loop.call_soon(again)
        with pytest.raises(Abandoned):
            loop.run_ready()


def test_disposing_of_a_loop_makes_no_noise(loop: WorkflowLoop, clock: Clock) -> None:
    async def waits_in_finally() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(5)

    async def never_started() -> None:
        raise AssertionError

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)

    async def half_way() -> None:
        async for _ in items():
            await asyncio.sleep(5)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with loop.enter():
            for coroutine in (waits_in_finally(), half_way()):
                loop.create_task(coroutine)
            loop.run_ready()
            loop.create_task(never_started())
            loop.dispose()
        gc.collect()

    assert [str(warning.message) for warning in heard] == []
    assert clock.errors == []


def test_the_loop_that_ran_before_runs_on_afterwards(loop: WorkflowLoop) -> None:
    async def outer() -> tuple[bool, int]:
        before = asyncio.get_running_loop()
        inner = run(loop, asyncio.sleep(0, 7))
        await asyncio.sleep(0)
        return asyncio.get_running_loop() is before, inner

    assert asyncio.run(outer()) == (True, 7)
