"""Outboxes in databases of users: how they are made, and that what goes out of them is durable there."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from outlast import App
from outlast.core.inputs import EnqueueTask, Request
from outlast.core.replies import Refused, Reply
from outlast.protocol.intake import DOUBT_AFTER, REQUEST, HandedOver, body_of, hand_over
from outlast.sdk.misuse import Misuse
from outlast.sdk.outbox_postgres import PostgresOutbox
from outlast.sdk.outbox_sqlite import SqliteOutbox
from tests.store.cluster import Cluster


def test_a_row_in_sqlite_goes_out_with_a_commit_that_is_synced(tmp_path: Path) -> None:
    async def setting() -> int:
        box = SqliteOutbox(str(tmp_path / "shop.db"), "default")
        await box.open()
        assert box._connection is not None
        (full,) = box._connection.execute("PRAGMA synchronous").fetchone()
        await box.close()
        return int(full)

    assert asyncio.run(setting()) == 2  # FULL: of the user's own connection it may be anything


def test_the_file_of_an_engine_is_not_even_opened_as_an_outbox(tmp_path: Path) -> None:
    """Given a file that another app's engine had, when it is named as an outbox, then it is known by the lock beside it."""
    with App(f"sqlite:///{tmp_path}/work.db"):
        pass
    (tmp_path / "link.db").symlink_to(tmp_path / "work.db")

    for name in ("work.db", "link.db"):
        box = SqliteOutbox(str(tmp_path / name), "default")
        with pytest.raises(Misuse, match="engine's own"):
            asyncio.run(box.open())
        assert box._connection is None


@pytest.mark.parametrize("content", ["", "4711", "[1]", '{"by": "me"}'])
def test_a_lock_of_something_else_beside_a_file_does_not_hinder_an_outbox(content: str, tmp_path: Path) -> None:
    (tmp_path / "shop.db.lock").write_text(content)

    async def opened() -> bool:
        box = SqliteOutbox(str(tmp_path / "shop.db"), "default")
        await box.open()
        await box.close()
        return (tmp_path / "shop.db").exists()

    assert asyncio.run(opened())


@pytest.mark.parametrize("code", ["busy", "rate_limited", "unavailable"])
@pytest.mark.parametrize("ago", [0, 60, int(DOUBT_AFTER) + 60])
def test_a_row_that_was_once_handed_over_stays_noted_so_whatever_passing_refusal_comes(
    code: str, ago: int, tmp_path: Path
) -> None:
    """Given a row of which an earlier answer may be lost, when the engine takes nothing now, then the doubt about it stays."""

    async def refusing(_request: Request, _namespace: str) -> Reply:
        return Refused(code=code, fact="Not now.", retryable=True)

    async def noted() -> tuple[HandedOver, list[int]]:
        box = SqliteOutbox(str(tmp_path / "shop.db"), "default")
        await box.open()
        connection = box._connection
        assert connection is not None
        task = EnqueueTask(task_id="a", key="a", type="mail", queue="default")
        connection.execute(
            "INSERT INTO outlast_outbox (namespace, id, form, body) VALUES ('default', 'a', ?, ?)",
            (REQUEST, body_of(task)),
        )
        await box.offer(10, without=())  # by somebody whose answer was lost
        connection.execute("UPDATE outlast_outbox SET offered_at = offered_at - ?", (ago,))
        done = await hand_over(box, refusing)
        found = connection.execute("SELECT strftime('%s', 'now') - offered_at FROM outlast_outbox").fetchall()
        await box.close()
        return done, [waited for (waited,) in found]

    done, (waited,) = asyncio.run(noted())

    assert (done.taken, done.troubles, bool(done.busy or done.later)) == ([], {}, True)
    assert ago <= waited < ago + 60


def test_an_outbox_in_postgres_has_the_table_and_functions_that_an_engine_has(cluster: Cluster) -> None:
    """Given an engine's database and one with an outbox, when their catalogues are read, then they differ in a name alone."""
    columns = (
        "SELECT column_name, data_type, is_nullable, column_default, is_identity FROM information_schema.columns "
        "WHERE table_schema = '{0}' AND table_name = 'intake' ORDER BY ordinal_position"
    )
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = '{0}' AND tablename = 'intake' ORDER BY 1"
    functions = (
        "SELECT proname, replace(pg_get_functiondef(oid), '{0}.', '') FROM pg_proc "
        "WHERE pronamespace = '{0}'::regnamespace AND proname IN ('check_said', 'enqueue', 'new_id', 'start') ORDER BY proname"
    )
    name = cluster.empty_database()

    async def make() -> None:
        box = PostgresOutbox(cluster.url(name), "default")
        await box.open()
        await box.close()
        await box.open()  # what is there stays
        await box.close()

    asyncio.run(make())
    with cluster.database() as url:
        own = url.split("/")[3].split("?")[0]
        for look in (columns, indexes, functions):
            of_engine = cluster.run(look.format("outlast"), database=own)
            of_outbox = cluster.run(look.format("outlast_outbox"), database=name)
            assert [str(tuple(row)).replace("outlast_outbox.", "outlast.") for row in of_outbox] == [
                str(tuple(row)) for row in of_engine
            ]
            assert of_engine
    cluster.drop(name)


def test_the_database_of_an_engine_is_refused_as_an_outbox(cluster: Cluster) -> None:
    async def opened(url: str) -> None:
        box = PostgresOutbox(url, "default")
        try:
            await box.open()
        finally:
            await box.close()

    with cluster.database() as url, pytest.raises(Misuse, match="an engine's own"):
        asyncio.run(opened(url))


def test_a_row_in_postgres_goes_out_once_its_commit_is_durable_whatever_the_session_had_set(cluster: Cluster) -> None:
    """Given a database in which commits are not waited for, when a row is offered, then that commit is."""
    name = cluster.empty_database()
    cluster.run(f"ALTER DATABASE {name} SET synchronous_commit = off")

    async def offered() -> tuple[int, bool]:
        box = PostgresOutbox(cluster.url(name), "default")
        await box.open()
        connection = await asyncpg.connect(cluster.url(name))
        await connection.execute("SELECT outlast_outbox.enqueue('mail')")
        end = await connection.fetchval("SELECT pg_current_wal_insert_lsn()::text")
        rows = await box.offer(10, without=())
        flushed = await connection.fetchval("SELECT pg_current_wal_flush_lsn() >= $1::text::pg_lsn", end)
        await connection.close()
        await box.close()
        return len(rows), flushed

    assert asyncio.run(offered()) == (1, True)
    cluster.drop(name)
