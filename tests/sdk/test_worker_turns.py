"""Turns of workflow code in the worker: what stays in memory, what is rebuilt, what is given up."""

import threading
import time

import pytest

from outlast import Signal, workflow
from outlast.core import inputs, replies
from outlast.core.errors import SteppedDown
from outlast.sdk import turnpool
from outlast.sdk.errors import WorkflowFailed
from tests.sdk.apps import eventually, faked_app
from tests.sdk.fake_engine import FakeEngine, FakeRun

GO = Signal("go", str)


def run_of(fake: FakeEngine) -> FakeRun:
    return next(iter(fake.runs.values()))


def test_a_workflow_runs_its_activities_and_gives_its_result() -> None:
    fake = FakeEngine()
    app = faked_app(fake)

    @app.task
    def add(left: int, right: int) -> int:
        return left + right

    @app.workflow
    async def sum_of(numbers: list[int]) -> int:
        total = 0
        for number in numbers:
            total = await add.execute(total, number)
        return total

    with app:
        assert sum_of.using(id="sum").start([1, 2, 3]).result(timeout="5s") == 6


def test_a_run_goes_on_from_memory_with_only_the_new_events() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    built: list[int] = []

    @app.task
    def one() -> int:
        return 1

    @app.workflow
    async def twice() -> int:
        built.append(1)
        return await one.execute() + await one.execute()

    with app:
        assert twice.start().result(timeout="5s") == 2

    assert len(built) == 1
    assert run_of(fake).first_ids == [1, 6, 12]


def test_a_run_that_is_not_in_memory_is_rebuilt_from_its_whole_history() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    app._options = type(app._options)(threads=2, runs_cached=0)
    built: list[int] = []

    @app.task
    def one() -> int:
        return 1

    @app.workflow
    async def twice() -> int:
        built.append(1)
        return await one.execute() + await one.execute()

    with app:
        assert twice.start().result(timeout="5s") == 2

    assert len(built) == 3
    assert run_of(fake).first_ids == [1, 1, 1]


def test_a_run_another_worker_was_taken_to_have_is_read_from_its_first_event() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    built: list[int] = []

    @app.workflow
    async def wait() -> str:
        built.append(1)
        return await GO.receive()

    with app:
        handle = wait.start()
        eventually(lambda: run_of(fake).sticky_from)
        worker = app.worker
        assert worker is not None
        worker._turns._cache.clear()
        handle.signal(GO, "on")
        assert handle.result(timeout="5s") == "on"

    assert run_of(fake).first_ids[-1] > 1
    assert len(built) == 2


def test_a_history_that_comes_in_pages_is_read_to_its_end() -> None:
    fake = FakeEngine()
    fake.history_in_pages = 4
    fake.forget_runs = True
    app = faked_app(fake)

    @app.task
    def one() -> int:
        return 1

    @app.workflow
    async def five() -> int:
        return sum([await one.execute() for _ in range(5)])

    with app:
        assert five.start().result(timeout="5s") == 5


def test_a_run_whose_answer_was_not_taken_is_dropped_from_memory() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    built: list[int] = []
    refused: list[int] = []

    async def refuse_first(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.CompleteWorkflowTasks) and not refused:
            refused.append(1)
            run_of(fake).started = False
            run_of(fake).ready = True
            lost = replies.Refused(code="workflow_task_lost", fact="It was given to somebody else.")
            return replies.WorkflowTasksReply(done=tuple(replies.WorkflowTaskReply(refused=lost) for _ in request.done))
        return None

    fake.before = refuse_first

    @app.workflow
    async def wait() -> str:
        built.append(1)
        return await GO.receive()

    with app:
        handle = wait.start()
        eventually(lambda: refused)
        handle.signal(GO, "on")
        assert handle.result(timeout="5s") == "on"

    assert len(built) >= 2


