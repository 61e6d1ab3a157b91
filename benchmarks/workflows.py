"""How many workflows of one activity go through from start to result in the caller's hand, all in one process?

Estimate before measuring: five commits see each of them (start, first turn, lease, end of the activity, last turn), ten rows in
all; raw that is some 12,000 a second. Workflow code takes two turns of some 60 us, the activity 80 us, encoding and the caller
the rest: some 300 us of one interpreter, so about 3,000 a second.
"""

import asyncio

from benchmarks.figures import Figure, Watch, fresh_store
from outlast import App

WAVE = 2_000

app = App("memory:")


@app.task
async def nothing(number: int) -> int:
    return number


@app.workflow
async def one_activity(number: int) -> int:
    return await nothing.execute(number)


async def play(count: int, name: str, *, wanted: float = 0.0) -> Figure:
    """Start ``count`` in waves and have all results."""
    watch = Watch()
    for first in range(0, count, WAVE):
        handles = await one_activity.astart_many([(n,) for n in range(first, first + WAVE)])
        results = await asyncio.gather(*(handle.aresult() for handle in handles))
        assert results == list(range(first, first + WAVE))
    return watch.figure(name, count, wanted=wanted)


def measure(*, full: bool) -> list[Figure]:
    """Return the rate in one process."""
    with fresh_store() as store:
        app.store = store
        with app:
            asyncio.run(play(WAVE, ""))
            count = 20_000 if full else 6_000
            return [asyncio.run(play(count, "workflows of one activity, in process", wanted=2_500))]
