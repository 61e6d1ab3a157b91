"""What the disk and the SQLite store give by themselves, without an engine: the ceiling of everything else.

python -m benchmarks.raw_store [folder]     fsyncs, raw rows, then starts and task lives through SqliteStore.commit
"""

import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import uuid_utils

from outlast.core.replies import TaskState
from outlast.core.units import Fence
from outlast.core.writes import AttemptRow, Batch, CommitOutcome, DedupRow, HistoryRow, RunRow, TaskMove, TaskRow
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.bulk import Bulk
from outlast.store.sqlite.connection import connect
from outlast.store.sqlite.store import SqliteStore

Make = Callable[[Fence, int, int], list[Batch]]

SECONDS = 2.0  # of each measurement
WANTED = 25_000  # starts a second in batches of 1,000, on an idle machine


def syncs(folder: Path) -> float:
    """Return fsyncs a second of 4 KB appended."""
    with (folder / "sync").open("wb") as file:
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < SECONDS / 2:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            count += 1
        return count / (time.perf_counter() - begun)


def raw_rows(folder: Path) -> float:
    """Return rows a second that SQLite inserts into a table without an index, 3,000 a commit."""
    connection = connect(str(folder / "raw.db"))
    connection.execute("CREATE TABLE raw (id TEXT PRIMARY KEY, number INTEGER, blob BLOB) STRICT, WITHOUT ROWID")
    insert = Bulk("INSERT INTO raw VALUES ", width=3)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        connection.execute("BEGIN IMMEDIATE")
        insert.run(connection, ((f"{count + n:012}", n, b"x" * 300) for n in range(3_000)))
        connection.execute("COMMIT")
        count += 3_000
    rate = count / (time.perf_counter() - begun)
    connection.close()
    return rate


def starts(fence: Fence, number: int, size: int) -> list[Batch]:
    """Return a batch that starts ``size`` workflows: a run, a page of history and a dedup row each."""
    batch = Batch(0, fence, number, time.time_ns())
    for n in range(size):
        run_id, key = str(uuid_utils.uuid7()), str(uuid_utils.uuid7())
        batch.runs[run_id] = RunRow(
            namespace="default", workflow_id=f"order-{uuid_utils.uuid4()}", run_id=run_id, opened_no=number * size + n,
            original_run_id=run_id, first_run_id=run_id, type="Order", queue="main", started_at=batch.at,
            next_event_id=2, ready_at=batch.at, fixed=b"x" * 60, state=b"x" * 40,
        )  # fmt: skip
        batch.history.append(HistoryRow(run_id, 1, 1, b"x" * 330))
        batch.dedup["default", "start", key] = DedupRow("default", "start", key, run_id, "x" * 32, batch.at, 1)
    return [batch]


def lives(fence: Fence, number: int, size: int) -> list[Batch]:
    """Return three batches: ``size`` tasks are enqueued, leased, and done, with an attempt row each."""
    at = time.time_ns()
    ids = [str(uuid_utils.uuid7()) for _ in range(size)]
    batches = [Batch(0, fence, number + step, at) for step in range(3)]
    for id in ids:
        batches[0].tasks[id] = TaskRow(
            namespace="default", task_id=id, queue="main", type="send", ready=1, enqueued_at=at,
            spec=b"x" * 120, status=b"x" * 60,
        )  # fmt: skip
    for step, state in enumerate([TaskState.LEASED, TaskState.SUCCEEDED], 1):
        for id in ids:
            batches[step].task_moves[id] = TaskMove(
                id, "main", "", state, "", 0, 0, 1, 1, 0, "", 0, 0, b"x" * 60, number + step
            )  # fmt: skip
    batches[2].attempts = [
        AttemptRow(namespace="default", task_id=id, lease=1, attempt=1, outcome="succeeded") for id in ids
    ]
    return batches


async def committed(folder: Path, make: Make, size: int) -> tuple[float, float]:
    """Return entities a second in a file of SQLite, and the longest commit in milliseconds."""
    return await committed_to(SqliteStore(folder / f"{make.__name__}-{size}.db", allow_network_disk=True), make, size)


async def committed_to(store: SqliteStore | PostgresStore, make: Make, size: int) -> tuple[float, float]:
    """Return entities a second through ``commit``, and the longest one in milliseconds."""
    await store.open()
    claim = await store.claim(owner="bench", now=1, lease_until=0)
    number, spent, longest, count = claim.last_number + 1, 0.0, 0.0, 0
    while spent < SECONDS:
        batches = make(claim.fence, number, size)
        number += len(batches)
        count += size
        for batch in batches:
            begun = time.perf_counter()
            if await store.commit(batch) is not CommitOutcome.DONE:
                raise RuntimeError(store.last_fault)
            taken = time.perf_counter() - begun
            spent += taken
            longest = max(longest, taken)
    await store.close()
    return count / spent, longest * 1_000


def spin(end: threading.Event) -> None:
    """Keep the interpreter busy, as an event loop under load does."""
    while not end.is_set():
        sum(range(100))


async def measure(folder: Path) -> None:
    """Print every rate."""
    print(f"fsyncs of 4 KB           {syncs(folder):>9,.0f}/s")
    print(f"raw rows                 {raw_rows(folder):>9,.0f}/s")
    for make, what in ((starts, "starts"), (lives, "task lives")):
        for size in (1, 100, 1_000, 5_000):
            rate, longest = await committed(folder, make, size)
            print(f"{what:<10} {size:>5} a batch {rate:>9,.0f}/s, longest commit {longest:.1f} ms")
    end = threading.Event()
    threading.Thread(target=spin, args=(end,)).start()
    try:
        rate, longest = await committed(folder, starts, 1_001)
    finally:
        end.set()
    print(
        f"starts beside a busy thread {rate:>6,.0f}/s, longest commit {longest:.1f} ms (wanted on an idle machine: {WANTED:,}/s)"
    )


def main() -> None:
    """Measure in the folder that was named, else in a temporary one."""
    sys.setswitchinterval(0.0005)  # as an engine does
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
