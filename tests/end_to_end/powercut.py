"""Cut the power under the SQLite store, again and again, and look for what was acknowledged and is gone.

    python -m tests.end_to_end.powercut --cuts 300 [--synchronous NORMAL] [--seed 1]

The real store commits real batches onto a disk that forgets what was not synced (``cut_disk``). After each cut the files that
are left are opened by the real store on the real file system, and every row is compared with what was written. Half of
the cuts hit a database that has been cut before. Exit code 0: FULL, nothing lost. Exit code 1: something acknowledged was lost,
which with NORMAL is to be expected (and is said), or what was left was not whole.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outlast.core.units import Fence
from outlast.core.writes import Batch, CommitOutcome, LoadKeys, LoadTimers
from outlast.store.base import RunFilter, StoreError, TaskFilter
from outlast.store.sqlite.connection import connect
from outlast.store.sqlite.store import SqliteStore
from tests.end_to_end.cut_disk import CutDisk, CutVfs, PowerIsOff, Tally, lay_out
from tests.store.rows import batch_of, dedup, page, run_row, task_row, timer

BATCHES_MAX = 40  # of one life of a database
NAMES_MAX = 25  # of one batch; each is the name of ROWS_A_NAME rows
ROWS_A_NAME = 5
OPERATIONS_MAX = 900  # the cut comes at one of them; a life has about this many
CHECKPOINT_PAGES = 60  # small, so that checkpoints are cut as well
DATABASE = "/disk/shard.db"
NO_FENCE = Fence(0, 0)


@dataclass(slots=True)
class Database:
    """What a database is known to hold, over all its lives."""

    seed: int
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    acked: int = 0
    fence: Fence = NO_FENCE


@dataclass(slots=True)
class Report:
    """What the cuts have shown."""

    cuts: int = 0
    acked: int = 0
    acked_rows: int = 0
    lost: int = 0
    lost_rows: int = 0
    lost_claims: int = 0
    unacked_kept: int = 0
    unacked_gone: int = 0
    faults: list[str] = field(default_factory=list[str])
    tally: Tally = field(default_factory=Tally)


def rows_of(seed: int, number: int) -> list[str]:
    """Return the names of the rows that batch ``number`` of a database writes."""
    chance = random.Random(f"{seed}-{number}")
    return [f"{number:04}-{n:02}" for n in range(chance.choice([1, 1, 2, 4, NAMES_MAX]))]


def content_of(seed: int, name: str) -> bytes:
    """Return the bytes that a row holds: short ones, and some that fill pages."""
    chance = random.Random(f"{seed}-{name}")
    return chance.randbytes(chance.choice([20, 200, 200, 3_000, 20_000]))


def batch_for(seed: int, number: int, fence: Fence) -> Batch:
    """Return batch ``number``: a run, a page of history, a task, a timer and a dedup row under each name."""
    batch = batch_of(fence=fence, number=number, at=number)
    for name in rows_of(seed, number):
        batch.runs[name] = run_row(name, started_at=number, state=content_of(seed, name)[:200])
        batch.history.append(page(name, blob=content_of(seed, name)))
        batch.tasks[name] = task_row(name, enqueued_at=number, ready=1)
        batch.timers[number, name] = timer(number, name)
        row = dedup(name)
        batch.dedup[row.namespace, row.scope, row.key] = row
    return batch


async def live(database: Database, chance: random.Random, synchronous: str, tally: Tally) -> int:
    """Let a store commit onto the disk until its power is cut; return how many batches were tried."""
    disk = CutDisk(chance, tally, files=database.files, cut_at=chance.randrange(1, OPERATIONS_MAX))
    name = f"cut-{database.seed}-{database.acked}-{chance.random()}"
    vfs = CutVfs(name, disk)
    store = SqliteStore(DATABASE, vfs=name, synchronous=synchronous, checkpoint_pages=CHECKPOINT_PAGES)
    tried = database.acked
    try:
        await store.open()
        claim = await store.claim(owner="a", now=1, lease_until=0)
        database.fence, tried = claim.fence, claim.last_number
        for number in range(claim.last_number + 1, claim.last_number + 1 + chance.randrange(1, BATCHES_MAX)):
            tried = number
            if await store.commit(batch_for(database.seed, number, claim.fence)) is not CommitOutcome.DONE:
                break
            database.acked = number
        if chance.random() < 0.3:
            await store.close()  # an orderly end, whose last writes may be cut as well
    except StoreError:
        pass  # the power went before the store was open
    finally:
        disk.cut()
        await store.close()
    database.files = disk.left or {}
    vfs.unregister()
    return tried


async def look(database: Database, folder: Path) -> tuple[int, Fence, list[str]]:
    """Open what was left; return the last number and the fence that follow, and what is not as it should be."""
    lay_out(database.files, folder)
    path = folder / Path(DATABASE).name
    store = SqliteStore(path, allow_network_disk=True)
    faults: list[str] = []
    try:
        await store.open()
        claim = await store.claim(owner="b", now=1, lease_until=0)
        faults += await compare(store, database.seed, claim.last_number)
    except StoreError as error:
        return 0, NO_FENCE, [str(error)]
    finally:
        await store.close()
    faults += check_integrity(path)
    return claim.last_number, claim.fence, faults


async def compare(store: SqliteStore, seed: int, last: int) -> list[str]:
    """Return what differs from batches 1 to ``last``, all of them and nothing else."""
    names = sorted(name for number in range(1, last + 1) for name in rows_of(seed, number))
    found_runs = (await store.list_runs(RunFilter(namespace="default", limit=1_000_000))).rows
    found_tasks = (await store.list_tasks(TaskFilter(namespace="default", limit=1_000_000))).rows
    found_timers = (await store.load(LoadTimers(after=(0, ""), limit=1_000_000))).timers
    keys = tuple(("default", "start", name) for name in names)
    faults: list[str] = []
    for kind, found in {
        "runs": [row.run_id for row in found_runs],
        "tasks": [row.task_id for row in found_tasks],
        "timers": [row.timer_id for row in found_timers],
        "dedup": [row.key for row in (await store.load(LoadKeys(dedup=keys))).dedup],
    }.items():
        if sorted(found) != names:
            faults.append(f"{kind}: {len(found)} instead of {len(names)} rows after batch {last}")
    for row in found_runs:
        pages = await store.read_history(row.run_id, first_event_id=1, events_max=2)
        if [one.blob for one in pages] != [content_of(seed, row.run_id)]:
            faults.append(f"history of {row.run_id} differs")
    return faults


def check_integrity(path: Path) -> list[str]:
    """Return what SQLite finds wrong with the file."""
    connection = connect(str(path))
    found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    connection.close()
    return [] if found == ["ok"] else found


async def cut_once(database: Database, seed: int, synchronous: str, report: Report) -> None:
    """Live, cut, look, and count."""
    before = database.acked
    tried = await live(database, random.Random(seed), synchronous, report.tally)
    acked = database.acked
    with tempfile.TemporaryDirectory() as folder:
        last, fence, faults = await look(database, Path(folder))
    report.cuts += 1
    report.acked += acked - before
    report.acked_rows += rows_between(database.seed, before, acked)
    report.lost += max(acked - last, 0)
    report.lost_rows += rows_between(database.seed, last, acked)
    report.lost_claims += fence <= database.fence
    report.unacked_kept += max(last - acked, 0)
    report.unacked_gone += max(tried - max(last, acked), 0)
    report.faults += [f"seed {seed}: {fault}" for fault in faults]
    database.acked = last


def rows_between(seed: int, last: int, end: int) -> int:
    """Return how many rows batches after ``last`` up to ``end`` write."""
    return ROWS_A_NAME * sum(len(rows_of(seed, number)) for number in range(last + 1, end + 1))


async def run(cuts: int, seed: int, synchronous: str) -> Report:
    """Cut ``cuts`` times."""
    report = Report()
    database = Database(seed)
    for n in range(cuts):
        if n % 2 == 0 or report.faults:
            database = Database(seed * 1_000_000 + n)
        await cut_once(database, seed * 1_000_000 + n, synchronous, report)
    return report


def keep_quiet(*about: object) -> None:
    """Print an error that has no caller, unless it is that the power is off."""
    kind = about[0] if isinstance(about[0], type) else getattr(about[0], "exc_type", None)
    if kind is not PowerIsOff:
        print("unexpected", about, file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    """Cut, print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(prog="powercut", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--synchronous", choices=["FULL", "NORMAL", "OFF"], default="FULL")
    asked = parser.parse_args(arguments)
    # A disk without power fails as loudly as it can, also where SQLite has nobody to tell.
    logging.getLogger("outlast.store").setLevel(logging.CRITICAL)
    sys.unraisablehook = sys.excepthook = keep_quiet

    begun = time.monotonic()
    report = asyncio.run(run(asked.cuts, asked.seed, asked.synchronous))
    tally = report.tally
    print(f"synchronous={asked.synchronous} seed={asked.seed}, {time.monotonic() - begun:.0f} s")
    print(
        f"acknowledged batches {report.acked}, lost {report.lost}; their rows {report.acked_rows}, lost {report.lost_rows}"
    )
    print(f"acknowledged claims lost {report.lost_claims}")
    print(f"unacknowledged batches kept {report.unacked_kept}, gone {report.unacked_gone}")
    print(
        f"unsynced sectors kept {tally.kept}, dropped {tally.dropped}, noise {tally.noise}; torn writes {tally.torn_writes}"
    )
    for fault in report.faults[:20]:
        print(f"fault: {fault}")
    if report.lost and asked.synchronous != "FULL":
        print(
            f"synchronous={asked.synchronous} gives acknowledged batches up at a power cut: it is not the default for that."
        )
    print(f"{report.cuts} cuts, {report.lost} acked lost")
    return 1 if report.lost or report.lost_claims or report.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
