"""How runs end: results, failures, cancels, and the next run of the chain."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core.failure import Failure, FailureKind
from outlast.sdk import workflow
from outlast.sdk.errors import Canceled, HistoryGap, TaskError, TimedOut, WorkflowTaskFailure
from outlast.sdk.replay import WorkflowRun
from outlast.sdk.signals import Signal
from tests.sdk.histories import CONVERTER, Stage, definition_of, task, text, workflow_task

go = Signal("go", int)
ended: list[str] = []


class CardDeclined(Exception):
    """An error of the user's own."""


@dataclass
class Order:
    id: str
    cents: int


@task
def charge(order: str) -> str:
    return order


@task
def refund(order: str) -> None:
    del order


async def caught_by_class() -> str:
    try:
        await charge.execute("o-1")
    except CardDeclined as declined:
        error: Any = declined
        return f"{error}/{error.type}/{error.message}/{error.task}/{isinstance(error, TaskError)}"
    return "charged"


async def not_caught() -> str:
    return await charge.execute("o-1")


async def times_out() -> str:
    try:
        return await charge.execute("o-1")
    except TimedOut as error:
        return error.type


async def cancelled_by_others() -> str:
    try:
        return await charge.execute("o-1")
    except Canceled:
        return "someone cancelled it"


async def with_clean_up() -> str:
    try:
        await workflow.sleep("30d")
    except asyncio.CancelledError:
        await refund.execute("o-1")
        raise
    return "slept"


async def cancel_is_swallowed() -> str:
    try:
        await workflow.sleep("30d")
    except asyncio.CancelledError:
        return "no thanks"
    return "slept"


async def shielded() -> str:
    async with workflow.shield():
        await charge.execute("o-1")
        await refund.execute("o-1")
    await workflow.sleep("1d")
    return "slept"


async def knows_its_charge() -> str:
    charged = ""
    try:
        charged = await charge.execute("o-1")
        await workflow.sleep("1d")
    except asyncio.CancelledError:
        return f"undo {charged}"
    return "slept"


async def counts(total: int) -> int:
    while True:
        total += await go.receive()
        if total >= 3:
            workflow.continue_as_new(total)


async def ends_in_the_middle() -> None:
    try:
        await charge.execute("o-1")
    finally:
        ended.append("finally")
        await refund.execute("o-1")


async def sleeps() -> None:
    await workflow.sleep("1d")


async def waits_for_many_things() -> None:
    async with asyncio.timeout(60):
        await asyncio.gather(
            charge.execute("o-1"), workflow.sleep("2d"), go.receive(), workflow.wait_until(lambda: False)
        )


def runs_in_memory() -> int:
    """Return how many runs of this process have not been freed."""
    return sum(type(found) is WorkflowRun for found in gc.get_objects())


async def endless() -> None:
    while True:  # noqa: ASYNC110 - what the test is about
        await asyncio.sleep(0)


async def returns_a_set() -> object:
    return {1, 2}


async def exits() -> None:
    sys.exit(3)


async def many_generators() -> int:
    async def one() -> AsyncIterator[int]:
        yield 1

    total = 0
    for _ in range(2000):
        async for number in one():
            total += number
    return total


async def groups(order: Order) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(charge.execute(order.id))
        group.create_task(refund.execute(order.id))
    return "both"


def test_an_error_of_a_task_is_caught_by_its_class(stage: Stage) -> None:
    stage.start(caught_by_class).turn()

    stage.fail("1", CardDeclined("no funds")).turn()

    assert stage.result == "no funds/CardDeclined/no funds/charge/True"


def test_an_error_nobody_catches_fails_the_run(stage: Stage) -> None:
    stage.start(not_caught).turn()

    stage.fail("1", CardDeclined("no funds")).turn()

    assert isinstance(stage.closed, c.FailWorkflow)
    assert stage.result.type == "CardDeclined"
    assert stage.result.message == "no funds"


def test_a_task_that_ran_out_of_time_raises_timed_out(stage: Stage) -> None:
    stage.start(times_out).turn()

    stage.time_out("1").turn()

    assert stage.result == "start_to_close"


def test_a_task_cancelled_from_outside_is_no_cancel_of_the_run(stage: Stage) -> None:
    stage.start(cancelled_by_others).turn()

    stage.confirm_cancel("1").turn()

    assert stage.result == "someone cancelled it"


def test_a_cancel_lets_the_code_clean_up_first(stage: Stage) -> None:
    stage.start(with_clean_up).turn()

    asked = stage.cancel().turn()
    stage.complete("1").turn()

    assert [type(command) for command in asked] == [c.CancelTimer, c.ScheduleActivity]
    assert stage.closed == c.CancelWorkflow()


def test_code_may_refuse_to_be_cancelled(stage: Stage) -> None:
    stage.start(cancel_is_swallowed).turn()

    stage.cancel().turn()

    assert stage.result == "no thanks"


def test_a_shield_holds_a_cancel_back_until_it_comes_down(stage: Stage) -> None:
    stage.start(shielded).turn()

    assert stage.cancel().turn() == ()
    stage.complete("1", "c").turn()
    stage.complete("2").turn()

    assert stage.turns[-1] == (c.CancelWorkflow(),)


def test_a_result_that_comes_in_spite_of_a_cancel_is_not_lost_and_neither_is_the_cancel(stage: Stage) -> None:
    stage.start(knows_its_charge).turn()
    assert stage.cancel().turn() == (c.RequestCancelActivity(activity_id="1"),)

    stage.complete("1", "ch-9").turn()

    assert stage.result == "undo ch-9"


