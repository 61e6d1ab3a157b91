"""Enqueueing in a transaction of the caller's: by every driver, there if and only if it commits, and then once."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outlast import App
from outlast.core.errors import NotFound
from outlast.sdk import pending
from tests.sdk.apps import eventually
from tests.store.cluster import Cluster

WEAK = "&allow_weak_durability=yes"
ADD_ORDER = "INSERT INTO orders VALUES (1)"


@dataclass
class Shop:
    """An app, and the database with the table ``orders`` in which its caller has transactions."""

    app: App
    database: str
    ran: list[str] = field(default_factory=list[str])
    mail: Any = None
    order: Any = None

    def mailed(self) -> list[str]:
        """Return what the task was run with, once nothing more is to come: what is committed later is taken later."""
        self.mail.enqueue("last").result(timeout="20s")
        return [name for name in self.ran if name != "last"]


@contextmanager
def shop_on(store: str, database: str, *, outboxes: tuple[str, ...] = ()) -> Generator[Shop]:
    app = App(store, threads=2, drain="5s", outboxes=outboxes)
    shop = Shop(app, database)

    @app.task
    def mail(to: str) -> str:
        shop.ran.append(to)
        return f"mailed {to}"

    @app.workflow
    async def order(to: str) -> str:
        return await mail.execute(to)

    shop.mail, shop.order = mail, order
    with app:
        yield shop


@pytest.fixture
def in_postgres(cluster: Cluster) -> Generator[Any]:
    """A shop whose tables are in the database that the engine has too."""
    with cluster.database() as url, shop_on(url + WEAK, url) as shop:
        name = url.split("/")[3].split("?")[0]
        cluster.run("CREATE TABLE IF NOT EXISTS public.orders (id integer)", "DELETE FROM public.orders", database=name)
        yield shop


@pytest.fixture
def in_sqlite(tmp_path: Path) -> Generator[Any]:
    """A shop whose tables are in a SQLite file beside the engine's."""
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE orders (id integer)")
        made.commit()
    outbox = f"sqlite:///{path}"
    with shop_on(f"sqlite:///{tmp_path / 'work.db'}", str(path), outboxes=(outbox,)) as shop:
        assert "outlast_outbox" in tables_of(path)
        yield shop


@pytest.fixture
def in_other_postgres(cluster: Cluster, tmp_path: Path) -> Generator[Any]:
    """A shop whose tables are in a PostgreSQL database that is not the engine's."""
    name = cluster.empty_database()
    cluster.run("CREATE TABLE orders (id integer)", database=name)
    url = cluster.url(name)
    with shop_on(f"sqlite:///{tmp_path / 'work.db'}", url, outboxes=(url,)) as shop:
        yield shop
    cluster.drop(name)


