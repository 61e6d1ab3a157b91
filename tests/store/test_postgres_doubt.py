"""Commits whose end is not known, owners that were followed, and databases that are not the one they were."""

import asyncio
import os
import signal
import time
from collections.abc import Generator
from typing import Any

import asyncpg
import pytest

from outlast.core.units import Fence
from outlast.core.writes import CommitOutcome
from outlast.store.base import StoreError
from outlast.store.postgres import claiming, connection
from outlast.store.postgres.connection import Session
from outlast.store.postgres.store import PostgresStore
from tests.store.cluster import Cluster
from tests.store.kept import Kept
from tests.store.rows import dedup, page, run_row, task_row

COMMITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


@pytest.fixture
def url(cluster: Cluster) -> Generator[str]:
    """The address of a database in which nothing is."""
    with cluster.database() as address:
        yield address


@pytest.fixture
def owner(url: str) -> Generator[Kept]:
    """A store whose shard has been claimed."""
    with Kept(lambda: PostgresStore(url, allow_weak=True)) as kept:
        kept.claim()
        yield kept


def store_of(kept: Kept) -> PostgresStore:
    assert isinstance(kept.store, PostgresStore)
    return kept.store


def session_of(kept: Kept) -> Session:
    opened = store_of(kept)._owner
    assert opened is not None
    return opened.session


def say(kept: Kept, url: str, statement: str) -> Any:
    """Run a statement in a session of its own; return its first value."""

    async def ask() -> Any:
        session = await asyncpg.connect(url)
        try:
            return await session.fetchval(statement)
        finally:
            await session.close()

    return kept.run(ask())


def raise_at_commits(kept: Kept, url: str, what: str) -> None:
    """Let the database do something as each commit is made."""
    body = f"CREATE FUNCTION public.trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NULL; END $$"
    say(kept, url, body)
    trigger = "CREATE CONSTRAINT TRIGGER trouble AFTER UPDATE ON outlast.shards DEFERRABLE INITIALLY DEFERRED"
    when = "WHEN (new.last_number > old.last_number)"  # claims go through
    say(kept, url, f"{trigger} FOR EACH ROW {when} EXECUTE FUNCTION public.trouble()")


def end_trouble(kept: Kept, url: str) -> None:
    say(kept, url, "DROP FUNCTION public.trouble() CASCADE")


def test_a_commit_that_comes_with_a_warning_is_in_doubt(owner: Kept, url: str) -> None:
    raise_at_commits(owner, url, "RAISE WARNING 'the standby did not answer'")
    outcome = owner.commit(owner.next_batch(run_row()))
    end_trouble(owner, url)

    assert outcome is CommitOutcome.UNKNOWN
    assert "the standby did not answer" in store_of(owner).last_fault
    assert owner.claim().last_number == 1  # it did happen, as it turns out
    assert owner.read_run()


def test_a_full_disk_is_definite_and_the_session_goes_on(owner: Kept, url: str) -> None:
    raise_at_commits(owner, url, "RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'")
    outcome = owner.commit(owner.next_batch(run_row()))
    end_trouble(owner, url)

    assert outcome is CommitOutcome.FULL
    owner.write(run_row())


def test_a_lock_of_somebody_else_is_definite(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.WRITER, "lock_timeout", "100")

    async def locked(kept: Kept) -> CommitOutcome:
        session = await asyncpg.connect(url)
        try:
            async with session.transaction():
                await session.execute("LOCK TABLE outlast.runs")
                return await kept.store.commit(kept.next_batch(run_row()))
        finally:
            await session.close()

    with Kept(lambda: PostgresStore(url, allow_weak=True)) as kept:
        kept.claim()
        assert kept.run(locked(kept)) is CommitOutcome.LOCKED
        kept.write(run_row())


