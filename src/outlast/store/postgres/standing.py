"""The row that says why a database may not be worked on."""

from typing import Final

import msgspec

from outlast.store.postgres.connection import Session
from outlast.store.postgres.text import Rows, escaped
from outlast.store.standing import COLUMNS, Standing

_READ: Final = f"SELECT {', '.join(COLUMNS)} FROM outlast.standing"
_ROWS: Final = Rows(Standing)
_MARKS: Final = ", ".join(f"${n}" for n, _ in enumerate(COLUMNS, 1))
_WRITE: Final = f"INSERT INTO outlast.standing ({', '.join(COLUMNS)}) VALUES ({_MARKS})"
# It takes the lock under which nobody else adds to the intake; who has added is waited for.
_REFUSE: Final = "ALTER TABLE outlast.intake {} TRIGGER refuse_set_aside"


async def read(session: Session) -> Standing | None:
    """Return the row, None when the database may be worked on."""
    found = await session.fetch(_READ)
    return _ROWS.read(found)[0] if found else None


async def write(session: Session, row: Standing | None) -> None:
    """Put ``row`` in the place of the one that is there, in the transaction that is open; with one the intake is shut."""
    await session.execute(_REFUSE.format("DISABLE" if row is None else "ENABLE"))
    await session.execute("DELETE FROM outlast.standing")
    if row is not None:
        values = msgspec.structs.astuple(row)
        await session.execute(_WRITE, *(escaped(value) if isinstance(value, str) else value for value in values))
