"""DBOS as a contender, in two shapes: PostgreSQL, a worker on a queue and this caller; or workflows in the caller's process.

python dbos_driver.py FOLDER processes|embedded         measures
python dbos_driver.py worker ADDRESS MARK TALLY         is the worker
"""

import asyncio
import importlib
import importlib.metadata
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.peers import turn
from benchmarks.peers.cluster import Cluster, wheel_binaries
from benchmarks.peers.programs import Programs
from benchmarks.peers.tally import Tally
from benchmarks.peers.workloads import BATCH, CALLERS, FAN_OUT, MANY_CALLERS, STEPS

POLL = 0.05  # seconds between two looks of a queue's worker; a second is the default
SHAPES = {
    "processes": f"PostgreSQL, one worker on a queue polled every {POLL:g} s, and the caller (DBOSClient) are three programs",
    "embedded": "workflows called in the process that runs them, PostgreSQL beside it",
}
VERSION = "bench"
OPEN = "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING', 'DELAYED')"


class Application:
    """The workflows of the workloads, as a user of DBOS would write them."""

    def __init__(self, address: str, tally: Tally, *, queue: bool) -> None:
        dbos: Any = importlib.import_module("dbos")
        api: Any = dbos.DBOS
        api(
            config={
                "name": "bench",
                "system_database_url": address,
                "log_level": "ERROR",
                "application_version": VERSION,
                "executor_id": "bench",
            }
        )

        @api.step()
        async def step(number: int) -> int:
            return number

        @api.workflow(name="nothing")
        async def nothing(number: int) -> int:
            tally.add()
            return number

        @api.workflow(name="stamp")
        async def stamp(number: int) -> int:
            tally.stamp(number)
            return number

        @api.workflow(name="steps")
        async def steps(count: int) -> int:
            total = 0
            for n in range(count):
                total += await step(n)
            tally.add()
            return total

        @api.workflow(name="fan_out")
        async def fan_out(count: int) -> int:
            return sum(await asyncio.gather(*(step(n) for n in range(count))))

        api.launch()
        if queue:
            api.register_queue("bench", polling_interval_sec=POLL)
        self.api, self.steps, self.fan_out = api, steps, fan_out


async def main(folder: Path, shape: str) -> None:
    """Start what the shape has, and measure turn by turn."""
    out = turn.own_output()
    tally = Tally(folder / "tally")
    with Programs(folder) as programs:
        cluster = Cluster(programs, wheel_binaries())
        about = {
            "version": f"dbos {importlib.metadata.version('dbos')}",
            "shape": SHAPES[shape],
            "durability": cluster.durability,
        }
        try:
            if shape == "embedded":
                application = Application(cluster.address, tally, queue=False)
                await turn.serve(out, about, embedded(application))
                application.api.destroy()
                return
            programs.worker(__file__, cluster.address, str(folder / "up"), str(folder / "tally"), mark=folder / "up")
            with ThreadPoolExecutor(CALLERS) as threads:
                queued = Queued(cluster.address, tally, threads)
                await turn.serve(out, about, queued.measures())
                queued.client.destroy()
        finally:
            programs.stop()
            cluster.drop()


def embedded(application: Application) -> dict[str, turn.Measure]:
    """Return how each workload is measured where workflows are called directly. There are no tasks without a queue."""

    def steps(callers: int, count: int) -> turn.Measure:
        return lambda seconds: turn.closed_loop(callers, seconds, lambda _: application.steps(count))

    async def to_result(seconds: float) -> float:
        async def once(_: int) -> float:
            began = time.perf_counter()
            await application.steps(1)
            return time.perf_counter() - began

        return await turn.median_ms(seconds, once)

    return {
        "one_step": steps(CALLERS, 1),
        "one_step_many": steps(MANY_CALLERS, 1),
        "ten_steps": steps(CALLERS, STEPS),
        "ten_steps_many": steps(MANY_CALLERS, STEPS),
        "to_result": to_result,
        "fan_out": lambda _: turn.timed(lambda: application.fan_out(FAN_OUT), times=1),
    }


