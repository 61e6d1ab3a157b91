"""How much memory do sleeping workflows take in the process that has engine and worker?

Estimate before measuring: a sleeping run is rows. In memory are at most 10,000 runs of the engine (some 2 KB each), 10,000
timers of its window and 4,000 runs of the worker (some 10 KB each). All of that is full at 10,000 runs; ninety thousand more
add what the allocator does not give back: less than 20 MB.
"""

import asyncio
import gc
import os
from pathlib import Path

from benchmarks.figures import Figure, fresh_store
from outlast import App, workflow

FEW = 10_000
MANY = 100_000
WAVE = 1_000  # started together, the next when these are asleep

app = App("memory:")


@app.workflow
async def sleeper(number: int) -> int:
    await workflow.sleep("1d")
    return number


def resident() -> float:
    """Return this process's memory in RAM, in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def sleep_until(count: int, there: int) -> None:
    """Have ``count`` runs asleep, of which ``there`` are: their first turn is done, and their timer is set."""
    for first in range(there, count, WAVE):
        handles = await sleeper.astart_many([(n,) for n in range(first, min(first + WAVE, count))])
        for handle in (handles[0], handles[-1]):
            while not (await handle.adescribe()).timers:  # noqa: ASYNC110 - another process would ask so too
                await asyncio.sleep(0.02)
    await asyncio.sleep(1.0)


def measure(*, full: bool) -> list[Figure]:
    """Return what ninety thousand more cost (ten thousand in a small run), and what the first ones do."""
    few, many = FEW, MANY if full else 2 * FEW
    with fresh_store() as store:
        app.store = store
        with app:
            before = resident()
            asyncio.run(sleep_until(few, 0))
            first = resident()
            asyncio.run(sleep_until(many, few))
            last = resident()
    return [
        Figure(name=f"RSS of {many:,} sleeping workflows less {few:,}", value=last - first, unit="MB", wanted=20),
        Figure(name=f"RSS of {few:,} sleeping workflows less none", value=first - before, unit="MB"),
    ]
