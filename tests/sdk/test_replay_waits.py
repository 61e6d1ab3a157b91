"""asyncio's own tools in workflow code, live and replayed."""

import asyncio
from collections.abc import Awaitable

import msgspec

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core.limits import SPAN_MAX
from outlast.core.units import DAY, MILLISECOND, SECOND
from outlast.sdk import workflow
from outlast.sdk.signals import Signal
from tests.sdk.histories import Stage, task

approve = Signal("approve", str)


@task
def double(number: int) -> int:
    return 2 * number


@task
def describe(number: int) -> str:
    return f"number {number}"


def answer(name: str, args: tuple[int, ...]) -> object:
    return 2 * args[0] if name == "double" else f"number {args[0]}"


async def one_after_another(count: int) -> int:
    total = 0
    for number in range(count):
        total += await double.execute(number)
    return total


async def all_at_once(count: int) -> list[int]:
    return list(await asyncio.gather(*(double.execute(number) for number in range(count))))


async def in_a_group(count: int) -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double.execute(number)) for number in range(count)]
    return [task.result() for task in tasks]


async def first_of_a_wait(count: int) -> list[str]:
    waiting = {asyncio.create_task(double.execute(number), name=f"n{number}") for number in range(count)}
    order: list[str] = []
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            order.append(f"{ended.get_name()}={ended.result()}")
            await describe.execute(ended.result())
    return order


async def approved_in_time() -> str:
    try:
        by = await approve.receive(timeout="3d")
    except TimeoutError:
        return "too late"
    await workflow.sleep("1h")
    return f"by {by}"


async def with_a_deadline() -> str:
    try:
        return f"got {await asyncio.wait_for(double.execute(1), 60)}"
    except TimeoutError:
        return "timed out"


async def short_sleeps() -> str:
    await workflow.sleep(0)
    await workflow.sleep("250us")
    await asyncio.sleep(0)
    await asyncio.sleep(0.5)
    return "awake"


async def sleeps_backwards() -> None:
    await workflow.sleep(-5)


async def sleeps_for_ever() -> None:
    await asyncio.sleep(float("inf"))


async def locked(count: int) -> list[int]:
    lock, order = asyncio.Lock(), list[int]()
    queue: asyncio.Queue[int] = asyncio.Queue(1)
    limit = asyncio.Semaphore(2)

    async def one(number: int) -> None:
        async with limit, lock:
            order.append(await double.execute(number))
        await queue.put(number)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))
        for _ in range(count):
            order.append(await queue.get())
    return order


def test_activities_run_one_after_another(stage: Stage) -> None:
    stage.start(one_after_another, 5).play(answer)

    assert stage.result == 20
    assert [len(turn) for turn in stage.turns] == [1, 1, 1, 1, 1, 1]


def test_gathered_activities_are_scheduled_in_one_turn(stage: Stage) -> None:
    stage.start(all_at_once, 4).play(answer)

    assert stage.result == [0, 2, 4, 6]
    assert [command.activity_id for command in stage.turns[0] if isinstance(command, c.ScheduleActivity)] == list(
        "1234"
    )


def test_a_task_group_waits_for_all_its_activities(stage: Stage) -> None:
    stage.start(in_a_group, 3).play(answer)

    assert stage.result == [0, 2, 4]


def test_waiting_for_the_first_of_a_set_has_one_order(stage: Stage) -> None:
    stage.start(first_of_a_wait, 6)
    stage.turn()
    for activity_id in "531":
        stage.complete(activity_id, 10 * int(activity_id))

    stage.play(answer)

    assert stage.result[0] == "n4=50"
    assert sorted(stage.result) == ["n0=10", "n1=2", "n2=30", "n3=6", "n4=50", "n5=10"]
    assert stage.replay().closed


def test_a_signal_in_time_cancels_its_timer(stage: Stage) -> None:
    stage.start(approved_in_time)
    assert stage.turn() == (c.StartTimer(timer_id="1", start_to_fire=3 * DAY, summary='timeout of signal "approve"'),)

    stage.signal("approve", "ann")
    assert stage.turn() == (c.CancelTimer(timer_id="1"), c.StartTimer(timer_id="2", start_to_fire=3600 * SECOND))

    stage.fire("2").turn()
    assert stage.result == "by ann"


def test_a_signal_that_is_late_finds_the_timeout_taken(stage: Stage) -> None:
    stage.start(approved_in_time)
    stage.turn()

    stage.fire("1").turn()

    assert stage.result == "too late"


