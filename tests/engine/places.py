"""Where the stores of a test keep their rows: each kind of store that tests of the engine run on, and what is in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import apsw
import asyncpg

from outlast.core.replies import TaskState
from outlast.store.base import Store
from outlast.store.memory.store import MemoryStore
from outlast.store.memory.tables import Tables
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.connection import Connection
from outlast.store.sqlite.store import SqliteStore


@dataclass(slots=True)
class Found:
    """What is kept: states of tasks by their ids, ids of runs, those that have history, and those that have labels."""

    tasks: dict[str, TaskState] = field(default_factory=dict[str, TaskState])
    runs: set[str] = field(default_factory=set[str])
    histories: set[str] = field(default_factory=set[str])
    labels: set[str] = field(default_factory=set[str])


class Place(Protocol):
    """The rows of one shard. They stay when the store that wrote them is closed."""

    def store(self) -> Store:
        """Return a store over these rows, not opened yet."""
        ...

    async def found(self) -> Found:
        """Return what has been committed."""
        ...


class MemoryPlace:
    """Rows of this process."""

    def __init__(self, tables: Tables | None = None) -> None:
        self.tables = tables or Tables()

    def store(self) -> MemoryStore:
        return MemoryStore(tables=self.tables)

    async def found(self) -> Found:
        tables = self.tables
        return Found(
            {id_: row.state for id_, row in tables.tasks.items()},
            set(tables.runs),
            set(tables.history),
            set(tables.labels),
        )


class FilePlace:
    """Rows of a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self) -> SqliteStore:
        return SqliteStore(self.path, synchronous="OFF", allow_network_disk=True)

    async def found(self) -> Found:
        connection = cast("Connection", apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY))
        rows = [list(connection.execute(sql)) for sql in _ROWS]
        connection.close()
        return _found(rows)


class DatabasePlace:
    """Rows of a database of PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.url = url

    def store(self) -> PostgresStore:
        return PostgresStore(self.url, allow_weak=True)

    async def found(self) -> Found:
        session = await asyncpg.connect(self.url, server_settings={"search_path": "outlast"})
        rows = [await session.fetch(sql) for sql in _ROWS]
        await session.close()
        return _found(rows)


_ROWS = (
    "SELECT task_id, state FROM tasks",
    "SELECT run_id FROM runs",
    "SELECT DISTINCT run_id FROM history",
    "SELECT DISTINCT id FROM labels",
)


def _found(rows: list[list[Any]]) -> Found:
    tasks, *others = rows
    return Found({id_: TaskState(state) for id_, state in tasks}, *({id_ for (id_,) in ids} for ids in others))


@dataclass(slots=True)
class Placing:
    """Makes places of the kind that the test at hand uses; in memory unless it is told otherwise."""

    make: Callable[[], Place] = MemoryPlace


PLACING = Placing()


def new_place() -> Place:
    """Return a place in which nothing is."""
    return PLACING.make()
