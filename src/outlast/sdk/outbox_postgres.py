"""An outbox in a PostgreSQL database of the user's that is not the engine's own, by asyncpg.

It also works through a pooler that gives every transaction another connection: nothing is kept in the session.
"""

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import asyncpg

from outlast.protocol.intake import READ_BYTES, IntakeRow
from outlast.protocol.intake_sql import statements_of
from outlast.sdk.misuse import Misuse

CONNECT_SECONDS: Final = 10.0
STATEMENT_SECONDS: Final = 30.0
LOCK: Final = 0x4F55544C  # "OUTL"

_STATEMENTS: Final = statements_of("outlast_outbox", which="= ANY($4::text[])")
_FOUND: Final = """
    SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = 'intake' AND n.nspname IN ('outlast', 'outlast_outbox')
"""
_WAITING: Final = "SELECT 1 FROM outlast_outbox.intake WHERE trouble = '' AND namespace = $1 LIMIT 1"
# With the note that a row goes out, the commit that wrote the row is on the disk, whatever its session had set. What is set
# stricter than that stays.
_DURABLE: Final = "SET LOCAL synchronous_commit = on"
_IS_WEAK: Final = "SELECT current_setting('synchronous_commit') IN ('off', 'local')"


class PostgresOutbox:
    """The rows of one namespace in the database at ``url``. All raise what asyncpg raises, or OSError."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._connection: asyncpg.Connection[Any] | None = None

    async def open(self) -> None:
        """Connect, and make the table and the functions if there are none.

        Raises Misuse for a database that an engine has: what is enqueued there goes to that engine.
        """
        connection = await asyncpg.connect(
            self._url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS, statement_cache_size=0
        )
        self._connection = connection
        found = await self._schemas()
        if "outlast" in found:
            raise Misuse(
                "outbox_of_an_engine",
                "The database is an engine's own: what transactions enqueue there goes to that engine.",
                remedy="Leave it out of outboxes.",
            )
        if "outlast_outbox" not in found:
            async with connection.transaction():
                await connection.execute(f"{_DURABLE}; SELECT pg_catalog.pg_advisory_xact_lock({LOCK}, 1)")
                if "outlast_outbox" not in await self._schemas():  # somebody may have been quicker
                    await connection.execute(files("outlast.sdk").joinpath("outbox.sql").read_text(encoding="utf-8"))

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def offer(self, rows_max: int, *, without: Collection[str]) -> Sequence[IntakeRow]:
        """Return the oldest rows that nothing is wrong with, noted as handed over by a commit that is durable."""
        connection = self._open()
        if self._namespace in without or await connection.fetchval(_WAITING, self._namespace) is None:
            return ()
        async with connection.transaction():
            if await connection.fetchval(_IS_WEAK):
                await connection.execute(_DURABLE)
            records = await connection.fetch(_STATEMENTS.offer, 0, rows_max, READ_BYTES, [self._namespace])
        return sorted((IntakeRow(**dict(record)) for record in records), key=lambda row: row.place)

    async def settle(self, taken: Sequence[int], troubles: Mapping[int, str]) -> None:
        """Drop what was taken, and set aside what cannot be."""
        connection = self._open()
        texts = [trouble.replace("\0", "") for trouble in troubles.values()]
        async with connection.transaction():
            if taken:
                await connection.execute(_STATEMENTS.take, 0, list(taken))
            if troubles:
                await connection.execute(_STATEMENTS.set_aside, 0, list(troubles), texts)

    async def _schemas(self) -> set[str]:
        return {record[0] for record in await self._open().fetch(_FOUND)}

    def _open(self) -> "asyncpg.Connection[Any]":
        if self._connection is None:
            raise asyncpg.InterfaceError("The outbox is not open.")
        return self._connection
