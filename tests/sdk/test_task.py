"""Declaring tasks and asking for them."""

import asyncio
import types
from typing import Any

import pytest

from outlast import App, Fatal, Retry, TaskContext, task
from outlast.core import inputs, replies
from outlast.core.errors import SteppedDown
from outlast.core.units import MINUTE, SECOND
from outlast.sdk.errors import BadArguments, Canceled, InvalidDuration, NotSerializable, TaskError
from outlast.sdk.misuse import BadDeclaration, Blocked, NotBound, NotStarted, NotYet, UnknownOption
from outlast.sdk.task import SomeRefused
from tests.sdk.apps import faked_app
from tests.sdk.fake_engine import FakeEngine


def add(left: int, right: int = 1) -> int:
    return left + right


def test_a_plain_call_runs_the_function_here() -> None:
    app = App("memory:")
    added = app.task(add)

    assert added(2, right=3) == 5


def test_a_plain_call_of_a_coroutine_task_gives_its_coroutine() -> None:
    app = App("memory:")

    @app.task
    async def double(number: int) -> int:
        return number * 2

    assert asyncio.run(double(4)) == 8


def test_a_plain_call_supplies_a_context_that_stands_alone() -> None:
    app = App("memory:")

    @app.task
    def attempt_of(ctx: TaskContext, name: str) -> str:
        return f"{name} {ctx.attempt}"

    assert attempt_of("a") == "a 1"


def test_a_plain_call_takes_the_context_a_test_hands_in() -> None:
    app = App("memory:")

    @app.task
    def attempt_of(ctx: TaskContext) -> int:
        return ctx.attempt

    assert attempt_of.function(TaskContext.for_test(attempt=3)) == 3


def test_a_task_that_was_enqueued_gives_its_result() -> None:
    app = faked_app(FakeEngine())
    added = app.task(add)

    with app:
        assert added.enqueue(2, right=3).result(timeout="5s") == 5


def test_options_travel_with_the_request_as_they_were_chosen() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    added = app.task(queue="q", max_attempts=3, timeout="1m", tags={"a": "b"})(add)

    with app:
        added.using(delay="2s", priority=1, key="k", id="one", schedule_to_close=30).enqueue(1)

    request = fake.sent(inputs.EnqueueTask)[0]
    assert (request.queue, request.retry.attempts_max, request.start_to_close) == ("q", 3, MINUTE)
    assert (request.delay, request.priority, request.key, request.task_id) == (2 * SECOND, 1, "k", "one")
    assert (request.schedule_to_close, request.tags) == (30 * SECOND, {"a": "b"})


def test_every_enqueue_mints_ids_that_sort_by_time() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    added = app.task(add)

    with app:
        handles = [added.enqueue(number) for number in range(5)]

    ids = [handle.id for handle in handles]
    assert ids == sorted(set(ids))
    assert all(request.key for request in fake.sent(inputs.EnqueueTask))


def test_an_enqueue_whose_answer_was_lost_is_sent_again_with_the_same_ids() -> None:
    fake = FakeEngine()
    lost: list[inputs.Request] = []

    async def lose_first(request: inputs.Request, reply: replies.Reply) -> None:
        if isinstance(request, inputs.EnqueueTask) and not lost:
            lost.append(request)
            raise SteppedDown("unavailable", "The answer was lost.")

    fake.after = lose_first
    app = faked_app(fake)
    added = app.task(add)

    with app:
        added.enqueue(1).result(timeout="5s")

    first, second = fake.sent(inputs.EnqueueTask)
    assert first == second
    assert len(fake.tasks) == 1


def test_many_enqueues_go_in_requests_of_a_thousand() -> None:
    fake = FakeEngine()
    app = faked_app(fake, worker=False)
    added = app.task(add)

    with app:
        handles = added.enqueue_many([(number,) for number in range(2500)])

    assert [len(request.items) for request in fake.sent(inputs.EnqueueTasks)] == [1000, 1000, 500]
    assert len({handle.id for handle in handles}) == 2500


