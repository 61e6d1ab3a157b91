"""The look for the blobs that rows name: through all of them, a slice at a time, on a connection of its own.

Tables are read in the order in which a name can move from one to another (a parked event goes to the history, never back),
so that a name that moves meanwhile is met in one place or the other.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Final

from outlast.store.compression import unpack, unpacked
from outlast.store.references import digests_in
from outlast.store.sqlite.connection import Connection

SLICE: Final = 500  # rows of one read: none of them keeps the checkpointer from its work for long

# How many columns are the key, the statement, the key before all; the other columns are what is searched.
_TABLES: Final = (
    (2, "SELECT run_id, n, blob FROM parked WHERE (run_id, n) > (?, ?) ORDER BY run_id, n LIMIT ?", ("", -1)),
    (1, "SELECT rowid, spec, status FROM tasks WHERE rowid > ? ORDER BY rowid LIMIT ?", (-1,)),
    (1, "SELECT rowid, fixed, state, outcome FROM runs WHERE rowid > ? ORDER BY rowid LIMIT ?", (-1,)),
)
_HISTORY: Final = """
    SELECT run_id, first_event_id, blob FROM history WHERE (run_id, first_event_id) > (?, ?)
    ORDER BY run_id, first_event_id LIMIT ?
"""


def named_blobs(connection: Connection, digests: AbstractSet[str]) -> set[str]:
    """Return those of ``digests`` that a committed row names. Raises StoreError for a page of a history that is damaged."""
    named: set[str] = set()
    for key_columns, statement, first in _TABLES:
        after: tuple[Any, ...] = first
        while rows := connection.execute(statement, (*after, SLICE)).fetchall():
            named |= digests & digests_in(unpacked(blob) for row in rows for blob in row[key_columns:])
            after = rows[-1][:key_columns]
    after = ("", 0)
    while rows := connection.execute(_HISTORY, (*after, SLICE)).fetchall():
        named |= digests & digests_in(unpack(blob) for _, _, blob in rows)
        after = rows[-1][:2]
    return named
