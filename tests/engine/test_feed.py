"""The feed through an engine: in order, by cursor, shared by readers, told by commits, kept for a while."""

import asyncio
import random
from contextlib import ExitStack
from typing import Any

import pytest

from outlast.core import limits
from outlast.core.admin import CreateNamespace, Forget
from outlast.core.errors import Busy, Invalid
from outlast.core.events import WorkflowExecutionSignaled
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import CompleteTasks, Completion, EnqueueTasks, TaskFailed, TerminateWorkflow
from outlast.core.replies import Work, WorkflowStarted
from outlast.core.shard.config import ShardConfig
from outlast.core.writes import CommitOutcome
from outlast.engine.feed import WOKEN_AT_ONCE, Feeds
from outlast.engine.inprocess import InProcessTransport
from outlast.protocol.feed import NOW
from outlast.protocol.transport import FeedEvent, FeedPage, Transport
from outlast.store.memory.tables import Tables
from tests.engine.doubles import CountedFeed, FaultyStore, a_poll, a_signal, a_start, a_task, done_with, run, running
from tests.engine.places import new_place


async def read_all(transport: Transport, after: str = "", limit: int = 100) -> list[FeedEvent]:
    """Return every event behind ``after``."""
    events: list[FeedEvent] = []
    while True:
        page = await transport.read_feed(after=after, limit=limit)
        events += page.events
        after = page.next
        if not page.more:
            return events


async def a_run(transport: Transport, workflow_id: str, signals: int = 0) -> str:
    """Start a run, send it signals, and return its run id."""
    started = await transport.call(a_start(workflow_id))
    assert isinstance(started, WorkflowStarted)
    for _ in range(signals):
        await transport.call(a_signal(workflow_id))
    return started.run_id


async def histories(transport: Transport, *workflow_ids: str) -> dict[str, list[Any]]:
    """Return the histories of runs."""
    return {id_: [*(await transport.read_history(id_, "")).events] for id_ in workflow_ids}


def told_of_runs(events: list[FeedEvent]) -> dict[str, list[Any]]:
    """Return the histories that a feed tells."""
    told: dict[str, list[Any]] = {}
    for event in events:
        if event.event_id:
            history = told.setdefault(event.workflow_id, [])
            history.append((event.at, event.event))
            assert event.event_id == len(history)
    return told


def test_the_feed_tells_every_history_and_every_life_of_a_task_in_order() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            await a_run(transport, "o-1", signals=2)
            task = a_task()
            await transport.call(task)
            polled = await transport.call(a_poll(workflow_types=()))
            assert isinstance(polled, Work)
            await transport.call(done_with(polled))
            await a_run(transport, "o-2")
            await transport.call(TerminateWorkflow(workflow_id="o-1", request_id="r"))
            events = await read_all(transport)

            assert told_of_runs(events) == await histories(transport, "o-1", "o-2")
            of_task = [event for event in events if event.task_id]
            assert [event.kind for event in of_task] == ["TaskEnqueued", "TaskAttemptEnded", "TaskClosed"]
            assert {(event.task_id, event.type, event.queue) for event in of_task} == {
                (task.task_id, "resize", "default")
            }
            assert of_task[1].attempt is not None
            assert (of_task[1].attempt.outcome, of_task[2].state) == ("succeeded", "succeeded")
            assert {(event.workflow_id, event.type) for event in events if event.run_id} == {
                ("o-1", "order"),
                ("o-2", "order"),
            }
            assert [event.commit for event in events] == sorted(event.commit for event in events)

    run(work)


def test_every_end_of_a_lease_is_told_once() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            task = a_task()
            await transport.call(task)
            polled = await transport.call(a_poll(workflow_types=()))
            assert isinstance(polled, Work)
            lost = Failure(kind=FailureKind.APPLICATION, type="Lost", message="gone", next_delay=0)
            word = Completion(token=polled.tasks[0].token, outcome=TaskFailed(failure=lost))
            await transport.call(CompleteTasks(worker="w1", items=(word,)))
            again = await transport.call(a_poll(workflow_types=()))
            assert isinstance(again, Work)
            await transport.call(done_with(again))
            events = await read_all(transport)

            ends = [event.attempt for event in events if event.attempt is not None]
            assert [(end.attempt, end.outcome, end.error_type) for end in ends] == [
                (1, "failed", "Lost"),
                (2, "succeeded", ""),
            ]
            assert tuple(ends) == await transport.read_attempts(task.task_id)

    run(work)


