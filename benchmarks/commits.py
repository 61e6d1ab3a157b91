"""How near a commit comes to raw rows, and how much of the interpreter it takes from the event loop.

python -m benchmarks.commits [folder]     rows/s and processor time a row through SqliteStore.commit and of raw SQLite, by turns
"""

import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks.raw_store import lives, raw_rows, starts
from outlast.core.units import Fence
from outlast.core.writes import Batch, CommitOutcome, HistoryRow, RunMove
from outlast.store.sqlite.store import SqliteStore

ROUNDS = 3
SECONDS = 1.0  # of one turn
SIZES = (30, 1_000)  # workflows of one batch: under load in one process, and from many clients


def workflows(fence: Fence, number: int, size: int) -> list[Batch]:
    """Return the batches of ``size`` workflows of one activity each: begun, its task leased and done, ended."""
    begun = starts(fence, number, size)[0]
    begun.dedup.clear()
    after = [*lives(fence, number + 1, size), Batch(0, fence, number + 4, begun.at)]
    for n, batch in enumerate(after, 1):
        if n == 2:
            continue  # the task is leased: its run does not move
        done = batch is after[-1]
        for run_id in begun.runs:
            batch.run_moves[run_id] = RunMove(
                run_id, "completed" if done else "running", "main", "", begun.at if done else 0, 2 + 3 * n, 500,
                int(n == 3), "", b"x" * 40, b"x" * 100 if done else b"", number + n,
            )  # fmt: skip
            batch.history.append(HistoryRow(run_id, 2 + 3 * n, 3, b"x" * 180))
    return [begun, *after]


class Spinner:
    """A thread that keeps the interpreter busy, as an event loop under load does, and counts how far it gets."""

    def __init__(self) -> None:
        self.count = 0
        self._end = False
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for it."""
        self._end = True
        self._thread.join()

    def _spin(self) -> None:
        while not self._end:
            sum(range(100))
            self.count += 1


async def committed(store: SqliteStore, fence: Fence, number: int, size: int) -> tuple[int, int, float]:
    """Commit workflows for a while; return the number that comes next, the rows, and the seconds that commits took."""
    rows, spent = 0, 0.0
    while spent < SECONDS:
        batches = workflows(fence, number, size)
        number += len(batches)
        for batch in batches:
            begun = time.perf_counter()
            if await store.commit(batch) is not CommitOutcome.DONE:
                raise RuntimeError(store.last_fault)
            spent += time.perf_counter() - begun
            rows += batch.rows()
    return number, rows, spent


async def beside_a_spinner(store: SqliteStore, fence: Fence, number: int, size: int) -> tuple[int, float, float]:
    """Return the number that comes next, rows a second, and the microseconds a row that the spinner did not get."""
    batches = [batch for n in range(40) for batch in workflows(fence, number + 5 * n, size)]
    spinner = Spinner()
    try:
        await asyncio.sleep(0.1)
        counted, begun = spinner.count, time.perf_counter()
        await asyncio.sleep(SECONDS / 2)
        alone = (spinner.count - counted) / (time.perf_counter() - begun)
        rows, counted, begun = 0, spinner.count, time.perf_counter()
        for batch in batches:
            if await store.commit(batch) is not CommitOutcome.DONE:
                raise RuntimeError(store.last_fault)
            rows, number = rows + batch.rows(), batch.number + 1
            if time.perf_counter() - begun > 2 * SECONDS:
                break
        spent = time.perf_counter() - begun
        lost = max(spent - (spinner.count - counted) / alone, 0.0)
    finally:
        spinner.stop()
    return number, rows / spent, lost / rows * 1e6


async def measure(folder: Path) -> None:
    """Print the rates of each size, and their share of the raw rate of the same minute."""
    store = SqliteStore(folder / "commits.db", allow_network_disk=True)
    await store.open()
    claim = await store.claim(owner="bench", now=1, lease_until=0)
    writer = next(thread for thread in threading.enumerate() if thread.name == "outlast-store-0")
    clock = time.pthread_getcpuclockid(writer.ident or 0)
    number, raw = 1, list[float]()
    for size in SIZES:
        rates, processor, beside, lost = list[float](), list[float](), list[float](), list[float]()
        for round_ in range(ROUNDS):
            place = folder / f"raw-{size}-{round_}"
            place.mkdir()
            raw.append(raw_rows(place))
            began = time.clock_gettime(clock)
            number, rows, spent = await committed(store, claim.fence, number, size)
            processor.append((time.clock_gettime(clock) - began) / rows * 1e6)
            rates.append(rows / spent)
            number, rate, taken = await beside_a_spinner(store, claim.fence, number, size)
            beside.append(rate)
            lost.append(taken)
        print(
            f"{size:>5} workflows a batch: {median(rates):>9,.0f} rows/s, {median(rates) / median(raw):.2f} of raw, "
            f"{median(processor):.1f} us of processor a row; beside a busy loop {median(beside):>9,.0f} rows/s, "
            f"which loses {median(lost):.1f} us a row"
        )
    print(f"raw rows                 {median(raw):>9,.0f}/s")
    await store.close()


def main() -> None:
    """Measure in the folder that was named, else in a temporary one."""
    sys.setswitchinterval(0.0005)  # as an engine does
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
