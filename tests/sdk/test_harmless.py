"""Which workflow functions are taken to need no watch over what they call."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import time as bound_early
from typing import Any

import pytest

from outlast.sdk import harmless, workflow
from outlast.sdk.converter import Converter
from outlast.sdk.errors import WorkflowTaskFailure
from outlast.sdk.harmless import proof_of
from outlast.sdk.replay import WorkflowRun
from tests.sdk.histories import Stage, definition_of, task

pytestmark = pytest.mark.skipif(not harmless.KNOWN_BYTECODE, reason="needed by Python 3.11 alone")


@dataclass
class Order:
    id: str

    def at(self) -> float:
        return time.time()

    def __bool__(self) -> bool:
        return time.time() > 0

    def __format__(self, _how: str) -> str:
        return str(time.time())

    def __add__(self, _other: int) -> float:
        return time.time()


@task
def number(given: int) -> int:
    return given


@task
def order(given: Any) -> Order:
    return Order(str(given))


async def passes_on(given: int) -> int:
    done: int = await number.execute(given)
    return done


async def passes_objects_on(given: Order) -> Order:
    done: Order = await order.using(queue="slow").execute(given)
    return done


async def counts_and_chooses(given: int, text: str = "") -> str:
    total = 0
    names: list[str] = []
    for place in range(given):
        found = await number.execute(place)
        if found > 1 and text:
            total += found
            names.append(f"{text}-{found:>3}")
        elif not found:
            await workflow.sleep("1s")
    return ", ".join(names) or str(total)


@pytest.mark.parametrize("function", [passes_on, passes_objects_on, counts_and_chooses])
def test_code_that_only_hands_plain_values_on_is_proved(function: Callable[..., Any]) -> None:
    proof = proof_of(definition_of(function))

    assert proof is not None
    assert proof.holds()


async def reads_the_clock() -> float:
    return time.time()


async def reads_it_by_another_name() -> float:
    return bound_early()


async def reads_it_in_a_rare_branch(given: int) -> float:
    if given > 1_000_000:
        return time.time()
    return 0.0


async def calls_an_argument(given: Any) -> Any:
    return given()


async def calls_a_method_of_an_argument(given: Order) -> float:
    return given.at()


async def calls_a_method_of_a_result(given: int) -> float:
    found = await order.execute(given)
    at: float = found.at()
    return at


async def reads_an_attribute(given: Order) -> str:
    return given.id


async def asks_an_object_for_its_truth(given: Order) -> int:
    return 1 if given else 2


async def formats_an_object(given: Order) -> str:
    return f"{given}"


async def adds_to_an_object(given: Any) -> Any:
    return given + 1


async def loops_over_an_object(given: Any) -> int:
    for _ in given:
        pass
    return 1


async def awaits_an_argument(given: Any) -> Any:
    return await given


async def calls_what_may_be_either(given: int) -> Any:
    found: Any = given
    if given:
        found = await order.execute(given)
    return found + 1


async def hands_an_object_to_a_builtin(given: Any) -> int:
    return len(given)


async def makes_a_function() -> Any:
    return [bound_early() for _ in range(1)]


async def catches_what_it_calls(given: int) -> int:
    try:
        done: int = await number.execute(given)
    except Exception:  # noqa: BLE001 - any will do
        return 0
    return done


async def takes_a_default(given: int = Order("x")) -> int:  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
    return given + 1


async def reaches_behind_a_plain_value(given: int) -> Any:
    return given.__class__.__subclasses__()


async def starts_an_event_loop_task(given: int) -> int:
    done: int = await asyncio.create_task(number.execute(given))
    return done


UNPROVEN = [
    reads_the_clock,
    reads_it_by_another_name,
    reads_it_in_a_rare_branch,
    calls_an_argument,
    calls_a_method_of_an_argument,
    calls_a_method_of_a_result,
    reads_an_attribute,
    asks_an_object_for_its_truth,
    formats_an_object,
    adds_to_an_object,
    loops_over_an_object,
    awaits_an_argument,
    calls_what_may_be_either,
    hands_an_object_to_a_builtin,
    makes_a_function,
    catches_what_it_calls,
    takes_a_default,
    reaches_behind_a_plain_value,
    starts_an_event_loop_task,
]


@pytest.mark.parametrize("function", UNPROVEN)
def test_code_that_could_call_something_else_is_not_proved(function: Callable[..., Any]) -> None:
    assert proof_of(definition_of(function)) is None


def test_a_proof_ends_when_a_name_means_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = proof_of(definition_of(counts_and_chooses))
    assert proof is not None

    with monkeypatch.context() as patch:
        patch.setitem(globals(), "number", order)
        assert not proof.holds()
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "range", time.time)
        assert not proof.holds()
    with monkeypatch.context() as patch:
        patch.setitem(number.__dict__, "execute", time.time)
        assert not proof.holds()
    with monkeypatch.context() as patch:
        patch.setattr(counts_and_chooses, "__code__", passes_on.__code__)
        assert not proof.holds()
    assert proof.holds()


def test_code_whose_name_was_changed_is_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reading:
        async def execute(self, _given: int) -> float:
            return time.time()

    stage = Stage().start(passes_on, 1)
    assert proof_of(stage.definition) is not None  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    monkeypatch.setitem(globals(), "number", Reading())

    with pytest.raises(WorkflowTaskFailure, match="time.time"):
        stage.turn()
    stage.close()


def test_nothing_is_proved_of_what_another_converter_gives() -> None:
    class Odd(Converter):
        def from_payload(self, payload: Any, type: Any = Any, *, path: str = "value") -> Any:
            return Order(path)

    run = WorkflowRun(definition_of(counts_and_chooses), Odd())

    assert run._proof is None  # pyright: ignore[reportPrivateUsage]
    run.close()
