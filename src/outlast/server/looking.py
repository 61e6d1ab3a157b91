"""Looking into a store without owning it: read-only, beside whatever engine may have it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import apsw
import msgspec

from outlast.core import codec
from outlast.core.admin import NamespaceInfo
from outlast.core.errors import NotFound
from outlast.core.feed import Place as FeedPlace
from outlast.core.writes import AttemptRow, HistoryRow, Load, Page, RunRow, TaskRow
from outlast.engine.feed import Feed
from outlast.engine.reading import Reads
from outlast.server.places import BESIDE, BlobPlace
from outlast.server.stores import (
    blobs_of,
    blobs_of_database,
    is_postgres,
    owner_in,
    owner_of,
    path_of,
    postgres_store,
)
from outlast.store.base import BlobStore, FeedFound, RunFilter, StoreError, Stretch, Tally, TaskFilter, Turns, Waiting
from outlast.store.migrate import Migration, migrations_in, missing_of
from outlast.store.sqlite import feed, listing, opening, reading, standing
from outlast.store.sqlite.connection import Connection
from outlast.store.sqlite.lock import last_holder
from outlast.store.standing import Standing, refusal_of, refuse_half

if TYPE_CHECKING:
    from outlast.store.postgres.vacuum import Holder

BUSY_MILLISECONDS: Final = 5_000
ROWS_TRIED: Final = 100_000  # of tasks and of runs, when a store is looked through for rows that cannot be opened

Result = TypeVar("Result")


class Looking(Reads, Feed, Protocol):
    """The part of a store that can be looked into."""


@dataclass(slots=True, frozen=True)
class Opened:
    """A store that is looked into: its reads, its blobs, and what it is called."""

    store: Looking
    blobs: BlobStore
    shown: str
    refused: StoreError | None = None
    """Why it may not be worked on: its work was moved, or it is a backup."""
    holder: str = ""
    """The engine that has it, where only its name is known and not where it is reached."""


@asynccontextmanager
async def looked_into(url: str, place: BlobPlace = BESIDE) -> AsyncGenerator[Opened]:
    """Give the reads of the store at ``url``, whoever owns it. Raises NotFound, StoreError."""
    if is_postgres(url):
        store = postgres_store(url)
        await store.open_to_look()
        try:
            shown = store.address.shown
            refused = refusal_of(store.standing, shown, url=store.address.named) if store.standing else None
            yield Opened(store, blobs_of_database(store, place), shown, refused, store.holder)
        finally:
            await store.close()
        return
    path = path_of(url)
    file = ReadOnlyStore(path)
    try:
        refused = refusal_of(file.standing, path, url=f"sqlite:///{path}") if file.standing else None
        yield Opened(file, blobs_of(path, place), path, refused)
    finally:
        file.close()


class ReadOnlyStore:
    """The reads of a store, on a connection that cannot write."""

    def __init__(self, path: str, *, any_schema: bool = False) -> None:
        """Raises NotFound when there is no file, StoreError when it is not one of ours.

        With ``any_schema`` one of another version can be opened, to be asked for its schema only.
        """
        if not Path(path).is_file():
            raise NotFound(
                "store_not_found",
                f"There is no store at {path}.",
                remedy="Name one with --store sqlite:///FILE, or a server with --server URL.",
            )
        self._path = path
        self.standing: Standing | None = None
        try:
            opened = opening.look_at(path)
            opened.set_busy_timeout(BUSY_MILLISECONDS)
            # apsw's stubs and the store's own protocol of it differ in one member that is not used.
            self._connection = cast("Connection", opened)
        except apsw.Error as error:
            raise opening.said(error, path) from error
        try:
            self._check(any_schema=any_schema)
        except apsw.Error as error:
            self._connection.close()
            raise opening.said(error, path) from error
        except StoreError:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def load(self, load: Load) -> Page:
        """Return the page."""
        return self._read(lambda connection: reading.load(connection, load))

    async def read_history(self, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
        """Return pages of a history."""
        return self._read(
            lambda connection: reading.read_history(
                connection, run_id, first_event_id=first_event_id, events_max=events_max
            )
        )

    async def read_attempts(self, task_id: str) -> list[AttemptRow]:
        """Return how the leases of a task ended."""
        return self._read(lambda connection: reading.read_attempts(connection, task_id))

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]:
        """Return runs, newest first."""
        return self._read(lambda connection: listing.list_runs(connection, filter))

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]:
        """Return tasks, newest first."""
        return self._read(lambda connection: listing.list_tasks(connection, filter))

    async def count_runs(self, filter: RunFilter) -> Tally:
        """Return how many runs match."""
        return self._read(lambda connection: listing.count_runs(connection, filter))

    async def count_tasks(self, filter: TaskFilter) -> Tally:
        """Return how many tasks match."""
        return self._read(lambda connection: listing.count_tasks(connection, filter))

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]:
        """Return what waits in a queue, by type."""
        return self._read(lambda connection: reading.read_waiting(connection, namespace, queue))

    async def read_turns(self) -> list[Turns]:
        """Return which queues' runs need a workflow task."""
        return self._read(reading.read_turns)

    async def read_namespaces(self) -> dict[str, NamespaceInfo]:
        """Return the namespaces by name."""
        return self._read(reading.read_namespaces)

    async def read_counters(self, namespace: str) -> dict[str, int]:
        """Return the counters of a namespace."""
        return self._read(lambda connection: reading.read_counters(connection, namespace))

    async def read_feed(self, namespace: str, *, after: FeedPlace, events_max: int, bytes_max: int) -> FeedFound:
        """Return what a feed has behind ``after``."""
        return self._read(
            lambda connection: feed.read_feed(
                connection, 0, namespace, after=after, events_max=events_max, bytes_max=bytes_max
            )
        )

    def applied(self) -> dict[int, str]:
        """Return the checksums of the migrations that the file has, by number."""
        return opening.Schema(self._connection, self._path).applied()

    def _check(self, *, any_schema: bool) -> None:
        applied = opening.Schema(self._connection, self._path).applied()
        if not applied:
            raise StoreError("store_damaged", f"{self._path} holds no store of Outlast.", remedy="Name another file.")
        known = schema_known()
        if any_schema:
            return
        if max(applied) > known:
            raise StoreError(
                "store_newer",
                f"{self._path} has schema {max(applied)}; this version of Outlast knows schemas up to {known}.",
                remedy="Look with the newer version of Outlast.",
            )
        if max(applied) < known:
            raise StoreError(
                "unavailable",
                f"{self._path} has schema {max(applied)}; this version of Outlast reads schema {known}.",
                remedy="Run: outlast migrate (it keeps a copy of the file as it was).",
            )
        self.standing = standing.read(self._connection)
        refuse_half(self.standing, self._path, url=f"sqlite:///{self._path}")

    def _read(self, read: Callable[[Connection], Result]) -> Result:
        try:
            return read(self._connection)
        except apsw.Error as error:
            raise opening.said(error, self._path) from error