def tables_of(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def outbox_of(path: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT namespace, id, offered_at, trouble FROM outlast_outbox").fetchall()


class Undone(Exception):
    """Rolls a transaction back."""


# --- by every driver --------------------------------------------------------------------------------------------------


@contextmanager
def by_psycopg(database: str) -> Generator[Any]:
    with psycopg.connect(database) as connection:
        connection.execute(ADD_ORDER)
        yield connection


@contextmanager
def by_sqlalchemy_session(database: str) -> Generator[Any]:
    with alchemy(database) as engine, Session(engine) as session, session.begin():
        session.execute(sqlalchemy.text(ADD_ORDER))
        yield session


@contextmanager
def by_sqlalchemy_connection(database: str) -> Generator[Any]:
    with alchemy(database) as engine, engine.begin() as connection:
        connection.execute(sqlalchemy.text(ADD_ORDER))
        yield connection


@contextmanager
def alchemy(database: str) -> Generator[sqlalchemy.Engine]:
    engine = (
        sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
        if "://" in database
        else sqlalchemy.create_engine(f"sqlite:///{database}")
    )
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def by_sqlite3(database: str) -> Generator[Any]:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(ADD_ORDER)
        yield connection


@contextmanager
def by_sqlite3_with_begin(database: str) -> Generator[Any]:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with connection:
            connection.execute(ADD_ORDER)
            yield connection


@asynccontextmanager
async def by_asyncpg(database: str) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(database)
    try:
        async with connection.transaction():
            await connection.execute(ADD_ORDER)
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(database: str) -> AsyncGenerator[Any]:
    async with (
        asyncpg.create_pool(database, min_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await connection.execute(ADD_ORDER)
        yield connection


@asynccontextmanager
async def by_async_psycopg(database: str) -> AsyncGenerator[Any]:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await connection.execute(ADD_ORDER)
        yield connection


@asynccontextmanager
async def by_async_sqlalchemy(database: str) -> AsyncGenerator[Any]:
    engine = (
        create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(database))
        if "://" in database
        else create_async_engine(f"sqlite+aiosqlite:///{database}")
    )
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(sqlalchemy.text(ADD_ORDER))
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_async_sqlalchemy_connection(database: str) -> AsyncGenerator[Any]:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(database))
    try:
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text(ADD_ORDER))
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_aiosqlite(database: str) -> AsyncGenerator[Any]:
    async with aiosqlite.connect(database) as connection:
        await connection.execute(ADD_ORDER)
        try:
            yield connection
        except Undone:
            await connection.rollback()
            raise
        await connection.commit()


Blocking = Callable[[str], AbstractContextManager[Any, None]]
Asynchronous = Callable[[str], AbstractAsyncContextManager[Any]]
BLOCKING = [
    pytest.param("in_postgres", by_psycopg, id="psycopg"),
    pytest.param("in_postgres", by_sqlalchemy_session, id="sqlalchemy-session-postgres"),
    pytest.param("in_postgres", by_sqlalchemy_connection, id="sqlalchemy-connection-postgres"),
    pytest.param("in_sqlite", by_sqlite3, id="sqlite3"),
    pytest.param("in_sqlite", by_sqlite3_with_begin, id="sqlite3-begin"),
    pytest.param("in_sqlite", by_sqlalchemy_session, id="sqlalchemy-session-sqlite"),
    pytest.param("in_other_postgres", by_psycopg, id="psycopg-elsewhere"),
]
ASYNCHRONOUS = [
    pytest.param("in_postgres", by_asyncpg, id="asyncpg"),
    pytest.param("in_postgres", by_asyncpg_pool, id="asyncpg-pool"),
    pytest.param("in_postgres", by_async_psycopg, id="psycopg-async"),
    pytest.param("in_postgres", by_async_sqlalchemy, id="sqlalchemy-async-postgres"),
    pytest.param("in_postgres", by_async_sqlalchemy_connection, id="sqlalchemy-async-connection"),
    pytest.param("in_sqlite", by_async_sqlalchemy, id="sqlalchemy-async-sqlite"),
    pytest.param("in_sqlite", by_aiosqlite, id="aiosqlite"),
    pytest.param("in_other_postgres", by_asyncpg, id="asyncpg-elsewhere"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "transaction"), BLOCKING)
def test_what_is_enqueued_in_a_transaction_is_there_if_and_only_if_it_commits(
    fixture: str, transaction: Blocking, request: pytest.FixtureRequest
) -> None:
    shop = request.getfixturevalue(fixture)
    gone = shop.app.get_task("never")
    with contextlib.suppress(Undone), transaction(shop.database) as undone:
        gone = shop.mail.using(tx=undone).enqueue("never")
        shop.order.using(tx=undone, id="order-0").start("never")
        raise Undone

    with transaction(shop.database) as tx:
        handle = shop.mail.using(tx=tx).enqueue("ann")
        many = shop.mail.using(tx=tx).enqueue_many([("bob",), ("cleo",)])
        run = shop.order.using(tx=tx, id="order-1").start("dora")

    assert [each.result(timeout="20s") for each in (handle, *many, run)] == [
        "mailed ann", "mailed bob", "mailed cleo", "mailed dora",
    ]  # fmt: skip
    assert sorted(shop.mailed()) == ["ann", "bob", "cleo", "dora"]
    assert (run.id, run.describe().run_id) == ("order-1", run.run_id)
    for unknown in (gone, shop.app.get_workflow("order-0")):
        with pytest.raises(NotFound):
            unknown.describe()


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "transaction"), ASYNCHRONOUS)
def test_an_asynchronous_transaction_takes_tasks_and_runs_along(
    fixture: str, transaction: Asynchronous, request: pytest.FixtureRequest
) -> None:
    shop = request.getfixturevalue(fixture)

    async def main() -> list[str]:
        with contextlib.suppress(Undone):
            async with transaction(shop.database) as undone:
                await shop.mail.using(tx=undone).aenqueue("never")
                raise Undone
        async with transaction(shop.database) as tx:
            handle = await shop.mail.using(tx=tx).aenqueue("ann")
            many = await shop.mail.using(tx=tx).aenqueue_many([("bob",), ("cleo",)])
            runs = await shop.order.using(tx=tx).astart_many([("dora",)])
        return [await each.aresult(timeout="20s") for each in (handle, *many, *runs)]

    assert asyncio.run(main()) == ["mailed ann", "mailed bob", "mailed cleo", "mailed dora"]
    assert sorted(shop.mailed()) == ["ann", "bob", "cleo", "dora"]


