"""Do tables and indexes stay as large as they are under a steady rate of work that is forgotten again?

    python -m benchmarks.churn [--store postgres|sqlite] [--minutes 60] [--rate 60] [--plant kept] [--keep FOLDER]

Each second ``--rate`` tasks are enqueued, a sixth as many under keys, and as many workflows of one activity and one timer are
started. What has closed is kept for two minutes, keys and feed as well: after some three minutes as much goes as comes.
Sizes are taken twice a minute; those of the second half are held against those between the settling (a sixth of the time,
ten minutes of an hour) and the middle. A relation may have grown by a twentieth and sixteen pages. ``--plant kept`` forgets
nothing: that must be seen as growth, else the measure is wrong. Exit code 1 when something grew.

Kept are churn_STORE.md with the figures and churn_STORE.svg with the picture.
"""

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import asyncpg

from outlast import App, workflow
from outlast.core.shard.config import ShardConfig
from outlast.core.units import MINUTE
from outlast.server.embedded import start
from tests.store.cluster import DURABLE, Cluster

RESULTS: Final = Path(__file__).parent / "results"
KEPT: Final = 2 * MINUTE  # nanoseconds for which what has closed, keys and feed are kept
MINUTES_MIN: Final = 6  # three until as much goes as comes, and as many to see whether it stays so
LOOK_EVERY: Final = 30.0  # seconds between looks at the sizes
PAGE: Final = 8192  # bytes of a page of PostgreSQL
GROWTH: Final = 1.05
SLACK: Final = 16 * PAGE
SIZES: Final = """
SELECT c.relname, c.relkind::text, pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0)
FROM pg_class c WHERE c.relnamespace = 'outlast'::regnamespace AND c.relkind IN ('r', 'i')
"""
UPDATES: Final = "SELECT sum(n_tup_upd), sum(n_tup_hot_upd) FROM pg_stat_user_tables WHERE schemaname = 'outlast'"

app = App("memory:")


@app.task
async def nothing(number: int) -> int:
    return number


@app.workflow
async def one_of_each(number: int) -> int:
    await workflow.sleep(1)
    return await nothing.execute(number)


@dataclass(slots=True)
class Look:
    """Sizes in bytes at one moment, seconds after the beginning; of tables and of indexes, by name."""

    at: float
    tables: dict[str, int]
    indexes: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def all(self) -> dict[str, int]:
        """Both."""
        return {**self.tables, **self.indexes}


