"""How many workflow starts a second are acknowledged, each with its own id, its input and its dedup row?

Estimate before measuring: a start is a run, a page of history, a dedup row; the raw store commits some 35,000 such starts a
second from one thread, and building and encoding them takes some 12 us each on the same interpreter. So 25,000 to 30,000 a
second in batches of 1,000; singly, by 64 callers at once, some 5,000 (two futures and a thread hop each); one at a time, a
commit each, so what the disk syncs, less the hop.
"""

import asyncio

from benchmarks.figures import Figure, Watch, fresh_store
from outlast import App

CALLERS = 4
SINGLE_CALLERS = 64


async def never(number: int) -> int:
    """A workflow that no worker runs."""
    return number


def measure(*, full: bool) -> list[Figure]:
    """Return batches by several callers, singles by many, and one at a time."""
    count = 60_000 if full else 12_000
    with fresh_store() as store:
        app = App(store, worker=False)
        workflow = app.workflow(never)

        async def batches() -> Figure:
            watch, each = Watch(), count // CALLERS
            calls = [[(n,) for n in range(caller * each, caller * each + each)] for caller in range(CALLERS)]
            await asyncio.gather(*(workflow.astart_many(numbers) for numbers in calls))
            return watch.figure("starts, batches of 1,000, 4 callers", count, wanted=25_000)

        async def singles() -> Figure:
            watch, each = Watch(), count // 10 // SINGLE_CALLERS

            async def caller() -> None:
                for n in range(each):
                    await workflow.astart(n)

            await asyncio.gather(*(caller() for _ in range(SINGLE_CALLERS)))
            return watch.figure("starts, single, 64 callers", each * SINGLE_CALLERS)

        def alone() -> Figure:
            watch, each = Watch(), count // 60
            for n in range(each):
                workflow.start(n)
            return watch.figure("starts, one after another", each)

        with app:
            workflow.start_many([(n,) for n in range(2_000)])
            return [asyncio.run(batches()), asyncio.run(singles()), alone()]
