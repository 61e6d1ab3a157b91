"""Handles of workflows, and the verbs that start them."""

import asyncio
from typing import Any

import pytest

from outlast import App, Signal
from outlast.core import inputs, replies
from outlast.core.units import SECOND
from outlast.sdk.errors import BadArguments, NotSerializable, WorkflowFailed, WorkflowTerminated
from outlast.sdk.misuse import BadDeclaration, Misuse, UnknownOption
from outlast.sdk.task import SomeRefused
from tests.sdk.apps import faked_app
from tests.sdk.fake_engine import FakeEngine

NUMBER = Signal("number", int)


async def wait() -> int:
    return await NUMBER.receive()


def plain(text: str) -> str:
    return text


async def echo(text: str) -> str:
    return text


def test_a_signal_reaches_the_run_and_its_result_comes_back() -> None:
    app = faked_app(FakeEngine())
    flow = app.workflow(wait)

    with app:
        handle = flow.using(id="w").start()
        handle.signal(NUMBER, 7)
        assert (handle.id, handle.result(timeout="5s")) == ("w", 7)


def test_async_verbs_of_a_workflow_work_on_the_callers_own_loop() -> None:
    app = faked_app(FakeEngine())
    flow = app.workflow(wait)

    async def main() -> int:
        async with app:
            handle = await flow.astart()
            await handle.asignal(NUMBER, 8)
            return await handle.aresult(timeout="5s")

    assert asyncio.run(main()) == 8


def test_options_of_a_start_travel_with_its_request() -> None:
    fake = FakeEngine()
    app = faked_app(fake, worker=False)
    flow = app.workflow(run_timeout="30d", queue="q")(echo)

    with app:
        flow.using(id="e", key="k", if_open="return_existing", delay="3s", memo={"n": 1}, tags={"a": "b"}).start("x")

    request = fake.sent(inputs.StartWorkflow)[0]
    assert (request.workflow_id, request.request_id, request.if_open) == ("e", "k", inputs.IfOpen.RETURN_EXISTING)
    assert (request.run_timeout, request.queue, request.delay) == (30 * 86_400 * SECOND, "q", 3 * SECOND)
    assert request.memo is not None
    assert (request.memo["n"].data, request.tags) == (b"1", {"a": "b"})


def test_many_starts_have_an_outcome_each() -> None:
    fake = FakeEngine()
    refusal = replies.Refused(code="workflow_already_open", fact="It is open.")

    async def refuse_second(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.StartWorkflows):
            taken = replies.WorkflowStarted(workflow_id="w", run_id="r")
            return replies.WorkflowsStarted(items=(taken, refusal))
        return None

    fake.before = refuse_second
    app = faked_app(fake, worker=False)
    flow = app.workflow(echo)

    with app, pytest.raises(SomeRefused) as raised:
        flow.start_many([("a",), ("b",)])

    assert raised.value.indexes == [1]
    assert raised.value.handles[0].id == "w"


def test_one_id_for_many_starts_is_refused_before_anything_is_sent() -> None:
    fake = FakeEngine()
    app = faked_app(fake, worker=False)
    flow = app.workflow(echo)

    with app, pytest.raises(BadDeclaration, match="one id or key for many"):
        flow.using(id="w").start_many([("a",)])

    assert not fake.sent(inputs.StartWorkflows)


def test_a_terminated_run_raises_what_it_was_ended_with() -> None:
    fake = FakeEngine()

    async def terminated(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.AwaitWorkflow):
            return replies.WorkflowOutcome(workflow_id="w", run_id="r", status=replies.RunStatus.TERMINATED)
        return None

    fake.before = terminated
    app = faked_app(fake, worker=False)
    flow = app.workflow(echo)

    with app, pytest.raises(WorkflowTerminated, match="terminated") as raised:
        flow.start("a").result(timeout="5s")

    assert isinstance(raised.value, WorkflowFailed)