# --- the outbox -------------------------------------------------------------------------------------------------------


def test_a_row_is_written_by_an_app_that_was_never_started(unstarted: Any, in_sqlite: Shop) -> None:
    with contextlib.closing(sqlite3.connect(in_sqlite.database)) as connection, connection:
        handle = unstarted.using(tx=connection).enqueue("ann")

    eventually(lambda: not outbox_of(in_sqlite.database))
    assert in_sqlite.app.get_task(handle.id).result(timeout="20s") == "mailed ann"


def test_the_result_of_a_run_that_may_be_another_is_not_that_of_one_that_had_ended_before(in_sqlite: Shop) -> None:
    assert in_sqlite.order.using(id="order-1").start("old").result(timeout="20s") == "mailed old"

    with contextlib.closing(sqlite3.connect(in_sqlite.database)) as connection, connection:
        handle = in_sqlite.order.using(tx=connection, id="order-1", if_open="return_existing").start("new")

    assert handle.result(timeout="20s") == "mailed new"
    assert handle.run_id == handle.describe().run_id


def test_the_same_id_in_two_transactions_makes_one_task(in_sqlite: Shop) -> None:
    for _ in range(2):
        with contextlib.closing(sqlite3.connect(in_sqlite.database)) as connection, connection:
            in_sqlite.mail.using(tx=connection, id="mail-7").enqueue("ann")

    eventually(lambda: not outbox_of(in_sqlite.database))
    assert in_sqlite.app.get_task("mail-7").result(timeout="20s") == "mailed ann"
    eventually(lambda: not outbox_of(in_sqlite.database))
    assert in_sqlite.mailed() == ["ann"]


def test_rows_of_another_namespace_are_left_to_their_own_app(in_sqlite: Shop, tmp_path: Path) -> None:
    other = App("memory:", namespace="other")

    @other.task
    def mail(to: str) -> str:
        return to

    with contextlib.closing(sqlite3.connect(in_sqlite.database)) as connection, connection:
        mail.using(tx=connection, id="theirs").enqueue("ann")
        ours = in_sqlite.mail.using(tx=connection).enqueue("bob")

    assert ours.result(timeout="20s") == "mailed bob"
    eventually(lambda: len(outbox_of(in_sqlite.database)) == 1)
    assert outbox_of(in_sqlite.database) == [("other", "theirs", None, "")]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["in_sqlite", "in_postgres"])
