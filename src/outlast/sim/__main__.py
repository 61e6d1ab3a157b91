"""Plays seeds: ``python -m outlast.sim --seeds 1000``. The last line says how many, and how many broke a promise."""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from outlast.sim.cluster import Result, play
from outlast.sim.plants import PLANTS, planted
from outlast.sim.report import (
    FULL_ROUND,
    PLANT_SEEDS,
    Caught,
    Round,
    failure_lines,
    failures_lines,
    plant_line,
)

_REPEATED_EVERY = 100  # one seed in so many is played twice
_OTHER_HASH_SEED = "4242"


def main() -> int:
    """Play what the command line asks for. Returns the exit code: 1 for a broken promise or a planted bug that was found."""
    options = _options()
    if options.digests:
        seeds = [int(seed) for seed in options.digests.split(",")]
        print(json.dumps({str(seed): play(seed).digest for seed in seeds}))
        return 0
    if options.plant:
        return _play_plant(options.plant, options.first, options.seeds or PLANT_SEEDS, options.processes)
    if options.seed is not None:
        return _play_one(options.seed, trace=options.trace, until=options.until)
    return _play_round(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outlast.sim", description="Play seeds of the simulation.")
    parser.add_argument("--seeds", type=int, default=0, help="how many to play (200; 300 with --plant)")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happens")
    parser.add_argument("--until", type=float, help="with --trace: only up to this second of simulated time")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="plant this bug; ends with 1 when it is found")
    parser.add_argument("--plants", action="store_true", help="play all planted bugs as well")
    parser.add_argument("--jobs", dest="processes", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--digests", help=argparse.SUPPRESS)
    return parser.parse_args()


def _play_one(seed: int, *, trace: bool, until: float | None) -> int:
    result = play(seed, trace=trace)
    if trace:
        print("\n".join(line for line in result.lines if until is None or float(line.split()[0]) <= until))
        result.lines = []
    if result.violation:
        print("\n".join(failure_lines(result)))
        return 1
    print(f"{result.events:,} events, digest {result.digest:016x}")
    print("1 seeds, 0 violations")
    return 0


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max_workers=processes, mp_context=get_context("fork"))


def _play_round(options: argparse.Namespace) -> int:
    count = options.seeds or 200
    seeds = range(options.first, options.first + count)
    total, digests = Round(), dict[int, int]()
    with _pool(options.processes) as pool:
        for result in pool.map(play, seeds, chunksize=4):
            total.add(result)
            digests[result.seed] = result.digest
        print("\n".join(total.lines()))
        repeated = [seed for seed in seeds if seed % _REPEATED_EVERY == 0] or [seeds[0]]
        differing = _repeat(pool, repeated, digests)
        print("\n".join(failures_lines(total.failures)), end="\n" if total.failures else "")
        missed = _plant_all(pool, options.first) if options.plants or count >= FULL_ROUND else 0
    for text in total.missing():
        print(text)
    failed = bool(total.failures or differing or missed or total.missing())
    print(f"{total.seeds} seeds, {len(total.failures)} violations")
    return int(failed)


def _repeat(pool: ProcessPoolExecutor, seeds: list[int], digests: dict[int, int]) -> int:
    """Play some seeds again, here and in a process with another hash seed; return how many came out differently."""
    again = {result.seed: result.digest for result in pool.map(play, seeds)}
    command = [sys.executable, "-m", "outlast.sim", "--digests", ",".join(map(str, seeds))]
    environment = {**os.environ, "PYTHONHASHSEED": _OTHER_HASH_SEED}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603 - ourselves
    other = {int(seed): digest for seed, digest in json.loads(output).items()}
    differing = 0
    print(f"digests of {len(seeds)} seeds played again, and again under PYTHONHASHSEED={_OTHER_HASH_SEED}:")
    for seed in seeds:
        same = digests[seed] == again[seed] == other[seed]
        differing += not same
        print(
            f"  seed {seed}: {digests[seed]:016x} {again[seed]:016x} {other[seed]:016x} {'equal' if same else 'DIFFERENT'}"
        )
    return differing


def _catch(plant: str, first: int, count: int) -> Caught:
    """Play seeds with a planted bug until one finds it."""
    with planted(plant):
        for tried, seed in enumerate(range(first, first + count), start=1):
            result = play(seed)
            if result.violation:
                return Caught(plant, tried, seed, result.invariant, result.violation)
    return Caught(plant)


def _plant_all(pool: ProcessPoolExecutor, first: int) -> int:
    missed = 0
    print(f"planted bugs, {len(PLANTS)}:", flush=True)
    for caught in pool.map(_catch, PLANTS, [first] * len(PLANTS), [PLANT_SEEDS] * len(PLANTS)):
        print(plant_line(caught), flush=True)
        missed += not caught.seeds
    return missed


def _play_with(plant: str, seed: int) -> Result:
    with planted(plant):
        return play(seed)


def _play_plant(plant: str, first: int, count: int, processes: int) -> int:
    seeds = range(first, first + count)
    with _pool(processes) as pool:
        for tried, result in enumerate(pool.map(_play_with, [plant] * count, seeds), start=1):
            if result.violation:
                pool.shutdown(wait=False, cancel_futures=True)
                print("\n".join(failure_lines(result)))
                print(f"planted {plant}: caught by seed {result.seed}, number {tried}, invariant {result.invariant}")
                return 1
    print(f"planted {plant}: not caught in {count} seeds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
