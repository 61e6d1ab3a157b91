"""What one engine process takes over HTTP from another process: starts one by one and in batches, and a worker's tasks.

Estimate before measuring: a single start costs the engine some 40 us to decode, admit and answer when several share a body,
and some 60 us in core and store: 5,000 to 8,000 a second from 64 callers. A batch of 1,000 is one body of 150 KB: 25,000 a
second, as in process, since the caller encodes on a core of its own. A task of a bare worker is leased and completed with
hundreds of others in two bodies: some 120 us of the engine, so 6,000 to 8,000 a second.
"""

import asyncio
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import machine
from benchmarks.figures import Figure, Watch
from examples.processes import Children
from outlast import App
from outlast.core.inputs import CompleteTasks, Completion, Poll, TaskSucceeded
from outlast.core.replies import CompletionsReply, Work
from outlast.core.units import SECOND
from outlast.sdk.client import mint
from outlast.sdk.http import HttpTransport

CALLERS = 4
SINGLE_CALLERS = 64
POLLERS = 2
SLOTS = 500  # that a poller has

app = App("memory:")


@app.workflow
async def never(number: int) -> int:
    """A workflow that no worker runs."""
    return number


@app.task
async def nothing(number: int) -> int:
    return number


@dataclass(slots=True)
class DoorWatch:
    """A watch that also tells what the engine's process used: a loaded machine changes that little."""

    pid: int
    watch: Watch = field(default_factory=Watch)
    spent: float = 0.0

    def __post_init__(self) -> None:
        self.spent = machine.cpu_seconds(self.pid)

    def figure(self, name: str, count: int, *, wanted: float) -> Figure:
        """Return the rate, with processor time of both sides."""
        figure = self.watch.figure(name, count, wanted=wanted)
        engine = (machine.cpu_seconds(self.pid) - self.spent) / count * 1e6
        figure.note = f"{engine:,.0f} us of processor each in the engine, {figure.note.split()[0]} in the caller"
        return figure


async def singles(pid: int, count: int, name: str = "") -> Figure:
    """Start ``count`` by callers that wait for each acknowledgement."""
    watch, each = DoorWatch(pid), count // SINGLE_CALLERS

    async def caller() -> None:
        for n in range(each):
            await never.astart(n)

    await asyncio.gather(*(caller() for _ in range(SINGLE_CALLERS)))
    return watch.figure(name, each * SINGLE_CALLERS, wanted=5_000)


async def batches(pid: int, count: int, name: str) -> Figure:
    """Start ``count`` by a few callers, a thousand at a time."""
    watch, each = DoorWatch(pid), count // CALLERS
    calls = [[(n,) for n in range(caller * each, caller * each + each)] for caller in range(CALLERS)]
    await asyncio.gather(*(never.astart_many(numbers) for numbers in calls))
    return watch.figure(name, count, wanted=25_000)


async def protocol(pid: int, address: str, count: int, name: str) -> Figure:
    """Lease and complete ``count`` tasks that wait, as a worker whose handlers take no time."""
    await nothing.aenqueue_many([(n,) for n in range(count)])
    transport = HttpTransport(address)
    left = count
    watch = DoorWatch(pid)

    async def poller() -> None:
        nonlocal left
        worker = mint()
        while left > 0:
            poll = Poll(
                poll_id=mint(),
                worker=worker,
                queues=("default",),
                task_types=(nothing.name,),
                slots=SLOTS,
                wait=SECOND // 5,
            )
            work = await transport.call(poll)
            assert isinstance(work, Work)
            if not work.tasks:
                continue
            items = tuple(Completion(token=lease.token, outcome=TaskSucceeded()) for lease in work.tasks)
            said = await transport.call(CompleteTasks(items=items, worker=worker))
            assert isinstance(said, CompletionsReply)
            left -= len(items)

    await asyncio.gather(*(poller() for _ in range(POLLERS)))
    figure = watch.figure(name, count, wanted=6_000)
    await transport.close()
    return figure


def measure(*, full: bool) -> list[Figure]:
    """Return the rates of one engine process."""
    count = 60_000 if full else 12_000
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder, Children(Path(folder)) as children:
        serve = ["serve", "--store", f"sqlite:///{folder}/bench.db", "--port", "0"]
        engine = children.start("engine", [sys.executable, "-m", "outlast.cli", *serve])
        app.store, app.is_remote = engine.last_word, True
        asyncio.run(singles(engine.pid, SINGLE_CALLERS * 10))
        figures = [
            asyncio.run(singles(engine.pid, count // 4, "HTTP: starts, single, 64 in flight")),
            asyncio.run(batches(engine.pid, count, "HTTP: starts, batches of 1,000, 4 callers")),
            asyncio.run(
                protocol(engine.pid, engine.last_word, count // 2, "HTTP: tasks leased and completed by a bare worker")
            ),
        ]
        app.stop()
        engine.stop()
    return figures
