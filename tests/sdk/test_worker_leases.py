"""Heartbeats: who keeps the lease, what a handler says, and what it is told."""

import asyncio
import json
import logging
import threading
import time

import pytest

from outlast import RetryableError, TaskContext
from outlast.core import inputs, replies
from outlast.core.errors import SteppedDown
from outlast.core.limits import TASK_LEASE
from outlast.core.replies import TaskState
from outlast.core.units import MILLISECOND, SECOND
from outlast.sdk.attempt import Attempt
from outlast.sdk.converter import Converter
from tests.sdk.apps import eventually, faked_app
from tests.sdk.fake_engine import FakeEngine

SHORT = 300 * MILLISECOND


def test_a_long_handler_keeps_its_lease_without_saying_anything() -> None:
    fake = FakeEngine(lease=SHORT)
    app = faked_app(fake)
    gate = threading.Event()
    task = app.task(name="long")(lambda: gate.wait(10))

    with app:
        handle = task.enqueue()
        eventually(lambda: len(fake.sent(inputs.Heartbeat)) >= 5)
        gate.set()
        handle.result(timeout="5s")

    assert next(iter(fake.tasks.values())).attempt == 1
    assert not any(item.progress for request in fake.sent(inputs.Heartbeat) for item in request.items)


def test_a_coroutine_that_blocks_its_loop_does_not_hold_up_the_heartbeat_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeEngine(lease=SHORT)
    app = faked_app(fake)
    beats: list[inputs.Heartbeat] = []
    came: list[int] = []

    async def note(request: inputs.Request, _reply: replies.Reply) -> None:
        if isinstance(request, inputs.Heartbeat):
            beats.append(request)

    fake.after = note

    @app.task
    async def spin() -> int:
        began = time.monotonic()
        turns = 0
        while (spun := time.monotonic() - began) < 3 * SHORT / 1e9 or (len(beats) < 5 and spun < 20):
            turns += 1
        came.append(len(beats))
        return turns

    with app, caplog.at_level(logging.WARNING, "outlast.worker"):
        assert spin.enqueue().result(timeout="30s") > 0

    assert came[0] >= 5  # while it held its loop
    blocked = [record.getMessage() for record in caplog.records if "handler_blocks_loop" in record.getMessage()]
    assert blocked
    assert "task=spin " in blocked[0]
    assert "test_worker_leases.py" in blocked[0]


def test_what_a_handler_says_reaches_the_engine_without_a_heartbeat_timeout() -> None:
    fake = FakeEngine(lease=SHORT)
    fake.retries = 1
    app = faked_app(fake)
    seen: list[object] = []

    @app.task
    def walk(ctx: TaskContext) -> object:
        if ctx.attempt == 1:
            ctx.heartbeat({"row": 7})
            raise RuntimeError("half way")
        seen.append(ctx.checkpoint(default=None))
        return seen

    with app:
        walk.enqueue().result(timeout="5s")

    assert seen == [{"row": 7}]


@pytest.mark.parametrize(("span", "pause"), [(SECOND, 0.2), (100 * SECOND, 1.0), (0, 1.0)])
def test_what_a_handler_says_is_sent_well_before_its_attempt_must_end(span: int, pause: float) -> None:
    @faked_app(FakeEngine()).task
    def walk() -> None: ...

    lease = replies.TaskLease(
        token=inputs.TaskToken("t", 1), type="walk", queue="q", attempt=1, attempts_max=2,
        lease=TASK_LEASE, started_at=7 * SECOND, deadline=span and 7 * SECOND + span,
    )  # fmt: skip

    assert Attempt(lease, walk.definition, Converter(), now=0.0).said_pause == pause


def test_the_last_checkpoint_travels_with_a_failure_however_soon_it_comes() -> None:
    fake = FakeEngine()
    fake.retries = 1
    app = faked_app(fake)
    seen: list[int] = []

    @app.task
    def walk(ctx: TaskContext) -> None:
        seen.append(ctx.checkpoint(default=0))
        for cursor in range(1, 101):
            ctx.save_checkpoint(cursor)
        if ctx.attempt == 1:
            raise RetryableError("half way", next_delay=0)

    with app:
        walk.enqueue().result(timeout="5s")

    assert seen == [0, 100]
    assert len(fake.sent(inputs.Heartbeat)) <= 2


def test_a_checkpoint_is_read_as_the_type_of_its_default() -> None:
    fake = FakeEngine()
    fake.retries = 1
    app = faked_app(fake)
    seen: list[object] = []

    @app.task
    def walk(ctx: TaskContext) -> None:
        seen.append(ctx.checkpoint(default=(0, 0)))
        ctx.save_checkpoint((3, 4))
        if ctx.attempt == 1:
            raise RuntimeError("half way")

    with app:
        walk.enqueue().result(timeout="5s")

    assert seen == [(0, 0), (3, 4)]


def test_progress_leaves_the_checkpoint_as_it_was() -> None:
    fake = FakeEngine(lease=SHORT)
    fake.retries = 1
    app = faked_app(fake)
    seen: list[object] = []

    @app.task
    def walk(ctx: TaskContext) -> None:
        seen.append(ctx.checkpoint(default=0))
        ctx.save_checkpoint(5)
        ctx.progress(3, total=64, note="tiles")
        if ctx.attempt == 1:
            raise RuntimeError("half way")

    with app:
        walk.enqueue().result(timeout="5s")

    details = next(iter(fake.tasks.values())).details
    assert details is not None
    assert details.metadata is not None
    assert json.loads(details.metadata["progress"]) == [3, 64, "tiles"]
    assert seen == [0, 5]


