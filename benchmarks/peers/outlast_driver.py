"""Outlast as a contender: server, worker and caller as three processes over HTTP, on SQLite or PostgreSQL; or all in this one.

python -m benchmarks.peers.outlast_driver FOLDER processes|postgres|embedded
"""

import asyncio
import importlib.metadata
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers import turn
from benchmarks.peers.cluster import Cluster, wheel_binaries
from benchmarks.peers.programs import HOST, Programs, free_port, listens
from benchmarks.peers.tally import Tally
from benchmarks.peers.workloads import BATCH, CALLERS, FAN_OUT, MANY_CALLERS

ROOT = Path(__file__).resolve().parents[2]
DURABILITY = "SQLite file, WAL, synchronous=FULL: every acknowledgement is behind an fsync"
SHAPES = {
    "processes": "outlast serve, outlast worker start and the caller are three processes, over HTTP",
    "postgres": "PostgreSQL beside outlast serve, outlast worker start and the caller, which speak HTTP",
    "embedded": "engine, worker and caller in one process",
}


async def main(folder: Path, shape: str) -> None:
    """Start what the shape has, and measure turn by turn."""
    out = turn.own_output()
    os.environ["BENCH_TALLY"] = str(folder / "tally")
    tally = Tally(folder / "tally")
    from benchmarks.peers import outlast_app  # noqa: PLC0415 - it reads the variable

    app = outlast_app.app
    about = {
        "version": f"outlast {importlib.metadata.version('outlast')}",
        "shape": SHAPES[shape],
        "durability": DURABILITY,
    }
    with Programs(folder) as programs, place(programs, folder, shape, about) as store:
        if shape == "embedded":
            app.store = store
            async with app:
                await turn.serve(out, about, measures(tally))
        else:
            app.store, app.is_remote = started(programs, store), True
            app.connect()
            await turn.serve(out, about, measures(tally))
            await asyncio.to_thread(app.stop)


@contextmanager
def place(programs: Programs, folder: Path, shape: str, about: dict[str, str]) -> Generator[str]:
    """Give the address of a fresh store; say in ``about`` how it keeps what it acknowledges."""
    if shape != "postgres":
        yield f"sqlite:///{folder / 'bench.db'}"
        return
    cluster = Cluster(programs, wheel_binaries())
    about["durability"] = cluster.durability
    try:
        yield cluster.address
    finally:
        programs.stop()
        cluster.drop()


def started(programs: Programs, store: str) -> str:
    """Start server and worker; return the server's address."""
    port = free_port()
    address = f"http://{HOST}:{port}"
    outlast = [sys.executable, "-m", "outlast.cli"]
    serve = [*outlast, "serve", "--store", store, "--port", str(port)]
    programs.start("server", serve, ready=lambda: listens(port))
    work = [*outlast, "worker", "start", "benchmarks.peers.outlast_app:app", "--server", address]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    programs.start("worker", work, ready=lambda: "polls" in programs.last_line("worker"), env={"PYTHONPATH": path})
    return address


def measures(tally: Tally) -> dict[str, turn.Measure]:
    """Return how each workload is measured."""
    from benchmarks.peers.outlast_app import fan_out, nothing, one_step, stamp, ten_steps  # noqa: PLC0415

    parked = nothing.using(queue="nobody-polls")

    async def submit(seconds: float) -> float:
        return await turn.closed_loop(CALLERS, seconds, parked.aenqueue)

    async def bulk(seconds: float) -> float:
        async def once(number: int) -> None:
            await parked.aenqueue_many([(number * BATCH + n,) for n in range(BATCH)])

        return BATCH * await turn.closed_loop(1, seconds, once)

    async def tasks(seconds: float) -> float:
        count = int(2_000 * seconds)
        tally.clear()

        async def once() -> None:
            handles = await nothing.aenqueue_many([(n,) for n in range(count)])
            await asyncio.gather(*(handle.aresult() for handle in handles))

        return count / await turn.timed(once, times=1)

    async def to_handler(seconds: float) -> float:
        return await turn.to_handler_ms(seconds, tally, stamp.aenqueue)

    async def to_result(seconds: float) -> float:
        async def once(number: int) -> float:
            began = turn.time.perf_counter()
            await one_step.execute(number)
            return turn.time.perf_counter() - began

        return await turn.median_ms(seconds, once)

    async def fanned(seconds: float) -> float:  # noqa: ARG001 - a few are enough
        async def once() -> None:
            assert await fan_out.execute() == sum(range(FAN_OUT))

        return await turn.timed(once)

    return {
        "submit": submit,
        "bulk": bulk,
        "tasks": tasks,
        "one_step": lambda seconds: turn.closed_loop(CALLERS, seconds, one_step.execute),
        "one_step_many": lambda seconds: turn.closed_loop(MANY_CALLERS, seconds, one_step.execute),
        "ten_steps": lambda seconds: turn.closed_loop(CALLERS, seconds, ten_steps.execute),
        "ten_steps_many": lambda seconds: turn.closed_loop(MANY_CALLERS, seconds, ten_steps.execute),
        "to_handler": to_handler,
        "to_result": to_result,
        "fan_out": fanned,
    }


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
