"""What transactions of callers left in the engine's own database, by the sessions beside the owner's."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from outlast.protocol.intake import READ_BYTES, IntakeRow
from outlast.protocol.intake_sql import statements_of

if TYPE_CHECKING:
    from outlast.store.postgres.store import PostgresStore

_STATEMENTS: Final = statements_of("outlast", which="<> ALL($4::text[])")
_ASIDE: Final = """
    SELECT count(*), (SELECT trouble FROM outlast.intake WHERE trouble <> '' AND $1::integer IS NOT NULL ORDER BY place LIMIT 1)
    FROM outlast.intake WHERE trouble <> ''
"""


class PostgresIntake:
    """The table ``outlast.intake`` of a store. Raises StoreError as its reads do."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def offer(self, rows_max: int, *, without: Collection[str]) -> Sequence[IntakeRow]:
        """Return the oldest rows that nothing is wrong with, noted as handed over in a commit of its own."""
        left_out = list(without)
        records = await self._store.tend(
            lambda tending: tending.fetch(_STATEMENTS.offer, rows_max, READ_BYTES, left_out)
        )
        return sorted((IntakeRow(**dict(record)) for record in records), key=lambda row: row.place)

    async def set_aside(self) -> tuple[int, str]:
        """Return how many rows wait for a person, and what is wrong with the first, "" for none."""
        ((count, first),) = await self._store.read(lambda reads: reads.fetch(_ASIDE))
        return count, first or ""

    async def settle(self, taken: Sequence[int], troubles: Mapping[int, str]) -> None:
        """Drop what was taken, and set aside what cannot be."""
        if taken:
            await self._store.tend(lambda tending: tending.change(_STATEMENTS.take, list(taken)))
        if troubles:
            texts = [trouble.replace("\0", "") for trouble in troubles.values()]
            await self._store.tend(lambda tending: tending.change(_STATEMENTS.set_aside, list(troubles), texts))
