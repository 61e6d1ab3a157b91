"""A SQLite file as a whole, held by its lock or read beside whoever has it."""

import contextlib
import os
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final, Self, cast

import apsw

from outlast.core.errors import NotFound
from outlast.store.base import StoreError
from outlast.store.blobs import BESIDE, FileBlobStore
from outlast.store.migrate import migrate, migrations_in
from outlast.store.sqlite import opening, queries, references, standing, writing
from outlast.store.sqlite.conditions import stored
from outlast.store.sqlite.connection import Connection, connect
from outlast.store.sqlite.identity import marks_of
from outlast.store.sqlite.lock import FileLock, Holder
from outlast.store.standing import Standing
from outlast.store.whole import KINDS, LABELS, Blobs, Kind, Position, Row, batches

PACKAGE: Final = "outlast.store.sqlite"
BUSY_MILLISECONDS: Final = 5_000
SHARD: Final = 0  # one file holds one shard
CHECKPOINT_EVERY: Final = 8  # writes after which the WAL is brought into the file
BACKUP_PAGES: Final = 4_096  # pages of one step of a copy


class SqliteWhole:
    """The file at ``path``. Made by ``hold`` or ``look``."""

    def __init__(self, path: str, connection: Connection, lock: FileLock | None = None) -> None:
        self.path = path
        self.shown = path
        self.takes_intake = False
        self.url = f"sqlite:///{Path(path).resolve()}"
        self.blobs: Blobs = FileBlobStore(f"{path}{BESIDE}")
        self._connection = connection
        self._lock = lock
        self._writes = 0

    @classmethod
    def hold(cls, path: str, *, make: bool) -> Self:
        """Return the file with its lock taken, so that no engine has it. Raises StoreError.

        With ``make`` the file is made if there is none, and brought to the newest schema; without, an older schema is refused.
        """
        opening.refuse_network_disk(path)
        lock = FileLock(path)
        before = lock.acquire()
        try:
            opening.examine(path, before)
            with saying(path):
                return cls(path, _opened(path, before, make=make), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def begin_anew(cls, path: str, *, aside: str, row: Standing) -> Self:
        """Return a new file of standing ``row`` in the place of one that cannot be used, which is kept as ``aside``.

        It goes on above the incarnation that the lock file remembers. Raises StoreError.
        """
        opening.refuse_network_disk(path)
        lock = FileLock(path)
        before = lock.acquire()
        try:
            for end in ("-wal", "-shm", "-journal", ""):
                if aside and Path(path + end).exists():
                    Path(path + end).replace(aside + end)
            with saying(path):
                self = cls(path, _opened(path, Holder(), make=True), lock)
                with self._commit() as connection:
                    connection.execute("UPDATE meta SET value = ? WHERE key = 'incarnation'", (before.incarnation + 1,))
                    _stand(connection, row)
                lock.note(incarnation=before.incarnation + 1, number=0)
        except BaseException:
            lock.release()
            raise
        return self

    @classmethod
    def look(cls, path: str) -> Self:
        """Return the file for reading, as it is at this moment, whoever has it. Raises StoreError."""
        with saying(path):
            opened = opening.look_at(path)
            opened.set_busy_timeout(BUSY_MILLISECONDS)
            connection = cast("Connection", opened)
            try:
                opening.check_pages(connection, path)
                _require_schema(connection, path)
                connection.execute("BEGIN")
                connection.execute(
                    "SELECT count(*) FROM sqlite_schema"
                ).fetchall()  # the state that is read begins here
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    async def close(self) -> None:
        """Close the file and give its lock back."""
        try:
            with saying(self.path):
                if self._lock is not None:
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def marks(self) -> tuple[int, ...]:
        """Return what tells the file from copies of it."""
        return marks_of(self.path)

    async def position(self) -> Position:
        """Return which store it is, and how far."""
        with saying(self.path):
            found = dict(self._connection.execute(queries.READ_IDENTITY).fetchall())
            rows = self._connection.execute(queries.READ_SHARD, (SHARD,)).fetchall()
        incarnation, epoch, _, _, number, at = rows[0] if rows else (found["incarnation"], 0, "", 0, 0, 0)
        return Position(
            identity=found["identity"],
            incarnation=max(incarnation, found["incarnation"]),
            epoch=epoch,
            number=number,
            at=at,
        )

    async def standing(self) -> Standing | None:
        """Return the row that says why it may not be worked on, None when it may."""
        with saying(self.path):
            return standing.read(self._connection)

    async def count(self, kind: Kind) -> int:
        """Return how many rows of a kind there are."""
        with saying(self.path):
            return int(self._connection.execute(f"SELECT count(*) FROM {kind.name}").fetchall()[0][0])

    async def rows(self, kind: Kind) -> AsyncIterator[Sequence[Row]]:
        """Give the rows of a kind in order of its key."""
        columns, key = _names(kind.columns), _names(kind.key)
        with saying(self.path):
            cursor = self._connection.execute(f"SELECT {columns} FROM {kind.name} ORDER BY {key}")
            found: Iterable[Row] = map(_label, cursor) if kind is LABELS else cursor
            for batch in batches(kind, found):
                yield batch

    async def begin(self, row: Standing) -> None:
        """Remove every row and take the standing ``row``, in one commit."""
        with self._commit() as connection:
            for kind in KINDS:
                connection.execute(f"DELETE FROM {kind.name}")
            _stand(connection, row)

    async def write(self, kind: Kind, rows: Sequence[Row]) -> None:
        """Add rows in a commit of their own."""
        values: Iterable[Row] = map(_stored_label, rows) if kind is LABELS else rows
        marks = ", ".join("?" * len(kind.columns))
        with self._commit() as connection:
            statement = f"INSERT INTO {kind.name} ({_names(kind.columns)}) VALUES ({marks})"
            cast("Any", connection).executemany(statement, values)
        self._writes += 1
        if self._writes % CHECKPOINT_EVERY == 0:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    async def settle(self) -> None:
        """Bring what was written into the file: SQLite derives nothing from rows but indexes."""
        with saying(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.execute("PRAGMA optimize")

    async def stand(self, row: Standing | None, *, lease_step: int = 0, incarnation: int = 0) -> None:
        """Take the standing ``row`` in one commit; the lock keeps everybody else out."""
        with self._commit() as connection:
            if lease_step:
                connection.execute("UPDATE tasks SET lease = lease + ?", (lease_step,))
            if incarnation:
                connection.execute("UPDATE meta SET value = ? WHERE key = 'incarnation'", (incarnation,))
                connection.execute("UPDATE shards SET incarnation = ?, owner = '', lease_until = 0", (incarnation,))
            _stand(connection, row)
        await self._note()

    async def open_up(self, position: Position) -> None:
        """Become the store of ``position``, fit to be worked on."""
        with self._commit() as connection:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'identity'", (position.identity,))
            connection.execute("UPDATE meta SET value = ? WHERE key = 'incarnation'", (position.incarnation,))
            connection.execute("DELETE FROM shards")
            row = (SHARD, position.incarnation, position.epoch, "", 0, position.number, position.at)
            connection.execute("INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            _stand(connection, None)
        await self._note()

    async def _note(self) -> None:
        found = await self.position()
        if self._lock is not None:
            self._lock.note(incarnation=found.incarnation, number=found.number)

    def copy_to(self, path: str) -> None:
        """Write the state that is read into a new file at ``path``, which needs no other file beside it. Raises StoreError."""
        with saying(path):
            copy = apsw.Connection(path)
            try:
                with copy.backup("main", cast("apsw.Connection", self._connection), "main") as steps:
                    while not steps.done:
                        steps.step(BACKUP_PAGES)
            finally:
                copy.close()

    @contextlib.contextmanager
    def _commit(self) -> Generator[Connection]:
        connection = self._connection
        with saying(self.path, connection):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                writing.roll_back(connection)
                raise


def finish_backup(path: str, row: Standing) -> None:
    """Make the file at ``path`` a backup that can be read where nothing can be written beside it. Raises StoreError."""
    with saying(path):
        connection = cast("Connection", apsw.Connection(path))
        try:
            _stand(connection, row)
            connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            connection.close()
    with open(path, "rb") as file:  # noqa: PTH123
        os.fsync(file.fileno())


def named_in(path: str, digests: AbstractSet[str]) -> set[str]:
    """Return those of the payloads ``digests`` that a row of the file names, which nobody has. Raises StoreError."""
    with saying(path):
        connection = cast("Connection", opening.look_at(path))
        try:
            return references.named_blobs(connection, digests)
        finally:
            connection.close()


def migrate_copy(path: str) -> None:
    """Bring a copy, which nobody has, to the newest schema. Raises StoreError."""
    with saying(path):
        connection = connect(path)
        try:
            migrate(opening.Schema(connection, path), migrations_in(PACKAGE))
        finally:
            connection.close()


@contextlib.contextmanager
def saying(path: str, connection: Connection | None = None) -> Generator[None]:
    """Turn what SQLite raises into what a user can act on."""
    try:
        yield
    except apsw.Error as error:
        raise opening.said(error, path, connection) from error


def _opened(path: str, before: Holder, *, make: bool) -> Connection:
    if not make and not Path(path).is_file():
        raise NotFound("store_not_found", f"There is no store at {path}.", remedy="Name the file that has the work.")
    connection = connect(path)
    try:
        opening.check_pages(connection, path)
        if make:
            schema = opening.Schema(connection, path)
            migrate(schema, migrations_in(PACKAGE), keep_copy=schema.keep_copy)
        _require_schema(connection, path)
        shards = connection.execute(queries.READ_SHARD, (SHARD,)).fetchall()
        incarnation = connection.execute(queries.READ_INCARNATION).fetchall()[0][0]
        number = shards[0][4] if shards else 0
        opening.check_position(before, incarnation=incarnation, number=number, path=path)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_schema(connection: Connection, path: str) -> None:
    found = max(opening.Schema(connection, path).applied(), default=0)
    known = max(migration.number for migration in migrations_in(PACKAGE))
    if not found:
        raise StoreError("store_damaged", f"{path} holds no store of Outlast.", remedy="Name another file.")
    if found != known:
        raise StoreError(
            "unavailable" if found < known else "store_newer",
            f"{path} has schema {found}; this version of Outlast works with schema {known}.",
            remedy=f"Run: outlast migrate --store sqlite:///{path}"
            if found < known
            else "Use the newer version of Outlast.",
        )


def _stand(connection: Connection, row: Standing | None) -> None:
    connection.execute("DELETE FROM standing")
    if row is not None:
        standing.write(connection, row)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _label(row: Row) -> Row:
    id_, name, n, value, *rest = row
    if isinstance(value, bytes):
        value = bool(value[0])
    elif isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
        value = int(value)
    return id_, name, n, value, *rest


def _stored_label(row: Row) -> Row:
    id_, name, n, value, *rest = row
    return id_, name, n, stored(value), *rest
