"""What PostgreSQL and its store give by themselves, without an engine, with full durability on the same machine.

python -m benchmarks.raw_postgres [SIZE]     commits and COPY by the driver alone, then starts, task lives and workflows through
    PostgresStore.commit, in batches of 1, 30, 1,000 (or SIZE), with what each took of a processor on both sides
"""

import asyncio
import sys
import time
from pathlib import Path

import asyncpg

from benchmarks import machine, raw_store
from benchmarks.commits import workflows
from benchmarks.figures import Raw
from benchmarks.raw_store import SECONDS, Make, committed_to, lives, starts
from outlast.core.writes import CommitOutcome
from outlast.store.postgres.store import PostgresStore
from tests.store.cluster import DURABLE, Cluster

ROWS = 3_000  # of one COPY


async def commits(url: str) -> float:
    """Return commits a second of one row, one after another, by the driver."""
    session = await asyncpg.connect(url)
    await session.execute("CREATE TABLE single (id text PRIMARY KEY, number bigint)")
    insert = await session.prepare("INSERT INTO single VALUES ($1, $2)")
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        await insert.fetch(f"{count:012}", count)
        count += 1
    rate = count / (time.perf_counter() - begun)
    await session.close()
    return rate


async def copied(url: str) -> float:
    """Return rows a second that COPY brings into a table with a primary key, ROWS a commit, by the driver."""
    session = await asyncpg.connect(url)
    await session.execute("CREATE TABLE raw (id text PRIMARY KEY, number bigint, blob bytea)")
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        rows = [(f"{count + n:012}", n, b"x" * 300) for n in range(ROWS)]
        await session.copy_records_to_table("raw", records=rows)
        count += ROWS
    rate = count / (time.perf_counter() - begun)
    await session.close()
    return rate


def measure(cluster: Cluster, folder: Path) -> Raw:
    """Return what the disk, PostgreSQL and its store give."""
    return Raw(
        syncs=raw_store.syncs(folder),
        commits=asyncio.run(commits(cluster.url(cluster.empty_database()))),
        rows=asyncio.run(copied(cluster.url(cluster.empty_database()))),
        starts=asyncio.run(committed_to(PostgresStore(cluster.url(cluster.empty_database())), starts, 1_000))[0],
        lives=asyncio.run(committed_to(PostgresStore(cluster.url(cluster.empty_database())), lives, 1_000))[0],
    )


async def shown(cluster: Cluster, make: Make, size: int) -> str:
    """Return in one line what entities of ``make`` take, in batches of ``size``."""
    store = PostgresStore(await asyncio.to_thread(lambda: cluster.url(cluster.empty_database())))
    await store.open()
    claim = await store.claim(owner="bench", now=1, lease_until=0)
    number, count, commits, spent, own = claim.last_number + 1, 0, 0, 0.0, 0.0
    theirs = machine.own_seconds(cluster.pid)
    while spent < SECONDS:
        batches = make(claim.fence, number, size)
        for batch in batches:
            begun, used = time.perf_counter(), time.process_time()
            if await store.commit(batch) is not CommitOutcome.DONE:
                raise RuntimeError(store.last_fault)
            spent += time.perf_counter() - begun
            own += time.process_time() - used
        number, count, commits = number + len(batches), count + size, commits + len(batches)
    theirs = machine.own_seconds(cluster.pid) - theirs
    await store.close()
    return (
        f"{make.__name__:<10} {size:>5} a batch {count / spent:>9,.0f}/s, a commit {spent / commits * 1e3:>6.1f} ms, "
        f"processor each {own / count * 1e6:>7,.1f} us here, {theirs / count * 1e6:>7,.1f} us there"
    )


def main() -> None:
    """Print every rate."""
    sizes = [int(size) for size in sys.argv[1:]] or [1, 30, 1_000]
    with Cluster(*DURABLE) as cluster:
        print(f"commits of one row       {asyncio.run(commits(cluster.url(cluster.empty_database()))):>9,.0f}/s")
        print(f"COPY, rows               {asyncio.run(copied(cluster.url(cluster.empty_database()))):>9,.0f}/s")
        for make in (starts, lives, workflows):
            for size in sizes:
                print(asyncio.run(shown(cluster, make, size)), flush=True)


if __name__ == "__main__":
    main()
