"""A verb that is called and never awaited has done nothing: the run is held, instead of ending as if it had."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from outlast.core import commands as c
from outlast.sdk import workflow
from outlast.sdk.errors import WorkflowTaskFailure
from outlast.sdk.signals import Signal
from tests.sdk.histories import Stage, task

approved = Signal("approved", bool)


@task
def charge(order: str) -> str:
    return order


async def charges() -> str:
    charge.execute("o-1")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine] - the mistake
    return "charged"


async def returns_it() -> Any:
    return charge.execute("o-1")


async def keeps_it() -> str:
    kept = charge.execute("o-1")
    await workflow.sleep("1s")
    return kept.__name__


async def sleeps() -> None:
    workflow.sleep("1s")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine] - the mistake


async def receives() -> None:
    approved.receive()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine] - the mistake


async def detaches() -> None:
    charge.aenqueue("o-1")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine] - the mistake


async def many_and_one() -> None:
    await asyncio.gather(*(charge.execute(str(n)) for n in range(50)))
    charge.execute("o-1")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine] - the mistake


async def goes_on_as_new() -> None:
    charge.execute("o-1")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine] - the mistake
    workflow.continue_as_new()


async def later() -> str:
    kept = charge.execute("o-1")
    await workflow.sleep("1s")
    return await kept


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (charges, "charge.execute(…)"),
        (returns_it, "charge.execute(…)"),
        (keeps_it, "charge.execute(…)"),
        (sleeps, "workflow.sleep(…)"),
        (receives, "approved.receive(…)"),
        (detaches, "charge.aenqueue(…)"),
        (many_and_one, "charge.execute(…)"),
        (goes_on_as_new, "charge.execute(…)"),
    ],
)
def test_a_run_that_ends_without_having_awaited_a_verb_is_held(
    stage: Stage, code: Callable[..., Any], call: str
) -> None:
    with pytest.raises(WorkflowTaskFailure) as held:
        stage.start(code).play(lambda name, args: args[0])

    assert held.value.failure.type == "NeverAwaited"
    assert f"{call} was called at {__file__}:" in held.value.failure.message
    assert held.value.failure.remedy == f"Write: await {call}"
    stage.close()


def test_what_is_awaited_later_is_no_mistake(stage: Stage) -> None:
    command = stage.start(later).play(lambda name, args: args[0])

    assert isinstance(command, c.CompleteWorkflow)
