"""Work for threads: nothing is lost, nothing is done twice, nobody sleeps beside work."""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from outlast.sdk.backlog import Backlog
from outlast.sdk.batching import BESIDE_MAX, Sender
from outlast.sdk.pool import Hands
from outlast.sdk.portal import Portal
from outlast.sdk.turnpool import TurnPool


def test_every_item_is_taken_once_whichever_thread_is_free() -> None:
    backlog: Backlog[int | None] = Backlog()
    taken: list[int] = []

    def work() -> None:
        while (item := backlog.take()) is not None:
            taken.append(item)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for start in range(0, 20_000, 50):
        backlog.put(range(start, start + 50))
    backlog.put([None] * len(threads))
    for thread in threads:
        thread.join(10)

    assert sorted(taken) == list(range(20_000))
    assert not any(thread.is_alive() for thread in threads)


def test_an_item_behind_one_that_blocks_is_taken_by_another_thread() -> None:
    backlog: Backlog[str] = Backlog()
    gate, reached = threading.Event(), threading.Event()

    def work() -> None:
        for _ in range(2):
            item = backlog.take()
            if item == "block":
                gate.wait(10)
            elif item == "reach":
                reached.set()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    backlog.put(["block", "reach"])

    assert reached.wait(5)
    gate.set()
    backlog.put(["end", "end"])
    for thread in threads:
        thread.join(5)


class BlockedTurn:
    """A turn that lasts until its gate is opened."""

    limit = 60.0

    def __init__(self) -> None:
        self.started_at = 0.0
        self.thread = 0
        self.run = None
        self.error: BaseException | None = None
        self.gate, self.reached = threading.Event(), threading.Event()

    def claim(self) -> bool:
        return True

    def settle(self) -> bool:
        return True

    def execute(self) -> None:
        self.reached.set()
        self.gate.wait(10)


def test_a_thread_is_added_beside_a_slow_turn_and_not_beside_many_short_ones() -> None:
    loop = asyncio.new_event_loop()
    pool = TurnPool(deque(), Hands(loop, lambda: None))
    first, second = BlockedTurn(), BlockedTurn()
    turns: list[Any] = [first, second]
    pool.submit(turns)
    assert first.reached.wait(5)

    now = first.started_at
    for _ in range(10):  # at each look another turn has just begun, and one waits: the thread is busy, not held up
        now += 0.1
        first.started_at = now - 0.001
        pool.give_up_stuck(now)
    assert not second.reached.wait(0.05)

    for look in (0.1, 0.2, 0.3):  # the same turn at each look
        pool.give_up_stuck(now + look)
    assert second.reached.wait(5)
    first.gate.set()
    second.gate.set()
    pool.close()
    loop.close()


def test_items_that_arrive_during_a_call_go_together_in_the_next() -> None:
    batches: list[list[int]] = []

    async def main() -> None:
        async def send(items: list[int]) -> None:
            batches.append(items)
            if len(batches) == 1:
                sender.put([2, 3])
                sender.put([4])
            await asyncio.sleep(0)

        sender = Sender(send, items_max=100)
        sender.put([1])
        running = asyncio.create_task(sender.run())
        await sender.drained()
        running.cancel()

    asyncio.run(main())

    assert batches == [[1], [2, 3, 4]]


def test_a_batch_is_bounded_by_number_and_by_size() -> None:
    batches: list[list[int]] = []

    async def main() -> None:
        async def send(items: list[int]) -> None:
            batches.append(items)

        sender = Sender(send, items_max=3, bytes_max=10, size=lambda item: item)
        sender.put([1, 1, 1, 1, 9, 9, 20, 1])
        running = asyncio.create_task(sender.run())
        await sender.drained()
        running.cancel()

    asyncio.run(main())

    assert batches == [[1, 1, 1], [1, 9], [9], [20], [1]]


def test_items_of_a_call_that_failed_are_sent_again_first() -> None:
    batches: list[list[int]] = []

    async def main() -> None:
        async def send(items: list[int]) -> None:
            batches.append(items)
            if len(batches) == 1:
                sender.put([3])
                raise RuntimeError("lost")

        sender = Sender(send, items_max=100)
        sender.put([1, 2])
        with pytest.raises(RuntimeError):
            await sender.run()
        running = asyncio.create_task(sender.run())
        await sender.drained()
        running.cancel()

    asyncio.run(main())

    assert batches == [[1, 2], [1, 2, 3]]


