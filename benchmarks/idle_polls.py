"""What do a thousand workers cost the engine that wait for work there is not, each with a request held open?

Estimate before measuring: a connection of uvicorn, its task, the exchange and the held poll are some 25 KB; with buffers of the
loop some 35 KB. So 35 MB. A held poll has no timer of its own that ticks: no processor time but for the ends of polls, one
a minute each, some 17 a second of half a millisecond: under 1 % of a core.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import aiohttp

from benchmarks import machine
from benchmarks.figures import Figure
from examples.processes import Children
from outlast.core.inputs import Poll
from outlast.core.units import SECOND
from outlast.protocol.version import HEADER, PROTOCOL
from outlast.protocol.wire import CALL_PATH, MSGPACK, encode

POLLS = 1_000
SETTLE = 2.0  # seconds in which an engine that has settled uses next to nothing
SETTLE_TIMES = 10


async def used_by(pid: int, seconds: float) -> float:
    """Return the processor seconds that a process uses meanwhile."""
    began = machine.cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return machine.cpu_seconds(pid) - began


async def hold(address: str, pid: int, *, seconds: float) -> tuple[float, float]:
    """Hold the polls for a while; return what they add to the engine's memory, and to its use of a core, in percent."""
    headers = {HEADER: str(PROTOCOL), "accept": MSGPACK, "content-type": MSGPACK}
    where = f"{address}/api/v1/namespaces/default/{CALL_PATH}"

    def body(n: int, wait: int) -> bytes:
        poll = Poll(
            poll_id=f"poll-{n}-{wait}",
            worker=f"worker-{n}",
            queues=("default",),
            task_types=("nothing",),
            slots=10,
            wait=wait,
        )
        return encode(poll)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers=headers, timeout=aiohttp.ClientTimeout(total=90)
    ) as session:

        async def poll(n: int, wait: int) -> None:
            async with session.post(where, data=body(n, wait)) as response:
                assert response.status == 200, await response.text()
                await response.read()

        await poll(0, 0)
        before = machine.rss_bytes(pid)
        alone = await used_by(pid, seconds)
        polls = [asyncio.create_task(poll(n, 60 * SECOND)) for n in range(POLLS)]
        await asyncio.sleep(SETTLE)
        for _ in range(SETTLE_TIMES):
            if await used_by(pid, SETTLE) < 0.01 * SETTLE:
                break
        assert not any(poll.done() for poll in polls)
        grown = machine.rss_bytes(pid) - before
        used = await used_by(pid, seconds) - alone
        assert not any(poll.done() for poll in polls)
        for held in polls:
            held.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
    return grown / 1e6, max(100 * used / seconds, 0.0)


def measure(*, full: bool) -> list[Figure]:
    """Return memory and processor."""
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder, Children(Path(folder)) as children:
        serve = ["serve", "--store", f"sqlite:///{folder}/bench.db", "--port", "0"]
        engine = children.start("engine", [sys.executable, "-m", "outlast.cli", *serve])
        megabytes, percent = asyncio.run(hold(engine.last_word, engine.pid, seconds=20 if full else 8))
        engine.stop()
    return [
        Figure(name="1,000 idle polls over HTTP: memory", value=megabytes, unit="MB", wanted=50),
        Figure(name="1,000 idle polls over HTTP: processor", value=percent, unit="% of a core", wanted=1),
    ]
