"""The engine within a program: started, reached, stopped, and found by others."""

import asyncio
import sys
import threading
import time
from pathlib import Path

import pytest

from outlast.core.errors import Invalid
from outlast.core.inputs import AwaitTask, Poll
from outlast.core.replies import Reply, TaskEnqueuedReply, Work
from outlast.core.units import SECOND
from outlast.engine.inprocess import InProcessTransport
from outlast.protocol.transport import Transport
from outlast.server.embedded import start
from outlast.server.following import FollowingTransport
from outlast.store.base import StoreError
from tests.engine.doubles import a_task, json_of


def test_the_switch_interval_is_short_only_while_an_engine_runs() -> None:
    before = sys.getswitchinterval()

    one = start("memory:")
    two = start("memory:")
    during = sys.getswitchinterval()
    one.stop()
    still = sys.getswitchinterval()
    two.stop()

    assert during == still == pytest.approx(0.0005)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_stopping_twice_is_stopping_once_and_leaves_no_thread(tmp_path: Path) -> None:
    engine = start(f"sqlite:///{tmp_path}/x.db")

    engine.stop()
    engine.stop()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("outlast-")]


def test_who_asks_for_the_address_at_once_gets_it(tmp_path: Path) -> None:
    engine = start(f"sqlite:///{tmp_path}/a.db")
    try:
        assert engine.address.startswith("http://127.0.0.1:")
    finally:
        engine.stop()


def test_an_engine_in_memory_has_no_address_and_does_not_wait_for_one() -> None:
    engine = start("memory:")
    try:
        assert engine.address == ""
    finally:
        engine.stop()


def test_a_second_start_on_the_file_is_a_client_of_the_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    first = start(url)
    try:
        second = start(url)
        reply = asyncio.run(_enqueue_and_close(second.transport, "t-1"))

        assert isinstance(first.transport, InProcessTransport)
        assert isinstance(second.transport, FollowingTransport)
        assert second.address == first.address
        assert reply == TaskEnqueuedReply(task_id="t-1", polled=False)
        second.stop()
    finally:
        first.stop()


def test_a_second_program_on_the_file_may_have_a_namespace_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    first = start(url, namespace="one")
    try:
        second = start(url, namespace="two")
        reply = asyncio.run(_enqueue_and_close(second.transport, "t-1"))
        second.stop()
        listed = asyncio.run(first.transport.list_tasks())

        assert reply == TaskEnqueuedReply(task_id="t-1", polled=False)
        assert listed.tasks == ()
    finally:
        first.stop()


def test_a_client_becomes_the_holder_when_that_has_stopped(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    first = start(url)
    second = start(url)
    asyncio.run(_enqueue_and_keep(second.transport, "t-1"))

    first.stop()
    reply = asyncio.run(_enqueue_and_close(second.transport, "t-2"))
    second.stop()

    assert reply == TaskEnqueuedReply(task_id="t-2", polled=False)
    third = start(url)
    listed = asyncio.run(third.transport.list_tasks())
    third.stop()
    assert sorted(info.task_id for info in listed.tasks) == ["t-1", "t-2"]


def test_what_keeps_an_engine_from_starting_is_raised_where_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database at all" * 100)

    with pytest.raises(StoreError) as refused:
        start(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(Invalid):
        start("mysql://localhost/x")

    assert refused.value.code == "store_damaged"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("outlast-")]


def test_the_environment_says_how_long_a_task_stays_with_a_silent_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_ENGINE__TASK_LEASE", "5s")
    poll = Poll(poll_id="p", worker="w", queues=("default",), task_types=("resize",), slots=1)

    running = start("memory:")
    try:
        work = asyncio.run(_enqueue_and_poll(running.transport, poll))
    finally:
        running.stop()

    assert isinstance(work, Work)
    assert work.tasks[0].lease == 5 * SECOND


def test_a_setting_of_the_environment_that_cannot_be_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_ENGINE__TASK_LEASE", "soon")

    with pytest.raises(Invalid, match="OUTLAST_ENGINE__TASK_LEASE"):
        start("memory:")


def test_a_namespace_of_ones_own_is_known() -> None:
    engine = start("memory:", namespace="shop")

    reply = asyncio.run(_enqueue_and_keep(engine.transport, "t-1"))
    engine.stop()

    assert engine.transport.namespace == "shop"
    assert reply == TaskEnqueuedReply(task_id="t-1", polled=False)


def test_work_waits_no_longer_beside_a_spinning_thread() -> None:
    engine = start("memory:")
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(100))

    spinner = threading.Thread(target=spin)
    spinner.start()
    try:
        began = time.perf_counter()
        asyncio.run(_enqueue_many(engine.transport, 20))
        took = time.perf_counter() - began
    finally:
        stop.set()
        spinner.join()
        engine.stop()

    assert took < 5  # with the interpreter's own interval each hop takes 5 ms and more


def test_a_waiting_caller_is_told_when_the_engine_stops() -> None:
    engine = start("memory:")

    async def work() -> Reply | BaseException:
        await engine.transport.call(a_task(task_id="t-1", input=(json_of(b"1"),)))
        waiting = asyncio.create_task(engine.transport.call(AwaitTask(task_id="t-1")))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(engine.stop)
        return (await asyncio.gather(waiting, return_exceptions=True))[0]

    assert "stop" in str(asyncio.run(work()))


async def _enqueue_and_poll(transport: Transport, poll: Poll) -> Reply:
    await transport.call(a_task())
    return await transport.call(poll)


async def _enqueue_and_close(transport: Transport, task_id: str) -> Reply:
    reply = await _enqueue_and_keep(transport, task_id)
    await transport.close()
    return reply


async def _enqueue_and_keep(transport: Transport, task_id: str) -> Reply:
    reply = await transport.call(a_task(task_id=task_id), timeout=20)
    if isinstance(transport, FollowingTransport):
        await transport._target.close()
    return reply


async def _enqueue_many(transport: Transport, count: int) -> None:
    for _ in range(count):
        await transport.call(a_task())