@pytest.mark.parametrize("limit", [1, 2, 7, 200])
def test_who_goes_on_behind_any_event_gets_exactly_the_rest(limit: int) -> None:
    async def work() -> None:
        async with running() as (_, transport):
            await a_run(transport, "o-1", signals=3)
            await transport.call(EnqueueTasks(items=tuple(a_task() for _ in range(5))))
            await a_run(transport, "o-2", signals=2)
            whole = await read_all(transport)
            rests = [await read_all(transport, event.cursor, limit) for event in whole]

            assert len({event.cursor for event in whole}) == len(whole)
            assert rests == [whole[n + 1 :] for n in range(len(whole))]

    run(work)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_doubled_over_new_engines_and_commits_without_answers(seed: int) -> None:
    chance = random.Random(seed)
    place = new_place()
    seen: list[FeedEvent] = []

    async def life(last: str, number: int) -> str:
        store = FaultyStore(place)
        store.unknown_happens = chance.random() < 0.5
        async with running(store) as (_, transport):
            reader = asyncio.create_task(watch(transport, last, chance.randint(1, 6)))
            for n in range(4):
                if chance.random() < 0.4:
                    store.outcomes.append(CommitOutcome.UNKNOWN)
                await transport.call(a_start(f"o-{number}-{n}"))
                await transport.call(a_task())
            return await reader

    async def watch(transport: Transport, after: str, wanted: int) -> str:
        while wanted > 0:
            page = await transport.read_feed(after=after, limit=chance.randint(1, 3), wait=5)
            # A reader that dies keeps what it had worked off.
            kept = page.events[: max(1, chance.randint(0, len(page.events)))]
            seen.extend(kept)
            wanted -= len(kept)
            after = kept[-1].cursor if kept else page.next
        return after

    async def work() -> None:
        last = ""
        for number in range(4):
            last = await life(last, number)
        async with running(FaultyStore(place)) as (_, transport):
            seen.extend(await read_all(transport, last))
            whole = await read_all(transport)

            assert seen == whole
            names = [f"o-{number}-{n}" for number in range(4) for n in range(4)]
            assert told_of_runs(whole) == await histories(transport, *names)
            assert sum(event.kind == "TaskEnqueued" for event in whole) == 16

    run(work)


def test_a_held_reader_gets_an_event_with_its_commit() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            page = await transport.read_feed(after=NOW)
            reading = asyncio.create_task(transport.read_feed(after=page.next, wait=20))
            await asyncio.sleep(0.02)
            task = a_task()
            await transport.call(task)
            told = await reading

            assert page.events == ()
            assert [event.task_id for event in told.events] == [task.task_id]
            assert not engine.feeds._readers

    run(work)


def test_a_reader_of_one_namespace_is_not_woken_by_another() -> None:
    async def work() -> None:
        async with running(namespaces=frozenset({"default", "shop"})) as (engine, transport):
            with engine.feeds.watch("shop") as moved, engine.feeds.watch("default") as ours:
                await transport.call(a_task())

                assert ours.is_set()
                assert not moved.is_set()

            shop = InProcessTransport(engine, namespace="shop")
            assert (await shop.read_feed()).events == ()

    run(work)


def test_a_reader_is_told_to_look_after_a_commit_without_an_answer() -> None:
    async def work() -> None:
        store = FaultyStore()
        store.unknown_happens = True
        async with running(store) as (_, transport):
            page = await transport.read_feed(after=NOW)
            reading = asyncio.create_task(transport.read_feed(after=page.next, wait=20))
            await asyncio.sleep(0.02)
            store.outcomes.append(CommitOutcome.UNKNOWN)
            await transport.call(a_start("o-1"))

            assert [event.workflow_id for event in (await reading).events] == ["o-1"]

    run(work)


