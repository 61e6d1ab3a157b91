"""A transaction of the caller's own, by whatever driver it is: tasks and runs are written into it, there if it commits.

Nothing of a driver is imported: a connection is known by the module that its class is from. Where the rows go is looked up in the
database itself: ``outlast.intake`` of an engine, or an outbox that an app hands over.
"""

import importlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from outlast.protocol.intake import REQUEST, Item, body_of
from outlast.sdk.misuse import Misuse

Rows = list[tuple[Any, ...]]
Plan = Generator[tuple[str, tuple[Any, ...]], Rows, None]
"""Statements, with ``?`` for each value; what they give is sent back."""

POSTGRES: Final = "postgresql"
SQLITE: Final = "sqlite"
ROWS_OF_STATEMENT: Final = 200  # 4 values each: the oldest SQLite takes 999
OUTBOX_TABLE: Final = "outlast_outbox"  # in a SQLite file of the user's
OUTBOX_SCHEMA: Final = "outlast_outbox"  # in a PostgreSQL database of the user's
KNOWN: Final = "psycopg, asyncpg, sqlite3, aiosqlite, SQLAlchemy (Session, Connection and the async ones) and Django"

_LOOK: Final = {
    # That of the engine itself before an outbox. Anybody may look at catalogues.
    POSTGRES: """
        SELECT n.nspname || '.intake' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname = 'intake' AND n.nspname IN ('outlast', 'outlast_outbox') ORDER BY n.nspname LIMIT 1
    """,
    SQLITE: "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'outlast_outbox'",
}


@dataclass(slots=True, frozen=True)
class Session:
    """What is done by one driver. ``run`` gives rows, or what is awaited for them; ``place`` writes the n-th value, from 1."""

    database: str
    place: Callable[[int], str]
    run: Callable[[str, tuple[Any, ...]], Any]
    is_async: bool = False


@dataclass(slots=True, frozen=True)
class Transaction:
    """The transaction that is open on ``connection``: a connection or session of the user's."""

    connection: object

    def write(self, namespace: str, items: Sequence[Item], *, instead: str) -> None:
        """Write ``items`` into it. ``instead`` names the twin for an asynchronous connection.

        Raises:
            Misuse: the connection is not known, has no transaction open, or its database has no place for this.
            Invalid, TooLarge: the engine would not take an item.
        """
        found = _find(self.connection)
        if found.is_async:
            raise Misuse(
                "async_connection",
                f"{_named(self.connection)} is asynchronous, and a blocking verb was called with it.",
                remedy=f"Write: await {instead}.",
            )
        session = cast("Session", found.open(self.connection))
        plan = _plan(session.database, namespace, items, self.connection)
        try:
            statement = next(plan)
            while True:
                statement = plan.send(list(session.run(*_bound(session, *statement))))
        except StopIteration:
            pass

    async def awrite(self, namespace: str, items: Sequence[Item]) -> None:
        """As ``write``, by an asynchronous connection; one that blocks is used here, as its owner does."""
        found = _find(self.connection)
        if not found.is_async:
            self.write(namespace, items, instead="")
            return
        session = await cast("Awaitable[Session]", found.open(self.connection))
        plan = _plan(session.database, namespace, items, self.connection)
        try:
            statement = next(plan)
            while True:
                statement = plan.send(list(await session.run(*_bound(session, *statement))))
        except StopIteration:
            pass


def _plan(database: str, namespace: str, items: Sequence[Item], connection: object) -> Plan:
    values = [(namespace, _id_of(item), REQUEST, body_of(item)) for item in items]
    found = yield _look(database, connection), ()
    if not found:
        raise _no_place(database, connection)
    table = found[0][0]
    for n in range(0, len(values), ROWS_OF_STATEMENT):
        part = values[n : n + ROWS_OF_STATEMENT]
        rows = ", ".join(["(?, ?, ?, ?)"] * len(part))
        statement = f"INSERT INTO {table} (namespace, id, form, body) VALUES {rows}"  # noqa: S608 - a name of ours
        yield statement, tuple(value for row in part for value in row)


