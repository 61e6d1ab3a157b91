"""Replay finds code that disagrees with its history, and values that go into it come back."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from outlast.core import commands as c
from outlast.sdk import workflow
from outlast.sdk.errors import Nondeterminism, UnsupportedHere, WorkflowTaskFailure
from outlast.sdk.replay import WorkflowRun
from tests.sdk.histories import CONVERTER, Stage, definition_of, digest, task, workflow_task


@task
def a(number: int = 0) -> int:
    return number


@task
def b(number: int = 0) -> int:
    return number


@task
def spell(word: str) -> int:
    return len(word)


async def first_a() -> int:
    await a.execute(1)
    await b.execute(2)
    return 1


async def first_b() -> int:
    await b.execute(1)
    await a.execute(2)
    return 1


async def first_a_then_sleep() -> int:
    await a.execute(1)
    await workflow.sleep("1s")
    return 1


async def only_a() -> int:
    await a.execute(1)
    return 1


async def a_and_more() -> int:
    await asyncio.gather(a.execute(1), b.execute(1))
    return 1


async def patched_code() -> str:
    await a.execute(1)
    path = "new" if workflow.patched("b-first") else "old"
    if path == "new":
        await b.execute(2)
    await a.execute(3)
    return path


async def before_the_patch() -> str:
    await a.execute(1)
    await a.execute(3)
    return "old"


async def patch_declared_done() -> str:
    await a.execute(1)
    workflow.deprecate_patch("b-first")
    await b.execute(2)
    await a.execute(3)
    return "new"


async def patch_removed() -> str:
    await a.execute(1)
    await b.execute(2)
    await a.execute(3)
    return "new"


drawn: list[int] = []


def draw() -> int:
    drawn.append(1)
    return len(drawn)


async def chance() -> list[Any]:
    first = workflow.side_effect(draw)
    numbers = [workflow.random.randint(1, 1_000_000), workflow.random.random(), str(workflow.uuid())]
    at = workflow.now()
    await a.execute(1)
    second = workflow.side_effect(draw)
    return [first, second, numbers, str(workflow.uuid()), at.isoformat(), workflow.now() > at, workflow.time()]


async def speaks() -> str:
    for number in range(5):
        await a.execute(number)
        workflow.logger.info("step %d", number)
    workflow.note("all done")
    workflow.set_search_attributes(stage="done")
    return "done"


async def counts_up() -> int:
    state = {"n": 0}

    async def adder() -> None:
        for number in range(3):
            state["n"] += await a.execute(number)

    async with asyncio.TaskGroup() as group:
        group.create_task(adder())
        await workflow.wait_until(lambda: state["n"] >= 3, timeout="1h")
    return state["n"]


async def never_true() -> str:
    try:
        await workflow.wait_until(lambda: False, timeout="1h")
    except TimeoutError:
        return "gave up"
    return "never"


async def who() -> list[object]:
    info = workflow.info()
    return [workflow.id, workflow.run_id, workflow.attempt, info.type, workflow.should_continue_as_new]


def recorded(function: Callable[..., Any], *, turns: int) -> Stage:
    stage = Stage().start(function)
    for _ in range(turns):
        stage.turn()
        for activity_id in list(stage.activities):
            stage.complete(activity_id, 1)
    stage._show_pair()
    return stage


def advance(stage: Stage, function: Callable[..., Any], **declared: Any) -> Any:
    run = WorkflowRun(definition_of(function, **declared), CONVERTER, workflow_id="order-7")
    try:
        return run.advance(workflow_task(stage.history))
    finally:
        run.close()
        stage.close()


def test_code_in_another_order_is_found_before_anything_is_executed() -> None:
    stage = recorded(first_a, turns=1)

    with pytest.raises(Nondeterminism) as caught:
        advance(stage, first_b)

    error = caught.value
    assert error.event_id == 5
    assert error.recorded == "a(1), activity 1"
    assert error.replayed == "b(1), activity 1"
    assert error.place.startswith(f"{__file__}:")
    assert "order-7 and its code disagree at event 5" in str(error)
    assert "build v1" in str(error)
    assert "workflow.patched" in error.remedy


def test_another_kind_of_command_is_found() -> None:
    stage = recorded(first_a, turns=2)

    with pytest.raises(Nondeterminism, match="a timer of 1 s"):
        advance(stage, first_a_then_sleep)


def test_code_that_stops_earlier_than_its_history_is_found() -> None:
    stage = recorded(first_a, turns=2)

    with pytest.raises(Nondeterminism, match="b.*, activity 2"):
        advance(stage, only_a)


def test_code_that_asks_for_more_than_its_history_is_found() -> None:
    stage = recorded(first_a, turns=1)

    with pytest.raises(Nondeterminism, match="nothing more in this turn"):
        advance(stage, a_and_more)


def test_the_same_activities_in_another_order_are_found() -> None:
    order = ["alpha", "beta", "gamma"]

    async def over_a_set() -> None:
        await asyncio.gather(*(spell.execute(word) for word in order))

    stage = Stage().start(over_a_set)
    stage.turn()
    stage.complete("1", 1)
    stage._show_pair()
    order.reverse()

    with pytest.raises(Nondeterminism) as caught:
        advance(stage, over_a_set)

    assert caught.value.recorded == 'spell("alpha"), activity 1'
    assert caught.value.replayed == 'spell("gamma"), activity 1'


def test_other_arguments_are_no_disagreement() -> None:
    words = ["alpha", "beta"]

    async def with_words() -> None:
        await asyncio.gather(*(spell.execute(word) for word in words))

    stage = Stage().start(with_words)
    stage.turn()
    stage.complete("1", 1)
    stage._show_pair()
    words[0] = "omega"

    assert advance(stage, with_words).commands == ()


def test_code_as_it_was_goes_on() -> None:
    stage = recorded(first_a, turns=1)

    turn = advance(stage, first_a)

    assert [type(command) for command in turn.commands] == [c.ScheduleActivity]


def test_a_run_that_asks_for_it_fails_instead_of_being_held() -> None:
    stage = recorded(first_a, turns=1)

    turn = advance(stage, first_b, fail_on_nondeterminism=True)

    assert isinstance(turn.commands[0], c.FailWorkflow)
    assert turn.commands[0].failure.type == "Nondeterminism"


def test_a_patch_lets_old_runs_go_their_old_way() -> None:
    stage = recorded(before_the_patch, turns=2)

    turn = advance(stage, patched_code)

    assert [type(command) for command in turn.commands] == [c.CompleteWorkflow]
    assert CONVERTER.from_payload(turn.commands[0].result[0]) == "old"


def test_a_patch_is_recorded_in_new_runs(stage: Stage) -> None:
    stage.start(patched_code).play(lambda _name, args: args[0])

    assert stage.result == "new"
    assert isinstance(stage.turns[1][0], c.RecordMarker)


def test_a_patch_goes_out_by_way_of_being_declared_done() -> None:
    stage = recorded(patched_code, turns=2)
    advance(stage, patch_declared_done)

    newer = recorded(patch_declared_done, turns=2)
    turn = advance(newer, patch_removed)

    assert [type(command) for command in turn.commands] == [c.ScheduleActivity]


def test_chance_and_time_are_the_same_on_each_replay(stage: Stage) -> None:
    drawn.clear()

    stage.start(chance).play(lambda _name, _args: 0)

    first, second, *_ = stage.result
    assert (first, second) == (1, 2)
    assert len(drawn) == 2
    assert stage.result[5] is True


def test_two_runs_draw_different_chance() -> None:
    one = Stage(run_id="run-1").start(chance)
    two = Stage(run_id="run-2").start(chance)
    one.play(lambda _name, _args: 0)
    two.play(lambda _name, _args: 0)

    assert one.result[2] != two.result[2]
    one.close()
    two.close()


def test_each_line_is_logged_once_however_often_it_is_replayed(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outlast.workflow")

    stage.start(speaks).play(lambda _name, _args: 0)

    assert [record.message for record in caplog.records] == [f"step {number}" for number in range(5)]
    assert caplog.records[0].run_id == "run-1"  # type: ignore[attr-defined]
    assert caplog.records[0].pathname == __file__


def test_a_condition_is_asked_again_after_each_event(stage: Stage) -> None:
    stage.start(counts_up).play(lambda _name, args: args[0])

    assert stage.result == 3
    assert c.CancelTimer(timer_id="1") in stage.turns[-1]


def test_a_condition_gives_up_at_its_timeout(stage: Stage) -> None:
    stage.start(never_true).play(lambda _name, args: args[0])

    assert stage.result == "gave up"


def test_the_run_knows_who_it_is(stage: Stage) -> None:
    stage.start(who).turn()

    assert stage.result == ["order-7", "run-1", 1, "who", False]


def test_the_same_history_gives_the_same_commands_two_hundred_times() -> None:
    stage = Stage().start(speaks)
    stage.play(lambda _name, _args: 0)
    again = [Stage(mode="rebuilt").start(speaks) for _ in range(20)]
    for other in again:
        other.play(lambda _name, _args: 0)
        other.close()

    assert {digest(other.turns) for other in again} == {digest(stage.turns)}
    assert all(stage.replay().closed for _ in range(200))
    stage.close()


@pytest.mark.parametrize("name", ["execute_local_activity", "start_child_workflow", "execute_child_workflow"])
def test_what_cannot_be_done_yet_says_what_to_write(name: str) -> None:
    async def asks() -> None:
        await getattr(workflow, name)(a)

    stage = Stage().start(asks)

    with pytest.raises(WorkflowTaskFailure, match="UnsupportedHere"):
        stage.turn()
    stage.close()


def test_workflow_verbs_outside_workflow_code_say_so() -> None:
    with pytest.raises(UnsupportedHere, match="outside workflow code"):
        workflow.now()
    with pytest.raises(UnsupportedHere, match="outside workflow code"):
        _ = workflow.random
    with pytest.raises(AttributeError, match="no attribute"):
        _ = workflow.nothing_such