def test_a_signal_before_the_timer_in_one_turn_wins(stage: Stage) -> None:
    stage.start(approved_in_time)
    stage.turn()

    stage.signal("approve", "ann").fire("1").turn()

    assert stage.turns[-1] == (c.StartTimer(timer_id="2", start_to_fire=3600 * SECOND),)


def test_a_timer_that_fires_while_it_is_cancelled_is_never_seen_again(stage: Stage) -> None:
    stage.start(approved_in_time)
    stage.turn()

    stage.signal("approve", "ann").turn(during=lambda engine: engine.fire("1"))
    stage.fire("2").turn()

    assert stage.result == "by ann"
    assert stage.replay().closed


def test_a_signal_that_came_before_its_receiver_leaves_no_timer(stage: Stage) -> None:
    stage.start(approved_in_time).signal("approve", "bob")

    # The timer of the receive was started and taken back within the turn: it has a number, and no command.
    assert stage.turn() == (c.StartTimer(timer_id="2", start_to_fire=3600 * SECOND),)


async def five_waits() -> list[str]:
    ended: list[str] = []

    async def until_late(name: str, wait: Awaitable[object]) -> None:
        try:
            await wait
        except TimeoutError:
            ended.append(name)

    async with asyncio.TaskGroup() as group:
        for name, wait in {
            "receive": approve.receive(timeout="1m"),
            "wait_until": workflow.wait_until(lambda: False, timeout="2m"),
            "wait_for": asyncio.wait_for(asyncio.get_running_loop().create_future(), 180),
            "sleep": workflow.sleep("4m"),
            "asyncio": asyncio.sleep(300),
        }.items():
            group.create_task(until_late(name, wait))
    await asyncio.wait([asyncio.create_task(workflow.sleep("1h"))], timeout=60)
    return ended


TOLD = {
    "1": 'timeout of signal "approve"', "2": "timeout of wait_until", "3": "timeout", "4": "", "5": "", "6": "timeout", "7": "",
}  # fmt: skip


def test_a_timer_says_what_it_is_for(stage: Stage) -> None:
    stage.start(five_waits).play(answer)

    started = [event for _, event in stage.history if isinstance(event, e.TimerStarted)]
    assert {event.timer_id: event.summary for event in started} == TOLD
    assert stage.result == ["receive", "wait_until", "wait_for"]


def test_a_history_whose_timers_say_nothing_or_another_thing_replays(stage: Stage) -> None:
    stage.start(five_waits).play(answer)

    for summary in ("", "words of another version"):
        stage.history = [
            (at, msgspec.structs.replace(event, summary=summary) if isinstance(event, e.TimerStarted) else event)
            for at, event in stage.history
        ]
        assert stage.replay().closed


def test_a_deadline_asks_for_the_cancel_and_waits_for_it(stage: Stage) -> None:
    stage.start(with_a_deadline)
    stage.turn()

    assert stage.fire("1").turn() == (c.RequestCancelActivity(activity_id="1"),)
    stage.confirm_cancel("1").turn()

    assert stage.result == "timed out"


def test_a_result_in_time_drops_the_deadline(stage: Stage) -> None:
    stage.start(with_a_deadline)
    stage.turn()

    stage.complete("1", 2).turn()

    assert stage.turns[-1][0] == c.CancelTimer(timer_id="1")
    assert stage.result == "got 2"


def test_the_shortest_sleeps_are_timers_of_a_millisecond(stage: Stage) -> None:
    stage.start(short_sleeps).play(answer)

    started = [turn[0].start_to_fire for turn in stage.turns if isinstance(turn[0], c.StartTimer)]
    assert started == [MILLISECOND, MILLISECOND, 500 * MILLISECOND]


def test_a_negative_sleep_is_an_error_of_the_code(stage: Stage) -> None:
    stage.start(sleeps_backwards).turn()

    assert stage.result.type == "InvalidDuration"
    assert "not negative" in stage.result.message


def test_a_sleep_for_ever_is_as_long_as_a_timer_may_be(stage: Stage) -> None:
    stage.start(sleeps_for_ever)

    assert stage.turn() == (c.StartTimer(timer_id="1", start_to_fire=SPAN_MAX),)


def test_locks_queues_and_semaphores_keep_their_order(stage: Stage) -> None:
    stage.start(locked, 5).play(answer)

    assert sorted(stage.result) == sorted([0, 2, 4, 6, 8, 0, 1, 2, 3, 4])
    assert stage.replay().closed


def test_a_failed_turn_is_skipped_and_the_next_one_sees_its_events(stage: Stage) -> None:
    stage.start(approved_in_time).fail_turn().signal("approve", "eve")

    stage.turn()

    assert stage.turns[0] == (c.StartTimer(timer_id="2", start_to_fire=3600 * SECOND),)