def test_a_thousand_readers_at_one_place_cost_one_look_into_the_store() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store) as (engine, transport):
            counted = CountedFeed(store)
            engine.feeds._store = counted
            start = (await transport.read_feed(after=NOW)).next
            reads = [
                asyncio.create_task(engine.feeds.wait("default", after=start, limit=100, wait=20)) for _ in range(1_000)
            ]
            while engine.feeds._count < len(reads) or counted.ended < counted.reads:  # noqa: ASYNC110 - nobody tells of readers
                await asyncio.sleep(0.01)
            before = counted.reads
            await transport.call(a_task())
            pages = await asyncio.gather(*reads)

            assert before <= 3
            assert counted.reads <= before + 1
            assert {page.events for page in pages} == {pages[0].events}
            assert len(pages[0].events) == 1

    run(work)


def test_many_readers_are_woken_a_few_at_a_time_and_all_again_for_a_later_commit() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            with ExitStack() as watching:
                events = [watching.enter_context(engine.feeds.watch("default")) for _ in range(4 * WOKEN_AT_ONCE)]
                await transport.call(a_task())
                woken = sum(moved.is_set() for moved in events)
                async with asyncio.timeout(5):
                    await events[-1].wait()
                for moved in events:
                    moved.clear()
                await transport.call(a_task())
                async with asyncio.timeout(5):
                    for moved in events:
                        await moved.wait()

            assert WOKEN_AT_ONCE <= woken < len(events)
            assert not engine.feeds._readers

    run(work)


def test_more_readers_than_may_wait_are_refused() -> None:
    async def work() -> None:
        async with running() as (engine, _):
            with ExitStack() as watching:
                for _ in range(limits.FEED_READERS_MAX):
                    watching.enter_context(engine.feeds.watch("default"))
                with pytest.raises(Busy, match="readers wait") as refused:
                    watching.enter_context(engine.feeds.watch("default"))

            assert refused.value.code == "too_many_streams"
            assert not engine.feeds._readers

    run(work)


def test_stopping_the_engine_answers_who_waits() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            page = await transport.read_feed(after=NOW)
            reading = asyncio.create_task(transport.read_feed(after=page.next, wait=25))
            await asyncio.sleep(0.02)
            await engine.stop()
            async with asyncio.timeout(5):
                assert (await reading).events == ()

    run(work)


def _refusal(page: FeedPage | Invalid) -> Invalid:
    assert isinstance(page, Invalid), page
    return page


async def asked(transport: Transport, after: str) -> FeedPage | Invalid:
    """Return a page, or the refusal that came instead."""
    try:
        return await transport.read_feed(after=after)
    except Invalid as refusal:
        return refusal


