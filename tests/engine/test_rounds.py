"""Rounds beside requests: what fails or hangs is begun anew, and whoever asks hears of it."""

import asyncio
import logging

import pytest

from outlast.core.writes import Batch, CommitOutcome
from outlast.engine import frontend
from outlast.engine.rounds import PERIODS, Rounds
from outlast.engine.shard import shell
from outlast.store.base import StoreError
from outlast.store.memory.store import MemoryStore
from tests.engine.doubles import a_task, run, running


async def _until(happened: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await happened.wait()


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_round_that_failed_is_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        twice, calls = asyncio.Event(), list[int]()

        async def fail_once() -> None:
            calls.append(1)
            if len(calls) == 1:
                raise ValueError("no luck")
            twice.set()

        task = asyncio.create_task(Rounds("r", fail_once, every=0.001).run())
        await _until(twice)
        await _cancel(task)

    with caplog.at_level(logging.ERROR, "outlast"):
        run(work)
    assert "the round r failed" in caplog.text
    assert "no luck" in caplog.text


def test_a_store_that_is_away_is_one_line_in_the_log_however_often_it_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        over, calls = asyncio.Event(), list[int]()

        async def away() -> None:
            calls.append(1)
            if len(calls) < 10:
                raise StoreError("unavailable", "It cannot be reached.", remedy="Look at the network.")
            if len(calls) > 11:
                over.set()

        task = asyncio.create_task(Rounds("r", away, every=0.001).run())
        await _until(over)
        await _cancel(task)

    with caplog.at_level(logging.INFO, "outlast.engine"):
        run(work)
    assert [record.getMessage() for record in caplog.records] == [
        "the round r failed and is tried again: It cannot be reached. Look at the network.",
        "the round r works again",
    ]
    assert caplog.records[0].exc_info is None


def test_a_round_that_hangs_is_cut_off_and_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        twice, calls = asyncio.Event(), list[int]()

        async def hang_once() -> None:
            calls.append(1)
            if len(calls) == 1:
                await asyncio.Event().wait()
            twice.set()

        task = asyncio.create_task(Rounds("r", hang_once, every=0.01).run())
        await _until(twice)
        await _cancel(task)

    with caplog.at_level(logging.ERROR, "outlast"):
        run(work)
    assert "the round r hung" in caplog.text


def test_a_long_round_that_beats_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        ended = asyncio.Event()
        rounds: Rounds

        async def long() -> None:
            for _ in range(PERIODS * 4):
                await asyncio.sleep(0.05)
                rounds.beat()
            ended.set()

        rounds = Rounds("r", long, every=0.1)
        task = asyncio.create_task(rounds.run())
        await _until(ended)
        await _cancel(task)

    run(work)


def test_a_round_that_does_not_get_on_is_named_and_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> None: ...

    rounds = Rounds("r", nothing, every=10.0)
    healthy = rounds.overdue()
    rounds.alive_at -= 10.0 * PERIODS + 5

    assert healthy == ""
    assert rounds.age() >= 35
    assert "The round r of the engine has not got on for 35 s" in rounds.overdue()
    rounds.beat()
    assert rounds.overdue() == ""


@pytest.mark.parametrize("name", ["sweep", "keys", "blobs"])
def test_an_engine_whose_round_is_frozen_is_not_ready_and_names_it(name: str) -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            assert engine.health().ready
            frozen = next(each for each in engine.rounds if each.name == name)
            frozen.alive_at -= PERIODS * frozen.every + 2 * frontend.BLOBS_EVERY

            health = engine.health()
            await transport.call(a_task())  # it is served all the same

            assert not health.ready
            assert f"The round {name} " in health.fact
            assert [check for check, fact in health.checks if fact] == [name]

    run(work)


def test_a_round_that_ends_with_an_error_is_told_and_keeps_the_engine_ready() -> None:
    async def work() -> None:
        async with running() as (engine, _):
            sweep = next(each for each in engine.rounds if each.name == "sweep")
            tried = asyncio.Event()

            async def fail() -> None:
                tried.set()
                raise TimeoutError("the bucket does not answer")

            sweep.work = fail
            sweep.call()
            await _until(tried)
            await asyncio.sleep(0)
            health = engine.health()

            assert health.ready
            assert dict(health.checks)["sweep"] == "The round sweep of the engine failed: TimeoutError. See the log."

    run(work)


@pytest.mark.one_store
def test_a_commit_that_never_comes_back_is_told_by_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.go = asyncio.Event()

        async def commit(self, batch: Batch) -> CommitOutcome:
            await self.go.wait()
            return await super().commit(batch)

    async def work() -> None:
        store = Stuck()
        async with running(store) as (engine, transport):
            call = asyncio.create_task(transport.call(a_task()))
            while engine._shell._committing is None:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            before = engine.health()
            monkeypatch.setattr(shell, "COMMIT_SLOW", 0.0)
            stuck = engine.health()
            store.go.set()
            await call

            assert before.ready
            assert not stuck.ready
            assert "A commit has not come back" in stuck.fact
            assert engine.health().ready

    run(work)


@pytest.mark.one_store  # counts the turns of the loop that a commit in memory takes
def test_what_is_due_and_forgotten_is_told_and_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            await transport.call(a_task(delay=30_000_000))
            alarm = engine._shell._alarm
            assert alarm is not None
            alarm.cancel()  # the alarm is lost
            await asyncio.sleep(0.05)
            monkeypatch.setattr(shell, "ALARM_LATE", 0.001)

            forgotten = engine.health()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

            assert "has not been looked at" in forgotten.fact
            assert engine.health().ready

    run(work)
