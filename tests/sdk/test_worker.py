"""The worker over a fake engine: polling, slots, begins, completions, stopping."""

import asyncio
import math
import threading
import time
from typing import Any

import pytest

from outlast import TaskContext
from outlast.core import inputs, replies
from outlast.core.errors import Denied, SteppedDown
from outlast.core.replies import TaskState
from tests.sdk.apps import eventually, faked_app
from tests.sdk.fake_engine import FakeEngine


def test_a_poll_whose_answer_was_lost_is_repeated_with_its_id() -> None:
    fake = FakeEngine()
    lost: list[str] = []

    async def lose_first(request: inputs.Request, reply: replies.Reply) -> None:
        if isinstance(request, inputs.Poll) and isinstance(reply, replies.Work) and reply.tasks and not lost:
            lost.append(request.poll_id)
            raise SteppedDown("unavailable", "The answer was lost.")

    fake.after = lose_first
    app = faked_app(fake)
    task = app.task(name="one")(lambda: 1)

    with app:
        assert task.enqueue().result(timeout="5s") == 1

    repeats = [poll for poll in fake.sent(inputs.Poll) if poll.poll_id == lost[0]]
    assert len(repeats) == 2
    assert next(iter(fake.tasks.values())).attempt == 1


def test_a_worker_polls_only_for_what_is_declared() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    app.task(name="plain", queue="q")(lambda: None)

    @app.task
    async def awaited() -> None: ...

    @app.workflow
    async def flow() -> None: ...

    with app:
        eventually(lambda: len(fake.sent(inputs.Poll)) >= 3)

    asked = {(poll.task_types, poll.workflow_types) for poll in fake.sent(inputs.Poll)}
    assert asked == {(("plain",), ()), (("awaited",), ()), ((), ("flow",))}
    assert {poll.queues for poll in fake.sent(inputs.Poll)} == {("default", "q")}


def test_no_more_is_asked_for_than_there_are_free_slots() -> None:
    fake = FakeEngine()
    app = faked_app(fake, threads=3)
    gate, begun = threading.Event(), threading.Semaphore(0)

    @app.task
    def hold() -> None:
        begun.release()
        gate.wait(10)

    with app:
        handles = hold.enqueue_many([()] * 10)
        for _ in range(3):
            begun.acquire()
        leased = [task for task in fake.tasks.values() if task.state is TaskState.LEASED]
        gate.set()
        for handle in handles:
            handle.result(timeout="5s")

    assert len(leased) == 3


def test_a_handler_waits_for_its_begin_where_one_is_needed() -> None:
    fake = FakeEngine()
    fake.begin_needed = True
    order: list[str] = []

    async def note(request: inputs.Request, _reply: replies.Reply) -> None:
        if isinstance(request, inputs.Begin):
            order.append("begun")

    fake.after = note
    app = faked_app(fake)
    task = app.task(name="one")(lambda: order.append("ran"))

    with app:
        task.enqueue().result(timeout="5s")

    assert order == ["begun", "ran"]


def test_a_refused_begin_keeps_the_handler_from_running() -> None:
    fake = FakeEngine()
    fake.begin_needed = True
    ran: list[int] = []
    answered = threading.Event()

    async def refuse(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.Begin):
            answered.set()
            return replies.Begun(items=(replies.Refused(code="lease_lost", fact="It is lost."),))
        return None

    fake.before = refuse
    app = faked_app(fake)
    task = app.task(name="one")(lambda: ran.append(1))

    with app:
        task.enqueue()
        assert answered.wait(5)
        eventually(lambda: app.worker is not None and app.worker.running == 0)

    assert not ran


def test_outcomes_that_gather_while_a_call_is_in_flight_go_together() -> None:
    fake = FakeEngine()
    first = threading.Event()
    release = threading.Event()

    async def hold_first(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.CompleteTasks) and not first.is_set():
            first.set()
            while not release.is_set():
                await _turn()
        return None

    fake.before = hold_first
    app = faked_app(fake, threads=8)
    ended: list[int] = []

    @app.task
    def task(number: int) -> None:
        ended.append(number)

    with app:
        handles = task.enqueue_many([(number,) for number in range(30)])
        assert first.wait(5)
        eventually(lambda: len(ended) == 30)
        release.set()
        for handle in handles:
            handle.result(timeout="5s")

    assert len(fake.sent(inputs.CompleteTasks)) <= 4


def test_a_completion_is_repeated_until_it_is_answered() -> None:
    fake = FakeEngine()
    failed: list[inputs.Request] = []

    async def fail_twice(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.CompleteTasks) and len(failed) < 2:
            failed.append(request)
            raise SteppedDown("unavailable", "Nobody is there.")
        return None

    fake.before = fail_twice
    app = faked_app(fake)
    task = app.task(name="one")(lambda: 5)

    with app:
        assert task.enqueue().result(timeout="5s") == 5

    sent = fake.sent(inputs.CompleteTasks)
    assert len(sent) == 3
    assert sent[0].items[0].token == sent[2].items[0].token


