"""Absurd as a contender: stored procedures in PostgreSQL, one worker, and this caller, each a program that speaks SQL.

python absurd_driver.py FOLDER                        measures
python absurd_driver.py worker ADDRESS MARK TALLY     is the worker
"""

import asyncio
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from benchmarks.peers import turn
from benchmarks.peers.cluster import Cluster, wheel_binaries
from benchmarks.peers.programs import Programs
from benchmarks.peers.tally import Tally
from benchmarks.peers.workloads import BATCH, CALLERS, STEPS

POLL = 0.05  # seconds between two looks of the worker; a quarter of a second is the default
CONCURRENCY = 64
SHAPE = f"PostgreSQL, one worker of {CONCURRENCY} that polls every {POLL:g} s, and the caller are three programs"
OPEN = "select count(*) from absurd.t_bench where state in ('pending', 'running', 'sleeping')"
SPAWN_MANY = (
    "select count(*) from unnest(%s::jsonb[]) given, lateral absurd.spawn_task('parked', 'nothing', given, '{}')"
)


def client(address: str, queue: str = "bench") -> Any:
    """Return a client with a connection of its own."""
    return importlib.import_module("absurd_sdk").AsyncAbsurd(address, queue_name=queue)


async def work(address: str, mark: Path, tally: Tally) -> None:
    """Run the tasks until told to stop, as a user of Absurd would write them."""
    absurd = client(address)

    @absurd.register_task("nothing")
    async def nothing(given: Any, _: Any) -> int:
        tally.add()
        return int(given["n"])

    @absurd.register_task("stamp")
    async def stamp(given: Any, _: Any) -> None:
        tally.stamp(given["n"])

    @absurd.register_task("steps")
    async def steps(given: Any, context: Any) -> int:
        async def step() -> int:
            return 1

        total = 0
        for _ in range(given["n"]):
            total += await context.step("step", step)
        tally.add()
        return total

    mark.touch()  # noqa: ASYNC240 - before anything else goes on
    await absurd.start_worker(concurrency=CONCURRENCY, poll_interval=POLL)


async def main(folder: Path) -> None:
    """Start database and worker, and measure turn by turn."""
    out = turn.own_output()
    tally = Tally(folder / "tally")
    with Programs(folder) as programs:
        binaries = wheel_binaries()
        cluster = Cluster(programs, binaries)
        try:
            install(cluster.address, binaries)
            programs.worker(__file__, cluster.address, str(folder / "up"), str(folder / "tally"), mark=folder / "up")
            about = {
                "version": f"absurd-sdk {importlib.metadata.version('absurd-sdk')}",
                "shape": SHAPE,
                "durability": cluster.durability,
            }
            caller = Caller(cluster.address, tally)
            await caller.connect()
            await turn.serve(out, about, caller.measures())
            await caller.close()
        finally:
            programs.stop()
            cluster.drop()


def install(address: str, binaries: Path) -> None:
    """Put its tables and functions into the database, with a queue for the worker and one that nobody polls."""
    absurdctl = Path(sys.executable).with_name("absurdctl")
    env = {
        **os.environ,
        "ABSURD_DATABASE_URL": address,
        "PATH": os.pathsep.join([str(binaries), os.environ["PATH"]]),  # it calls psql
    }
    for words in (["init"], ["create-queue", "bench"], ["create-queue", "parked"]):
        subprocess.run([absurdctl, *words], check=True, capture_output=True, timeout=60, env=env)


class Caller:
    """The workloads, by as many clients as there are callers."""

    def __init__(self, address: str, tally: Tally) -> None:
        self.address = address
        self.tally = tally
        self.clients = [client(address) for _ in range(CALLERS)]
        self.connection: Any = None

    async def connect(self) -> None:
        """Open every connection."""
        psycopg: Any = importlib.import_module("psycopg")
        self.connection = await psycopg.AsyncConnection.connect(self.address, autocommit=True)
        await asyncio.gather(*(absurd.list_queues() for absurd in self.clients))

    async def close(self) -> None:
        """Close them."""
        await asyncio.gather(*(absurd.close() for absurd in self.clients), self.connection.close())

    def measures(self) -> dict[str, turn.Measure]:
        """Return how each workload is measured. Steps of one task run one after another: there is no fan-out."""
        return {
            "submit": self.submit,
            "bulk": self.bulk,
            "tasks": lambda seconds: self.through("nothing", int(400 * seconds), 1),
            "one_step": lambda seconds: self.through("steps", int(200 * seconds), 1),
            "ten_steps": lambda seconds: self.through("steps", int(40 * seconds), STEPS),
            "to_handler": self.to_handler,
            "to_result": self.to_result,
        }

    async def submit(self, seconds: float) -> float:
        """Spawn where nobody polls."""
        return await turn.closed_loop(
            CALLERS, seconds, lambda n: self.clients[n % CALLERS].spawn("nothing", {"n": n}, queue="parked")
        )

    async def bulk(self, seconds: float) -> float:
        """Spawn many by one statement over its function: its clients have no call for many."""

        async def batch(_: int) -> None:
            given = [json.dumps({"n": n}) for n in range(BATCH)]
            await self.connection.execute(SPAWN_MANY, (given,))

        return BATCH * await turn.closed_loop(1, seconds, batch)

    async def through(self, name: str, count: int, number: int) -> float:
        """Return tasks a second from the first submission by many callers until none is open."""
        self.tally.clear()
        began = time.perf_counter()

        async def caller(place: int) -> None:
            for _ in range(place, count, CALLERS):
                await self.clients[place].spawn(name, {"n": number}, queue="bench")

        await asyncio.gather(*(caller(place) for place in range(CALLERS)))
        await turn.until(lambda: self.tally.count >= count)
        while (await (await self.connection.execute(OPEN)).fetchone())[0]:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.02)
        return count / (time.perf_counter() - began)

    async def to_handler(self, seconds: float) -> float:
        """One at a time, a pause that is no part of the polling between them."""

        def submit(number: int) -> Awaitable[object]:
            return self.clients[0].spawn("stamp", {"n": number}, queue="bench")

        return await turn.to_handler_ms(seconds, self.tally, submit, pause=0.013)

    async def to_result(self, seconds: float) -> float:
        """One at a time, the result asked for every 10 ms."""

        async def once(_: int) -> float:
            began = time.perf_counter()
            spawned = await self.clients[0].spawn("steps", {"n": 1}, queue="bench")
            while True:
                found = await self.clients[0].fetch_task_result(spawned["task_id"])
                if found is not None and found.state == "completed":
                    return time.perf_counter() - began
                await asyncio.sleep(0.01)

        return await turn.median_ms(seconds, once, pause=0.013)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(work(sys.argv[2], Path(sys.argv[3]), Tally(sys.argv[4])))
    else:
        asyncio.run(main(Path(sys.argv[1])))