def test_many_enqueues_of_large_arguments_go_in_smaller_requests() -> None:
    fake = FakeEngine()
    app = faked_app(fake, worker=False)

    @app.task
    def keep(text: str) -> int:
        return len(text)

    with app:
        keep.enqueue_many([("x" * 200_000,)] * 30)

    assert len(fake.sent(inputs.EnqueueTasks)) >= 3


def test_refused_items_of_many_are_named_and_the_others_have_handles() -> None:
    fake = FakeEngine()
    refusal = replies.Refused(code="payload_too_large", fact="It is too large.", remedy="Make it smaller.")

    async def refuse_second(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.EnqueueTasks):
            kept = replies.TaskEnqueuedReply(task_id="t")
            return replies.TasksEnqueued(items=(kept, refusal, kept))
        return None

    fake.before = refuse_second
    app = faked_app(fake, worker=False)
    added = app.task(add)

    with app, pytest.raises(SomeRefused, match="1 of 3 items were refused, at 1") as raised:
        added.enqueue_many([(1,), (2,), (3,)])

    assert raised.value.indexes == [1]
    assert set(raised.value.handles) == {0, 2}


def test_an_item_of_many_that_is_no_tuple_is_refused_by_its_place() -> None:
    app = faked_app(FakeEngine(), worker=False)
    added = app.task(add)

    with app, pytest.raises(BadDeclaration, match="Item 1"):
        added.enqueue_many([(1,), 2])  # type: ignore[list-item]


def test_a_value_that_cannot_be_written_is_refused_in_the_caller_with_its_path() -> None:
    fake = FakeEngine()
    app = faked_app(fake)

    @app.task
    def keep(order: dict[str, Any]) -> None: ...

    with app, pytest.raises(NotSerializable) as raised:
        keep.enqueue({"items": [1, object()]})

    assert "order" in raised.value.path
    assert not fake.sent(inputs.EnqueueTask)


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    added = app.task(add)

    with app, pytest.raises(BadArguments):
        added.enqueue()  # type: ignore[call-arg]

    assert not fake.sent(inputs.EnqueueTask)


def test_a_failed_task_raises_its_error_where_it_is_waited_for() -> None:
    app = faked_app(FakeEngine())

    @app.task
    def refuse(number: int) -> int:
        raise Fatal(f"{number} is refused")

    with app, pytest.raises(TaskError, match="7 is refused") as raised:
        refuse.enqueue(7).result(timeout="5s")

    assert raised.value.type == "Fatal"


def test_the_class_of_the_error_can_be_caught_where_it_is_waited_for() -> None:
    app = faked_app(FakeEngine())

    @app.task
    def divide(number: int) -> float:
        return 1 / number

    with app, pytest.raises(ZeroDivisionError):
        divide.enqueue(0).result(timeout="5s")


def test_an_error_that_is_never_retried_ends_the_task_with_its_subclasses() -> None:
    fake = FakeEngine()
    app = faked_app(fake)

    @app.task(retry=Retry(never_for=(ValueError,)))
    def decode() -> str:
        return b"\xff".decode("utf-8")

    with app, pytest.raises(TaskError):
        decode.enqueue().result(timeout="5s")

    (record,) = fake.tasks.values()
    assert record.failure is not None
    assert record.failure.final


def test_waiting_too_long_says_that_the_task_goes_on() -> None:
    app = faked_app(FakeEngine(), worker=False)
    added = app.task(add)

    with app, pytest.raises(TimeoutError, match="it is still open"):
        added.enqueue(1).result(timeout="50ms")


def test_a_task_cancelled_before_it_began_raises_canceled() -> None:
    app = faked_app(FakeEngine(), worker=False)
    added = app.task(add)

    with app:
        handle = added.enqueue(1)
        assert handle.cancel("no longer wanted")
        with pytest.raises(Canceled):
            handle.result(timeout="5s")