def schema_of(path: str) -> int:
    """Return the schema of the store at ``path``. Raises NotFound when there is none, StoreError when it is not ours."""
    store = ReadOnlyStore(path, any_schema=True)
    try:
        return max(store.applied())
    finally:
        store.close()


async def owner_of_store(url: str) -> str:
    """Return the id under which the store at ``url`` owns a place for payloads. Raises NotFound, StoreError."""
    if not is_postgres(url):
        return owner_of(path_of(url))
    store = postgres_store(url)
    await store.open_to_look()
    try:
        return await owner_in(store)
    finally:
        await store.close()


def integrity_of(path: str) -> None:
    """Raise StoreError when the file is damaged, as far as a look takes that is bounded by the file's size."""
    try:
        with opening.look_at(path) as connection:
            connection.set_busy_timeout(BUSY_MILLISECONDS)
            opening.check_pages(cast("Connection", connection), path)
    except apsw.Error as error:
        raise opening.said(error, path) from error


def check_past(path: str) -> None:
    """Raise StoreError when the database is not, or not any more, what its lock file tells of: no engine starts on it."""
    before = last_holder(path)
    opening.examine(path, before)
    if not before.database:
        return
    try:
        with opening.look_at(path) as opened:
            opened.set_busy_timeout(BUSY_MILLISECONDS)
            connection = cast("Connection", opened)
            for incarnation, number in connection.execute("SELECT incarnation, last_number FROM shards"):
                opening.check_position(before, incarnation=incarnation, number=number, path=path)
    except apsw.Error as error:
        raise opening.said(error, path) from error


