"""All benchmarks, beside what the raw store gives in the same run; the last answers are kept in benchmarks/results/.

    python -m benchmarks [--store sqlite|postgres] [--only NAME] [--size small|full] [--keep FOLDER]

On PostgreSQL, which then runs on the same machine, those are measured that are about its store. Each runs in a process of its
own, bounded in count and time, with full fsync. Exit code 1 when a figure that is wanted is missed.
"""

import argparse
import asyncio
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import machine, raw_postgres, raw_store
from benchmarks.figures import SERVER, Figure, Raw, as_json, from_json
from tests.store.cluster import DURABLE, Cluster

NAMES = (
    "starts",
    "tasks",
    "workflows",
    "steps",
    "workflows_http",
    "http_door",
    "latency",
    "timers",
    "replays",
    "idle_polls",
    "sleepers",
    "first_minute",
)
ON_POSTGRES = {
    "starts, batches of 1,000, 4 callers": 15_000,
    "tasks end to end, no-op coroutines": 6_000,
    "workflows of one activity, in process": 1_500,
}
"""What is wanted there, by the names of figures."""
NAMES_ON_POSTGRES = ("starts", "tasks", "workflows", "steps", "latency")
RESULTS = Path(__file__).parent / "results"
TIMEOUT = 400  # seconds for one benchmark


def main() -> int:
    """Return 0 if every figure that is held to something is met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=NAMES, action="append")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--size", choices=["small", "full"], default="full")
    parser.add_argument("--keep", type=Path, default=RESULTS, help="folder that the figures are kept in")
    parser.add_argument("--alone", choices=NAMES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        module = importlib.import_module(f"benchmarks.{chosen.alone}")
        print(as_json(module.measure(full=chosen.size == "full")))
        return 0
    load = os.getloadavg()[0]
    if chosen.store == "sqlite":
        return measure_all(chosen, chosen.only or NAMES, measure_raw(), load=load)
    with Cluster(*DURABLE) as cluster, tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        os.environ[SERVER] = cluster.url("postgres")
        raw = raw_postgres.measure(cluster, Path(folder))
        return measure_all(chosen, chosen.only or NAMES_ON_POSTGRES, raw, load=load)


def measure_all(chosen: argparse.Namespace, names: Sequence[str], raw: Raw, *, load: float) -> int:
    """Run the benchmarks called ``names``, print and keep what they give; return the exit code."""
    print(f"{told(raw)}; load {load:.1f} on {os.cpu_count()} cores\n", flush=True)
    figures: list[Figure] = []
    failed: list[str] = []
    for name in names:
        found = run(name, chosen.size)
        if chosen.store == "postgres":
            found = [replace(figure, wanted=ON_POSTGRES.get(figure.name, 0.0)) for figure in found]
        failed += [] if found else [name]
        for figure in found:
            print(figure.line(raw), flush=True)
        figures += found
    if not chosen.only:
        keep(chosen.keep, raw, figures, load=load, size=chosen.size, store=chosen.store)
    missed = [figure.name for figure in figures if not figure.is_met]
    for name in failed:
        print(f"{name}: gave no figure")
    print(f"\n{len(figures)} figures, {len(missed)} missed" + (f": {', '.join(missed)}" if missed else ""))
    return 1 if missed or failed else 0


def told(raw: Raw) -> str:
    """Return what the raw store gives as text."""
    return (
        f"Raw store: {raw.rows:,.0f} rows/s, {raw.starts:,.0f} starts/s, {raw.lives:,.0f} task lives/s, "
        f"{raw.syncs:,.0f} fsync/s" + (f", {raw.commits:,.0f} commits/s of one row" if raw.commits else "")
    )


def measure_raw() -> Raw:
    """Return what the store gives by itself."""
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as name:
        folder = Path(name)
        return Raw(
            syncs=raw_store.syncs(folder),
            rows=raw_store.raw_rows(folder),
            starts=asyncio.run(raw_store.committed(folder, raw_store.starts, 1_000))[0],
            lives=asyncio.run(raw_store.committed(folder, raw_store.lives, 1_000))[0],
        )


def run(name: str, size: str) -> list[Figure]:
    """Return the figures of one benchmark, from a process of its own; none when it failed, after its stderr."""
    command = [sys.executable, "-m", "benchmarks", "--alone", name, "--size", size]
    syncs = machine.syncs_now()
    others = machine.Others()
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        print(f"{name}: not done within {TIMEOUT} s", file=sys.stderr)
        return []
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return []
    figures = from_json(done.stdout.splitlines()[-1])
    cores = others.cores()
    return [replace(figure, syncs=syncs, others=cores) for figure in figures]


def keep(folder: Path, raw: Raw, figures: list[Figure], *, load: float, size: str, store: str) -> None:
    """Write the answers down."""
    folder.mkdir(parents=True, exist_ok=True)
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    where = f"{os.cpu_count()} cores, load {load:.1f} at the beginning, Python {platform.python_version()}, size {size}"
    lines = [
        "# Last figures" + (", PostgreSQL on the same machine" if store == "postgres" else ""),
        "",
        f"{when} UTC; {where}.",
        f"{told(raw)}.",
        "The last two columns: what the disk gave just before, and what others took of the cores meanwhile.",
        "",
        "| what | figure | against the raw store | wanted | | fsync/s | others, cores |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    for figure in figures:
        verdict = ("met" if figure.is_met else "missed") if figure.wanted else ""
        lines.append(
            f"| {figure.name} | {figure.shown} | {figure.ratio(raw)} | {figure.wish} | {verdict} "
            f"| {figure.syncs:,.0f} | {figure.others:.1f} |"
        )
    name = "latest" if store == "sqlite" else store
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")
    facts = {"at": when, "machine": where, "raw": asdict(raw), "figures": [asdict(figure) for figure in figures]}
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
