"""Restate as a contender: one server, one worker (an ASGI server with its SDK), and this caller, over HTTP.

python restate_driver.py FOLDER SERVER_BINARY       measures
python restate_driver.py worker PORT MARK TALLY     is the worker
"""

import asyncio
import importlib
import importlib.metadata
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import turn
from benchmarks.peers.programs import HOST, Programs, free_port, listens
from benchmarks.peers.tally import Tally
from benchmarks.peers.workloads import CALLERS, FAN_OUT, MANY_CALLERS, STEPS

SHAPE = "restate-server, one worker (hypercorn, HTTP/2) and the caller are three processes, over HTTP"
DURABILITY = "one node, default configuration: RocksDB with an fsync of its write-ahead log"


def service(tally: Tally) -> Any:
    """Return the handlers of the workloads, as a user of Restate would write them."""
    restate: Any = importlib.import_module("restate")
    bench = restate.Service("bench")

    def same(number: int) -> int:
        return number

    @bench.handler()
    async def nothing(_ctx: Any, number: int) -> int:
        tally.add()
        return number

    @bench.handler()
    async def stamp(_ctx: Any, number: int) -> int:
        tally.stamp(number)
        return number

    @bench.handler()
    async def steps(ctx: Any, count: int) -> int:
        total = 0
        for n in range(count):
            total += await ctx.run_typed("step", same, restate.RunOptions(), n)
        return total

    @bench.handler()
    async def fan_out(ctx: Any, count: int) -> int:
        asked = [ctx.run_typed("step", same, restate.RunOptions(), n) for n in range(count)]
        await restate.gather(*asked)
        return sum([await one for one in asked])

    return restate.app([bench])


def work(port: int, mark: Path, tally: Tally) -> None:
    """Serve the handlers until told to stop."""
    hypercorn: Any = importlib.import_module("hypercorn.asyncio")
    config: Any = importlib.import_module("hypercorn.config").Config()
    config.bind = [f"{HOST}:{port}"]
    config.h2_max_concurrent_streams = 2**31 - 1
    config.keep_alive_timeout = 3_600
    importlib.import_module("uvloop").install()

    mark.touch()
    asyncio.run(hypercorn.serve(service(tally), config))


class Ingress:
    """The server as callers reach it."""

    def __init__(self, session: Any, port: int, admin: int) -> None:
        self._session = session
        self._root = f"http://{HOST}:{port}/bench"
        self._admin = f"http://{HOST}:{admin}"

    async def call(self, handler: str, value: int) -> Any:
        """Return the handler's result."""
        return await self._post(f"{self._root}/{handler}", value)

    async def send(self, handler: str, value: int, *, delay: str = "") -> Any:
        """Return when the server has taken it."""
        return await self._post(f"{self._root}/{handler}/send" + (f"?delay={delay}" if delay else ""), value)

    async def register(self, worker: str) -> None:
        """Tell the server of the worker, and wait until the handlers can be called."""
        await self._until_good(lambda: self._post(f"{self._admin}/deployments", {"uri": worker, "force": True}))
        await self._until_good(lambda: self.call("nothing", 0))

    async def _post(self, address: str, body: object) -> Any:
        async with self._session.post(address, json=body) as response:
            answer = await response.json(content_type=None)
            if response.status >= 300:
                raise turn.NotDone(f"status {response.status}: {str(answer)[:200]}")
            return answer

    async def _until_good(self, ask: Any, *, within: float = 40.0) -> None:
        ends = time.monotonic() + within
        while True:
            try:
                await ask()
            except Exception:
                if time.monotonic() > ends:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


def versions(binary: str) -> str:
    """Return those of server and SDK."""
    server = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return f"{server}, restate-sdk {importlib.metadata.version('restate-sdk')}"


async def main(folder: Path, binary: str) -> None:
    """Start server and worker, and measure turn by turn."""
    out = turn.own_output()
    aiohttp: Any = importlib.import_module("aiohttp")
    ingress, admin, node, worker = (free_port() for _ in range(4))
    settings = {
        "RESTATE_BASE_DIR": str(folder / "restate"),
        "RESTATE_BIND_IP": HOST,
        "RESTATE_ADVERTISED_HOST": HOST,
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
    }
    about = {"version": versions(binary), "shape": SHAPE, "durability": DURABILITY}
    tally = Tally(folder / "tally")
    with Programs(folder) as programs:
        programs.start("server", [binary, "--no-logo"], env=settings, ready=lambda: listens(ingress) and listens(admin))
        programs.worker(__file__, str(worker), str(folder / "up"), str(folder / "tally"), mark=folder / "up")
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
        ) as session:
            door = Ingress(session, ingress, admin)
            await door.register(f"http://{HOST}:{worker}")
            await turn.serve(out, about, measures(door, tally))


def measures(door: Ingress, tally: Tally) -> dict[str, turn.Measure]:
    """Return how each workload is measured. There is no submission in bulk."""

    async def tasks(seconds: float) -> float:
        tally.clear()
        sent = 0

        async def once(number: int) -> None:
            nonlocal sent
            await door.send("nothing", number)
            sent += 1

        began = time.perf_counter()
        await turn.closed_loop(MANY_CALLERS, seconds, once)
        await turn.until(lambda: tally.count >= sent)
        return sent / (time.perf_counter() - began)

    async def to_handler(seconds: float) -> float:
        return await turn.to_handler_ms(seconds, tally, lambda number: door.send("stamp", number))

    async def to_result(seconds: float) -> float:
        async def once(_: int) -> float:
            began = time.perf_counter()
            await door.call("steps", 1)
            return time.perf_counter() - began

        return await turn.median_ms(seconds, once)

    def steps(callers: int, count: int) -> turn.Measure:
        return lambda seconds: turn.closed_loop(callers, seconds, lambda _: door.call("steps", count))

    return {
        # An hour's delay, so that the worker takes no part.
        "submit": lambda seconds: turn.closed_loop(
            CALLERS, seconds, lambda number: door.send("nothing", number, delay="PT1H")
        ),
        "tasks": tasks,
        "one_step": steps(CALLERS, 1),
        "one_step_many": steps(MANY_CALLERS, 1),
        "ten_steps": steps(CALLERS, STEPS),
        "ten_steps_many": steps(MANY_CALLERS, STEPS),
        "to_handler": to_handler,
        "to_result": to_result,
        "fan_out": lambda _: turn.timed(lambda: door.call("fan_out", FAN_OUT)),
    }


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(int(sys.argv[2]), Path(sys.argv[3]), Tally(sys.argv[4]))
    else:
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
