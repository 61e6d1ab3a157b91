"""Kill programs that enqueue in their own transactions, and engines that take it up; then look for orphans and ghosts.

    python -m tests.end_to_end.intake_kills --kills 200 [--place sqlite|postgres|elsewhere] [--seed 7] [--plant enqueue_apart]

An orphan is an order that was committed and whose task or run there is not; a ghost is a task or run without its order.
``postgres``: the orders are in the engine's own database; ``sqlite`` and ``elsewhere``: in one of their own, with an outbox, of
either kind. PostgreSQL is killed as well: the shops commit without waiting for the disk, so that commits which could be seen are
gone then. Exit code 0: neither was found, and nothing was set aside.
"""

import argparse
import contextlib
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from outlast import App
from outlast.store.base import StoreError
from tests.end_to_end.processes import Program
from tests.store.cluster import Cluster

ROOT = Path(__file__).parents[2]
PLACES = ("sqlite", "postgres", "elsewhere")
APART = "enqueue_apart"  # a plant: an order is committed first, its task in a transaction that follows
UNSYNCED = "hand_over_unsynced"  # a plant: a row is handed over before the commit that left it is on the disk
SHOPS = 2
DATABASE_KILLED = 0.3  # of all kills
DRAINED_WITHIN = 60.0  # seconds: the machine may be busy
ORDERS = "CREATE TABLE orders (kind text, id text)"


@dataclass(slots=True)
class Place:
    """Where the engine's store and the orders are; ``table`` is where rows wait."""

    store: str
    database: str
    outboxes: tuple[str, ...]
    table: str
    cluster: Cluster | None = None

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement on the orders' database."""
        if "://" in self.database:
            with psycopg.connect(self.database) as connection:
                return connection.execute(statement).fetchall()  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType,reportCallIssue,reportUnknownVariableType]
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection:
            return connection.execute(statement).fetchall()


@dataclass(slots=True)
class Report:
    """What was found."""

    kills: int = 0
    orders: int = 0
    orphans: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    ghosts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    troubles: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool:
        return not (self.orphans or self.ghosts or self.troubles)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.orders} orders, {len(self.orphans)} orphans, {len(self.ghosts)} ghosts, "
            f"{len(self.troubles)} set aside"
        )


@contextmanager
def made(place: str, folder: Path) -> Generator[Place]:
    """Make the databases."""
    work = f"sqlite:///{folder / 'work.db'}"
    if place == "sqlite":
        database = str(folder / "shop.db")
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(ORDERS)
        yield Place(work, database, (f"sqlite:///{database}",), "outlast_outbox")
        return
    with Cluster("wal_writer_delay=10s") as cluster:  # what nobody waits for comes to the disk late
        name = cluster.empty_database()
        cluster.run(ORDERS, database=name)
        if place == "elsewhere":
            cluster.run(f"ALTER DATABASE {name} SET synchronous_commit = off")
        url = cluster.url(name)
        if place == "postgres":
            yield Place(f"{url}&allow_weak_durability=yes", url, (), "outlast.intake", cluster)
        else:
            yield Place(work, url, (url,), "outlast_outbox.intake", cluster)


def run(
    kills: int, seed: int, place: str, *, plant: str = "", database_killed: float = DATABASE_KILLED, least: float = 0.05
) -> Report:
    """Kill ``kills`` times at random moments, ``least`` seconds after the shops are at work; compare what is left in the end."""
    rng = random.Random(seed)
    report = Report()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-kills-")))
        there = stack.enter_context(made(place, folder))
        names = ["engine", *(f"shop-{n}" for n in range(SHOPS))]
        running = {"engine": start("engine", there, folder, rng, plant)}
        try:
            wait_for_table(there)
            running |= {name: start(name, there, folder, rng, plant) for name in names[1:]}
            for _ in range(kills):
                for name in names[1:]:
                    running[name] = at_work(running[name], lambda name=name: start(name, there, folder, rng, plant))
                time.sleep(rng.uniform(least, 1.0))
                killed = rng.sample(names, rng.choice((1, 1, 2)))
                if there.cluster is not None and rng.random() < database_killed:
                    there.cluster.kill()
                    there.cluster.start()
                    killed = names[1:]  # a shop ends when its connection does; the engine has to go on
                for name in killed:
                    running[name].kill()
                    running[name] = start(name, there, folder, rng, plant)
                report.kills += 1
            for name in names[1:]:
                at_work(running[name], lambda name=name: start(name, there, folder, rng, plant)).kill()
            drain(there, running["engine"])
        finally:
            for program in running.values():
                program.kill()
        compare(there, report)
    return report


