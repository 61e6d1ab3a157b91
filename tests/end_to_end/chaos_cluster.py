"""The processes of the chaos run: an engine, two workers, the destination, PostgreSQL; killed and started again."""

import asyncio
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from examples.processes import Child, Children, NotReady
from outlast.store.postgres.claiming import name_of
from tests.end_to_end.chaos_rows import DatabaseRows, FileRows
from tests.store.cluster import Cluster as Database

WORKERS = 2
ENGINE, WORKER, DATABASE = 0.6, 0.35, 0.6  # how likely each is killed at one moment
SUPERVISED = 30.0  # seconds within which an engine that ends while the database is away is started again
OWNER = 0.4  # of the kills of the database: only the process that writes
TASK_LEASE = "1s"  # the shortest there is, so that work of dead workers comes back soon


@dataclass(slots=True)
class Kills:
    """What has been killed, and how it was then."""

    engines: int = 0
    workers: int = 0
    databases: int = 0  # PostgreSQL with all its processes
    sessions: int = 0  # the one that writes: PostgreSQL then ends all others and recovers by itself
    in_flight: list[int] = field(default_factory=list[int])
    engine_starts: list[float] = field(default_factory=list[float])  # seconds

    @property
    def moments(self) -> int:
        return len(self.in_flight)


class Cluster:
    """Real processes on one folder. ``database``: the server that the work is kept in, else it is kept in a file."""

    def __init__(self, children: Children, folder: Path, *, plant: str, database: Database | None = None) -> None:
        self.folder = folder
        self.kills = Kills()
        self.database = database
        self.store = f"sqlite:///{folder / 'store.db'}" if database is None else database.url(database.empty_database())
        self._children = children
        self._plant = plant
        self._destination = children.start(
            "destination", [sys.executable, "-m", "tests.end_to_end.chaos_destination", str(folder)]
        )
        self._engine = self._start_engine("0")
        self.address = self._engine.last_word
        self._workers = [self._start_worker(n) for n in range(WORKERS)]

    async def kill_some(self, rng: random.Random, *, in_flight: int) -> None:
        """SIGKILL the engine, a worker, the database, or several at one moment; return once what was killed is up again."""
        engine = rng.random() < ENGINE
        workers = [n for n in range(WORKERS) if rng.random() < WORKER]
        database = self.database is not None and rng.random() < DATABASE
        if not engine and not workers and not database:
            workers = [rng.randrange(WORKERS)]
        self.kills.in_flight.append(in_flight)
        if database:
            await asyncio.to_thread(self._kill_database, rng)
        if engine:
            self._engine.kill()
            self.kills.engines += 1
        for n in workers:
            self._workers[n].kill()
            self.kills.workers += 1
        await asyncio.gather(
            self._restart_database(),
            *([self._restart_engine()] if engine else []),
            *(self._restart_worker(n) for n in workers),
        )

    def rows(self) -> FileRows | DatabaseRows:
        """Return the tables that are left, to be closed."""
        return FileRows(str(self.folder / "store.db")) if self.database is None else DatabaseRows(self.store)

    def stop(self) -> None:
        """Stop workers and engine in good order."""
        for worker in self._workers:
            worker.stop()
        self._engine.stop()

    def _kill_database(self, rng: random.Random) -> None:
        assert self.database is not None
        if rng.random() < OWNER and self.database.kill_session(name_of(0)):
            self.kills.sessions += 1
        else:
            self.database.kill()
            self.kills.databases += 1

    async def _restart_database(self) -> None:
        if self.database is not None:
            await asyncio.to_thread(self.database.start)

    async def _restart_engine(self) -> None:
        began = time.monotonic()
        port = self.address.rpartition(":")[2]
        while True:
            try:
                self._engine = await asyncio.to_thread(self._start_engine, port)
                break
            except NotReady:  # the database was away: whoever looks after an engine starts it again
                if self.database is None or time.monotonic() - began > SUPERVISED:
                    raise
        self.kills.engine_starts.append(time.monotonic() - began)

    async def _restart_worker(self, n: int) -> None:
        self._workers[n] = await asyncio.to_thread(self._start_worker, n)

    def _start_engine(self, port: str) -> Child:
        module = "tests.end_to_end.planted" if self._plant else "outlast.cli"
        serve = ["serve", "--store", self.store, "--port", port, "--task-lease", TASK_LEASE]
        return self._children.start(
            "engine", [sys.executable, "-m", module, *serve], PLANT=self._plant, OUTLAST_LOG__LEVEL="WARNING"
        )

    def _start_worker(self, n: int) -> Child:
        app = str(Path(__file__).parent / "chaos_app.py")
        return self._children.start(
            f"worker-{n}",
            [sys.executable, "-m", "outlast.cli", "worker", "start", app, "--server", self.address],
            CHAOS_LEDGER=str(self.folder),
            CHAOS_DESTINATION=self._destination.last_word,
            OUTLAST_LOG__LEVEL="ERROR",
        )
