"""How many steps a second do workflows of ten activities make in one process, and how long does a fan-out of 1,000 take?

Estimate before measuring: a step is one turn of workflow code (60 us from memory), one activity (80 us for lease, handler and
completion) and some ten rows in four commits that hundreds share: some 100 us, if nothing is done twice. So 10,000 a second at
best. A fan-out of 1,000 is one turn with a thousand commands, 1,000 tasks, and a few turns that take the results: 0.3 s.
"""

import asyncio
import time

from benchmarks.figures import Figure, Watch, fresh_store
from outlast import App

STEPS = 10
WIDTH = 1_000
WAVE = 500  # workflows under way

app = App("memory:")


@app.task
async def nothing(number: int) -> int:
    return number


@app.workflow
async def ten_activities(number: int) -> int:
    total = number
    for n in range(STEPS):
        total += await nothing.execute(n)
    return total


@app.workflow
async def fan_out() -> int:
    return sum(await asyncio.gather(*(nothing.execute(n) for n in range(WIDTH))))


async def in_waves(count: int) -> Figure:
    """Run ``count`` workflows, some at a time, and have all results."""
    watch = Watch()
    for first in range(0, count, WAVE):
        handles = await ten_activities.astart_many([(n,) for n in range(first, first + WAVE)])
        results = await asyncio.gather(*(handle.aresult() for handle in handles))
        assert results == [n + sum(range(STEPS)) for n in range(first, first + WAVE)]
    return watch.figure("steps, workflows of ten activities, in process", count * STEPS, wanted=10_000)


async def fan_outs(times: int) -> float:
    """Return the shortest of a few, in seconds: what it takes when nothing else has the machine."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        assert await fan_out.execute() == sum(range(WIDTH))
        best = min(best, time.perf_counter() - began)
    return best


def measure(*, full: bool) -> list[Figure]:
    """Return steps a second, and the time of a fan-out."""
    with fresh_store() as store:
        app.store = store
        with app:
            asyncio.run(in_waves(WAVE))
            return [
                asyncio.run(in_waves(4_000 if full else 1_000)),
                Figure(
                    name="fan-out of 1,000 activities, in process",
                    value=asyncio.run(fan_outs(7 if full else 3)),
                    unit="s",
                    wanted=0.5,
                    note="the best of a few",
                ),
            ]