def test_a_cancel_of_an_activity_that_has_ended_already_is_not_asked_for(stage: Stage) -> None:
    stage.start(knows_its_charge).turn()

    stage.cancel().complete("1", "ch-9").turn()

    assert stage.result == "undo ch-9"
    assert stage.turns[-1] == (stage.closed,)


def test_continue_as_new_hands_on_the_signals_nobody_received(stage: Stage) -> None:
    stage.start(counts, 0).turn()

    stage.signal("go", 3).signal("go", 4).signal("other", 5).turn()

    command = stage.closed
    assert isinstance(command, c.ContinueAsNew)
    assert CONVERTER.from_payload(command.input[0]) == 3
    named = [stage.history[number - 1][1] for number in command.unreceived]
    assert named == list(command.signals)
    assert [signal.signal_name for signal in command.signals] == ["go", "other"]


def test_signals_an_earlier_run_handed_on_come_first(stage: Stage) -> None:
    carried = (e.WorkflowExecutionSignaled(signal_name="go", input=(CONVERTER.to_payload(2, path="v"),)),)

    stage.start(counts, 0, carried=carried).signal("go", 9).turn()

    assert isinstance(stage.closed, c.ContinueAsNew)
    assert CONVERTER.from_payload(stage.closed.input[0]) == 11


def test_a_signal_of_the_wrong_type_holds_the_run(stage: Stage) -> None:
    stage.start(counts, 0).signal("go", "three")

    with pytest.raises(WorkflowTaskFailure, match="signal go cannot be read as int"):
        stage.turn()


def test_a_result_that_cannot_be_written_holds_the_run(stage: Stage) -> None:
    stage.start(returns_a_set)

    with pytest.raises(WorkflowTaskFailure, match="result is a set"):
        stage.turn()


def test_an_exit_in_workflow_code_ends_the_run_and_not_the_worker(stage: Stage) -> None:
    stage.start(exits).turn()

    assert stage.result.type == "SystemExit"


def test_generators_that_have_ended_are_let_go(stage: Stage) -> None:
    stage.start(many_generators).turn()

    assert stage.result == 2000
    assert stage.run is not None
    assert len(stage.run.loop._generators) <= 512


def test_one_failure_in_a_group_cancels_the_other_and_fails_the_run(stage: Stage) -> None:
    stage.start(groups, Order("o-1", 5)).turn()

    asked = stage.fail("1", CardDeclined("no funds")).turn()
    stage.confirm_cancel("2").turn()

    assert asked == (c.RequestCancelActivity(activity_id="2"),)
    assert stage.result.type == "ExceptionGroup"


def test_a_closed_run_leaves_no_trace_and_issues_nothing() -> None:
    ended.clear()
    stage = Stage(mode="kept").start(ends_in_the_middle)
    stage.turn()
    run = stage.run
    assert run is not None
    before = len(run.issued)

    run.close()
    run.close()
    del stage, run
    gc.collect()

    assert before == 1
    assert ended == ["finally"]


@pytest.mark.parametrize("function", [sleeps, waits_for_many_things, ends_in_the_middle])
def test_a_closed_run_is_freed_at_once_without_the_collector(function: Callable[..., Any]) -> None:
    gc.collect()
    gc.disable()
    try:
        stage = Stage(mode="kept").start(function)
        stage.turn()
        run = stage.run
        assert run is not None
        before = runs_in_memory()

        run.close()
        del stage, run

        assert before - runs_in_memory() == 1
    finally:
        gc.enable()


def test_a_run_that_never_comes_to_rest_can_be_given_up() -> None:
    run = WorkflowRun(definition_of(endless), CONVERTER)
    stage = Stage(run=run).start(endless)
    run.loop.call_later = None  # type: ignore[method-assign,assignment]
    run.abandon()

    with pytest.raises(WorkflowTaskFailure, match="did not come to rest") as caught:
        stage.turn()

    assert caught.value.failure.type == "DeadlockDetected"
    run.close()


def test_events_that_do_not_connect_are_refused() -> None:
    stage = Stage().start(not_caught)
    stage.turn()
    stage.complete("1", "x")
    run = WorkflowRun(definition_of(not_caught), CONVERTER)

    with pytest.raises(HistoryGap, match="seen up to event 0"):
        run.advance(workflow_task(stage.history[4:], first=5))
    stage.close()


def test_events_seen_already_are_not_applied_twice() -> None:
    stage = Stage().start(not_caught)
    stage.turn()
    stage.complete("1", "x")
    stage._show_pair()
    assert stage.run is not None

    turn = stage.run.advance(workflow_task(stage.history[2:], first=3))

    assert turn.closed
    assert turn.commands == (c.CompleteWorkflow(result=(text("x"),)),)
    stage.close()


def test_a_failure_from_the_engine_keeps_its_kind() -> None:
    stage = Stage().start(not_caught)
    stage.turn()

    stage.fail("1", Failure(kind=FailureKind.WORKER_LOST, type="WorkerLost", message="gone")).turn()

    assert stage.result.type == "WorkerLost"
    stage.close()


def test_where_the_code_waits_is_told_by_line() -> None:
    stage = Stage().start(groups, Order("o-1", 5))
    stage.turn()

    assert set(stage.places) == {"activity:1", "activity:2"}
    assert all(place.startswith(__file__) for place in stage.places.values())
    stage.close()
