"""An outbox in a SQLite file of the user's, by the standard library's copy of SQLite, as the user's own code has it.

Two copies of SQLite on one file in one process break each other's locks.
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from outlast.protocol.intake import READ_BYTES, IntakeRow
from outlast.sdk.misuse import Misuse
from outlast.sdk.transaction import OUTBOX_TABLE

LOCK_FILE_BYTES_MAX: Final = 4096
BUSY_SECONDS: Final = 5.0  # that a transaction of the user's is waited for

# Places are never used again: who was slow must not drop a row that came later.
_MAKE: Final = f"""
    CREATE TABLE IF NOT EXISTS {OUTBOX_TABLE} (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL,
        id TEXT NOT NULL,
        form TEXT NOT NULL,
        body BLOB NOT NULL,
        entered_at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)),
        offered_at INTEGER,
        trouble TEXT NOT NULL DEFAULT ''
    )
"""
_THERE: Final = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{OUTBOX_TABLE}'"  # noqa: S608 - a name of ours
_WAITING: Final = f"SELECT 1 FROM {OUTBOX_TABLE} WHERE namespace = ? AND trouble = '' LIMIT 1"  # noqa: S608 - as above
_ROWS: Final = f"""
    SELECT place, namespace, CAST(form AS TEXT), CAST(body AS BLOB), coalesce(strftime('%s', 'now') - offered_at, 0), length(body)
    FROM {OUTBOX_TABLE}
    WHERE namespace = ? AND trouble = '' ORDER BY place LIMIT ?
"""  # noqa: S608 - as above
_OFFERED: Final = f"""
    UPDATE {OUTBOX_TABLE} SET offered_at = CAST(strftime('%s', 'now') AS INTEGER) WHERE place = ? AND offered_at IS NULL
"""  # noqa: S608 - as above
_TAKEN: Final = f"DELETE FROM {OUTBOX_TABLE} WHERE place = ?"  # noqa: S608 - as above
_TROUBLE: Final = f"UPDATE {OUTBOX_TABLE} SET trouble = ? WHERE place = ?"  # noqa: S608 - as above


class SqliteOutbox:
    """The rows of one namespace in the file at ``path``. Used on one thread; its calls finish without waiting for a loop.

    All raise sqlite3.Error.
    """

    def __init__(self, path: str, namespace: str) -> None:
        self._path = path
        self._namespace = namespace
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file, and make the table if there is none.

        Raises Misuse for the file of an engine: opening and closing it in the engine's process would drop that one's locks.
        """
        if _is_an_engines(self._path):
            raise Misuse(
                "outbox_of_an_engine",
                f"{Path(self._path).name} is an engine's own file: beside it is that one's lock.",
                remedy="Keep your own tables in another file, and name that one in outboxes.",
            )
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection = connection
        # With the note that a row goes out, the commit that wrote the row is on the disk, whatever its connection had set.
        connection.execute("PRAGMA synchronous = FULL")
        if connection.execute(_THERE).fetchone() is None:
            connection.execute(_MAKE)

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def offer(self, rows_max: int, *, without: Collection[str]) -> Sequence[IntakeRow]:
        """Return the oldest rows that nothing is wrong with, noted as handed over by a commit that is synced."""
        connection = self._open()
        if self._namespace in without or connection.execute(_WAITING, (self._namespace,)).fetchone() is None:
            return ()
        rows: list[IntakeRow] = []
        size = 0
        with _Written(connection):
            for place, namespace, form, body, waited, length in connection.execute(_ROWS, (self._namespace, rows_max)):
                size += length
                if rows and size > READ_BYTES:
                    break
                rows.append(IntakeRow(place=place, namespace=namespace, form=form, body=body, waited=float(waited)))
            connection.executemany(_OFFERED, [(row.place,) for row in rows])
        return rows

    async def settle(self, taken: Sequence[int], troubles: Mapping[int, str]) -> None:
        """Drop what was taken, and set aside what cannot be."""
        connection = self._open()
        with _Written(connection):
            connection.executemany(_TAKEN, [(place,) for place in taken])
            connection.executemany(_TROUBLE, [(trouble, place) for place, trouble in troubles.items()])

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError("The outbox is not open.")
        return self._connection


def _is_an_engines(path: str) -> bool:
    """Say whether an engine has, or had, the file at ``path``, by what is in the lock file beside it."""
    for beside in {f"{path}.lock", f"{Path(path).resolve()}.lock"}:
        try:
            with Path(beside).open("rb") as file:
                holder = msgspec.json.decode(file.read(LOCK_FILE_BYTES_MAX).strip(b" \0\n"))
        except (OSError, msgspec.MsgspecError):
            continue  # none, or one of something else
        if isinstance(holder, dict) and holder.keys() & {"database", "incarnation", "started_at"}:
            return True
    return False


class _Written:
    """A transaction that has the write lock from its beginning: what it has read does not change under it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")
