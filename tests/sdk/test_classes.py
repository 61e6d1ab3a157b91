"""Workflow classes: declared, replayed in every mode, asked on the real engine, and their mistakes."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outlast import App, workflow
from outlast.core import commands as c
from outlast.core.errors import Conflict, Unavailable
from outlast.core.events import WorkflowExecutionSignaled
from outlast.core.payload import Payload
from outlast.sdk.errors import NotPublished, QueryFailed, UnsupportedHere, WorkflowTaskFailure
from outlast.sdk.misuse import BadDeclaration, Misuse, NotYet
from tests.sdk.apps import eventually
from tests.sdk.histories import CONVERTER, MODES, Stage

shop = App("memory:")


@shop.task
def pack(item: str) -> str:
    return f"parcel of {item}"


@shop.workflow
class Cart:
    def __init__(self) -> None:
        self.items: list[str] = []
        self.packed: list[str] = []
        self.paid = 0

    @workflow.run
    async def shop(self, user: str, price: int = 1) -> str:
        await workflow.wait_until(lambda: self.paid >= price, timeout="7d")
        return f"{user}: {','.join(self.items)} for {self.paid}"

    @workflow.signal
    def add(self, item: str, times: int = 1) -> None:
        self.items += [item] * times

    @workflow.signal
    async def wrap(self, item: str) -> None:
        self.packed.append(await pack.execute(item))

    @workflow.signal
    def pay(self, cents: int) -> None:
        if cents < 0:
            raise ValueError("nobody pays less than nothing")
        self.paid += cents

    @workflow.query
    def count(self) -> int:
        return len(self.items)

    @workflow.query
    def has(self, item: str) -> bool:
        return item in self.items

    @workflow.query
    def wrapped(self) -> list[str]:
        return self.packed

    @workflow.query
    def broken(self) -> int:
        raise LookupError("there is no such shelf")

    @workflow.query
    def meddling(self) -> None:
        workflow.note("never")


CART = Cart.shop.definition


def said(stage: Stage, name: str, *args: Any) -> Any:
    """Return what the run in ``stage`` says, which must be what a run built from its history says."""
    payloads = tuple(CONVERTER.to_payload(value, path="input") for value in args)
    assert stage.run is not None
    (payload,) = stage.run.query(name, payloads)
    return CONVERTER.from_payload(payload)


@pytest.mark.parametrize("mode", MODES)
def test_signals_call_methods_in_order_and_queries_tell_of_them(mode: str) -> None:
    stage = Stage(mode).start(CART, "ann", 5)
    stage.turn()
    assert said(stage, "count") == 0

    stage.signal("add", "tea").signal("pay", 2).turn()
    assert (said(stage, "count"), said(stage, "has", "tea"), said(stage, "has", "milk")) == (1, True, False)

    stage.signal("add", "milk").signal("pay", 3).turn()

    assert stage.result == "ann: tea,milk for 5"
    assert said(stage, "count") == 2


@pytest.mark.parametrize("mode", MODES)
def test_an_async_signal_method_may_await_tasks(mode: str) -> None:
    stage = Stage(mode).start(CART, "ann")
    stage.signal("wrap", "tea").turn()
    stage.complete("1", "parcel of tea").turn()

    assert said(stage, "wrapped") == ["parcel of tea"]


@pytest.mark.parametrize("mode", MODES)
def test_what_a_signal_method_raises_holds_the_run_and_loses_nothing(mode: str) -> None:
    stage = Stage(mode).start(CART, "ann")
    stage.turn()
    stage.signal("pay", -1)

    with pytest.raises(WorkflowTaskFailure, match="nobody pays less"):
        stage.turn()


@pytest.mark.parametrize("mode", MODES)
def test_a_signal_that_does_not_fit_its_method_is_named_and_the_way_on_comes_before_the_end(mode: str) -> None:
    stage = Stage(mode).start(CART, "ann")
    stage.turn()
    stage.signal("add", 7)

    with pytest.raises(WorkflowTaskFailure, match="signal add: item cannot be read as str") as held:
        stage.turn()

    assert "the run then goes on" in held.value.failure.remedy
    assert "without clean-up" in held.value.failure.remedy


def test_signals_handed_on_by_the_run_before_come_first() -> None:
    carried = WorkflowExecutionSignaled(signal_name="add", input=(Payload("json/plain", b'"tea"'),))
    stage = Stage().start(CART, "ann", carried=(carried,))
    stage.turn()

    assert said(stage, "count") == 1


def test_a_query_that_asks_for_something_to_be_done_is_refused_and_leaves_no_trace() -> None:
    stage = Stage().start(CART, "ann")
    stage.turn()

    with pytest.raises(UnsupportedHere, match="A query asked"):
        said(stage, "meddling")

    stage.signal("pay", 1)
    assert [type(command) for command in stage.turn()] == [c.CancelTimer, c.CompleteWorkflow]


def test_published_values_are_one_marker_each() -> None:
    async def stages() -> None:
        workflow.publish("stage", "first")
        await workflow.sleep("1s")
        workflow.publish("stage", "second")

    stage = Stage("checked").start(stages)
    stage.play(lambda _name, _args: None)

    markers = [command for turn in stage.turns for command in turn if isinstance(command, c.RecordMarker)]
    assert [marker.details for marker in markers] == [
        {"stage": Payload("json/plain", b'"first"')},
        {"stage": Payload("json/plain", b'"second"')},
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("", 1), ("big", "x" * 5000), ("odd", object())], ids=["name", "big", "odd"]
)
def test_what_cannot_be_published_holds_the_run(name: str, value: Any) -> None:
    async def publishes() -> None:
        workflow.publish(name, value)

    with pytest.raises(WorkflowTaskFailure):
        Stage().start(publishes).turn()


# Declaring.


def declared(cls: Any) -> Any:
    return App("memory:").workflow(cls)


def without_run() -> None:
    @declared
    class NoRun:
        @workflow.query
        def count(self) -> int:
            return 1


def with_two_runs() -> None:
    @declared
    class TwoRuns:
        @workflow.run
        async def one(self) -> None: ...

        @workflow.run
        async def two(self) -> None: ...


def with_arguments() -> None:
    @declared
    class Needs:
        def __init__(self, size: int) -> None:
            self.size = size

        @workflow.run
        async def go(self) -> None: ...


def with_an_async_query() -> None:
    @declared
    class Slow:
        @workflow.run
        async def go(self) -> None: ...

        @workflow.query
        async def count(self) -> int:
            return 1


def with_a_plain_run() -> None:
    @declared
    class Plain:
        @workflow.run  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        def go(self) -> None: ...


def with_an_update() -> None:
    @declared
    class Updated:
        @workflow.update
        def add(self) -> None: ...


def as_a_task() -> None:
    @App("memory:").task
    class Chore: ...


@pytest.mark.parametrize(
    "declare",
    [without_run, with_two_runs, with_arguments, with_an_async_query, with_a_plain_run, with_an_update, as_a_task],
)
def test_a_class_that_cannot_be_a_workflow_says_what_to_write(declare: Callable[[], None]) -> None:
    with pytest.raises((BadDeclaration, NotYet)) as raised:
        declare()

    assert raised.value.remedy


def test_a_class_that_no_app_took_up_says_so() -> None:
    class Loose:
        @workflow.run
        async def go(self) -> None: ...

    with pytest.raises(BadDeclaration, match="no app has taken"):
        Loose.go.start()  # type: ignore[call-arg]


# On the engine.


@pytest.fixture
def app() -> Iterator[App]:
    with shop:
        yield shop


def test_a_cart_is_filled_asked_and_paid_on_the_engine(app: App) -> None:
    cart = Cart.shop.using(id="cart-1").start("ann", price=3)
    cart.signal(Cart.add, "tea", times=2)
    cart.signal(Cart.add, item="milk")

    assert cart.query(Cart.count) == 3
    assert cart.query(Cart.has, "milk") is True
    assert app.get_workflow("cart-1").query("has", "bread") is False
    cart.signal(Cart.pay, 3)
    assert cart.result(timeout="10s") == "ann: tea,tea,milk for 3"
    assert cart.query(Cart.count) == 3


def test_async_twins_ask_and_signal_too(app: App) -> None:
    async def go() -> int:
        cart = await Cart.shop.using(id="cart-2").astart("bob")
        await cart.asignal(Cart.add, "tea")
        return await cart.aquery(Cart.count)

    assert asyncio.run(go()) == 1
    assert app.get_workflow("cart-2").cancel()


def test_what_a_query_raises_comes_to_the_caller(app: App) -> None:
    cart = Cart.shop.using(id="cart-3").start("ann")

    with pytest.raises(QueryFailed, match="no such shelf") as raised:
        cart.query(Cart.broken)
    with pytest.raises(QueryFailed, match="has no query 'cuont'"):
        cart.query("cuont")
    with pytest.raises(Misuse, match="3"):
        cart.query(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

    assert isinstance(raised.value.__cause__, LookupError)
    assert cart.query(Cart.count) == 0
    cart.terminate()


def test_a_thousand_questions_while_the_run_moves_all_tell_the_truth(app: App) -> None:
    cart = Cart.shop.using(id="cart-4").start("ann", price=10_000)

    async def ask() -> list[int]:
        asked: list[int] = []
        for number in range(1, 51):
            await cart.asignal(Cart.add, "tea")
            asked += [count - number for count in await asyncio.gather(*(cart.aquery(Cart.count) for _ in range(20)))]
        return asked

    assert set(asyncio.run(ask())) == {0}
    cart.terminate()


def test_published_values_are_told_without_a_worker() -> None:
    app = App("memory:", worker=False)

    with app:
        seen = app.get_workflow("nobody")
        with pytest.raises(Exception, match="no workflow nobody"):
            seen.published("stage")


def test_a_published_value_is_told_also_after_the_end(app: App) -> None:
    @app.workflow
    async def staged(last: str) -> None:
        workflow.publish("stage", {"name": "first"})
        workflow.publish("stage", {"name": last})

    handle = staged.start("second")
    handle.result(timeout="10s")

    assert handle.published("stage") == {"name": "second"}
    with pytest.raises(NotPublished, match="'step'") as raised:
        handle.published("step")
    assert "stage" in raised.value.remedy


def test_a_run_whose_code_fails_says_so_when_it_is_asked(app: App) -> None:
    cart = Cart.shop.using(id="cart-5").start("ann")
    cart.signal(Cart.pay, -1)
    eventually(lambda: cart.describe().task_state == "backoff")

    with pytest.raises(Conflict, match="nobody pays less") as raised:
        cart.query(Cart.count)

    assert raised.value.code == "workflow_held"
    cart.terminate()


def test_a_query_that_does_not_return_is_given_up_and_the_run_goes_on(app: App) -> None:
    blocked = threading.Event()

    @app.workflow
    class Stuck:
        @workflow.run
        async def go(self) -> str:
            return await workflow.wait_for_signal("end", type=str)

        @workflow.query
        def hang(self) -> None:
            while not blocked.is_set():
                pass

        @workflow.query
        def fine(self) -> int:
            return 1

    handle = Stuck.go.start()
    try:
        with pytest.raises((QueryFailed, Unavailable)):
            handle.query(Stuck.hang)
        assert handle.query(Stuck.fine) == 1
    finally:
        blocked.set()
    handle.terminate()


def test_a_worker_that_was_started_anew_answers_from_the_history(tmp_path: Any) -> None:
    first = App(f"sqlite:///{tmp_path}/cart.db")
    counting = first.workflow(counting_class())
    with first:
        handle = counting.go.using(id="c").start()
        handle.signal(counting.more, 2)
        assert handle.query(counting.total) == 2

    with first:
        began = time.monotonic()
        again = first.get_workflow("c")
        again.signal(counting.more, 3)
        assert again.query(counting.total) == 5
        assert time.monotonic() - began < 60


def counting_class() -> Any:
    class Counting:
        def __init__(self) -> None:
            self.sum = 0

        @workflow.run
        async def go(self) -> None:
            await workflow.wait_for_signal("end")

        @workflow.signal
        def more(self, by: int) -> None:
            self.sum += by

        @workflow.query
        def total(self) -> int:
            return self.sum

    return Counting
