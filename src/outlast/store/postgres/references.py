"""The look for the blobs that rows name: through all of them, a slice at a time.

Tables are read in the order in which a name can move from one to another (a parked event goes to the history, never back),
so that a name that moves meanwhile is met in one place or the other.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Final

from outlast.store.compression import unpack, unpacked
from outlast.store.postgres.session import Reads
from outlast.store.references import digests_in

SLICE: Final = 500  # rows of one read

_HISTORY: Final = """
    SELECT run_id, first_event_id, blob FROM outlast.history WHERE shard = $1 AND (run_id, first_event_id) > ($2, $3)
    ORDER BY run_id, first_event_id LIMIT $4
"""
# How many columns are the key, the statement, the key before all; the other columns are what is searched.
_TABLES: Final = (
    (
        2,
        "SELECT run_id, n, blob FROM outlast.parked WHERE shard = $1 AND (run_id, n) > ($2, $3) ORDER BY run_id, n LIMIT $4",
        ("", -(2**63)),
    ),
    (
        1,
        "SELECT task_id, spec, status FROM outlast.tasks WHERE shard = $1 AND task_id > $2 ORDER BY task_id LIMIT $3",
        ("",),
    ),
    (
        1,
        "SELECT run_id, fixed, state, outcome FROM outlast.runs WHERE shard = $1 AND run_id > $2 ORDER BY run_id LIMIT $3",
        ("",),
    ),
    (2, _HISTORY, ("", -(2**63))),
)


async def named_blobs(reads: Reads, digests: AbstractSet[str]) -> set[str]:
    """Return those of ``digests`` that a committed row names. Raises StoreError for a page of a history that is damaged."""
    named: set[str] = set()
    for key_columns, statement, first in _TABLES:
        after: tuple[Any, ...] = first
        while rows := await reads.fetch(statement, *after, SLICE):
            found = [tuple(row) for row in rows]
            opened = unpack if statement is _HISTORY else unpacked
            named |= digests & digests_in(opened(blob) for row in found for blob in row[key_columns:])
            after = found[-1][:key_columns]
    return named