def test_stopping_returns_only_after_finished_work_is_acknowledged() -> None:
    fake = FakeEngine()
    finished = threading.Event()

    async def slow(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.CompleteTasks):
            finished.set()
            ends = time.monotonic() + 0.5
            while time.monotonic() < ends:
                await _turn()
        return None

    fake.before = slow
    app = faked_app(fake)
    task = app.task(name="one")(lambda: 5)

    with app:
        task.enqueue()
        assert finished.wait(5)

    (record,) = fake.tasks.values()
    assert (record.state, record.attempt) == (TaskState.SUCCEEDED, 1)


def test_stopping_hands_back_what_has_not_begun_and_waits_for_what_has() -> None:
    fake = FakeEngine()
    app = faked_app(fake, threads=1)
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def hold(number: int) -> int:
        begun.set()
        gate.wait(10)
        return number

    app.start()
    worker = app.worker
    assert worker is not None
    hold.enqueue_many([(0,)])
    assert begun.wait(5)
    # Three that were taken ahead, as a worker does when handlers are short.
    hold.enqueue_many([(number,) for number in range(1, 4)])
    ahead = [task for task in fake.tasks.values() if task.state is TaskState.ENQUEUED]
    leases = tuple(map(fake._lease, ahead))
    worker._portal.loop.call_soon_threadsafe(worker._handlers.take, leases)
    eventually(lambda: worker.running == 4)

    stopping = threading.Thread(target=app.stop)
    stopping.start()
    eventually(lambda: fake.sent(inputs.ReturnTasks))
    gate.set()
    stopping.join(5)

    states = [task.state for task in fake.tasks.values()]
    assert states == [TaskState.SUCCEEDED, *[TaskState.ENQUEUED] * 3]
    assert [task.attempt for task in fake.tasks.values()] == [1, 0, 0, 0]


def test_work_taken_ahead_that_cannot_begin_soon_is_handed_back() -> None:
    fake = FakeEngine()
    app = faked_app(fake, threads=1)
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def hold(number: int) -> int:
        begun.set()
        gate.wait(10)
        return number

    with app:
        worker = app.worker
        assert worker is not None
        hold.enqueue(0)
        assert begun.wait(5)
        hold.enqueue(1)
        ahead = [task for task in fake.tasks.values() if task.state is TaskState.ENQUEUED]
        leases = tuple(map(fake._lease, ahead))
        worker._portal.loop.call_soon_threadsafe(worker._handlers.take, leases)
        eventually(lambda: fake.sent(inputs.ReturnTasks))
        gate.set()

    assert [request.tokens for request in fake.sent(inputs.ReturnTasks)] == [(leases[0].token,)]


def test_a_handler_that_outlasts_the_grace_does_not_hold_up_the_stop() -> None:
    fake = FakeEngine()
    app = faked_app(fake, drain="100ms")
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def hold(ctx: TaskContext) -> bool:
        begun.set()
        while not ctx.lease_lost:
            gate.wait(0.01)
        gate.set()
        return ctx.lease_lost

    began = time.monotonic()
    with app:
        hold.enqueue()
        assert begun.wait(5)

    assert gate.wait(5)
    assert time.monotonic() - began < 5


def test_a_worker_goes_on_when_the_engine_was_away() -> None:
    fake = FakeEngine()
    away = threading.Event()
    refused: list[inputs.Request] = []

    async def be_away(request: inputs.Request) -> replies.Reply | None:
        if away.is_set() and isinstance(request, inputs.Poll):
            refused.append(request)
            raise SteppedDown("unavailable", "Nobody is there.")
        return None

    fake.before = be_away
    app = faked_app(fake)
    task = app.task(name="one")(lambda: 5)
    away.set()

    with app:
        handle = task.enqueue()
        eventually(lambda: len(refused) >= 2)
        away.clear()
        assert handle.result(timeout="5s") == 5


def test_an_unexpected_error_in_its_loops_does_not_end_a_worker() -> None:
    fake = FakeEngine()
    raised: list[int] = []

    async def surprise(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.Poll | inputs.CompleteTasks) and len(raised) < 4:
            raised.append(1)
            raise RuntimeError("a fault of ours")
        return None

    fake.before = surprise
    app = faked_app(fake)
    task = app.task(name="one")(lambda: 5)

    with app:
        assert task.enqueue().result(timeout="5s") == 5

    assert len(raised) == 4


