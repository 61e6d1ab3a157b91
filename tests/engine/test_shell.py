"""The shell over a store that fails as told: what is acknowledged, what is refused, and how it comes back."""

import asyncio
import time
from typing import Any

import pytest

from outlast.core import limits
from outlast.core.errors import Busy, NotFound, Unavailable
from outlast.core.inputs import Begin, DescribeTask, EnqueueTask, EnqueueTasks
from outlast.core.replies import CompletionsReply, Refused, TaskEnqueuedReply, TaskInfo, TaskState, Work
from outlast.core.shard.core import ShardCore
from outlast.core.units import HOUR, MINUTE, Instant
from outlast.core.writes import CommitOutcome
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.engine.ports import NobodyWatches
from outlast.engine.shard.mailbox import Mailbox
from outlast.engine.ticket import NobodyWaits
from outlast.server.clock import GuardedClock
from outlast.store.base import StoreError
from outlast.store.memory.blobs import MemoryBlobStore
from outlast.store.memory.store import MemoryStore
from tests.engine.doubles import ENTROPY, FaultyStore, a_poll, a_start, a_task, done_with, polled_tasks, run, running
from tests.engine.places import new_place


def test_no_reply_leaves_before_its_commit_has_returned() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (_, transport):
            store.gate.clear()

            call = asyncio.create_task(transport.call(a_task()))
            for _ in range(200):
                await asyncio.sleep(0)
            held = not call.done()
            store.gate.set()
            reply = await call

            assert held
            assert isinstance(reply, TaskEnqueuedReply)

    run(work)


@pytest.mark.parametrize("happened", [True, False], ids=["it happened", "it did not happen"])
def test_a_commit_of_unknown_end_is_sent_again_and_happens_once(happened: bool) -> None:
    async def work() -> None:
        store = FaultyStore()
        store.unknown_happens = happened
        async with running(store) as (_, transport):
            store.outcomes.append(CommitOutcome.UNKNOWN)

            reply = await transport.call(a_task(key="k"))

            assert isinstance(reply, TaskEnqueuedReply)
            assert reply.replayed is happened
            assert len((await transport.list_tasks()).tasks) == 1
            assert len(store.claims) == 2

    run(work)