@pytest.mark.parametrize("text", ["nonsense", "1-1-zz", "9" * 30 + "-0-0123456789abcdef", "1-1-0123456789abcde", "NOW"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    async def work() -> None:
        async with running() as (_, transport):
            refusal = _refusal(await asked(transport, text))

            assert refusal.code == "invalid_cursor"
            assert text[:20] in refusal.fact
            assert '"now"' in refusal.remedy

    run(work)


@pytest.mark.one_store
def test_a_cursor_of_another_store_or_namespace_is_refused() -> None:
    async def work() -> None:
        async with running(FaultyStore(Tables(identity=7))) as (_, other):
            await other.call(a_task())
            foreign = (await read_all(other))[-1].cursor
        tables = Tables(identity=8)
        async with running(FaultyStore(tables), namespaces=frozenset({"default", "shop"})) as (engine, transport):
            await transport.call(a_task())
            own = (await read_all(transport))[-1].cursor
            of_store = _refusal(await asked(transport, foreign))
            of_namespace = _refusal(await asked(InProcessTransport(engine, namespace="shop"), own))
            assert isinstance(await asked(transport, own), FeedPage)
            tables.incarnation = 2
            engine.feeds.anything_may_have_moved()
            of_older = _refusal(await asked(transport, own))

            assert "another store" in of_store.fact
            assert 'another namespace; this one is "shop"' in of_namespace.fact
            assert "another store" in of_older.fact
            assert {of_store.code, of_namespace.code, of_older.code} == {"invalid_cursor"}

    run(work)


@pytest.mark.one_store
def test_a_cursor_ahead_of_the_store_is_refused() -> None:
    async def work() -> None:
        tables = Tables()
        async with running(FaultyStore(tables)) as (_, transport):
            await transport.call(a_task())
            await transport.call(a_task())
            ahead = (await read_all(transport))[-1].cursor
        async with running(FaultyStore(Tables())) as (_, transport):
            refusal = _refusal(await asked(transport, ahead))

            assert refusal.code == "invalid_cursor"
            assert "an older copy was put back" in refusal.fact

    run(work)


def test_a_place_behind_which_events_were_dropped_is_expired_and_others_go_on() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            for _ in range(6):
                await transport.call(a_task())
            whole = await read_all(transport)
            engine._sweeper.feed_commits = 3
            await engine._sweeper.sweep()
            left = await read_all(transport)
            refused = [event.cursor for event in whole if isinstance(await asked(transport, event.cursor), Invalid)]
            refusal = _refusal(await asked(transport, whole[0].cursor))

            assert left == whole[-len(left) :]
            assert 0 < len(left) < len(whole)
            dropped = len(whole) - len(left)
            # Who has seen all that was dropped has missed nothing.
            assert refused == [event.cursor for event in whole[: dropped - 1]]
            assert refusal.code == "cursor_expired"
            assert f"behind commit {whole[dropped - 1].commit}" in refusal.fact
            assert "without a cursor" in refusal.remedy

    run(work)


def test_old_events_are_dropped_by_age() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(a_task())
            await engine._sweeper.sweep()
            kept = await read_all(transport)
            engine._sweeper.feed_age = -1
            await engine._sweeper.sweep()

            assert len(kept) == 1
            assert await read_all(transport) == []

    run(work)


def test_an_idle_readers_place_moves_on_so_that_it_never_expires() -> None:
    async def work() -> None:
        async with running(namespaces=frozenset({"default", "shop"})) as (engine, transport):
            shop = InProcessTransport(engine, namespace="shop")
            await shop.call(a_task())
            place = (await shop.read_feed()).next
            for _ in range(6):
                await transport.call(a_task())
            place = (await shop.read_feed(after=place)).next
            engine._sweeper.feed_commits = 1
            await engine._sweeper.sweep()
            await shop.call(a_task())

            assert len((await shop.read_feed(after=place)).events) == 1

    run(work)


def test_what_has_been_forgotten_is_shown_as_gone_with_its_ids() -> None:
    async def work() -> None:
        async with running(config=ShardConfig(idempotency_window=1)) as (engine, transport):
            run_id = await a_run(transport, "o-1", signals=1)
            await transport.call(TerminateWorkflow(workflow_id="o-1", request_id="r"))
            await a_run(transport, "o-2")
            before = await read_all(transport)
            await engine._ask(Forget(runs=(run_id,), closed_before=engine.clock.now() + 1), "default")
            after = await read_all(transport)

            gone = [event for event in after if event.gone]
            assert [event.cursor for event in after] == [event.cursor for event in before]
            assert [(event.kind, event.run_id, event.event_id) for event in gone] == [
                ("Forgotten", run_id, n) for n in range(1, len(gone) + 1)
            ]
            assert [event for event in after if not event.gone] == [event for event in before if event.run_id != run_id]

    run(work)


def test_a_namespace_has_a_feed_from_its_first_commit() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(CreateNamespace(name="shop", request_id="r"))
            shop = InProcessTransport(engine, namespace="shop")
            await a_run(shop, "o-1", signals=1)
            events = await read_all(shop)

            assert [type(event.event) for event in events][-1] is WorkflowExecutionSignaled
            assert told_of_runs(events) == await histories(shop, "o-1")
            assert await read_all(transport) == []

    run(work)


def test_reading_far_behind_gives_the_engine_a_turn_between_pages() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(EnqueueTasks(items=tuple(a_task() for _ in range(limits.BATCH_ITEMS_MAX))))
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.create_task(other())
            feeds: Feeds = engine.feeds
            pages, after = 0, ""
            while True:
                page = await feeds.read("default", after=after, limit=100)
                pages, after = pages + 1, page.next
                if not page.more:
                    break
            beside.cancel()

            assert pages == 10
            assert turns >= pages - 1

    run(work)
