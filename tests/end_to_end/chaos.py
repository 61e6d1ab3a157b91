"""Kill real processes for minutes on end, and compare what is left with an outside ledger.

    python -m tests.end_to_end.chaos --cycles 200 [--store postgres] [--seed N] [--plant ack_before_commit]

The driver (this process) and the destination are never killed. Each cycle ends the engine, workers, PostgreSQL (all its
processes, or the one that writes), or several of them with SIGKILL at a random moment and starts them again. At the end
everything is given time to finish, then the store's rows, the ledger and the destination's log must tell the same story. Exit
code 0: nothing lost, nothing doubled. Exit code 1: something was.
"""

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from examples.processes import Children
from tests.end_to_end.chaos_check import Findings, check
from tests.end_to_end.chaos_cluster import Cluster
from tests.end_to_end.chaos_ledger import Ledger
from tests.end_to_end.chaos_load import Load
from tests.store.cluster import DURABLE
from tests.store.cluster import Cluster as Database

SLOTS = 48
PAUSE = (0.05, 0.7)  # seconds between a restart and the next kill
DRAIN_WITHIN = 90.0  # seconds for everything to end once nothing is killed any more
DRAIN_WITHIN_PLANTED = 10.0  # what a planted bug has lost never ends
IN_FLIGHT_MEDIAN_MIN = 20
KILLS_TO_BE_SURE = 20  # in so many, each kind of kill comes
SHOWN = 20  # findings that are printed


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if nothing was lost and nothing doubled."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.end_to_end.chaos", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--plant", choices=["ack_before_commit"], default="")
    chosen = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="outlast-chaos-"))
    print(f"seed {chosen.seed}, {chosen.cycles} cycles, ledger and store in {folder}", flush=True)
    with database_of(chosen.store) as database, Children(folder) as children:
        try:
            cluster = Cluster(children, folder, plant=chosen.plant, database=database)
            found = asyncio.run(run(cluster, cycles=chosen.cycles, seed=chosen.seed, plant=chosen.plant))
        except Exception:
            print(children.log_tails(), file=sys.stderr)
            raise
        if found:
            print(children.log_tails(), file=sys.stderr)
    if not found:
        shutil.rmtree(folder)
    return 1 if found else 0


@contextmanager
def database_of(store: str) -> Generator[Database | None]:
    """Give a server that loses nothing; none for a store that needs none."""
    if store == "sqlite":
        yield None
        return
    with Database(*DURABLE) as database:
        yield database


async def run(cluster: Cluster, *, cycles: int, seed: int, plant: str) -> bool:
    """Play, check, report; return whether anything is wrong."""
    began = time.monotonic()
    rng = random.Random(seed)
    ledger = Ledger(cluster.folder, "driver")
    load = Load(cluster.address, ledger, slots=SLOTS, rng=random.Random(seed + 1))
    load.start()
    await asyncio.sleep(1.0)
    for _ in range(cycles):
        await asyncio.sleep(rng.uniform(*PAUSE))
        ledger.write("kill", in_flight=load.in_flight)
        await cluster.kill_some(rng, in_flight=load.in_flight)
        if plant and load.faults:
            break  # seen already
    within = DRAIN_WITHIN_PLANTED if plant else DRAIN_WITHIN
    stuck = await load.drain(within)
    left = await wait_until_nothing_is_open(load, within)
    await load.close()
    cluster.stop()
    findings = await asyncio.to_thread(checked, cluster)
    findings.lost += load.faults
    if stuck or left:
        findings.lost.append(f"{stuck} clients were still waiting, {left} runs or tasks open, after {within:g} s")
    return report(cluster, load, findings, seconds=time.monotonic() - began)


def checked(cluster: Cluster) -> Findings:
    """Return what is wrong with what is left in the store."""
    with closing(cluster.rows()) as stored:
        return check(cluster.folder, stored)


async def wait_until_nothing_is_open(load: Load, within: float) -> int:
    """Let pieces end whose start was never seen acknowledged; return how many things are open in the end."""
    ends = time.monotonic() + within
    while True:
        left = await load.open_left()
        if not left or time.monotonic() > ends:
            return left
        await asyncio.sleep(0.2)


def report(cluster: Cluster, load: Load, findings: Findings, *, seconds: float) -> bool:
    """Print what happened; return whether anything is wrong."""
    kills = cluster.kills
    median = statistics.median(kills.in_flight)
    for kind, found in (("lost", findings.lost), ("doubled", findings.doubled), ("early", findings.early)):
        for fault in found[:SHOWN]:
            print(f"{kind}: {fault}")
        if len(found) > SHOWN:
            print(f"{kind}: … and {len(found) - SHOWN} more")
    rows: list[tuple[str, object]] = [
        ("kills of engines", kills.engines),
        ("kills of workers", kills.workers),
        ("kills of PostgreSQL", kills.databases),
        ("kills of its process that writes", kills.sessions),
        ("median work in flight at a kill", f"{median:g}"),
        ("median start of an engine", f"{statistics.median(kills.engine_starts or [0]):.2f} s"),
        ("pieces of work", load.pieces),
        ("requests acknowledged", load.acked),
        ("requests without an answer", load.unknown),
        ("attempts repeated", findings.repeated_attempts),
        ("tasks given up, their workers kept dying", findings.given_up),
        ("effects applied", findings.applied),
        ("effects repeated, recognised by id", findings.repeated_effects),
        ("timers", findings.timers),
        ("timers early", len(findings.early)),
        ("seconds", f"{seconds:.0f}"),
    ]
    for name, value in rows:
        print(f"{name:<42}{value:>8}")
    harness: list[str] = []
    if cluster.database is not None and not (kills.databases and kills.sessions) and kills.moments >= KILLS_TO_BE_SURE:
        harness.append("PostgreSQL was not killed in both ways")
    if median < IN_FLIGHT_MEDIAN_MIN:
        harness.append(f"only {median:g} pieces were in flight at a kill")
    if not findings.repeated_attempts:
        harness.append("no attempt was repeated: the kills have hit nothing")
    for fault in harness:
        print(f"harness: {fault}")
    print(f"{kills.moments} kills, {len(findings.lost)} lost, {len(findings.doubled)} doubled")
    return bool(findings.lost or findings.doubled or findings.early or harness)


if __name__ == "__main__":
    sys.exit(main())