def test_a_commit_that_raises_is_of_unknown_end(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (_, transport):
            store.outcomes.append(RuntimeError("the disk is gone"))

            reply = await transport.call(a_task())

            assert isinstance(reply, TaskEnqueuedReply)
            assert store.claims[1] > store.claims[0]

    run(work)
    assert "its end is not known" in caplog.text


def test_a_fenced_owner_claims_again_under_a_higher_epoch() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (_, transport):
            store.outcomes.append(CommitOutcome.REFUSED)

            await transport.call(a_task())

            assert [fence.epoch for fence in store.claims] == [1, 2]

    run(work)


def test_a_claim_that_fails_is_tried_until_it_is_had() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (_, transport):
            store.outcomes.append(CommitOutcome.UNKNOWN)
            store.claim_faults.extend([StoreError("unavailable", "The disk is away.", remedy="Wait.")] * 2)

            reply = await transport.call(a_task())

            assert isinstance(reply, TaskEnqueuedReply)

    run(work)


def test_a_store_that_will_not_be_claimed_is_opened_anew() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            told: list[int] = []
            engine.on_reopen = lambda: told.append(store.opened)
            store.outcomes.append(CommitOutcome.UNKNOWN)
            store.claim_faults.extend([StoreError("unavailable", "The disk failed to sync.", remedy="Look.")] * 3)

            reply = await transport.call(a_task())

            assert isinstance(reply, TaskEnqueuedReply)
            assert told == [2, 3]

    run(work)


@pytest.mark.parametrize("inline", [True, False], ids=["read inline", "read by a task"])
def test_a_load_that_fails_drops_the_core_and_loses_nothing(inline: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        store = FaultyStore(inline=inline)
        async with running(store) as (_, transport):
            kept = await transport.call(a_task())
            assert isinstance(kept, TaskEnqueuedReply)
            store.load_faults.append(RuntimeError("a page cannot be read"))

            with pytest.raises(NotFound):
                await transport.call(DescribeTask(task_id="that nobody has made"))
            info = await transport.call(DescribeTask(task_id=kept.task_id))

            assert isinstance(info, TaskInfo)
            assert len(store.claims) == 2

    run(work)
    assert "dropped and loaded again" in caplog.text


def test_a_request_that_breaks_the_core_is_answered_once_and_hurts_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = ShardCore.handle

    def breaking(core: ShardCore, ticket: object, request: Any, **settings: Any) -> None:
        if isinstance(request, EnqueueTask) and request.type == "poison":
            raise ZeroDivisionError
        handle(core, ticket, request, **settings)

    monkeypatch.setattr(ShardCore, "handle", breaking)

    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (_, transport):
            poison = asyncio.create_task(transport.call(a_task(type="poison")))
            others = [asyncio.create_task(transport.call(a_task())) for _ in range(20)]

            with pytest.raises(Unavailable) as refused:
                await poison
            replies = await asyncio.gather(*others)

            assert refused.value.code == "internal"
            assert all(isinstance(reply, TaskEnqueuedReply) for reply in replies)
            assert len((await transport.list_tasks()).tasks) == 20
            assert len(store.claims) == 2

    run(work)
    assert "ZeroDivisionError" in caplog.text


def test_a_clock_that_jumps_ahead_ends_no_lease(caplog: pytest.LogCaptureFixture) -> None:
    class Leaping:
        def __init__(self) -> None:
            self.ahead = 0

        def now(self) -> Instant:
            return Instant(time.time_ns() + self.ahead)

        @property
        def stepped(self) -> int:
            return self.ahead

    async def work() -> None:
        clock = Leaping()
        engine = Engine(new_place().store(), MemoryBlobStore(), clock=clock, entropy=ENTROPY)
        await engine.start()
        transport = InProcessTransport(engine, namespace="default")
        await transport.call(EnqueueTasks(items=tuple(a_task() for _ in range(100))))
        polled = await polled_tasks(transport, 100, slots=100)

        clock.ahead = 2 * HOUR
        await transport.call(a_poll(wait=50_000_000, worker="w2"))
        again = await transport.call(a_poll(wait=50_000_000, worker="w2", slots=100))
        reply = await transport.call(done_with(polled))
        await engine.stop()

        assert again == Work()
        assert reply == CompletionsReply(items=(None,) * 100)

    run(work)


def test_only_new_work_is_told_busy_when_the_mailbox_is_full() -> None:
    mailbox = Mailbox(room=2, reserved=2)
    enqueue, begin = a_task(), Begin(tokens=(), worker="w1")

    taken = [mailbox.put(NobodyWaits(), enqueue, namespace="default", principal="") for _ in range(3)]
    reserved = [mailbox.put(NobodyWaits(), begin, namespace="default", principal="") for _ in range(3)]

    assert taken == [True, True, False]
    assert reserved == [True, True, False]


def test_a_full_mailbox_refuses_with_busy_and_leaves_no_trace() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            engine._shell._mailbox = Mailbox(room=1, reserved=0)

            calls = [asyncio.create_task(transport.call(a_task())) for _ in range(5)]
            replies = await asyncio.gather(*calls, return_exceptions=True)

            busy = [reply for reply in replies if isinstance(reply, Busy)]
            enqueued = [reply for reply in replies if isinstance(reply, TaskEnqueuedReply)]
            assert busy
            assert busy[0].code == "busy"
            assert len((await transport.list_tasks()).tasks) == len(enqueued) == 5 - len(busy)

    run(work)


def test_leases_of_a_poll_whose_caller_has_gone_are_handed_back_uncounted() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (_, transport):
            enqueued = await transport.call(a_task())
            assert isinstance(enqueued, TaskEnqueuedReply)
            store.gate.clear()
            poll = asyncio.create_task(transport.call(a_poll()))
            for _ in range(50):
                await asyncio.sleep(0)

            poll.cancel()
            await asyncio.wait({poll})
            store.gate.set()
            work_ = await transport.call(a_poll(worker="w2"))

            assert isinstance(work_, Work)
            assert [lease.token.task_id for lease in work_.tasks] == [enqueued.task_id]
            assert work_.tasks[0].attempt == 1

    run(work)


def test_a_stop_answers_waiting_polls_with_stop() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            poll = asyncio.create_task(transport.call(a_poll()))
            for _ in range(50):
                await asyncio.sleep(0)

            await engine.stop()

            assert await poll == Work(stop=True)

    run(work)


def test_a_poll_at_an_engine_that_is_stopping_is_told_to_stop_and_leases_nothing() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            await transport.call(a_task(task_id="t-1"))
            store.gate.clear()
            last = asyncio.create_task(transport.call(a_task()))  # of a new id, which no store is asked for
            await asyncio.sleep(0)
            stop = asyncio.create_task(engine.stop())
            await asyncio.sleep(0)

            polled = await transport.call(a_poll())
            store.gate.set()
            await asyncio.gather(last, stop)

            assert polled == Work(stop=True)
            assert set((await store.place.found()).tasks.values()) == {TaskState.ENQUEUED}

    run(work)


def test_what_a_worker_holds_when_the_engine_stops_is_its_own_in_the_next_engine() -> None:
    async def work() -> None:
        first = FaultyStore()
        async with running(first) as (_, transport):
            await transport.call(a_task(task_id="t-1"))
            held = await transport.call(a_poll())
            assert isinstance(held, Work)
        async with running(FaultyStore(first.place)) as (_, transport):
            other = await transport.call(a_poll(worker="w2", wait=20_000_000))
            reply = await transport.call(done_with(held))

            assert other == Work()
            assert reply == CompletionsReply(items=(None,))
            assert (await first.place.found()).tasks["t-1"] is TaskState.SUCCEEDED

    run(work)


def test_a_stop_commits_what_is_gathered_and_gives_the_shard_back() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            calls = [asyncio.create_task(transport.call(a_task())) for _ in range(20)]
            for _ in range(5):
                await asyncio.sleep(0)

            await engine.stop()

            replies = await asyncio.gather(*calls, return_exceptions=True)
            acked = [reply for reply in replies if isinstance(reply, TaskEnqueuedReply)]
            assert len(acked) == 20
            assert store.released == store.claims
        async with running(FaultyStore(store.place)) as (_, transport):
            assert len((await transport.list_tasks()).tasks) == 20

    run(work)


def test_a_stopped_engine_refuses_at_once() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await engine.stop()

            with pytest.raises(Unavailable) as refused:
                await transport.call(a_task())

            assert "stop" in refused.value.fact

    run(work)


def test_a_poll_is_answered_empty_when_its_wait_has_passed() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            assert await transport.call(a_poll(wait=20_000_000)) == Work()

    run(work)


def test_work_that_arrives_wakes_a_waiting_poll() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            poll = asyncio.create_task(transport.call(a_poll()))
            for _ in range(20):
                await asyncio.sleep(0)

            await transport.call(a_start("w-1"))
            polled = await poll

            assert isinstance(polled, Work)
            assert polled.workflow_tasks[0].workflow_id == "w-1"

    run(work)


@pytest.mark.parametrize("inline", [True, False], ids=["read inline", "read by a task"])
def test_a_worker_of_many_types_gets_work_of_any_of_them_though_nothing_else_happens(inline: bool) -> None:
    async def work() -> None:
        async with running(FaultyStore(inline=inline)) as (_, transport):
            types = tuple(f"type-{n}" for n in range(20 * limits.LOADS_A_TURN))
            held = asyncio.create_task(transport.call(a_poll(task_types=types, wait=MINUTE)))
            for _ in range(200):
                await asyncio.sleep(0)

            for number, type_name in enumerate([types[-1], types[0]]):
                made = await transport.call(a_task(type=type_name))
                polled = await asyncio.wait_for(held, 5)
                held = asyncio.create_task(
                    transport.call(a_poll(task_types=types, wait=MINUTE, poll_id=f"the next {number}"))
                )

                assert isinstance(made, TaskEnqueuedReply)
                assert isinstance(polled, Work)
                assert [lease.token.task_id for lease in polled.tasks] == [made.task_id]
            held.cancel()

    run(work)


def test_an_observer_hears_of_claims_commits_and_step_downs() -> None:
    class Watcher(NobodyWatches):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def on_claim(self, epoch: int) -> None:
            self.heard.append(f"claim {epoch}")

        def on_step_down(self, reason: str) -> None:
            self.heard.append("step down")

        def on_commit(self, outcome: CommitOutcome, *, rows: int, seconds: float) -> None:
            self.heard.append(outcome.value)

    watcher = Watcher()

    async def work() -> None:
        store = FaultyStore()
        store.outcomes.append(CommitOutcome.UNKNOWN)
        async with running(store, observer=watcher) as (_, transport):
            await transport.call(a_task())

    run(work)
    assert watcher.heard[:4] == ["claim 1", "unknown", "step down", "claim 2"]
    assert "done" in watcher.heard


def test_a_new_owner_finds_what_the_last_one_acknowledged() -> None:
    async def work() -> None:
        first = FaultyStore()
        async with running(first) as (_, transport):
            reply = await transport.call(a_task(task_id="t-1"))
            assert not isinstance(reply, Refused)
        async with running(FaultyStore(first.place)) as (_, transport):
            polled = await transport.call(a_poll())

            assert isinstance(polled, Work)
            assert [lease.token.task_id for lease in polled.tasks] == ["t-1"]

    run(work)


def test_a_store_alone_serves_a_whole_task() -> None:
    async def work() -> None:
        async with running(new_place().store()) as (_, transport):
            await transport.call(a_task(task_id="t-1"))
            polled = await transport.call(a_poll())
            assert isinstance(polled, Work)

            assert await transport.call(done_with(polled)) == CompletionsReply(items=(None,))

    run(work)


@pytest.mark.one_store
def test_an_engine_that_takes_any_namespace_takes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMESPACES_MAX", 3)
    engine = Engine(MemoryStore(), MemoryBlobStore(), clock=GuardedClock(), entropy=ENTROPY, any_namespace=True)

    known = [engine.knows(name) for name in ("default", "", "a\nb", "x" * 300, "one", "two", "three", "one")]

    assert known == [True, False, False, False, True, True, False, True]
