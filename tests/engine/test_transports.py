"""Both transports, by one suite: within a process from any loop and thread, and over HTTP."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast.core import limits
from outlast.core.commands import CompleteWorkflow
from outlast.core.errors import Conflict, Invalid, NotFound, Refusal, StoreFull, TooLarge, Unavailable
from outlast.core.inputs import (
    AwaitTask,
    AwaitWorkflow,
    CompleteTasks,
    CompleteWorkflowTasks,
    Completion,
    DescribeTask,
    EnqueueTasks,
    StartWorkflows,
    TaskSucceeded,
    TerminateWorkflow,
    WorkflowTaskDone,
)
from outlast.core.payload import reason_of
from outlast.core.replies import (
    CompletionsReply,
    Refused,
    TaskEnqueuedReply,
    TaskInfo,
    TaskOutcomeReply,
    TasksEnqueued,
    TaskState,
    Work,
    WorkflowOutcome,
    WorkflowsStarted,
    WorkflowTasksReply,
)
from outlast.core.writes import CommitOutcome
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.gateway.app import Gateway
from outlast.protocol.transport import Transport
from outlast.sdk.http import HttpTransport
from outlast.server.listener import Listener, bind
from outlast.store.base import StoreError
from outlast.store.blobs import FileBlobStore
from outlast.store.memory.blobs import MemoryBlobStore
from tests.engine.doubles import (
    FaultyStore,
    a_poll,
    a_signal,
    a_start,
    a_task,
    json_of,
    new_id,
    polled_tasks,
    run,
    running,
)

BIG = limits.PAYLOAD_INLINE_BYTES_MAX + 1


@asynccontextmanager
async def reached(
    kind: str, store: FaultyStore | None = None, blobs: MemoryBlobStore | None = None
) -> AsyncGenerator[tuple[Engine, Transport]]:
    """Give an engine and a transport of ``kind`` to it."""
    async with running(store or FaultyStore(), blobs) as (engine, inside):
        if kind == "in process":
            yield engine, inside
            return
        listener = Listener(Gateway(engine), bind("127.0.0.1", 0))
        await listener.start()
        transport = HttpTransport(listener.address)
        try:
            yield engine, transport
        finally:
            await transport.close()
            await listener.stop()


@pytest.fixture(params=["in process", "over http"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_refusal_comes_as_its_exception(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            await transport.call(a_task(key="k"))

            with pytest.raises(NotFound) as missing:
                await transport.call(DescribeTask(task_id="nope"))
            with pytest.raises(Conflict) as reused:
                await transport.call(a_task(key="k", type="other"))

            assert missing.value.code == "task_not_found"
            assert reused.value.code == "idempotency_key_reused"

    run(work)


def test_a_wait_ends_with_a_timeout_and_leaves_nothing_behind(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (engine, transport):
            await transport.call(a_task(task_id="t-1"))

            with pytest.raises(Unavailable) as late:
                await transport.call(AwaitTask(task_id="t-1"), timeout=0.05)
            while engine._shell._open:  # noqa: ASYNC110 - a server notices the end of a connection in its own time
                await asyncio.sleep(0.01)

            assert late.value.code == "timeout"

    run(work)


def test_a_waiting_caller_gets_the_outcome_when_it_comes(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            await transport.call(a_task(task_id="t-1"))
            waiting = asyncio.create_task(transport.call(AwaitTask(task_id="t-1")))
            polled = await transport.call(a_poll())
            assert isinstance(polled, Work)
            done = Completion(token=polled.tasks[0].token, outcome=TaskSucceeded(result=(json_of(b"1"),)))
            await transport.call(CompleteTasks(worker="w1", items=(done,)))

            assert await waiting == TaskOutcomeReply(
                task_id="t-1", state=TaskState.SUCCEEDED, attempt=1, result=(json_of(b"1"),)
            )

    run(work)


def test_a_workflow_runs_from_start_to_outcome(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            await transport.call(a_start("o-1", input=(json_of(b'"in"'),)))
            polled = await transport.call(a_poll())
            assert isinstance(polled, Work)
            turn = polled.workflow_tasks[0]
            command = CompleteWorkflow(result=(json_of(b'"out"'),))
            done = WorkflowTaskDone(token=turn.token, commands=(command,))
            reply = await transport.call(CompleteWorkflowTasks(worker="w1", done=(done,), new_run_ids=(new_id(),)))
            outcome = await transport.call(AwaitWorkflow(workflow_id="o-1"))
            history = await transport.read_history("o-1", "")

            assert [type(event).__name__ for _, event in turn.events] == [
                "WorkflowExecutionStarted",
                "WorkflowTaskScheduled",
                "WorkflowTaskStarted",
            ]
            assert isinstance(reply, WorkflowTasksReply)
            assert isinstance(outcome, WorkflowOutcome)
            assert outcome.result == (json_of(b'"out"'),)
            assert len(history.events) == 5

    run(work)


def test_a_big_payload_goes_to_the_blobs_and_comes_back_whole(kind: str) -> None:
    async def work() -> None:
        blobs = MemoryBlobStore()
        async with reached(kind, blobs=blobs) as (_, transport):
            big = json_of(b'"' + b"x" * BIG + b'"')
            await transport.call(a_task(task_id="t-1", input=(json_of(b"1"), big)))
            polled = await transport.call(a_poll())
            assert isinstance(polled, Work)
            done = Completion(token=polled.tasks[0].token, outcome=TaskSucceeded(result=(big,)))
            await transport.call(CompleteTasks(worker="w1", items=(done,)))
            outcome = await transport.call(AwaitTask(task_id="t-1"))

            assert polled.tasks[0].input == (json_of(b"1"), big)
            assert isinstance(outcome, TaskOutcomeReply)
            assert outcome.result == (big,)
            assert list(blobs.blobs.values()) == [big.data]

    run(work)


def test_a_sweep_keeps_what_rows_name_and_removes_what_a_refused_request_left(tmp_path: Path) -> None:
    async def work() -> None:
        blobs = FileBlobStore(tmp_path / "blobs")
        async with running(None, blobs) as (engine, transport):
            kept, left = (json_of(b'"' + letter * BIG + b'"') for letter in (b"k", b"l"))
            await transport.call(a_task(task_id="t-1", input=(kept,)))
            with pytest.raises(Conflict):
                await transport.call(a_task(task_id="t-1", key="other", input=(left,)))
            young = await engine.sweep_blobs()
            for path in blobs.folder.glob("??/*"):
                os.utime(path, ns=(0, 0))
            old = await engine.sweep_blobs()
            info = await transport.call(a_poll())

            assert (young, old) == (0, 1)
            assert isinstance(info, Work)
            assert info.tasks[0].input == (kept,)

    run(work)


def test_a_payload_over_the_limit_refuses_only_its_own_item(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            await transport.call(EnqueueTasks(items=(a_task(task_id="t-1"), a_task(task_id="t-2"))))
            polled = await transport.call(a_poll())
            assert isinstance(polled, Work)
            results = [b'"' + b"x" * limits.PAYLOAD_BYTES_MAX + b'"', b"2"]
            items = tuple(
                Completion(token=lease.token, outcome=TaskSucceeded(result=(json_of(result),)))
                for lease, result in zip(polled.tasks, results, strict=True)
            )

            reply = await transport.call(CompleteTasks(worker="w1", items=items))

            assert isinstance(reply, CompletionsReply)
            assert isinstance(reply.items[0], Refused)
            assert reply.items[0].code == "payload_too_large"
            assert reply.items[1] is None

    run(work)


def test_a_bad_item_of_a_batch_refuses_only_itself(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            good, bad = a_task(task_id="t-1"), a_task(task_id="t-2", queue="")
            tasks = await transport.call(EnqueueTasks(items=(good, bad, a_task(task_id="t-3"))))
            starts = await transport.call(StartWorkflows(items=(a_start("x" * 1001), a_start("o-1"))))
            nothing = await transport.call(EnqueueTasks(items=(bad,)))

            assert isinstance(tasks, TasksEnqueued)
            assert [type(item) for item in tasks.items] == [TaskEnqueuedReply, Refused, TaskEnqueuedReply]
            assert isinstance(starts, WorkflowsStarted)
            assert [isinstance(item, Refused) for item in starts.items] == [True, False]
            assert isinstance(nothing, TasksEnqueued)
            assert isinstance(nothing.items[0], Refused)
            assert len((await transport.list_tasks()).tasks) == 2

    run(work)


BAD: dict[str, tuple[Any, type[Refusal], str]] = {
    "lone surrogate": (a_task(identity="\ud800"), Invalid, "invalid_request"),
    "number over 64 bits": (a_task(priority=2**70), Invalid, "invalid_request"),
    "negative delay": (a_task(delay=-1), Invalid, "invalid_request"),
    "no type": (a_task(type=""), Invalid, "invalid_request"),
    "line break in a type": (a_task(type="a\nb"), Invalid, "invalid_request"),
    "long key": (a_task(key="k" * 1001), TooLarge, "limit_exceeded"),
    "long turn": (a_start("o", task_timeout=limits.WORKFLOW_TASK_TIMEOUT_MAX + 1), Invalid, "invalid_request"),
    "poll without queue": (a_poll(queues=()), Invalid, "invalid_request"),
    "poll held too long": (a_poll(wait=limits.POLL_WAIT_MAX + 1), Invalid, "invalid_request"),
    "empty batch": (EnqueueTasks(items=()), Invalid, "invalid_request"),
    "large batch": (EnqueueTasks(items=(a_task(),) * 1001), TooLarge, "limit_exceeded"),
    "signal without workflow": (a_signal(""), Invalid, "invalid_request"),
}


@pytest.mark.parametrize(("request_", "family", "code"), BAD.values(), ids=list(BAD))
def test_bad_requests_are_refused_at_the_door(kind: str, request_: Any, family: type[Refusal], code: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            with pytest.raises(family) as refused:
                await transport.call(request_, timeout=10)

            assert refused.value.code == code
            assert refused.value.fact
            assert refused.value.remedy

    run(work)


def test_a_batch_too_large_for_one_body_comes_through_whole(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            big = json_of(b'"' + b"x" * 1_000_000 + b'"')
            items = tuple(a_task(task_id=f"t-{n}", input=(big,)) for n in range(9))

            enqueued = await transport.call(EnqueueTasks(items=items), timeout=20)
            polled = await polled_tasks(transport, len(items))
            done = tuple(Completion(token=lease.token, outcome=TaskSucceeded(result=(big,))) for lease in polled.tasks)
            completed = await transport.call(CompleteTasks(worker="w1", items=done), timeout=20)

            assert enqueued == TasksEnqueued(
                items=tuple(TaskEnqueuedReply(task_id=item.task_id, polled=False) for item in items)
            )
            assert completed == CompletionsReply(items=(None,) * len(done))
            assert len(done) == 9

    run(work)


def test_a_full_store_is_told_at_once(kind: str) -> None:
    async def work() -> None:
        store = FaultyStore()
        async with reached(kind, store) as (_, transport):
            store.outcomes.append(CommitOutcome.FULL)

            with pytest.raises(StoreFull):
                await transport.call(a_task(), timeout=10)

    run(work)


def test_a_held_read_gives_the_next_event_or_that_there_is_none(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            await transport.call(a_start("o-1"))

            held = asyncio.create_task(transport.read_history("o-1", "", first_event_id=2, wait=10))
            await transport.call(a_signal("o-1"))
            page = await held
            empty = await transport.read_history("o-1", "", first_event_id=3, wait=0.02)
            await transport.call(TerminateWorkflow(workflow_id="o-1", request_id=new_id()))
            closed = await transport.read_history("o-1", "", first_event_id=4, wait=10)

            assert [type(event).__name__ for _, event in page.events] == ["WorkflowExecutionSignaled"]
            assert (page.closed, empty.events, empty.closed) == (False, (), False)
            assert (closed.events, closed.closed) == ((), True)

    run(work)


def test_a_long_history_comes_in_pages_that_join(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (_, transport):
            await transport.call(a_start("o-1"))
            signals = [a_signal("o-1", input=(json_of(b'"' + b"x" * 3000 + b'"'),)) for _ in range(1200)]
            for n in range(0, len(signals), 300):
                await asyncio.gather(*(transport.call(signal) for signal in signals[n : n + 300]))
            events: list[Any] = []
            following, pages = 1, 0
            while following:
                page = await transport.read_history("o-1", "", first_event_id=following)
                assert page.first_event_id == following
                events += page.events
                following, pages = page.next_event_id, pages + 1
            polled = await transport.call(a_poll())
            assert isinstance(polled, Work)
            turn = polled.workflow_tasks[0]

            assert len(events) == 1201
            assert pages > 1
            # All of it or a first page and where to read on, and in any case the shown pair, which stands in no page.
            assert turn.next_event_id_to_read == (0 if len(turn.events) == 1203 else len(turn.events) - 1)
            assert [type(event).__name__ for _, event in turn.events[-2:]] == [
                "WorkflowTaskScheduled",
                "WorkflowTaskStarted",
            ]

    run(work)


def test_many_callers_on_many_threads_share_one_engine() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            ids: list[str] = []

            async def enqueue() -> None:
                replies = await asyncio.gather(*(transport.call(a_task()) for _ in range(50)))
                ids.extend(reply.task_id for reply in replies if isinstance(reply, TaskEnqueuedReply))

            threads = [threading.Thread(target=asyncio.run, args=(enqueue(),)) for _ in range(8)]
            for thread in threads:
                thread.start()
            await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))

            assert len(set(ids)) == 400

    run(work)


def test_a_caller_whose_loop_has_closed_gives_its_leases_back() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            other = InProcessTransport(engine, namespace="default")

            def poll_and_leave() -> None:
                loop = asyncio.new_event_loop()
                call = loop.create_task(other.call(a_poll(worker="gone")))
                loop.run_until_complete(asyncio.sleep(0.05))
                call.cancel()
                loop.run_until_complete(asyncio.wait({call}))
                loop.close()

            await asyncio.to_thread(poll_and_leave)
            await transport.call(a_task(task_id="t-1"))
            polled = await transport.call(a_poll(worker="w2"))

            assert isinstance(polled, Work)
            assert [(lease.token.task_id, lease.attempt) for lease in polled.tasks] == [("t-1", 1)]

    run(work)


def test_an_unknown_namespace_is_not_found(kind: str) -> None:
    async def work() -> None:
        async with reached(kind) as (engine, transport):
            other: Transport = InProcessTransport(engine, namespace="other")
            if isinstance(transport, HttpTransport):
                other = HttpTransport(transport.address, namespace="other")

            with pytest.raises(NotFound) as missing:
                await other.call(a_task(), timeout=10)
            await other.close()

            assert missing.value.code == "namespace_not_found"

    run(work)


def test_what_belongs_to_another_namespace_is_not_found() -> None:
    async def work() -> None:
        async with running(namespaces=frozenset({"default", "other"})) as (engine, transport):
            other = InProcessTransport(engine, namespace="other")
            await transport.call(a_start("o-1"))
            await transport.call(a_task(task_id="t-1"))
            run_id = (await transport.list_runs()).runs[0].run_id

            for reading in (
                other.read_history("o-1", ""),
                other.read_history("o-1", run_id),
                other.read_attempts("t-1"),
            ):
                with pytest.raises(NotFound):
                    await reading
            with pytest.raises(NotFound):
                await other.call(DescribeTask(task_id="t-1"))
            assert (await other.list_runs()).runs == ()
            assert (await other.list_tasks()).tasks == ()

    run(work)


def test_data_that_is_missing_from_the_blobs_is_said_so_and_keeps_no_other_work_back() -> None:
    async def work() -> None:
        blobs = MemoryBlobStore()
        async with running(FaultyStore(), blobs) as (_, transport):
            await transport.call(a_task(task_id="t-1", input=(json_of(b"x" * BIG),)))
            await transport.call(a_task(task_id="t-2", input=(json_of(b"1"),)))
            blobs.blobs.clear()

            got = await polled_tasks(transport, 2)

            whole, lost = sorted((lease.input[0] for lease in got.tasks), key=lambda payload: payload.size)
            assert whole == json_of(b"1")
            assert reason_of(lost)[0] == "store_damaged"
            assert lost.blob in reason_of(lost)[1]

    run(work)


def test_work_waits_while_the_blobs_cannot_be_asked() -> None:
    class Away(MemoryBlobStore):
        async def get(self, digest: str) -> bytes:
            raise StoreError("unavailable", "The bucket does not answer.", remedy="Wait.")

    async def work() -> None:
        async with running(FaultyStore(), Away()) as (_, transport):
            await transport.call(a_task(task_id="t-1", input=(json_of(b"x" * BIG),)))

            with pytest.raises(Refusal) as refused:
                await transport.call(a_poll(), timeout=5)
            info = await transport.call(DescribeTask(task_id="t-1"))

            assert refused.value.code == "unavailable"
            assert isinstance(info, TaskInfo)
            assert info.attempt == 0

    run(work)


def test_a_server_that_is_not_there_is_told_after_the_timeout() -> None:
    async def work() -> None:
        transport = HttpTransport("http://127.0.0.1:1")

        with pytest.raises(Unavailable) as refused:
            await transport.call(a_task(), timeout=0.2)
        await transport.close()

        assert refused.value.code == "timeout"
        assert "127.0.0.1:1" in refused.value.fact

    run(work)


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(Invalid) as refused:
        HttpTransport("127.0.0.1:7070")

    assert "http://" in refused.value.remedy