def test_a_handler_is_told_that_it_was_cancelled_and_may_stop_in_good_order() -> None:
    fake = FakeEngine(lease=SHORT)
    app = faked_app(fake)
    begun = threading.Event()
    pause = threading.Event()

    @app.task
    def walk(ctx: TaskContext) -> None:
        begun.set()
        while True:
            ctx.raise_if_cancelled()
            pause.wait(0.005)

    with app:
        handle = walk.enqueue()
        assert begun.wait(5)
        handle.cancel()
        eventually(lambda: next(iter(fake.tasks.values())).state is TaskState.CANCELED)


def test_a_coroutine_handler_is_cancelled_where_it_waits() -> None:
    fake = FakeEngine(lease=SHORT)
    app = faked_app(fake)
    begun = threading.Event()
    tidied = threading.Event()

    @app.task
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            tidied.set()

    with app:
        handle = wait.enqueue()
        assert begun.wait(5)
        handle.cancel()
        eventually(lambda: next(iter(fake.tasks.values())).state is TaskState.CANCELED)

    assert tidied.is_set()


def test_a_handler_that_is_told_to_stop_has_its_result_dropped() -> None:
    fake = FakeEngine(lease=SHORT)
    app = faked_app(fake)
    begun = threading.Event()
    pause = threading.Event()
    told: list[bool] = []

    @app.task
    def walk(ctx: TaskContext) -> str:
        begun.set()
        while not ctx.cancelled:
            pause.wait(0.005)
        told.append(ctx.lease_lost)
        return "late"

    with app:
        walk.enqueue()
        assert begun.wait(5)
        fake.heartbeat_action = "stop"
        eventually(lambda: told)
        eventually(lambda: app.worker is not None and app.worker.running == 0)

    assert told == [True]
    assert not fake.sent(inputs.CompleteTasks)


def test_one_lost_heartbeat_is_repeated_well_within_the_lease() -> None:
    fake = FakeEngine(lease=5 * SHORT)  # two thirds of it are left for the second one, also on a machine that is busy
    app = faked_app(fake)
    gate = threading.Event()
    lost: list[float] = []
    told: list[bool] = []

    async def lose_first(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.Heartbeat) and not lost:
            lost.append(time.monotonic())
            raise SteppedDown("unavailable", "The call was lost.")
        return None

    fake.before = lose_first

    @app.task
    def walk(ctx: TaskContext) -> str:
        gate.wait(10)
        told.append(ctx.lease_lost)
        return "done"

    with app:
        handle = walk.enqueue()
        eventually(lambda: len(fake.sent(inputs.Heartbeat)) >= 4)
        gate.set()
        assert handle.result(timeout="5s") == "done"

    assert told == [False]


def test_a_handler_learns_that_its_lease_has_surely_run_out() -> None:
    fake = FakeEngine(lease=SHORT)
    app = faked_app(fake)
    pause = threading.Event()
    told: list[float] = []

    async def lose_all(request: inputs.Request) -> replies.Reply | None:
        if isinstance(request, inputs.Heartbeat):
            raise SteppedDown("unavailable", "The call was lost.")
        return None

    fake.before = lose_all

    @app.task
    def walk(ctx: TaskContext) -> str:
        began = time.monotonic()
        while not ctx.lease_lost:
            pause.wait(0.005)
        told.append(time.monotonic() - began)
        return "late"

    with app:
        walk.enqueue()
        eventually(lambda: told)

    assert told[0] >= SHORT / 1e9 * 0.9


def test_a_stuck_handler_whose_lease_is_lost_does_not_keep_its_slot() -> None:
    fake = FakeEngine(lease=SHORT)
    app = faked_app(fake, threads=1)
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def stick() -> None:
        begun.set()
        gate.wait(20)

    with app:
        worker = app.worker
        assert worker is not None
        stick.enqueue()
        assert begun.wait(5)
        fake.heartbeat_action = "stop"
        eventually(lambda: worker.leaked_threads == 1)
        fake.heartbeat_action = "continue"
        assert app.task(name="next")(lambda: 1).enqueue().result(timeout="5s") == 1
        gate.set()
        eventually(lambda: worker.leaked_threads == 0)


def ahead_of_one_that_holds(fake: FakeEngine, action: str, ran: list[int]) -> None:
    """Have one slot taken, another attempt wait for it, and the engine answer its heartbeat with ``action``."""
    app = faked_app(fake, threads=1)
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def hold(number: int) -> None:
        ran.append(number)
        begun.set()
        gate.wait(10)

    with app:
        worker = app.worker
        assert worker is not None
        hold.enqueue(0)
        assert begun.wait(5)
        hold.enqueue(1)
        ahead = [task for task in fake.tasks.values() if task.state is TaskState.ENQUEUED]
        worker._portal.loop.call_soon_threadsafe(worker._handlers.take, tuple(map(fake._lease, ahead)))
        eventually(lambda: worker.running == 2)
        ahead[0].cancel_requested = action == "cancel"
        ahead[0].lease += action == "stop"
        eventually(lambda: worker.running < 2)
        gate.set()


def test_an_attempt_that_is_cancelled_before_it_began_never_runs() -> None:
    fake = FakeEngine(lease=SHORT)
    ran: list[int] = []

    ahead_of_one_that_holds(fake, "cancel", ran)

    assert ran == [0]
    assert list(fake.tasks.values())[1].state is TaskState.CANCELED


def test_an_attempt_that_loses_its_lease_before_it_began_never_runs() -> None:
    fake = FakeEngine(lease=SHORT)
    ran: list[int] = []

    ahead_of_one_that_holds(fake, "stop", ran)

    assert ran == [0]
    assert not fake.sent(inputs.ReturnTasks)
