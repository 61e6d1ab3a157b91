"""The schema: which one a database has, and how it becomes the newest. One opener at a time, in one transaction."""

from typing import Final

import asyncpg

from outlast.store.base import StoreError
from outlast.store.migrate import migrations_in, missing_of
from outlast.store.postgres.connection import Server, Session

PACKAGE: Final = "outlast.store.postgres"
LOCK: Final = 0x4F55544C  # "OUTL": of the advisory locks of this schema
_HAS_SCHEMA: Final = "SELECT to_regclass('outlast.migrations') IS NOT NULL"
_IS_STRANGE: Final = "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace('outlast')::oid)"
_HAS_SHARD: Final = "SELECT EXISTS (SELECT 1 FROM outlast.shards WHERE shard = $1)"
_ADD_SHARD: Final = """
    INSERT INTO outlast.shards SELECT $1, incarnation, 0, '', 0, 0, 0 FROM outlast.meta ON CONFLICT DO NOTHING
"""


async def applied(session: Session) -> dict[int, str]:
    """Return the checksums of the migrations that the database has, by number; empty for one without our schema."""
    if not await session.fetchval(_HAS_SCHEMA):
        if await session.fetchval(_IS_STRANGE):
            raise StoreError(
                "store_damaged",
                'The database has a schema "outlast" that is not ours.',
                remedy="Name another database, or rename that schema.",
            )
        return {}
    rows = await session.fetch("SELECT number, checksum FROM outlast.migrations")
    return {row["number"]: row["checksum"] for row in rows}


async def migrate(session: Session, server: Server) -> list[int]:
    """Bring the schema to the newest form; return the numbers of the migrations that were run. Raises StoreError."""
    migrations = migrations_in(PACKAGE)
    if not missing_of(await applied(session), migrations):
        return []
    async with session.transaction():
        await session.execute(f"SELECT pg_advisory_xact_lock({LOCK}, 0)")
        found = await applied(session)  # somebody else may have been quicker
        missing = missing_of(found, migrations)
        for migration in missing:
            await session.execute(migration.sql)
            await session.execute(
                "INSERT INTO outlast.migrations (number, name, checksum) VALUES ($1, $2, $3)",
                migration.number, migration.name, migration.checksum,
            )  # fmt: skip
        if not found:
            # The incarnation follows the timeline: never behind it, so that two copies that part do not meet again.
            await session.execute(
                "INSERT INTO outlast.meta (incarnation, timeline, cluster, number) VALUES ($1::bigint, $1::bigint, $2, $3)",
                *server.history,
            )  # fmt: skip
    return [migration.number for migration in missing]


async def add_shard(session: Session, shard: int) -> None:
    """Make the shard's row, if there is none. One that is there is not waited for, whoever has it locked."""
    if not await session.fetchval(_HAS_SHARD, shard):
        await session.execute(_ADD_SHARD, shard)


async def look(session: Session) -> dict[int, str]:
    """Return the checksums of the migrations that the database has, by number. Raises StoreError also for the rights."""
    try:
        return await applied(session)
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(
            "denied",
            'The user may not read the schema "outlast".',
            remedy="GRANT USAGE ON SCHEMA outlast and SELECT ON ALL TABLES IN SCHEMA outlast to it.",
        ) from error


def schema_known() -> int:
    """Return the number of the newest migration of this version."""
    return max(migration.number for migration in migrations_in(PACKAGE))
