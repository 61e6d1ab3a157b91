"""PgQueuer as a contender: PostgreSQL, one worker, and this caller, through asyncpg. It has no workflows.

python pgqueuer_driver.py FOLDER                        measures
python pgqueuer_driver.py worker ADDRESS MARK TALLY     is the worker
"""

import asyncio
import importlib
import importlib.metadata
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.peers import turn
from benchmarks.peers.cluster import Cluster, wheel_binaries
from benchmarks.peers.programs import Programs
from benchmarks.peers.tally import Tally
from benchmarks.peers.workloads import BATCH, CALLERS

SHAPE = "PostgreSQL, one worker and the caller are three programs; caller and worker speak SQL to the database"
DEQUEUED_AT_ONCE = 1_000
OPEN = "select count(*) from pgqueuer where status in ('queued', 'picked')"


def asyncpg() -> Any:
    """Return the driver."""
    return importlib.import_module("asyncpg")


async def work(address: str, mark: Path, tally: Tally) -> None:
    """Run the handlers until told to stop."""
    pool = await asyncpg().create_pool(address, min_size=10, max_size=20)
    queuer: Any = importlib.import_module("pgqueuer").PgQueuer.from_asyncpg_pool(pool)

    @queuer.entrypoint("nothing")
    async def nothing(_taken: Any) -> None:
        tally.add()

    @queuer.entrypoint("stamp")
    async def stamp(taken: Any) -> None:
        tally.stamp(int(taken.payload))

    mark.touch()  # noqa: ASYNC240 - before anything else goes on
    await queuer.run(
        batch_size=DEQUEUED_AT_ONCE,
        dequeue_timeout=timedelta(seconds=5),
        heartbeat_timeout=timedelta(seconds=30),
        max_concurrent_tasks=2 * DEQUEUED_AT_ONCE,
    )


async def main(folder: Path) -> None:
    """Start database and worker, and measure turn by turn."""
    out = turn.own_output()
    tally = Tally(folder / "tally")
    with Programs(folder) as programs:
        cluster = Cluster(programs, wheel_binaries())
        try:
            pgq = Path(sys.executable).with_name("pgq")
            install = [pgq, "--pg-dsn", cluster.address, "install", "--durability", "durable"]
            subprocess.run(install, check=True, capture_output=True, timeout=60)  # noqa: ASYNC221 - as above
            programs.worker(__file__, cluster.address, str(folder / "up"), str(folder / "tally"), mark=folder / "up")
            version = importlib.metadata.version("pgqueuer")
            about = {"version": f"pgqueuer {version}", "shape": SHAPE, "durability": cluster.durability}
            async with asyncpg().create_pool(cluster.address, min_size=CALLERS, max_size=CALLERS) as pool:
                await asyncio.sleep(1.0)  # the worker listens
                await turn.serve(out, about, measures(pool, tally))
        finally:
            programs.stop()
            cluster.drop()


def measures(pool: Any, tally: Tally) -> dict[str, turn.Measure]:
    """Return how each workload is measured."""
    database: Any = importlib.import_module("pgqueuer.db")
    queries: Any = importlib.import_module("pgqueuer.queries").Queries(database.AsyncpgPoolDriver(pool))

    async def submit(seconds: float) -> float:
        return await turn.closed_loop(CALLERS, seconds, lambda n: queries.enqueue("parked", b"%d" % n))

    async def many(name: str, count: int) -> None:
        await queries.enqueue([name] * count, [b"%d" % n for n in range(count)], [0] * count)

    async def bulk(seconds: float) -> float:
        return BATCH * await turn.closed_loop(1, seconds, lambda _: many("parked", BATCH))

    async def tasks(seconds: float) -> float:
        await pool.execute("truncate pgqueuer, pgqueuer_log, pgqueuer_statistics")
        tally.clear()
        batches = max(int(5 * seconds), 1)
        began = time.perf_counter()
        for _ in range(batches):
            await many("nothing", BATCH)
        await turn.until(lambda: tally.count >= batches * BATCH)
        while await pool.fetchval(OPEN):  # noqa: ASYNC110 - the store says it, not an event
            await asyncio.sleep(0.01)
        return batches * BATCH / (time.perf_counter() - began)

    async def to_handler(seconds: float) -> float:
        return await turn.to_handler_ms(seconds, tally, lambda number: queries.enqueue("stamp", b"%d" % number))

    return {"submit": submit, "bulk": bulk, "tasks": tasks, "to_handler": to_handler}


if __name__ == "__main__":
    uvloop: Any = importlib.import_module("uvloop")
    if sys.argv[1] == "worker":
        uvloop.run(work(sys.argv[2], Path(sys.argv[3]), Tally(sys.argv[4])))
    else:
        uvloop.run(main(Path(sys.argv[1])))