class Queued:
    """The workloads through a queue."""

    def __init__(self, address: str, tally: Tally, threads: ThreadPoolExecutor) -> None:
        self.address = address
        self.client: Any = importlib.import_module("dbos").DBOSClient(system_database_url=address)
        self.engine: Any = importlib.import_module("sqlalchemy").create_engine(
            address.replace("postgresql:", "postgresql+psycopg:")
        )
        self.tally = tally
        self._threads = threads

    def measures(self) -> dict[str, turn.Measure]:
        """Return how each workload is measured."""
        return {
            "submit": self.submit,
            "bulk": self.bulk,
            "tasks": lambda seconds: self.through("nothing", int(150 * seconds), lambda n: n),
            "one_step": lambda seconds: self.through("steps", int(80 * seconds), lambda _: 1),
            "ten_steps": lambda seconds: self.through("steps", int(15 * seconds), lambda _: STEPS),
            "to_handler": self.to_handler,
            "to_result": self.to_result,
            "fan_out": lambda _: turn.timed(lambda: self.result_of("fan_out", FAN_OUT), times=1),
        }

    def enqueue(self, name: str, value: int, *, queue: str = "bench") -> Any:
        """Return the handle of what was enqueued."""
        return self.client.enqueue({"queue_name": queue, "workflow_name": name, "app_version": VERSION}, value)

    async def run(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` gives, in one of as many threads as there are callers."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def submit(self, seconds: float) -> float:
        """Enqueue where nobody polls."""
        return await turn.closed_loop(
            CALLERS, seconds, lambda n: self.run(lambda: self.enqueue("nothing", n, queue="parked"))
        )

    async def bulk(self, seconds: float) -> float:
        """Enqueue many in one transaction of the caller's: there is no request for many."""
        engine = self.engine
        options = {"queue_name": "parked", "workflow_name": "nothing", "app_version": VERSION}

        def batch() -> None:
            with engine.begin() as transaction:
                for n in range(BATCH):
                    self.client.enqueue_in_transaction(transaction, options, n)

        return BATCH * await turn.closed_loop(1, seconds, lambda _: self.run(batch))

    async def through(self, name: str, count: int, value: Callable[[int], int]) -> float:
        """Return workflows a second from the first submission by many callers until none is open."""
        self.tally.clear()
        began = time.perf_counter()
        await asyncio.gather(*(self.run(lambda n=n: self.enqueue(name, value(n))) for n in range(count)))
        await turn.until(lambda: self.tally.count >= count)
        await self.run(self.wait_for_none_open)
        return count / (time.perf_counter() - began)

    def wait_for_none_open(self) -> None:
        """Return when the store has no open workflow of the queue."""
        psycopg: Any = importlib.import_module("psycopg")
        with psycopg.connect(self.address, autocommit=True) as connection:
            while connection.execute(f"{OPEN} and queue_name = 'bench'").fetchone()[0]:
                time.sleep(0.02)

    async def to_handler(self, seconds: float) -> float:
        """One at a time, a pause that is no part of the polling between them."""

        async def submit(number: int) -> None:
            await self.run(lambda: self.enqueue("stamp", number))

        return await turn.to_handler_ms(seconds, self.tally, submit, pause=0.013)

    async def to_result(self, seconds: float) -> float:
        """One at a time."""

        async def once(_: int) -> float:
            began = time.perf_counter()
            await self.result_of("steps", 1)
            return time.perf_counter() - began

        return await turn.median_ms(seconds, once, pause=0.013)

    async def result_of(self, name: str, value: int) -> Any:
        """Return the result of a workflow, asked for every 10 ms."""
        return await self.run(lambda: self.enqueue(name, value).get_result(polling_interval_sec=0.01))


def work(address: str, mark: Path, tally: Tally) -> None:
    """Run the workflows of the queue until told to stop."""
    Application(address, tally, queue=True)
    mark.touch()
    threading.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(sys.argv[2], Path(sys.argv[3]), Tally(sys.argv[4]))
    else:
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
        os._exit(0)  # its threads would keep the process