def test_a_large_value_goes_through_a_transaction_as_any_other_way(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    shop: Shop = request.getfixturevalue(fixture)
    large = "x" * 1_900_000
    transaction = by_sqlite3 if fixture == "in_sqlite" else by_psycopg

    with transaction(shop.database) as tx:
        many = shop.mail.using(tx=tx).enqueue_many([(large,)] * 3)

    assert [handle.result(timeout="30s") for handle in many] == [f"mailed {large}"] * 3


@pytest.mark.slow
def test_an_app_of_a_server_hands_its_outbox_over_by_http(in_sqlite: Shop, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    remote = App(in_sqlite.app.address, outboxes=[f"sqlite:///{path}"])

    @remote.task
    def mail(to: str) -> str:
        return to

    with remote, contextlib.closing(sqlite3.connect(path)) as connection:
        with connection:
            handles = mail.using(tx=connection).enqueue_many([(f"n{n}",) for n in range(700)])
        eventually(lambda: not outbox_of(str(path)))
        assert handles[-1].result(timeout="30s") == "mailed n699"


def test_what_cannot_be_taken_is_set_aside_with_the_reason_and_holds_nothing_up(in_sqlite: Shop) -> None:
    with contextlib.closing(sqlite3.connect(in_sqlite.database)) as connection, connection:
        connection.execute(
            "INSERT INTO outlast_outbox (namespace, id, form, body) VALUES ('default', 'x', 'request', 'y')"
        )
        in_sqlite.order.using(tx=connection, id="mail-7", if_closed="reject").start("ann")
        handle = in_sqlite.mail.using(tx=connection).enqueue("bob")

    assert handle.result(timeout="20s") == "mailed bob"
    eventually(lambda: len(outbox_of(in_sqlite.database)) == 1)
    ((namespace, id, _, trouble),) = outbox_of(in_sqlite.database)
    assert (namespace, id, trouble.split(":")[0]) == ("default", "x", "invalid_request")


def test_a_row_that_was_handed_over_twice_is_taken_once(in_sqlite: Shop) -> None:
    with contextlib.closing(sqlite3.connect(in_sqlite.database)) as connection:
        with connection:
            handle = in_sqlite.mail.using(tx=connection).enqueue("ann")
            row = connection.execute("SELECT namespace, id, form, body FROM outlast_outbox").fetchone()
        assert handle.result(timeout="20s") == "mailed ann"
        eventually(lambda: not outbox_of(in_sqlite.database))
        with connection:  # as if the answer had been lost
            connection.execute("INSERT INTO outlast_outbox (namespace, id, form, body) VALUES (?, ?, ?, ?)", row)

    eventually(lambda: not outbox_of(in_sqlite.database))
    assert in_sqlite.mailed() == ["ann"]


def test_a_handle_of_a_transaction_that_was_undone_says_so_in_the_end(
    in_sqlite: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "TAKEN_WITHIN", 0.1)
    with contextlib.closing(sqlite3.connect(in_sqlite.database)) as connection:
        handle = in_sqlite.mail.using(tx=connection).enqueue("ann")
        connection.rollback()

    with pytest.raises(NotFound, match="in a transaction of yours"):
        handle.result()
    monkeypatch.setattr(pending, "TAKEN_WITHIN", 30.0)
    with pytest.raises(TimeoutError):
        handle.result(timeout="10ms")


def test_an_outbox_that_cannot_be_opened_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "shop"
    path = folder / "shop.db"
    with shop_on("memory:", str(path), outboxes=(f"sqlite:///{path}",)) as shop:
        eventually(lambda: "outbox_failed" in caplog.text)
        folder.mkdir()
        eventually(lambda: path.exists() and "outlast_outbox" in tables_of(path))
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            handle = shop.mail.using(tx=connection).enqueue("ann")

        assert handle.result(timeout="20s") == "mailed ann"
    assert not [thread for thread in threading.enumerate() if thread.name == "outlast-outbox"]
