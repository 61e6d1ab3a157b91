"""How many tasks that do nothing go through from enqueue to a result in the caller's hand, in one process?

Estimate before measuring: three commits' worth of rows (enqueue, lease, end with its attempt) at 20,000 lives a second raw; on
the Python side some 80 us a task for request, lease, handler, completion and the waiting caller. So 8,000 to 10,000 a second
for coroutines; less for plain functions, each of which is handed to a thread and back.
"""

import asyncio

from benchmarks.figures import Figure, Watch, fresh_store
from outlast import App
from outlast.sdk.task import AsyncTask, SyncTask

WAVE = 5_000  # tasks between enqueue and result


async def nothing(number: int) -> int:
    """Do nothing, as a coroutine."""
    return number


def nothing_in_a_thread(number: int) -> int:
    """Do nothing, in a thread."""
    return number


async def play(task: AsyncTask[[int], int] | SyncTask[[int], int], count: int, name: str, wanted: float) -> Figure:
    """Enqueue ``count`` in waves and have all results."""
    watch = Watch()
    for first in range(0, count, WAVE):
        handles = await task.aenqueue_many([(n,) for n in range(first, first + WAVE)])
        results = await asyncio.gather(*(handle.aresult() for handle in handles))
        assert results == list(range(first, first + WAVE))
    return watch.figure(name, count, wanted=wanted)


def measure(*, full: bool) -> list[Figure]:
    """Return coroutines and plain functions."""
    count = 40_000 if full else 10_000
    with fresh_store() as store:
        app = App(store)
        coroutine, plain = app.task(nothing), app.task(nothing_in_a_thread)
        with app:
            asyncio.run(play(coroutine, WAVE, "", 0))
            return [
                asyncio.run(play(coroutine, count, "tasks end to end, no-op coroutines", 7_000)),
                asyncio.run(play(plain, count // 2, "tasks end to end, no-op in threads", 0)),
            ]
