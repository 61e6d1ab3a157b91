"""How long from the call of enqueue to the first line of the handler, idle and beside a thread that spins?

Estimate before measuring: the enqueue is one commit and the lease another, before either of which nothing may be said: two
fsyncs of half a millisecond each, four thread hops of 50 us, some 300 us of Python: 2 ms. A thread that spins keeps the
interpreter for a switch interval (0.5 ms) at each of some ten hand-overs: 5 to 8 ms more.
"""

import statistics
import threading
import time

from benchmarks.figures import Figure, fresh_store
from outlast import App

PAUSE = 0.005  # seconds between two calls: the engine is idle when each comes


def measure(*, full: bool) -> list[Figure]:
    """Return the median and the 99th percentile, idle and beside a spinning thread."""
    count = 500 if full else 150
    began: dict[int, int] = {}

    async def note(number: int) -> None:
        began[number] = time.perf_counter_ns()

    with fresh_store() as store:
        app = App(store)
        task = app.task(note)

        def latencies() -> list[float]:
            found: list[float] = []
            for number in range(count):
                called = time.perf_counter_ns()
                task.enqueue(number).result(timeout="10s")
                found.append((began[number] - called) / 1e6)
                time.sleep(PAUSE)
            return sorted(found[count // 10 :])

        with app:
            idle = latencies()
            end = threading.Event()
            thread = threading.Thread(target=spin, args=(end,))
            thread.start()
            try:
                busy = latencies()
            finally:
                end.set()
                thread.join()
    return [
        *both("enqueue to handler, idle", idle, wanted=4.0),
        *both("enqueue to handler, beside a spinning thread", busy, wanted=15.0),
    ]


def both(name: str, found: list[float], *, wanted: float) -> list[Figure]:
    """Return the median, which is held to something, and the 99th percentile, which is told."""
    return [
        Figure(name=f"{name}, p50", value=statistics.median(found), unit="ms", wanted=wanted),
        Figure(name=f"{name}, p99", value=found[int(len(found) * 0.99)], unit="ms"),
    ]


def spin(end: threading.Event) -> None:
    """Keep the interpreter busy, as a user's pure Python does."""
    while not end.is_set():
        sum(range(100))
