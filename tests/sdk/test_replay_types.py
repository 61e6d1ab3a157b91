"""Types and classes are the same inside workflow code as everywhere else: nothing is imported twice or replaced."""

import asyncio
import dataclasses
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pydantic
import pytest

from outlast.core import commands as c
from outlast.sdk import workflow
from outlast.sdk.errors import WorkflowTaskFailure
from tests.sdk.histories import CONVERTER, Stage, task


class Colour(Enum):
    RED = "red"


class Bill(pydantic.BaseModel):
    at: datetime
    day: date
    cents: Decimal
    key: UUID
    colour: Colour


@dataclasses.dataclass
class Slip:
    at: datetime
    day: date
    bills: list[Bill]


class Refused(Exception):
    """Raised by a task, caught in a workflow."""


@task
def pay(slip: Slip) -> Slip:
    return slip


@task
def nothing() -> object:
    return None


def made_here() -> Slip:
    now = workflow.now()
    bill = Bill(at=now, day=now.date(), cents=Decimal("9.99"), key=workflow.uuid(), colour=Colour.RED)
    return Slip(at=now, day=now.date(), bills=[bill])


async def pays() -> list[object]:
    slip = made_here()
    back = await pay.execute(slip)
    bill = back.bills[0]
    return [
        isinstance(back, Slip),
        back == slip,
        type(bill.at) is datetime,
        type(bill.day) is date,
        bill.at.tzinfo is not None and bill.at.microsecond == slip.at.microsecond,
        bill.colour is Colour.RED,
        type(bill.cents) is Decimal,
        type(bill.key) is UUID,
    ]


async def counts_modules() -> list[object]:
    return [Slip is sys.modules[__name__].Slip, datetime is type(datetime(2026, 1, 1, tzinfo=UTC))]


async def leaves_a_child_behind() -> str:
    async def fails() -> None:
        raise Refused("nobody looks")

    asyncio.create_task(fails())  # noqa: RUF006 - what the test is about
    await asyncio.sleep(0)
    await nothing.execute()
    return "done"


async def uses_everything() -> list[object]:
    first, second = asyncio.Event(), asyncio.Queue[int](2)
    first.set()
    await first.wait()
    second.put_nowait(1)
    condition = asyncio.Condition()
    async with condition:
        condition.notify_all()
    barrier = asyncio.Barrier(1)
    await barrier.wait()
    shielded = await asyncio.shield(asyncio.sleep(0, "kept"))
    current = asyncio.current_task()
    return [await second.get(), shielded, current is not None and current.get_name()]


def echo(stage: Stage) -> Any:
    return CONVERTER.from_payload(stage.activities["1"].command.input[0], Slip)


def test_models_made_in_a_workflow_come_back_as_they_were(stage: Stage) -> None:
    stage.start(pays).turn()
    slip = echo(stage)
    opened = stage.activities["1"]
    assert isinstance(opened.command, c.ScheduleActivity)

    stage.finish("1", opened.command.input[0]).turn()

    assert slip.at.tzinfo is not None
    assert stage.result == [True] * 8


def test_no_class_exists_twice(stage: Stage) -> None:
    stage.start(counts_modules).turn()

    assert stage.result == [True, True]


def test_an_error_nobody_awaited_is_logged_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.start(leaves_a_child_behind).turn()
    stage.complete("1", stage.now).turn()
    stage.close()

    assert stage.result == "done"
    assert len([record for record in caplog.records if "nobody looks" in str(record.exc_info)]) == 1


def test_the_rest_of_asyncio_works_as_it_is(stage: Stage) -> None:
    stage.start(uses_everything).turn()

    assert stage.result == [1, "kept", "main"]


@pytest.mark.parametrize("argument", [b"raw", {"a": 1}, "text"])
def test_an_input_the_code_does_not_take_holds_the_run(argument: object) -> None:
    async def takes_a_number(number: int) -> int:
        return number

    stage = Stage().start(takes_a_number, argument)

    with pytest.raises(WorkflowTaskFailure, match="number cannot be read|arguments"):
        stage.turn()
    stage.close()


def test_a_function_that_is_no_coroutine_holds_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def right() -> int:
        return 1

    wrong: Callable[[], int] = lambda: 1  # noqa: E731 - a plain function in its place
    stage = Stage().start(right)
    assert stage.definition is not None
    stage.definition = dataclasses.replace(stage.definition, function=wrong)

    with pytest.raises(WorkflowTaskFailure, match="TypeError"):
        stage.turn()
    stage.close()
