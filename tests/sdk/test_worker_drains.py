"""How a worker ends: while it waits, while it works, while the engine is away, and when it is told twice."""

import logging
import threading
import time

import pytest

from outlast import TaskContext
from outlast.core import inputs, replies
from outlast.core.errors import SteppedDown
from outlast.core.replies import TaskState
from outlast.core.units import SECOND
from outlast.sdk import worker as worker_module
from outlast.sdk.worker import POLL_WAIT
from tests.sdk.apps import eventually, faked_app
from tests.sdk.fake_engine import FakeEngine


def test_a_worker_that_waits_for_work_stops_at_once() -> None:
    fake = FakeEngine()
    app = faked_app(fake, drain="30s")
    app.task(name="one")(lambda: 1)
    app.start()
    eventually(lambda: fake.sent(inputs.Poll))

    began = time.monotonic()
    app.stop()

    assert time.monotonic() - began < POLL_WAIT / SECOND / 2  # its poll would be held for all of it


def test_a_lease_is_renewed_while_its_worker_drains() -> None:
    fake = FakeEngine(lease=SECOND)
    app = faked_app(fake, drain="10s")
    begun = threading.Event()

    @app.task
    def long() -> str:
        begun.set()
        time.sleep(2.2)
        return "done"

    app.start()
    handle = long.enqueue()
    assert begun.wait(5)
    before = len(fake.sent(inputs.Heartbeat))

    app.stop()

    (record,) = fake.tasks.values()
    assert (record.state, record.attempt, handle.id) == (TaskState.SUCCEEDED, 1, next(iter(fake.tasks)))
    assert len(fake.sent(inputs.Heartbeat)) - before >= 4


def test_a_stop_that_takes_its_time_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeEngine()
    app = faked_app(fake, drain="10s")
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def long() -> None:
        begun.set()
        gate.wait(10)

    app.start()
    handle = long.enqueue()
    assert begun.wait(5)
    stopping = threading.Thread(target=app.stop)
    with caplog.at_level(logging.WARNING, "outlast.worker"):
        stopping.start()
        eventually(lambda: "stopping" in caplog.text)
    gate.set()
    stopping.join(10)

    assert f"waits_for=long {handle.id} (attempt 1) for_at_most=" in caplog.text
    assert "a second signal ends the process at once" in caplog.text


def test_a_worker_whose_engine_is_away_stops_when_its_grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "LAST_WORD", 0.3)
    monkeypatch.setattr(worker_module, "CALL_TIMEOUT", 0.3)
    fake = FakeEngine()
    app = faked_app(fake, drain="200ms")
    away, begun, gate = threading.Event(), threading.Event(), threading.Event()

    async def refuse(_request: inputs.Request) -> replies.Reply | None:
        if away.is_set():
            raise SteppedDown("unavailable", "Nobody is there.")
        return None

    fake.before = refuse

    @app.task
    def hold() -> None:
        begun.set()
        gate.wait(10)

    app.start()
    hold.enqueue()
    assert begun.wait(5)
    away.set()
    gate.set()

    began = time.monotonic()
    app.stop()

    assert time.monotonic() - began < 5
    (record,) = fake.tasks.values()
    assert record.state is TaskState.LEASED  # its lease ends by itself, and another worker has it then


def test_a_finished_word_is_kept_for_a_silent_engine_no_longer_than_its_lease(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "CALL_TIMEOUT", 0.3)
    fake = FakeEngine(lease=SECOND)
    app = faked_app(fake, drain="60s")
    away, begun, gate = threading.Event(), threading.Event(), threading.Event()

    async def refuse(_request: inputs.Request) -> replies.Reply | None:
        if away.is_set():
            raise SteppedDown("unavailable", "Nobody is there.")
        return None

    fake.before = refuse

    @app.task
    def hold() -> None:
        begun.set()
        gate.wait(10)

    app.start()
    hold.enqueue()
    assert begun.wait(5)
    away.set()
    gate.set()

    began = time.monotonic()
    with caplog.at_level(logging.INFO, "outlast.worker"):
        app.stop()

    assert time.monotonic() - began < 20  # of the 60 s for which handlers would be waited for
    assert "waits_for=the server unacknowledged=1" in caplog.text
    assert caplog.text.count("heartbeat_failed") <= 1


def test_stopping_from_two_threads_is_stopping_once_and_both_return_when_it_is_done() -> None:
    fake = FakeEngine()
    app = faked_app(fake, drain="10s")
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def hold() -> int:
        begun.set()
        gate.wait(10)
        return 7

    app.start()
    hold.enqueue()
    assert begun.wait(5)
    stoppers = [threading.Thread(target=app.stop) for _ in range(2)]
    for stopper in stoppers:
        stopper.start()
    eventually(lambda: fake.sent(inputs.StopWorker))
    waiting = [stopper.is_alive() for stopper in stoppers]

    gate.set()
    for stopper in stoppers:
        stopper.join(10)

    assert waiting == [True, True]
    assert [stopper.is_alive() for stopper in stoppers] == [False, False]
    assert len(fake.sent(inputs.StopWorker)) == 1
    (record,) = fake.tasks.values()
    assert record.state is TaskState.SUCCEEDED


def test_a_stop_tells_the_engine_before_anything_that_was_taken_is_handed_back() -> None:
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
    hold.enqueue(0)
    assert begun.wait(5)
    hold.enqueue(1)
    ahead = [task for task in fake.tasks.values() if task.state is TaskState.ENQUEUED]
    leases = tuple(map(fake._lease, ahead))
    worker._portal.loop.call_soon_threadsafe(worker._handlers.take, leases)
    eventually(lambda: worker.running == 2)
    stopper = threading.Thread(target=app.stop)
    stopper.start()
    eventually(lambda: fake.sent(inputs.ReturnTasks))
    gate.set()
    stopper.join(10)

    kinds = [type(request) for request in fake.requests if isinstance(request, inputs.StopWorker | inputs.ReturnTasks)]
    assert kinds == [inputs.StopWorker, inputs.ReturnTasks]


def test_a_handler_may_stop_the_app_it_runs_in_and_is_waited_for_no_longer_than_the_grace() -> None:
    fake = FakeEngine()
    app = faked_app(fake, drain="300ms")
    ended = threading.Event()

    @app.task
    def quits(ctx: TaskContext) -> None:
        app.stop()
        ended.set()

    app.start()

    quits.enqueue()

    assert ended.wait(8)