def unreadable_in(path: str) -> dict[str, list[str]]:
    """Return the ids of tasks and runs whose rows cannot be opened, among the newest ROWS_TRIED of each.

    Raises StoreError when the file cannot be read.
    """
    tried = f"ORDER BY rowid DESC LIMIT {ROWS_TRIED}"
    found: dict[str, list[str]] = {"tasks": [], "runs": []}
    try:
        with opening.look_at(path) as opened:
            opened.set_busy_timeout(BUSY_MILLISECONDS)
            connection = cast("Connection", opened)
            for id_, spec, status in connection.execute(f"SELECT task_id, spec, status FROM tasks {tried}"):  # noqa: S608 - a number of ours
                if not _opens((codec.decode_spec, spec), (codec.decode_status, status)):
                    found["tasks"].append(str(id_))
            for id_, fixed, state in connection.execute(f"SELECT run_id, fixed, state FROM runs {tried}"):  # noqa: S608 - as above
                if not _opens((codec.decode_fixed, fixed), (codec.decode_state, state)):
                    found["runs"].append(str(id_))
    except apsw.Error as error:
        raise opening.said(error, path) from error
    return found


def _opens(*parts: tuple[Callable[[bytes], object], object]) -> bool:
    try:
        for decode, blob in parts:
            decode(bytes(cast("bytes", blob)))
    except msgspec.MsgspecError:
        return False
    return True


def network_file_system(path: str) -> str:
    """Return the kind of file system of another machine that ``path`` is on, "" for a local one."""
    kind = opening.file_system_of(path)
    return kind if kind in opening.NETWORK_DISKS else ""


def refuse_old_schema(path: str) -> None:
    """Raise StoreError when the file at ``path`` has an older schema than this version makes; a new file is none."""
    if not Path(path).is_file() or not Path(path).stat().st_size:
        return
    try:
        found = schema_of(path)
    except StoreError:
        return  # the engine, which opens it next, says what is wrong with it
    if found < schema_known():
        raise StoreError(
            "unavailable",
            f"{path} has schema {found}; this version of Outlast works with schema {schema_known()}.",
            remedy="Run: outlast migrate (it keeps a copy of the file as it was).",
        )


async def pending_in(url: str) -> tuple[str, int, list[Migration]]:
    """Return what the store at ``url`` is called, the schema that it has, and the migrations that it lacks.

    Raises NotFound when there is no file, StoreError for what is not ours or of a newer version.
    """
    if is_postgres(url):
        from outlast.store.postgres.opening import PACKAGE

        database = postgres_store(url)
        shown, applied = database.address.shown, await database.applied()
        return shown, max(applied), missing_of(applied, migrations_in(PACKAGE))
    path = path_of(url)
    store = ReadOnlyStore(path, any_schema=True)
    try:
        applied = store.applied()
    finally:
        store.close()
    return path, max(applied), missing_of(applied, migrations_in("outlast.store.sqlite"))


async def weak_points_of(url: str) -> tuple[str, tuple[str, ...]]:
    """Return what a database is called, and by which of its settings it may lose acknowledged commits. Raises StoreError."""
    store = postgres_store(url)
    await store.applied()
    assert store.server is not None
    return store.address.shown, store.server.weak


async def set_aside_in(url: str) -> tuple[int, str]:
    """Return how many rows of callers' transactions a database has set aside, and why the first was. Raises StoreError."""
    store = postgres_store(url)
    await store.open_to_look()
    try:
        return await store.intake.set_aside()
    finally:
        await store.close()


async def vacuum_held_in(url: str) -> "tuple[list[Holder], int]":
    """Return who keeps a database from removing rows that are over, and how many of ours there are. Raises StoreError."""
    from outlast.store.postgres.vacuum import holders

    store = postgres_store(url)
    await store.open_to_look()
    try:
        return await store.read(holders)
    finally:
        await store.close()


def schema_known() -> int:
    """Return the number of the newest migration of this version."""
    return max(migration.number for migration in migrations_in("outlast.store.sqlite"))


def sqlite_version() -> str:
    """Return the version of the SQLite that stores use."""
    return apsw.sqlite_lib_version()