def main() -> int:
    """Return 0 if nothing has grown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=60, help="tasks a second")
    parser.add_argument("--plant", choices=["kept"], help="a fault that must be seen")
    parser.add_argument("--keep", type=Path, default=RESULTS, help="folder for the table and the picture")
    chosen = parser.parse_args()
    if chosen.minutes < MINUTES_MIN:
        parser.error(f"{chosen.minutes:g} minutes show nothing: give it {MINUTES_MIN} at least")
    config = ShardConfig() if chosen.plant else ShardConfig(idempotency_window=KEPT, feed_age=KEPT)
    with ExitStack() as stack:
        if chosen.store == "postgres":
            cluster = stack.enter_context(Cluster(*DURABLE))
            database = cluster.empty_database()
            app.store, look = cluster.url(database), partial(of_database, cluster, database)
        else:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-bench-"))) / "churn.db"
            app.store, look = f"sqlite:///{file}", partial(of_file, file)
        app.start_engine = partial(start, config=config)
        with app:
            app.namespaces.update("default", retention=0 if chosen.plant else KEPT / 1e9)
            looks = asyncio.run(churn(look, seconds=60 * chosen.minutes, rate=chosen.rate))
        hot = told_of_updates(app.store) if chosen.store == "postgres" else ""
    grown = grown_in(looks)
    lines = [*report(chosen, looks, grown), *([hot] if hot else [])]
    print("\n".join(lines))
    if not chosen.plant:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        (chosen.keep / f"churn_{chosen.store}.md").write_text("\n".join(lines) + "\n")
        (chosen.keep / f"churn_{chosen.store}.svg").write_text(picture(looks))
    return 1 if grown else 0


async def churn(look: Callable[[float], Look], *, seconds: float, rate: int) -> list[Look]:
    """Keep the rate for ``seconds`` and return the sizes meanwhile."""
    began, n = time.monotonic(), 0
    looks: list[Look] = []
    while (elapsed := time.monotonic() - began) < seconds:
        if elapsed >= len(looks) * LOOK_EVERY:
            looks.append(await asyncio.to_thread(look, elapsed))
            print(f"{elapsed / 60:5.1f} min  {n:>8,} tasks  {sum(looks[-1].all.values()) / 2**20:8.2f} MB", flush=True)
        numbers = range(n, n + rate)
        n += rate
        await nothing.aenqueue_many([(number,) for number in numbers])
        await asyncio.gather(*(nothing.using(key=f"churn-{number}").aenqueue(number) for number in numbers[::6]))
        await one_of_each.astart_many([(number,) for number in numbers[::6]])
        await asyncio.sleep(max(0.0, began + n / rate - time.monotonic()))
    return looks


def of_database(cluster: Cluster, database: str, at: float) -> Look:
    """Return the sizes of all relations of our schema, each with what it keeps out of line."""
    found = cluster.run(SIZES, database=database)
    kinds = {kind: {name: size for name, of, size in found if of == kind} for kind in ("r", "i")}
    return Look(at, kinds["r"], kinds["i"])


def of_file(file: Path, at: float) -> Look:
    """Return what of a database file is in use, and the file with its log."""
    reading = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        pages, free, size = (
            reading.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    finally:
        reading.close()
    return Look(at, {"in use": (pages - free) * size, "free": free * size, "log": Path(f"{file}-wal").stat().st_size})


def told_of_updates(address: str) -> str:
    """Return how many updates stayed within their page, as a sentence."""

    async def ask() -> tuple[int, int]:
        session = await asyncpg.connect(address)
        row = await session.fetchrow(UPDATES)
        await session.close()
        return (int(row[0] or 0), int(row[1] or 0)) if row is not None else (0, 0)

    updates, hot = asyncio.run(ask())
    return f"\n{updates:,} rows were updated, {hot / max(updates, 1):.1%} of them within their page (HOT)."


def grown_in(looks: list[Look]) -> dict[str, tuple[int, int]]:
    """Return the relations that were larger in the second half than before, with both sizes."""
    whole = looks[-1].at
    before = [look.all for look in looks if whole / 6 <= look.at < whole / 2]
    after = [look.all for look in looks if look.at >= whole / 2]
    grown: dict[str, tuple[int, int]] = {}
    for name in looks[-1].all:
        was, now = (max(sizes.get(name, 0) for sizes in half) for half in (before, after))
        if now > was * GROWTH + SLACK:
            grown[name] = (was, now)
    return grown


def report(chosen: argparse.Namespace, looks: list[Look], grown: dict[str, tuple[int, int]]) -> list[str]:
    """Return the figures as lines of a page."""
    whole = looks[-1].at
    middle = [look for look in looks if whole / 6 <= look.at < whole / 2]
    late = [look for look in looks if look.at >= whole / 2]
    when, share = time.strftime("%Y-%m-%d %H:%M", time.gmtime()), len(range(0, chosen.rate, 6))
    lines = [
        f"# Churn on {chosen.store}",
        "",
        f"{when} UTC; {chosen.minutes:g} minutes; each second {chosen.rate} tasks, {share} more under keys, {share} workflows.",
        "Largest sizes in MB: between a sixth and the half of the time, in its second half, and at the end.",
        "",
        "| what | before | second half | at the end |",
        "|---|---:|---:|---:|",
    ]
    for name in sorted(looks[-1].all, key=lambda name: -looks[-1].all[name]):
        sizes = [max(look.all.get(name, 0) for look in part) for part in (middle, late, looks[-1:])]
        if max(sizes) > SLACK:
            lines.append(f"| {name} | " + " | ".join(f"{size / 2**20:.2f}" for size in sizes) + " |")
    verdict = ", ".join(f"{name} ({was:,} to {now:,} bytes)" for name, (was, now) in grown.items())
    return [*lines, "", f"Grown: {verdict or 'nothing'}."]


def picture(looks: list[Look]) -> str:
    """Return the sizes over time as SVG: tables and indexes."""
    width, height, left = 900, 320, 60
    top = max(sum(part.values()) for look in looks for part in (look.tables, look.indexes)) or 1
    whole = looks[-1].at or 1.0

    def line(part: Callable[[Look], dict[str, int]], colour: str, title: str, at: int) -> str:
        points = " ".join(
            f"{left + look.at / whole * (width - left - 20):.1f},{height - 30 - sum(part(look).values()) / top * 260:.1f}"
            for look in looks
        )
        return (
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
            f'<text x="{left + 10 + at}" y="18" fill="{colour}">{title}</text>'
        )

    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="4" y="34">{top / 2**20:.0f} MB</text><text x="4" y="{height - 30}">0</text>',
        f'<text x="{width - 80}" y="{height - 8}">{whole / 60:.0f} min</text>',
        f'<line x1="{left}" y1="{height - 30}" x2="{width - 20}" y2="{height - 30}" stroke="grey"/>',
        line(lambda look: look.tables, "#1f5fa8", "tables", 0),
        line(lambda look: look.indexes, "#b5541c", "indexes", 80),
        "</svg>",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