def _look(database: str, connection: object) -> str:
    look = _LOOK.get(database)
    if look is None:
        raise Misuse(
            "unknown_database",
            f"{_named(connection)} speaks to {database}.",
            remedy="Tasks can be enqueued in transactions of PostgreSQL and SQLite.",
        )
    return look


def _no_place(database: str, connection: object) -> Misuse:
    form = "postgresql://HOST/DATABASE" if database == POSTGRES else "sqlite:///FILE"
    own = "is not the engine's own and " if database == POSTGRES else ""
    return Misuse(
        "no_outbox",
        f"The database of {_named(connection)} {own}has no outbox.",
        remedy=f'Start the app once with App(…, outboxes=["{form}"]): it makes the outbox, and hands over what is in it.',
    )


def _id_of(item: Item) -> str:
    # For people who look at the table; what the engine goes by is in the body, where any character may be.
    return (getattr(item, "task_id", "") or getattr(item, "workflow_id", "")).replace("\0", "\ufffd")


def _bound(session: Session, statement: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Write the values' places as the driver wants them."""
    parts = statement.split("?")
    written = parts[0] + "".join(session.place(n) + part for n, part in enumerate(parts[1:], 1))
    return written, values


# --- drivers ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Driver:
    """How a connection of one class becomes a Session; ``open`` of an asynchronous one is awaited. Raises Misuse."""

    open: Callable[[Any], Session | Awaitable[Session]]
    is_async: bool = False


def _question(_n: int) -> str:
    return "?"


def _percent(_n: int) -> str:
    return "%s"


def _dollar(n: int) -> str:
    return f"${n}"


def _colon(n: int) -> str:
    return f":p{n}"


def _sqlite3(connection: Any) -> Session:
    _require(connection, connection.in_transaction or _begins_alone(connection), 'execute("BEGIN")')
    return Session(SQLITE, _question, lambda statement, values: connection.execute(statement, values).fetchall())


def _begins_alone(connection: Any) -> bool:
    """Say whether a connection of sqlite3 begins a transaction with the first statement that writes."""
    # From Python 3.12 on ``autocommit=True`` turns that off, whatever isolation_level says.
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True


async def _aiosqlite(connection: Any) -> Session:
    # What it wraps says more, and only on the thread that it is on.
    begins = await connection._execute(lambda: _begins_alone(connection._conn))  # noqa: SLF001
    _require(connection, connection.in_transaction or begins, 'execute("BEGIN")')

    async def run(statement: str, values: tuple[Any, ...]) -> Rows:
        return list(await connection.execute_fetchall(statement, values))

    return Session(SQLITE, _question, run, is_async=True)


def _psycopg(connection: Any) -> Session:
    _require(connection, not (connection.autocommit and connection.info.transaction_status == 0), "transaction()")

    def run(statement: str, values: tuple[Any, ...]) -> Rows:
        cursor = connection.cursor(row_factory=_tuples())
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    return Session(POSTGRES, _percent, run)


async def _async_psycopg(connection: Any) -> Session:
    _require(connection, not (connection.autocommit and connection.info.transaction_status == 0), "transaction()")

    async def run(statement: str, values: tuple[Any, ...]) -> Rows:
        cursor = connection.cursor(row_factory=_tuples())
        await cursor.execute(statement, values)
        return await cursor.fetchall() if cursor.description else []

    return Session(POSTGRES, _percent, run, is_async=True)


def _tuples() -> Any:
    return importlib.import_module("psycopg.rows").tuple_row


async def _asyncpg(connection: Any) -> Session:
    _require(connection, connection.is_in_transaction(), "transaction()")

    async def run(statement: str, values: tuple[Any, ...]) -> Rows:
        return [tuple(record) for record in await connection.fetch(statement, *values)]

    return Session(POSTGRES, _dollar, run, is_async=True)


def _alchemy(connection: Any) -> Session:
    """A Session's transaction is that of the connection that it has."""
    if not hasattr(connection, "dialect"):
        connection = connection.connection()
    _require_alchemy(connection)
    text: Any = importlib.import_module("sqlalchemy").text

    def run(statement: str, values: tuple[Any, ...]) -> Rows:
        result = connection.execute(text(statement), _by_name(values))
        return [tuple(row) for row in result] if result.returns_rows else []

    return Session(connection.dialect.name, _colon, run)


async def _async_alchemy(connection: Any) -> Session:
    if not hasattr(connection, "dialect"):
        connection = await connection.connection()
    _require_alchemy(connection)
    text: Any = importlib.import_module("sqlalchemy").text

    async def run(statement: str, values: tuple[Any, ...]) -> Rows:
        result = await connection.execute(text(statement), _by_name(values))
        return [tuple(row) for row in result] if result.returns_rows else []

    return Session(connection.dialect.name, _colon, run, is_async=True)


def _require_alchemy(connection: Any) -> None:
    blocking = getattr(connection, "sync_connection", connection)
    _require(connection, not _commits_each(blocking), "begin() and another isolation level")


def _commits_each(connection: Any) -> bool:
    """Say whether each statement by a connection of SQLAlchemy is a transaction of its own: by its level or its engine's."""
    dialect = connection.dialect
    level = connection.get_execution_options().get("isolation_level") or getattr(
        dialect, "_on_connect_isolation_level", None
    )
    if level == "AUTOCOMMIT":
        return True
    driver = connection.connection.driver_connection
    if dialect.name == SQLITE:  # with BEGIN by a listener of the user's, as SQLAlchemy's documentation has it
        return not (driver.in_transaction or _begins_alone(driver))
    return getattr(driver, "autocommit", None) is True


def _by_name(values: tuple[Any, ...]) -> dict[str, Any]:
    return {f"p{n}": value for n, value in enumerate(values, 1)}


def _django(connection: Any) -> Session:
    _require(
        connection, connection.in_atomic_block or not connection.get_autocommit(), "django.db.transaction.atomic()"
    )

    def run(statement: str, values: tuple[Any, ...]) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

    return Session(connection.vendor, _percent, run)


def _require(connection: object, is_open: bool, by: str) -> None:  # noqa: FBT001 - the fact that is required
    if not is_open:
        raise Misuse(
            "no_transaction",
            f"{_named(connection)} has no transaction open, so that nothing would tie the task to anything.",
            remedy=f"Begin one first, by {by}; or leave tx= out.",
        )


# By the beginning of the module that the class, or one that it is made from, is of; and the class's name where it matters.
_DRIVERS: Final[tuple[tuple[str, str, Driver], ...]] = (
    ("sqlite3", "Connection", Driver(_sqlite3)),
    ("aiosqlite.", "Connection", Driver(_aiosqlite, is_async=True)),
    ("psycopg.", "AsyncConnection", Driver(_async_psycopg, is_async=True)),
    ("psycopg.", "Connection", Driver(_psycopg)),
    ("asyncpg.", "Connection", Driver(_asyncpg, is_async=True)),
    ("asyncpg.", "PoolConnectionProxy", Driver(_asyncpg, is_async=True)),
    ("sqlalchemy.ext.asyncio.", "AsyncSession", Driver(_async_alchemy, is_async=True)),
    ("sqlalchemy.ext.asyncio.", "async_scoped_session", Driver(_async_alchemy, is_async=True)),
    ("sqlalchemy.ext.asyncio.", "AsyncConnection", Driver(_async_alchemy, is_async=True)),
    ("sqlalchemy.orm.", "Session", Driver(_alchemy)),
    ("sqlalchemy.orm.", "scoped_session", Driver(_alchemy)),
    ("sqlalchemy.engine.", "Connection", Driver(_alchemy)),
    ("django.db.backends.", "BaseDatabaseWrapper", Driver(_django)),
    ("django.utils.connection", "ConnectionProxy", Driver(_django)),
)


def _find(connection: object) -> Driver:
    for kind in type(connection).__mro__:
        for module, name, driver in _DRIVERS:
            if kind.__name__ == name and f"{kind.__module__}.".startswith(module):
                return driver
    raise Misuse(
        "unknown_connection",
        f"tx= is {_named(connection)}, by which no transaction is known.",
        remedy=f"Give a connection or session of {KNOWN}.",
    )


def _named(connection: object) -> str:
    kind = type(connection)
    return f"a {kind.__module__}.{kind.__qualname__}"