def test_an_owner_whose_session_was_ended_is_in_doubt_until_it_claims_again(owner: Kept, url: str) -> None:
    name = claiming.name_of(0)
    say(owner, url, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{name}'")

    assert owner.commit(owner.next_batch(run_row())) is CommitOutcome.UNKNOWN
    assert owner.commit(owner.next_batch(run_row())) is CommitOutcome.UNKNOWN
    owner.claim()
    owner.write(run_row())


def test_a_commit_that_is_cancelled_on_the_way_is_in_doubt(owner: Kept, url: str) -> None:
    raise_at_commits(owner, url, "PERFORM pg_sleep(30)")

    async def cancelled() -> bool:
        commit = asyncio.ensure_future(owner.store.commit(owner.next_batch(run_row())))
        watch = await asyncpg.connect(url)
        while not await watch.fetchval(COMMITS):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
        await watch.close()
        commit.cancel()
        try:
            await commit
        except asyncio.CancelledError:
            return True
        return False

    assert owner.run(cancelled())
    assert owner.commit(owner.next_batch()) is CommitOutcome.UNKNOWN
    claim = owner.claim()  # it does not wait for what the other session is at: it ends that
    end_trouble(owner, url)
    assert (claim.last_number, owner.find_run()) == (0, None)


def test_a_claim_ends_the_session_of_an_owner_that_stands_in_the_middle_of_a_commit(owner: Kept, url: str) -> None:
    old = owner.fence

    async def stalled() -> Session:
        session = await asyncpg.connect(url, server_settings={"application_name": claiming.name_of(0)})
        await session.execute("BEGIN")
        await session.execute("UPDATE outlast.shards SET last_number = 1 WHERE shard = 0 AND epoch = 1")
        await session.execute("INSERT INTO outlast.history VALUES (0, 'run-1', 1, 1, 'zombie')")
        return session

    session = owner.run(stalled())
    with Kept(lambda: PostgresStore(url, allow_weak=True)) as next_owner:
        began = time.monotonic()
        claim = next_owner.claim("b")

        assert time.monotonic() - began < 10
        assert claim.fence > old
        assert claim.last_number == 0
        next_owner.write(run_row(), page(blob=b"b's own"))
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            owner.run(session.execute("COMMIT"))
        session.terminate()
        assert owner.run(owner.store.commit(owner.next_batch(task_row()))) is CommitOutcome.UNKNOWN
        assert next_owner.find_task() is None


def test_a_followed_owner_with_a_session_that_lives_on_is_refused(owner: Kept, url: str) -> None:
    # Its session has another name here, so that the claim does not find it: the fence alone must hold.
    session = session_of(owner)
    owner.run(session.execute("SET application_name = 'unseen'"))
    with Kept(lambda: PostgresStore(url, allow_weak=True)) as next_owner:
        next_owner.claim("b")
        next_owner.write(run_row())

        assert owner.commit(owner.next_batch(run_row(state=b"fork"))) is CommitOutcome.REFUSED
        assert next_owner.read_run().state == b"state"


@pytest.mark.parametrize("change", ["timeline = timeline - 1", "cluster = cluster - 1", "number = number + 1"])
def test_a_database_with_another_history_raises_the_incarnation(owner: Kept, url: str, change: str) -> None:
    owner.write(run_row())
    say(owner, url, f"UPDATE outlast.meta SET {change}")

    claim = owner.claim()

    assert claim.fence == Fence(2, 2)
    assert owner.claim().fence == Fence(2, 3)
    owner.write(run_row("run-2"))


def test_a_claim_without_a_shard_row_says_that_it_is_gone(owner: Kept, url: str) -> None:
    say(owner, url, "DELETE FROM outlast.shards")

    with pytest.raises(StoreError) as caught:
        owner.claim()

    assert caught.value.code == "store_damaged"


@pytest.mark.slow
def test_what_was_acknowledged_outlives_a_crash_of_the_server(owner: Kept, url: str) -> None:
    owner.write(run_row(), task_row())
    backend = session_of(owner).get_server_pid()
    os.kill(backend, signal.SIGKILL)  # one of its processes: the server ends all others and recovers

    assert owner.commit(owner.next_batch(run_row("run-2"))) is CommitOutcome.UNKNOWN
    until = time.monotonic() + 60
    while True:
        try:
            claim = owner.claim()
            break
        except StoreError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)

    assert claim.last_number == 1
    assert (owner.read_run().run_id, owner.find_run("run-2")) == ("run-1", None)
    owner.write(run_row("run-2"))


def test_a_claim_reads_with_no_session_from_before(owner: Kept) -> None:
    store = store_of(owner)
    owner.write(run_row())
    owner.read_run()
    readers = store._readers
    assert readers is not None
    before = set(readers._free)

    owner.claim()
    owner.read_run()

    assert before
    assert all(session.is_closed() for session in before)


def test_a_session_to_another_server_than_the_owners_is_not_read_with(owner: Kept) -> None:
    # As after a failover, when the name leads to the new primary while the owner still speaks to the old one.
    store = store_of(owner)
    owner.write(run_row())
    timeline, *rest = session_history(store)
    store._history = (timeline + 1, rest[0], rest[1])
    assert store._readers is not None
    owner.run(store._readers.renew())

    with pytest.raises(StoreError, match="is another server now") as caught:
        owner.read_run()

    assert caught.value.code == "unavailable"
    owner.claim()
    assert owner.read_run().run_id == "run-1"


def session_history(store: PostgresStore) -> tuple[int, int, int]:
    assert store._history is not None
    return store._history


def test_an_owner_that_was_followed_forgets_nothing(owner: Kept, url: str) -> None:
    owner.write(dedup(period=1))
    with Kept(lambda: PostgresStore(url, allow_weak=True)) as next_owner:
        next_owner.claim("b")

        assert owner.run(owner.store.forget_dedup(before_period=5)) == 0
        assert next_owner.run(next_owner.store.forget_dedup(before_period=5)) == 1


def test_of_several_that_claim_at_once_one_has_the_shard_and_the_others_live_to_wait(url: str) -> None:
    async def claims() -> list[str]:
        stores = [PostgresStore(url, allow_weak=True) for _ in range(5)]
        await asyncio.gather(*(store.open() for store in stores))
        now, lease = time.time_ns(), 3_600_000_000_000

        async def claim(number: int, now: int) -> str:
            try:
                await stores[number].claim(owner=f"owner-{number}", now=now, lease_until=now + lease)
            except StoreError as error:
                return error.code
            return "claimed"

        said = sorted(await asyncio.gather(*(claim(number, now) for number in range(5))))
        said.append(await claim(0, now + 2 * lease))  # a loser, as a rule, on the session that it had
        await asyncio.gather(*(store.close() for store in stores))
        return said

    with asyncio.Runner() as runner:
        assert runner.run(claims()) == ["claimed", *["not_owner"] * 4, "claimed"]
