"""What a database says it is, read beside whoever has it."""

from typing import Final, cast

import apsw

from outlast.store.base import StoreError
from outlast.store.sqlite import opening, queries
from outlast.store.sqlite.connection import Connection

BUSY_MILLISECONDS: Final = 5_000


def identity_of(path: str) -> tuple[int, int]:
    """Return identity and incarnation of the database at ``path``; its copies say the same. Raises StoreError."""
    found: dict[str, int] = {}
    try:
        opened = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            opened.set_busy_timeout(BUSY_MILLISECONDS)
            connection = cast("Connection", opened)
            found.update(connection.execute(queries.READ_IDENTITY).fetchall())
        finally:
            opened.close()
    except apsw.Error as error:
        raise opening.said(error, path) from error
    if len(found) < 2:  # noqa: PLR2004 - both
        raise StoreError(
            "unavailable",
            f"{path} does not say yet which store it is.",
            remedy="Run: outlast migrate, or start an engine.",
        )
    return found["identity"], found["incarnation"]
