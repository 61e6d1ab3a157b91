"""Opening a file: what is checked before anything is written to it, and how what goes wrong is said.

A file that is damaged, gone, or has gone back is reported; it is never repaired by guessing and never replaced.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import apsw

from outlast.store.base import StoreError
from outlast.store.migrate import Migration
from outlast.store.sqlite import writing
from outlast.store.sqlite.connection import APPLICATION_ID, Connection
from outlast.store.sqlite.lock import Holder

SMALLEST_BYTES: Final = 512  # of a SQLite database
CHECKED_BYTES_MAX: Final = 64 * 1024 * 1024  # larger files are not checked page by page at each start
RESTORE: Final = (
    "Find where the file went, or restore the last backup: outlast restore FILE --replace (it keeps what is there)."
)
MOUNTS: Final = "/proc/mounts"
NETWORK_DISKS: Final = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs", "virtiofs",
})  # fmt: skip


def refuse_network_disk(path: str, *, mounts: str = MOUNTS) -> None:
    """Raise StoreError when ``path`` is on a file system of another machine, as far as the system tells."""
    kind = file_system_of(path, mounts=mounts)
    if kind in NETWORK_DISKS:
        raise StoreError(
            "unavailable",
            f"{path} is on a network file system ({kind}); SQLite in WAL mode is not safe there.",
            remedy="Use a local disk, or say allow_network_disk if only this machine ever opens the file.",
        )


def file_system_of(path: str, *, mounts: str = MOUNTS) -> str:
    """Return the type of the file system that ``path`` is on, "" if the system does not tell."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = -1, ""
    for line in lines:
        parts = line.split()
        if len(parts) < 3:  # noqa: PLR2004 - device, place, type
            continue
        place = parts[1].replace("\\040", " ").rstrip("/")
        # Of two mounts on one place the later hides the earlier.
        if (real == place or real.startswith(place + "/")) and len(place) >= best:
            best, kind = len(place), parts[2]
    return kind


def examine(path: str, before: Holder) -> None:
    """Raise StoreError when what lies at ``path`` cannot be the database that the lock file tells of.

    The content is left to SQLite: after a power cut the first page itself may have to come from the WAL.
    """
    refuse_hard_links(path)
    size, _ = _size_and_names(path)
    if size <= 0 and before.database:
        what = "is missing" if size < 0 else "is empty"
        raise StoreError(
            "store_damaged",
            f"The database {path} {what}, but its lock file says that it held data up to commit {before.number}.",
            remedy=f"{RESTORE} To begin anew on purpose, remove {path}.lock as well.",
        )
    refuse_headless_log(path)
    recovering = Path(f"{path}-wal").exists() or Path(f"{path}-journal").exists()
    if 0 < size < SMALLEST_BYTES and not recovering:
        # SQLite would take it for a new file and write over it.
        raise StoreError("store_damaged", f"The file {path} is not a SQLite database.", remedy=RESTORE)


def refuse_hard_links(path: str) -> None:
    """Raise StoreError when the file has a second name, under which SQLite would keep another log."""
    _, names = _size_and_names(path)
    if names > 1:
        raise StoreError(
            "unavailable",
            f"The file {path} has {names} names (hard links): each would get a log of its own, and what is committed "
            "under one is missing under the others.",
            remedy="Remove the other names, or copy the file and use the copy.",
        )


def refuse_headless_log(path: str) -> None:
    """Raise StoreError when the file is missing or empty while commits lie in its -wal file, which SQLite would remove."""
    size, _ = _size_and_names(path)
    left, _ = _size_and_names(f"{path}-wal")
    if size <= 0 < left:
        raise StoreError(
            "store_damaged",
            f"The database {path} is {'missing' if size < 0 else 'empty'}, and {left:,} bytes of commits are left in "
            f"{path}-wal.",
            remedy=f"{RESTORE} To begin anew on purpose, move {path}-wal away.",
        )


def look_at(path: str) -> apsw.Connection:
    """Return a connection to the file that cannot write. Raises apsw.Error, and StoreError for one that is not safe to open."""
    refuse_hard_links(path)
    refuse_headless_log(path)
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)


def _size_and_names(path: str) -> tuple[int, int]:
    """Return the bytes of the file at ``path``, -1 for none, and how many names it has."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as a Path the look would be no shorter
    except FileNotFoundError:
        return -1, 0
    return found.st_size, found.st_nlink


def check_pages(connection: Connection, path: str) -> None:
    """Raise StoreError when the file belongs to another program or, if it is small enough to be read, is damaged."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    found = connection.execute("PRAGMA application_id").fetchall()[0][0]
    if tables and found != APPLICATION_ID:
        raise StoreError(
            "store_damaged",
            f"The file {path} is a SQLite database of another program.",
            remedy="Name another file; the engine's database holds nothing but its own tables.",
        )
    if tables and os.path.getsize(path) <= CHECKED_BYTES_MAX:  # noqa: PTH202
        problem = connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
        if problem != "ok":
            raise StoreError("store_damaged", f"The database {path} is damaged: {problem}.", remedy=RESTORE)


def check_position(before: Holder, *, incarnation: int, number: int, path: str) -> None:
    """Raise StoreError when the database is behind a commit that it surely had: its -wal file was lost or cut."""
    if (incarnation, number) < (before.incarnation, before.number):
        raise StoreError(
            "store_damaged",
            f"The database {path} ends at commit {number}, but commit {before.number} was in it: its -wal file was "
            "removed or cut, or an older copy lies in its place.",
            remedy=f"Put the -wal file back. To go on from a backup: outlast restore FILE --replace --store sqlite:///{path}",
        )


def said(error: apsw.Error, path: str, connection: Connection | None = None) -> StoreError:
    """Return ``error`` as what a user can act on."""
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return StoreError("store_damaged", f"The database {path} is damaged: {error}.", remedy=RESTORE)
    if writing.is_out_of_space(error, connection):
        return StoreError("store_full", f"There is no room to write {path}.", remedy="Free space on its disk.")
    if isinstance(error, apsw.BusyError):
        return StoreError(
            "unavailable",
            f"Another program has {path} locked.",
            remedy="Close what has the file open, for example a database browser.",
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreError(
            "unavailable",
            f"The database {path} cannot be opened: {error}.",
            remedy="Make its folder, and give this user the right to write there.",
        )
    return StoreError(
        "unavailable", f"The database {path} failed: {error}.", remedy="Look at the disk, then start again."
    )


class Schema:
    """The database as the runner of migrations sees it."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    def applied(self) -> dict[int, str]:
        """Return the checksums of the migrations that made the database."""
        found = self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchall()
        if not found:
            return {}
        return dict(self._connection.execute("SELECT number, checksum FROM migrations").fetchall())

    def run(self, script: str, *, record: Migration) -> None:
        """Run ``script`` and record the migration, in one transaction."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(script)
            values = (record.number, record.name, record.checksum)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?, unixepoch())", values)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            writing.roll_back(connection)
            raise

    def keep_copy(self, number: int) -> None:
        """Copy the file to ``<database>.before-<number>`` before migration ``number`` changes it; an older copy stays."""
        copy = f"{self._path}.before-{number}"
        if Path(copy).exists():
            return
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copyfile(self._path, copy + ".part")
        with open(copy + ".part", "rb") as file:  # noqa: PTH123
            os.fsync(file.fileno())
        os.replace(copy + ".part", copy)  # noqa: PTH105