def test_a_run_that_continued_is_followed_to_its_end() -> None:
    fake = FakeEngine()

    async def continued(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.AwaitWorkflow) and request.run_id != "second":
            status = replies.RunStatus.CONTINUED_AS_NEW
            return replies.WorkflowOutcome(workflow_id="w", run_id="first", status=status, new_run_id="second")
        if isinstance(request, inputs.AwaitWorkflow):
            result = (app.converter.to_payload("end", path="result"),)
            status = replies.RunStatus.COMPLETED
            return replies.WorkflowOutcome(workflow_id="w", run_id="second", status=status, result=result)
        return None

    fake.before = continued
    app = faked_app(fake, worker=False)
    flow = app.workflow(echo)

    with app:
        assert flow.start("a").result(timeout="5s") == "end"


def test_waiting_too_long_for_a_run_says_that_it_goes_on() -> None:
    app = faked_app(FakeEngine(), worker=False)
    flow = app.workflow(echo)

    with app, pytest.raises(TimeoutError, match="it is still open"):
        flow.start("a").result(timeout="50ms")


def test_a_signal_that_cannot_be_written_is_refused_in_the_caller() -> None:
    fake = FakeEngine()
    app = faked_app(fake, worker=False)
    flow = app.workflow(echo)
    anything = Signal("anything")

    with app, pytest.raises(NotSerializable):
        flow.start("a").signal(anything, object())

    assert not fake.sent(inputs.SignalWorkflow)


def test_a_workflow_called_directly_says_how_to_start_it() -> None:
    app = App("memory:")
    flow = app.workflow(echo)

    with pytest.raises(Misuse, match="called directly"):
        flow("a")


def test_a_plain_function_cannot_be_a_workflow() -> None:
    app = App("memory:")

    with pytest.raises(BadDeclaration, match="plain `def`"):
        app.workflow(lambda: None)  # type: ignore[arg-type,return-value]


def test_a_class_cannot_be_a_workflow_yet() -> None:
    app = App("memory:")

    class Cart: ...

    with pytest.raises(BadDeclaration, match="class"):
        app.workflow(Cart)  # type: ignore[arg-type]


def test_an_id_policy_that_there_is_not_is_refused() -> None:
    app = App("memory:")
    flow = app.workflow(echo)

    with pytest.raises(UnknownOption, match="if_open"):
        flow.using(if_open="ignore")  # type: ignore[typeddict-item]


@pytest.mark.parametrize("memo", [3, {1: "a"}], ids=["a number", "a number's key"])
def test_a_memo_that_has_no_names_is_refused_where_it_is_written(memo: Any) -> None:
    flow = faked_app(FakeEngine()).workflow(wait)

    with pytest.raises(UnknownOption, match="memo is") as raised:
        flow.using(memo=memo)
    assert raised.value.remedy


def test_a_text_in_place_of_a_signal_is_refused_with_what_to_write() -> None:
    app = faked_app(FakeEngine())
    flow = app.workflow(wait)

    with app:
        handle = flow.using(id="w").start()
        with pytest.raises(Misuse, match="'number'") as raised:
            handle.signal("number", 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert "Signal(" in raised.value.remedy


def test_a_signal_with_more_than_its_value_is_refused_by_its_name() -> None:
    app = faked_app(FakeEngine())
    flow = app.workflow(wait)

    with app:
        handle: Any = flow.using(id="w").start()
        with pytest.raises(BadArguments, match='Signal "number" takes one value; 2 were given'):
            handle.signal(NUMBER, 7, 8)
        with pytest.raises(BadArguments, match='Query "total" is given by its name, and currency by theirs'):
            handle.query("total", currency="EUR")


def test_arguments_that_a_task_or_workflow_does_not_take_are_refused_by_its_name() -> None:
    app = faked_app(FakeEngine())
    flow: Any = app.workflow(echo)
    task: Any = app.task(plain)

    with app:
        with pytest.raises(BadArguments, match=r"echo\(\) requires 1 arguments and 0 were given; missing: text"):
            flow.start()
        with pytest.raises(BadArguments, match=r'plain\(\) has no parameter "nope"'):
            task.enqueue("a", nope=1)