def test_wrong_credentials_end_a_worker_with_the_error() -> None:
    fake = FakeEngine()

    async def deny(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.Poll):
            raise Denied("denied", "The token is not known.")
        return None

    fake.before = deny
    app = faked_app(fake)
    app.task(name="one")(lambda: 5)

    with pytest.raises(Denied, match="not known"):
        app.run()


def test_a_handler_of_another_queue_is_left_alone() -> None:
    fake = FakeEngine()
    app = faked_app(fake, queues=["images"])
    task = app.task(name="one")(lambda: 5)

    with app:
        task.enqueue()
        assert task.using(queue="images").enqueue().result(timeout="5s") == 5

    assert [record.state for record in fake.tasks.values()] == [TaskState.ENQUEUED, TaskState.SUCCEEDED]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"t": math.nan}, "result['t']"),
        ({"t": "\ud800"}, "result['t']"),
        ({"t": [1, {2}]}, "result['t'][1]"),
        ({"t": object()}, "result['t']"),
    ],
    ids=["nan", "lone surrogate", "set", "object"],
)
def test_a_result_that_cannot_be_stored_ends_the_task_with_its_path(value: Any, path: str) -> None:
    fake = FakeEngine()
    fake.retries = 3
    app = faked_app(fake)
    ran: list[int] = []

    @app.task
    def give() -> Any:
        ran.append(1)
        return value

    with app:
        give.enqueue()
        eventually(lambda: next(iter(fake.tasks.values())).state is TaskState.FAILED)
        assert app.task(name="next")(lambda: 1).enqueue().result(timeout="5s") == 1

    failure = next(iter(fake.tasks.values())).failure
    assert failure is not None
    assert (failure.type, failure.final) == ("RESULT_NOT_SERIALIZABLE", True)
    assert failure.info["path"].replace('"', "'").startswith(path[:6])
    assert ran == [1]


@pytest.mark.parametrize(
    "value",
    ["a\0b", 10**400, "x" * 1000, None, {"a": None}],
    ids=["nul", "large number", "text", "nothing", "null inside"],
)
def test_an_odd_result_comes_back_as_it_was(value: Any) -> None:
    app = faked_app(FakeEngine())

    @app.task
    def give() -> Any:
        return value

    with app:
        assert give.enqueue().result(timeout="5s") == value


class Unreadable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [ValueError("a\0b"), Unreadable(), ValueError("x" * 5_000_000), SystemExit(3), KeyboardInterrupt()],
    ids=["nul", "unreadable", "long", "exit", "interrupt"],
)
def test_any_error_at_all_is_recorded_and_the_worker_goes_on(error: BaseException) -> None:
    fake = FakeEngine()
    app = faked_app(fake)

    @app.task
    def fail() -> None:
        raise error

    with app:
        fail.enqueue()
        eventually(lambda: next(iter(fake.tasks.values())).state is TaskState.FAILED)
        assert app.task(name="next")(lambda: 1).enqueue().result(timeout="5s") == 1

    failure = next(iter(fake.tasks.values())).failure
    assert failure is not None
    assert failure.type == type(error).__name__
    assert len(failure.message) <= 16 * 1024


def test_an_outcome_the_engine_refuses_for_good_becomes_a_failure() -> None:
    fake = FakeEngine()

    async def refuse_large(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.CompleteTasks) and isinstance(request.items[0].outcome, inputs.TaskSucceeded):
            refusal = replies.Refused(code="payload_too_large", fact="It is too large.")
            return replies.CompletionsReply(items=tuple(refusal for _ in request.items))
        return None

    fake.before = refuse_large
    app = faked_app(fake)
    task = app.task(name="one")(lambda: "large")

    with app:
        task.enqueue()
        eventually(lambda: next(iter(fake.tasks.values())).state is TaskState.FAILED)

    failure = next(iter(fake.tasks.values())).failure
    assert failure is not None
    assert (failure.type, failure.final) == ("RESULT_NOT_SERIALIZABLE", True)


def test_arguments_the_code_no_longer_reads_end_the_task_for_good() -> None:
    fake = FakeEngine()
    app = faked_app(fake)

    @app.task
    def count(number: int) -> int:
        return number

    with app:
        wider = app.converter.to_payload("seven", path="number")
        app.connect().ask(
            inputs.EnqueueTask(task_id="t", key="t", type="count", queue="default", input=(wider,)),
            replies.TaskEnqueuedReply,
            instead="",
        )
        eventually(lambda: fake.tasks["t"].state is TaskState.FAILED)

    failure = fake.tasks["t"].failure
    assert failure is not None
    assert (failure.type, failure.final) == ("ARGUMENTS_NOT_READABLE", True)


async def _turn() -> None:
    await asyncio.sleep(0.005)
