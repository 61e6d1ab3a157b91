"""The processes of the chaos run: an engine, two workers, the destination; killed and started again."""

import asyncio
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

from examples.processes import Child, Children

WORKERS = 2
TASK_LEASE = "1s"  # the shortest there is, so that work of dead workers comes back soon


@dataclass(slots=True)
class Kills:
    """What has been killed, and how it was then."""

    engines: int = 0
    workers: int = 0
    in_flight: list[int] = field(default_factory=list[int])
    engine_starts: list[float] = field(default_factory=list[float])  # seconds

    @property
    def moments(self) -> int:
        return len(self.in_flight)


class Cluster:
    """Real processes on one folder."""

    def __init__(self, children: Children, folder: Path, *, plant: str) -> None:
        self.folder = folder
        self.kills = Kills()
        self.store = folder / "store.db"
        self._children = children
        self._plant = plant
        self._destination = children.start(
            "destination", [sys.executable, "-m", "tests.end_to_end.chaos_destination", str(folder)]
        )
        self._engine = self._start_engine("0")
        self.address = self._engine.last_word
        self._workers = [self._start_worker(n) for n in range(WORKERS)]

    async def kill_some(self, rng: random.Random, *, in_flight: int) -> None:
        """SIGKILL the engine, a worker, or several at one moment; return once what was killed is up again."""
        engine = rng.random() < 0.6
        workers = [n for n in range(WORKERS) if rng.random() < 0.35]
        if not engine and not workers:
            workers = [rng.randrange(WORKERS)]
        self.kills.in_flight.append(in_flight)
        if engine:
            self._engine.kill()
            self.kills.engines += 1
        for n in workers:
            self._workers[n].kill()
            self.kills.workers += 1
        await asyncio.gather(*([self._restart_engine()] if engine else []), *(self._restart_worker(n) for n in workers))

    def stop(self) -> None:
        """Stop workers and engine in good order."""
        for worker in self._workers:
            worker.stop()
        self._engine.stop()

    async def _restart_engine(self) -> None:
        self._engine = await asyncio.to_thread(self._start_engine, self.address.rpartition(":")[2])
        self.kills.engine_starts.append(self._engine.seconds)

    async def _restart_worker(self, n: int) -> None:
        self._workers[n] = await asyncio.to_thread(self._start_worker, n)

    def _start_engine(self, port: str) -> Child:
        module = "tests.end_to_end.planted" if self._plant else "outlast.cli"
        serve = ["serve", "--store", f"sqlite:///{self.store}", "--port", port, "--task-lease", TASK_LEASE]
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
