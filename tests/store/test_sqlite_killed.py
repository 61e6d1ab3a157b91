"""SQLite: a process that is killed in the middle of its commits loses none that it had acknowledged."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlast.store.base import RunFilter
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept

COMMIT = """
import asyncio, sys
from outlast.store.sqlite.store import SqliteStore
from tests.store.rows import batch_of, page, run_row

async def commit():
    store = SqliteStore(sys.argv[1], allow_network_disk=True, checkpoint_pages=40)
    await store.open()
    claim = await store.claim(owner="a", now=1, lease_until=0)
    for number in range(claim.last_number + 1, 10_000):
        rows = [run_row(f"{number:05}-{n}") for n in range(3)]
        pages = [page(row.run_id, blob=b"x" * 900) for row in rows]
        assert await store.commit(batch_of(*rows, *pages, fence=claim.fence, number=number)) == "done"
        print(number, flush=True)

asyncio.run(commit())
"""


def killed_after(path: Path, commits: int, pause: float) -> int:
    """Let a process commit, kill it a little after ``commits`` of them, and return the last it acknowledged."""
    process = subprocess.Popen([sys.executable, "-c", COMMIT, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(commits)]
    time.sleep(pause)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.read().splitlines()
    process.stdout.close()
    process.wait()
    return int([line for line in lines if line.strip()][-1])


@pytest.mark.slow
def test_kills_in_a_row_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    chance = random.Random(11)

    for round_ in range(1, 6):
        acked = killed_after(path, chance.randrange(1, 40), chance.random() / 50)

        with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
            claim = kept.claim("checker")
            runs = kept.run(kept.store.list_runs(RunFilter(namespace="default", limit=100_000))).rows
        assert claim.last_number >= acked
        assert claim.fence.epoch == 2 * round_
        expected = sorted(f"{number:05}-{n}" for number in range(1, claim.last_number + 1) for n in range(3))
        assert sorted(row.run_id for row in runs) == expected
