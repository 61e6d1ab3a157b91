"""What a database says it is, read beside whoever has it."""

import os
from pathlib import Path
from typing import Final, cast

import apsw

from outlast.store.base import StoreError
from outlast.store.sqlite import opening, queries
from outlast.store.sqlite.connection import Connection

BUSY_MILLISECONDS: Final = 5_000


def marks_of(path: str) -> tuple[int, int]:
    """Return what tells the file at ``path`` from copies of it: the file system, and the file in that."""
    found = Path(path).stat()
    # A device's number may be another after each start of the machine; the id of its file system mostly stays.
    disk = os.statvfs(path).f_fsid if hasattr(os, "statvfs") else found.st_dev
    return disk, found.st_ino


def identity_of(path: str) -> tuple[int, int]:
    """Return identity and incarnation of the database at ``path``; its copies say the same. Raises StoreError."""
    found: dict[str, int] = {}
    try:
        opened = opening.look_at(path)
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