def test_async_verbs_work_on_the_callers_own_loop() -> None:
    app = faked_app(FakeEngine())
    added = app.task(add)

    async def main() -> tuple[int, int, list[int]]:
        async with app:
            one = await (await added.aenqueue(1)).aresult(timeout="5s")
            two = await added.execute(2)
            many = await added.aenqueue_many([(3,), (4,)])
            return one, two, [await handle.aresult() for handle in many]

    assert asyncio.run(main()) == (2, 3, [4, 5])


def test_a_handle_found_by_id_gives_the_result() -> None:
    app = faked_app(FakeEngine())
    added = app.task(add)

    with app:
        handle = added.using(id="sum-1").enqueue(1)
        assert handle.id == "sum-1"
        assert app.get_task("sum-1").result(timeout="5s") == 2


def test_a_blocking_verb_in_a_coroutine_task_names_its_async_twin() -> None:
    app = faked_app(FakeEngine())
    added = app.task(add)

    @app.task
    async def outer() -> int:
        return added.enqueue(1).result()

    with app, pytest.raises(TaskError) as raised:
        outer.enqueue().result(timeout="5s")

    assert raised.value.type == Blocked.__name__
    assert raised.value.failure.info["remedy"] == "Write: await add.aenqueue(…)"


def test_a_verb_of_an_app_that_is_not_started_says_so() -> None:
    app = App("memory:")
    added = app.task(add)

    with pytest.raises(NotStarted, match=r"with app:"):
        added.enqueue(1)


def test_an_unbound_task_says_which_module_to_include() -> None:
    loose = task(add)

    with pytest.raises(NotBound, match=r"App\(include="):
        loose.enqueue(1)


def test_an_app_takes_up_the_unbound_tasks_of_a_module_it_includes() -> None:
    module = types.ModuleType("shop_jobs")
    module.added = task(add)  # type: ignore[attr-defined]
    app = faked_app(FakeEngine(), include=[module])

    with app:
        assert module.added.enqueue(2).result(timeout="5s") == 3


def test_an_unknown_option_names_the_nearest_one() -> None:
    app = App("memory:")

    with pytest.raises(UnknownOption, match="Did you mean 'delay'"):
        app.task(add).using(dealy="1s")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"priority": 9}, UnknownOption),
        ({"priority": True}, UnknownOption),
        ({"priority": 2.0}, UnknownOption),
        ({"max_attempts": -1}, UnknownOption),
        ({"max_attempts": 1.5}, UnknownOption),
        ({"max_attempts": "3"}, UnknownOption),
        ({"retry": Retry(factor="2")}, UnknownOption),  # type: ignore[arg-type]
        ({"retry": Retry(never_for=[3])}, UnknownOption),  # type: ignore[list-item]
        ({"fairness_key": "a\ud800"}, UnknownOption),
        ({"delay": "soon"}, InvalidDuration),
        ({"timeout": -1}, InvalidDuration),
        ({"queue": ""}, UnknownOption),
        ({"tags": {"a": 1}}, UnknownOption),
        ({"retry": 3}, UnknownOption),
        ({"rate_limit": 3}, UnknownOption),
        ({"executor": "process"}, NotYet),
    ],
    ids=str,
)
def test_a_bad_option_is_refused_at_the_declaration(options: dict[str, Any], error: type[Exception]) -> None:
    app = App("memory:")

    with pytest.raises(error):
        app.task(**options)(add)


def test_two_tasks_of_one_name_are_refused_with_both_places() -> None:
    app = App("memory:")
    app.task(add)

    with pytest.raises(BadDeclaration, match=r"test_task\.py:\d+.*test_task\.py:\d+"):
        app.task(name="add")(test_a_plain_call_runs_the_function_here)


def test_a_generator_cannot_be_a_task() -> None:
    app = App("memory:")

    def rows() -> Any:
        yield 1

    with pytest.raises(BadDeclaration, match="yields"):
        app.task(rows)


def test_an_annotation_that_cannot_be_resolved_is_named_at_the_start() -> None:
    app = faked_app(FakeEngine())

    def broken(value: Any) -> None: ...

    broken.__annotations__["value"] = "Missing"
    app.task(broken)

    with pytest.raises(BadDeclaration, match="Missing"):
        app.start()
