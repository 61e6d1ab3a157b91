"""The row that says why a file may not be worked on."""

from typing import Final

import msgspec

from outlast.store.sqlite.connection import Connection
from outlast.store.standing import COLUMNS, Standing

_HAS: Final = "SELECT 1 FROM sqlite_schema WHERE name = 'standing'"
_READ: Final = f"SELECT {', '.join(COLUMNS)} FROM standing"
_WRITE: Final = f"INSERT INTO standing (one, {', '.join(COLUMNS)}) VALUES (1, {', '.join('?' * len(COLUMNS))})"


def read(connection: Connection) -> Standing | None:
    """Return the row, None when the file may be worked on, also for a file of an older schema."""
    if not connection.execute(_HAS).fetchall():
        return None
    found = connection.execute(_READ).fetchall()
    return Standing(*found[0]) if found else None


def write(connection: Connection, row: Standing) -> None:
    """Add the row, where there is none."""
    connection.execute(_WRITE, msgspec.structs.astuple(row))
