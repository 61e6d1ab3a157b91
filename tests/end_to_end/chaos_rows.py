"""What is left in a store after a chaos run, read by plain statements that all stores understand."""

import asyncio
from typing import Any, Protocol, cast

import apsw
import asyncpg

from outlast.store.sqlite.connection import Connection


class Rows(Protocol):
    """The tables of a store."""

    def select(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; ``$1`` in it stands for the first of ``values``."""
        ...


class FileRows:
    """Those of a file of SQLite."""

    def __init__(self, path: str) -> None:
        self._connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY))

    def select(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(sql, values))

    def close(self) -> None:
        self._connection.close()


class DatabaseRows:
    """Those of a database of PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._session = self._runner.run(asyncpg.connect(url, server_settings={"search_path": "outlast"}))

    def select(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._runner.run(self._session.fetch(sql, *values))]

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.close()