def test_the_answer_to_a_turn_is_repeated_until_it_is_taken() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    failed: list[int] = []

    async def fail_twice(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.CompleteWorkflowTasks) and len(failed) < 2:
            failed.append(1)
            raise SteppedDown("unavailable", "Nobody is there.")
        return None

    fake.before = fail_twice

    @app.workflow
    async def give() -> int:
        return 4

    with app:
        assert give.start().result(timeout="5s") == 4

    sent = fake.sent(inputs.CompleteWorkflowTasks)
    assert [request.done[0].token for request in sent] == [sent[0].done[0].token] * 3


def test_workflow_code_that_fails_fails_its_run_with_the_error() -> None:
    app = faked_app(FakeEngine())

    @app.task
    def refuse() -> int:
        raise ValueError("not today")

    @app.workflow
    async def bad() -> int:
        raise ValueError("the code says no")

    with app, pytest.raises(WorkflowFailed, match="the code says no"):
        bad.start().result(timeout="5s")


def test_code_that_disagrees_with_its_history_fails_the_turn_and_not_the_run() -> None:
    fake = FakeEngine()
    fake.forget_runs = True
    app = faked_app(fake)
    turns: list[int] = []

    @app.task
    def one() -> int:
        return 1

    @app.task
    def other() -> int:
        return 2

    @app.workflow
    async def changing() -> int:
        turns.append(1)
        return await (one if len(turns) == 1 else other).execute()

    with app:
        changing.start()
        eventually(lambda: run_of(fake).not_done)

    assert run_of(fake).not_done[0].cause == "non_deterministic_error"
    assert run_of(fake).status is replies.RunStatus.RUNNING


def test_stuck_workflow_code_is_given_up_with_its_stack_and_its_thread_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turnpool, "TURN_MAX", 0.3)
    fake = FakeEngine()
    app = faked_app(fake)
    gate = threading.Event()

    @app.workflow
    async def stuck() -> None:
        gate.wait(20)

    @app.workflow
    async def healthy() -> int:
        return 3

    with app:
        worker = app.worker
        assert worker is not None
        handles = [stuck.start() for _ in range(8)]
        began = time.monotonic()
        assert healthy.start().result(timeout="10s") == 3
        assert time.monotonic() - began < 5
        eventually(lambda: sum(len(run.not_done) for run in fake.runs.values()) >= len(handles))
        assert worker.leaked_threads == 8
        gate.set()
        eventually(lambda: worker.leaked_threads == 0)

    given_up = run_of(fake).not_done[0]
    assert given_up.cause == "deadlock_detected"
    assert "gate.wait" in given_up.failure.trace


def test_no_more_runs_are_kept_in_memory_than_there_may_be() -> None:
    fake = FakeEngine()
    app = faked_app(fake)
    app._options = type(app._options)(threads=2, runs_cached=2)

    @app.workflow
    async def wait() -> str:
        return await GO.receive()

    with app:
        worker = app.worker
        assert worker is not None
        handles = [wait.start() for _ in range(5)]
        eventually(lambda: all(len(run.history) >= 4 for run in fake.runs.values()))
        eventually(lambda: worker._turns.cached == 2)
        for handle in handles:
            handle.signal(GO, "on")
        assert [handle.result(timeout="5s") for handle in handles] == ["on"] * 5


def test_a_detached_task_and_a_blocking_verb_are_told_apart_in_workflow_code() -> None:
    fake = FakeEngine()
    app = faked_app(fake)

    @app.task
    def one() -> int:
        return 1

    @app.workflow
    async def bad() -> int:
        one.enqueue()
        await workflow.sleep(1)
        return 1

    with app:
        bad.start()
        eventually(lambda: run_of(fake).not_done or run_of(fake).status is not replies.RunStatus.RUNNING)

    said = run_of(fake).not_done[0].failure if run_of(fake).not_done else run_of(fake).failure
    assert said is not None
    assert "await one.execute" in said.message + said.info.get("remedy", "")
