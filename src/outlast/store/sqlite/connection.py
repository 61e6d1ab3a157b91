"""Connections to the file, all with the same settings, each setting read back.

Every connection of the store comes from ``connect``: a setting that is made in one place only is missing in another.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, cast

import apsw

from outlast.store.base import StoreError

PAGE_BYTES: Final = 8192  # rows of about 1 KB: fewer levels and overflow pages than with 4096, measured
CACHE_KIB: Final = 12_288  # per connection; the system caches the file as well, and a larger one made no commit cheaper
BUSY_MILLISECONDS: Final = 5_000  # how long one statement waits for a lock of another program
STATEMENTS_KEPT: Final = 512  # prepared; the most that apsw takes, which drops what was not used for so long
APPLICATION_ID: Final = 0x4F55544C  # "OUTL" in the file's header
ROOM_BYTES: Final = 1_200  # of one of the pieces of memory that a connection keeps for what it allocates in passing
ROOMS: Final = 1_000  # per connection; prepared statements take SQLite's own 40, and each row then asks the system


class Cursor(Protocol):
    """The rows of a statement; apsw's own types know only that a value may be anything."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchall(self) -> list[Any]: ...

    def close(self) -> None: ...


class Connection(Protocol):
    """What the store uses of an ``apsw.Connection``."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statements: str, bindings: Sequence[Any] = ()) -> Cursor: ...

    def changes(self) -> int: ...

    def total_changes(self) -> int: ...

    @property
    def system_errno(self) -> int: ...

    def set_wal_hook(self, callable: Callable[[Any, str, int], int] | None) -> None: ...  # noqa: A002 - apsw's name

    def set_progress_handler(self, callable: Callable[[], bool] | None, nsteps: int) -> None: ...  # noqa: A002

    def close(self) -> None: ...


SETTINGS: Final[dict[str, int | str]] = {
    "synchronous": 2,  # FULL: each commit reaches the disk before it is acknowledged
    "wal_autocheckpoint": 0,  # the store has a checkpointer of its own, so that no commit pays for one
    "cache_size": -CACHE_KIB,
    "busy_timeout": BUSY_MILLISECONDS,
    "temp_store": 2,  # memory
    "foreign_keys": 0,  # the core keeps references; the tables declare none
    "trusted_schema": 0,
    "cell_size_check": 1,  # damaged pages are noticed when they are read
    "fullfsync": 1,  # macOS: an fsync that reaches the disk; without meaning elsewhere
    "checkpoint_fullfsync": 1,
    "journal_size_limit": -1,  # the checkpointer truncates
}


def _set_up_memory() -> None:
    """Let SQLite count no memory, and connections keep some of their own: a fifth of what a commit costs.

    SQLite takes this only before its first use in the process, or while nothing is open.
    """
    if apsw.connections():
        return
    apsw.shutdown()
    apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, False)
    apsw.config(apsw.SQLITE_CONFIG_LOOKASIDE, ROOM_BYTES, ROOMS)
    apsw.initialize()


_set_up_memory()


def connect(path: str, *, vfs: str = "", synchronous: str = "FULL") -> Connection:
    """Return a new connection in WAL mode with every setting in force, making an empty file if there is none.

    With a ``vfs`` the connection is exclusive, as a VFS written in Python shares no memory: it must be the only one.
    Raises StoreError when WAL or another setting could not be had, apsw.Error when the file cannot be opened or read.
    """
    opened = apsw.Connection(path, vfs=vfs or None, statementcachesize=STATEMENTS_KEPT)
    connection = cast("Connection", opened)
    try:
        _configure(connection, exclusive=bool(vfs), synchronous=synchronous)
    except BaseException:
        connection.close()
        raise
    return connection


def settings_of(connection: Connection) -> dict[str, int | str]:
    """Return what is in force on ``connection`` for each name in SETTINGS, and the journal mode."""
    values = {name: _pragma(connection, name) for name in SETTINGS}
    values["journal_mode"] = _pragma(connection, "journal_mode")
    return values


def wanted_settings(synchronous: str = "FULL") -> dict[str, int | str]:
    """Return what ``settings_of`` gives for a connection that is as it should be."""
    level = {"OFF": 0, "NORMAL": 1, "FULL": 2, "EXTRA": 3}[synchronous]
    return {**SETTINGS, "synchronous": level, "journal_mode": "wal"}


def _configure(connection: Connection, *, exclusive: bool, synchronous: str) -> None:
    wanted = wanted_settings(synchronous)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # in force only for a file that is still empty
    if exclusive:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    for name, value in wanted.items():
        if name != "journal_mode":
            connection.execute(f"PRAGMA {name} = {value}")

    found = settings_of(connection)
    if found["journal_mode"] != "wal":
        raise StoreError(
            "unavailable",
            f"SQLite could not be put into WAL mode; it stays in mode {found['journal_mode']!r}.",
            remedy="Put the file on a local disk that supports shared memory and locks.",
        )
    wrong = {name: found[name] for name in wanted if found[name] != wanted[name]}
    if wrong:
        raise StoreError(
            "unavailable",
            f"SQLite did not take these settings: {wrong}.",
            remedy="Use the apsw build that Outlast was installed with.",
        )


def _pragma(connection: Connection, name: str) -> int | str:
    rows = connection.execute(f"PRAGMA {name}").fetchall()
    return cast("int | str", rows[0][0]) if rows else ""
