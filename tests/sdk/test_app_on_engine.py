"""The app over the real engine in this process: the promises a user first meets."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from outlast import App, Fatal, RetryableError, Signal, TaskContext, workflow
from outlast.core.errors import Conflict, NotFound
from outlast.core.replies import RunStatus, TaskState
from outlast.sdk.errors import Canceled, TaskError, WorkflowCanceled, WorkflowFailed, WorkflowTerminated
from tests.sdk.apps import eventually

GO = Signal("go", str)


@pytest.fixture
def app(store: str) -> Iterator[App]:
    made = App(store, threads=4, drain="5s")
    with made:
        yield made


def test_the_first_program_of_the_readme_gives_its_greeting(app: App) -> None:
    @app.task(max_attempts=3)
    def greet(name: str) -> str:
        return f"Hello, {name}"

    assert greet.enqueue("Ada").result(timeout="10s") == "Hello, Ada"


def test_a_failed_attempt_is_followed_by_another_with_its_checkpoint(app: App) -> None:
    seen: list[tuple[int, int]] = []

    @app.task
    def walk(ctx: TaskContext) -> int:
        seen.append((ctx.attempt, ctx.checkpoint(default=0)))
        for cursor in range(1, 101):
            ctx.save_checkpoint(cursor)
        if ctx.attempt == 1:
            raise RetryableError("half way", next_delay="10ms")
        assert ctx.last_failure is not None
        return ctx.attempt

    assert walk.enqueue().result(timeout="10s") == 2
    assert seen == [(1, 0), (2, 100)]


def test_a_final_error_makes_no_further_attempt(app: App) -> None:
    ran: list[int] = []

    @app.task
    def refuse() -> None:
        ran.append(1)
        raise Fatal("never")

    handle = refuse.enqueue()

    with pytest.raises(TaskError, match="never"):
        handle.result(timeout="10s")
    assert (handle.describe().state, handle.describe().attempt, ran) == (TaskState.FAILED, 1, [1])


def test_attempts_end_when_they_are_used_up(app: App) -> None:
    ran: list[int] = []

    @app.task(max_attempts=1)
    def fail() -> None:
        ran.append(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail.enqueue().result(timeout="10s")
    assert ran == [1]


@pytest.mark.parametrize("value", [{"t": float("nan")}, {"t": "\ud800"}, {"t": {1}}], ids=["nan", "surrogate", "set"])
def test_a_result_that_cannot_be_stored_is_terminal_and_ran_once(app: App, value: object) -> None:
    ran: list[int] = []

    @app.task
    def give() -> object:
        ran.append(1)
        return value

    with pytest.raises(TaskError) as raised:
        give.enqueue().result(timeout="10s")

    assert raised.value.type == "RESULT_NOT_SERIALIZABLE"
    assert ran == [1]


def test_the_same_key_makes_one_task_and_another_request_under_it_is_refused(app: App) -> None:
    @app.task
    def add(left: int) -> int:
        return left + 1

    first = add.using(key="k").enqueue(1)
    again = add.using(key="k").enqueue(1)

    assert first.id == again.id
    with pytest.raises(Conflict):
        add.using(key="k").enqueue(2)


def test_a_key_that_started_a_workflow_starts_no_other(app: App) -> None:
    @app.workflow
    async def wait() -> str:
        return await GO.receive()

    first = wait.using(id="w-1", key="k").start()
    again = wait.using(id="w-1", key="k").start()

    assert first.run_id == again.run_id
    with pytest.raises(Conflict) as refused:
        wait.using(id="w-2", key="k").start()
    assert refused.value.code == "idempotency_key_reused"


def test_the_same_id_of_another_request_is_refused(app: App) -> None:
    @app.task
    def add(left: int) -> int:
        return left + 1

    add.using(id="t").enqueue(1).result(timeout="10s")

    with pytest.raises(Conflict):
        add.using(id="t").enqueue(2)


def test_many_tasks_all_end_and_each_with_its_own_result(app: App) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    @app.task
    async def triple(number: int) -> int:
        return number * 3

    doubled = double.enqueue_many([(number,) for number in range(1200)])
    tripled = triple.enqueue_many([(number,) for number in range(300)])

    assert [handle.result(timeout="30s") for handle in doubled] == [number * 2 for number in range(1200)]
    assert [handle.result(timeout="30s") for handle in tripled] == [number * 3 for number in range(300)]


def test_a_running_task_is_cancelled_where_it_looks(app: App) -> None:
    begun, pause = threading.Event(), threading.Event()

    @app.task
    def walk(ctx: TaskContext) -> None:
        begun.set()
        while True:
            ctx.heartbeat()
            ctx.raise_if_cancelled()
            pause.wait(0.01)

    handle = walk.enqueue()
    assert begun.wait(10)
    handle.cancel("enough")

    with pytest.raises(Canceled):
        handle.result(timeout="20s")


def test_a_workflow_runs_activities_in_parallel_and_waits_for_a_signal(app: App) -> None:
    @app.task
    def square(number: int) -> int:
        return number * number

    @app.workflow
    async def flow(numbers: list[int]) -> str:
        squares = await asyncio.gather(*(square.execute(number) for number in numbers))
        await workflow.sleep("20ms")
        return f"{await GO.receive()} {sum(squares)}"

    handle = flow.using(id="flow").start([1, 2, 3])
    eventually(lambda: handle.describe().timers == () and handle.describe().events > 10)
    handle.signal(GO, "sum")

    assert handle.result(timeout="10s") == "sum 14"
    assert handle.describe().status is RunStatus.COMPLETED


def test_an_open_workflow_id_is_refused_or_returned_as_was_asked(app: App) -> None:
    @app.workflow
    async def wait() -> str:
        return await GO.receive()

    first = wait.using(id="one").start()

    with pytest.raises(Conflict, match="open"):
        wait.using(id="one").start()
    assert wait.using(id="one", if_open="return_existing").start().run_id == first.run_id
    app.get_workflow("one").signal(GO, "on")
    assert first.result(timeout="10s") == "on"


def test_a_cancelled_workflow_may_tidy_up(app: App) -> None:
    tidied: list[str] = []

    @app.task
    def tidy(what: str) -> None:
        tidied.append(what)

    @app.workflow
    async def wait() -> str:
        try:
            return await GO.receive()
        except asyncio.CancelledError:
            await tidy.execute("desk")
            raise

    handle = wait.start()
    eventually(lambda: handle.describe().events >= 4)
    handle.cancel("enough")

    with pytest.raises(WorkflowCanceled):
        handle.result(timeout="10s")
    assert tidied == ["desk"]


def test_a_terminated_workflow_ends_without_its_code(app: App) -> None:
    @app.workflow
    async def wait() -> str:
        return await GO.receive()

    handle = wait.start()
    handle.terminate("enough")

    with pytest.raises(WorkflowTerminated):
        handle.result(timeout="10s")


def test_an_error_of_an_activity_reaches_the_caller_of_the_workflow(app: App) -> None:
    @app.task(max_attempts=1)
    def refuse() -> None:
        raise ValueError("card declined")

    @app.workflow
    async def flow() -> None:
        await refuse.execute()

    with pytest.raises(WorkflowFailed, match="card declined"):
        flow.start().result(timeout="10s")


def test_runs_that_are_pushed_out_of_memory_go_on_from_their_histories(store: str) -> None:
    app = App(store, threads=4, drain="5s")
    app._options = type(app._options)(threads=4, runs_cached=2)

    @app.task
    def one() -> int:
        return 1

    @app.workflow
    async def three() -> int:
        return sum([await one.execute() for _ in range(3)])

    with app:
        handles = three.start_many([()] * 20)
        assert [handle.result(timeout="20s") for handle in handles] == [3] * 20


def test_a_run_whose_history_takes_several_pages_goes_on_at_a_worker_that_has_not_got_it(store: str) -> None:
    """A page has at most a thousand events, and the turn that follows them is in none."""
    app = App(store, threads=1, drain="5s")
    app._options = type(app._options)(threads=1, runs_cached=0)
    tick = Signal("tick", int)

    @app.workflow
    async def adding(count: int) -> int:
        await workflow.sleep("1ms")
        received = sum([await tick.receive() for _ in range(count)])
        await workflow.sleep("1ms")
        return received

    with app:
        handle = adding.start(1100)
        for _ in range(1100):
            handle.signal(tick, 1)

        assert handle.result(timeout="20s") == 1100


def test_an_unknown_id_is_not_found(app: App) -> None:
    with pytest.raises(NotFound):
        app.get_task("nothing").describe()
    with pytest.raises(NotFound):
        app.get_workflow("nothing").describe()


def test_work_in_flight_at_a_stop_is_finished_before_the_app_has_stopped(store: str) -> None:
    app = App(store, threads=2, drain="5s")
    begun, ended = threading.Event(), threading.Event()

    @app.task
    def slow() -> int:
        begun.set()
        threading.Event().wait(0.2)
        ended.set()
        return 1

    with app:
        slow.enqueue()
        assert begun.wait(10)

    assert ended.is_set()


def test_what_the_engine_refuses_of_a_turn_is_in_the_workers_log(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.workflow
    async def publishes() -> None:
        for number in range(65):
            workflow.publish(f"name-{number}", number)

    handle = publishes.start()

    eventually(lambda: "turn_refused" in caplog.text)
    handle.terminate()
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("would have published under 65 names; 64 are allowed" in text for text in warned)