def test_two_runs_of_a_sender_have_two_calls_in_flight_and_gather_for_the_next() -> None:
    batches: list[list[int]] = []

    async def main() -> None:
        answer = asyncio.Event()

        async def send(items: list[int]) -> None:
            batches.append(items)
            await answer.wait()

        sender = Sender(send, items_max=100)
        running = [asyncio.create_task(sender.run()) for _ in range(2)]
        for number in (1, 2, 3, 4):
            sender.put([number])
            for _ in range(5):
                await asyncio.sleep(0)
        answer.set()
        await sender.drained()
        for run in running:
            run.cancel()

    asyncio.run(main())

    assert batches == [[1], [2], [3, 4]]


def test_beside_a_large_call_items_gather_for_the_next() -> None:
    batches: list[list[int]] = []

    async def main() -> None:
        answer = asyncio.Event()

        async def send(items: list[int]) -> None:
            batches.append(items)
            await answer.wait()

        sender = Sender(send, items_max=100)
        running = [asyncio.create_task(sender.run()) for _ in range(2)]
        for items in ([0] * (BESIDE_MAX + 1), [1], [2]):
            sender.put(items)
            for _ in range(5):
                await asyncio.sleep(0)
        answer.set()
        await sender.drained()
        for run in running:
            run.cancel()

    asyncio.run(main())

    assert batches == [[0] * (BESIDE_MAX + 1), [1, 2]]


def test_a_sender_is_not_drained_while_one_of_two_calls_is_in_flight() -> None:
    async def main() -> list[bool]:
        answers = {1: asyncio.Event(), 2: asyncio.Event()}

        async def send(items: list[int]) -> None:
            await answers[items[0]].wait()

        sender = Sender(send, items_max=1)
        sender.put([1, 2])
        running = [asyncio.create_task(sender.run()) for _ in range(2)]
        drained = asyncio.create_task(sender.drained())
        seen: list[bool] = []
        for number in (2, 1):
            answers[number].set()
            for _ in range(5):
                await asyncio.sleep(0)
            seen.append(drained.done())
        for run in running:
            run.cancel()
        return seen

    assert asyncio.run(main()) == [False, True]


def test_items_of_a_call_that_failed_are_sent_by_the_run_that_is_left() -> None:
    batches: list[list[int]] = []

    async def main() -> None:
        async def send(items: list[int]) -> None:
            batches.append(items)
            if len(batches) == 1:
                await asyncio.sleep(0)  # meanwhile the other run has found nothing to send
                raise RuntimeError("lost")

        sender = Sender(send, items_max=100)
        running = [asyncio.create_task(sender.run()) for _ in range(2)]
        await asyncio.sleep(0)
        sender.put([1, 2])
        async with asyncio.timeout(5):
            await sender.drained()
        for run in running:
            run.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(main())

    assert batches == [[1, 2], [1, 2]]


def test_a_portal_ends_what_still_runs_on_it() -> None:
    portal = Portal("outlast-test")
    ended: list[str] = []
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    portal.submit(wait())
    assert begun.wait(5)
    portal.close()

    assert ended == ["cancelled"]
    assert not portal.thread.is_alive()


def _stop_it() -> None:
    asyncio.get_running_loop().stop()


def _raise_exit() -> None:
    sys.exit(3)


@pytest.mark.parametrize("blow", [_stop_it, _raise_exit], ids=["it is stopped", "a callback exits"])
def test_a_portal_goes_on_when_code_on_it_stops_its_loop(
    blow: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def stopped_in_the_middle() -> str:
        asyncio.get_running_loop().call_soon(blow)
        await asyncio.sleep(0.01)
        return "went on"

    portal = Portal("stopped")
    try:
        assert portal.submit(stopped_in_the_middle()).result(5) == "went on"
        assert "loop_stopped_by_user_code thread=stopped" in caplog.text
    finally:
        portal.close()
    assert not portal.thread.is_alive()


class Told(deque[Any]):
    """What has finished; notes of each whether the pool still knew of it when it came."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: TurnPool | None = None
        self.busy: list[bool] = []
        self.came = threading.Event()

    def append(self, item: Any) -> None:
        assert self.pool is not None
        self.busy.append(self.pool.busy)
        super().append(item)
        self.came.set()


def test_a_turn_that_ends_is_at_no_instant_unknown_to_who_waits_for_all() -> None:
    loop = asyncio.new_event_loop()
    finished = Told()
    pool = finished.pool = TurnPool(finished, Hands(loop, lambda: None))
    turn = BlockedTurn()
    turn.gate.set()

    pool.submit([cast("Any", turn)])

    assert finished.came.wait(5)
    assert finished.busy == [True]
    pool.close()
    loop.close()
