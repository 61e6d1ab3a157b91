"""Large payloads in a table of the same database, named by the hash of their content.

Committed before ``put`` returns. Their age is by the database's own clock.
"""

import hashlib
from collections.abc import Container
from datetime import UTC, datetime
from typing import Final

from outlast.core.units import DAY, SECOND
from outlast.store.base import StoreError
from outlast.store.postgres.session import Reads
from outlast.store.postgres.store import PostgresStore

SWEEP_AGE: Final = DAY  # a commit that names a blob comes long before

# Each statement has the shard as its first parameter; blobs belong to no shard.
_PUT: Final = """
    INSERT INTO outlast.blobs (digest, data) SELECT $2, $3 WHERE $1::integer >= 0
    ON CONFLICT (digest) DO UPDATE SET put_at = now()
"""
_GET: Final = "SELECT data FROM outlast.blobs WHERE $1::integer >= 0 AND digest = $2"
_NAMES: Final = "SELECT digest FROM outlast.blobs WHERE $1::integer >= 0"
_AGED: Final = "SELECT digest FROM outlast.blobs WHERE $1::integer >= 0 AND put_at < $2"
_SWEEP: Final = "DELETE FROM outlast.blobs WHERE $1::integer >= 0 AND digest = ANY ($2::text[]) AND put_at < $3"


class PostgresBlobStore:
    """The blobs of the database of ``store``, usable while that is open."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    @property
    def unused(self) -> bool:
        """Whether there has surely never been a blob: to know would need a look."""
        return False

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data``; it is committed when this returns. Raises StoreError."""
        await self._store.tend(lambda tending: tending.change(_PUT, digest, data))

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError "store_damaged" when it is missing or does not have this hash."""
        found = await self._store.read(lambda reads: reads.fetch(_GET, digest))
        data: bytes = found[0]["data"] if found else b""
        if not found or hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(
                "store_damaged",
                f"The payload {digest} {'is not what its name says' if found else 'is missing'}.",
                remedy="Restore the last backup of the database.",
            )
        return data

    async def names(self) -> set[str]:
        """Return the names of all that are there."""
        return {row["digest"] for row in await self._store.read(lambda reads: reads.fetch(_NAMES))}

    async def aged(self, *, now: int) -> set[str]:
        """Return the blobs that were last put more than SWEEP_AGE before ``now``."""
        rows = await self._store.read(lambda reads: reads.fetch(_AGED, _before(now)))
        return {row["digest"] for row in rows}

    async def sweep(self, referenced: Container[str], *, now: int) -> int:
        """Remove what is not in ``referenced`` and was last put more than SWEEP_AGE before ``now``; return how many."""
        over = [digest for digest in await self.aged(now=now) if digest not in referenced]

        async def drop(tending: Reads) -> int:
            return await tending.change(_SWEEP, over, _before(now))

        return await self._store.tend(drop) if over else 0


def _before(now: int) -> datetime:
    return datetime.fromtimestamp((now - SWEEP_AGE) / SECOND, tz=UTC)