def start(name: str, place: Place, folder: Path, rng: random.Random, plant: str) -> Program:
    """Start a program; it is killed by its pid."""
    words = ["engine", place.store, *place.outboxes] if name == "engine" else ["shop", place.database, seed_of(rng)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PLANT": plant}
    return Program(folder, "-m", "tests.end_to_end.intake_shop", *words, name=name, env=environment)


def at_work(shop: Program, again: Callable[[], Program]) -> Program:
    """Return ``shop`` once it has placed an order; one that has ended, as its database had, is started again."""
    ends = time.monotonic() + DRAINED_WITHIN
    while "ready" not in shop.said():
        if time.monotonic() > ends:
            raise AssertionError(f"The shop has placed no order: {shop.said()[-2000:]}")
        if shop.process.poll() is not None:
            shop = again()
        time.sleep(0.05)
    return shop


def seed_of(rng: random.Random) -> str:
    return str(rng.randrange(2**32))


def wait_for_table(place: Place) -> None:
    """Return once rows can be written."""
    ends = time.monotonic() + DRAINED_WITHIN
    while True:
        try:
            place.ask(f"SELECT count(*) FROM {place.table}")
        except (sqlite3.Error, psycopg.Error):
            if time.monotonic() > ends:
                raise
            time.sleep(0.1)
        else:
            return


def drain(place: Place, engine: Program) -> None:
    """Return once nothing waits to be taken; some rows may have been set aside."""
    ends = time.monotonic() + DRAINED_WITHIN
    while place.ask(f"SELECT 1 FROM {place.table} WHERE trouble = '' LIMIT 1"):
        if time.monotonic() > ends:
            raise AssertionError(f"Rows were not taken within {DRAINED_WITHIN:g} s: {engine.said()[-2000:]}")
        time.sleep(0.1)


def compare(place: Place, report: Report) -> None:
    """Hold the committed orders against what the engine has."""
    orders = {(kind, id) for kind, id in place.ask("SELECT kind, id FROM orders")}
    with owned(App(place.store, worker=False)) as app:
        there = {("task", task.task_id) for task in app.tasks.list()} | {
            ("run", run.workflow_id) for run in app.workflows.list()
        }
    report.orders = len(orders)
    report.orphans = sorted(orders - there)
    report.ghosts = sorted(there - orders)
    report.troubles = [trouble for (trouble,) in place.ask(f"SELECT trouble FROM {place.table} WHERE trouble <> ''")]


@contextmanager
def owned(app: App) -> Generator[App]:
    """Start ``app``, once the lease of the engine that was killed has ended."""
    ends = time.monotonic() + DRAINED_WITHIN
    while True:
        try:
            app.start()
        except StoreError as error:
            if error.code != "not_owner" or time.monotonic() > ends:
                raise
            time.sleep(0.2)
        else:
            break
    try:
        yield app
    finally:
        app.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--place", choices=PLACES, action="append")
    parser.add_argument("--plant", default="")
    given = parser.parse_args()
    good = True
    for place in given.place or PLACES:
        report = run(given.kills, given.seed, place, plant=given.plant)
        print(
            f"{place}: {report}", *report.orphans[:5], *report.ghosts[:5], *report.troubles[:5], sep="\n  ", flush=True
        )
        good = good and report.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
