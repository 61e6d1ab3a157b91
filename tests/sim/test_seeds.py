"""Seeds of the simulation: fresh ones, those that once failed, determinism, and planted bugs that must be found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.sim.cluster import play
from outlast.sim.plants import PLANTS, planted
from outlast.sim.report import Round

FRESH = range(900_001, 900_016)
FAILED_ONCE = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", FRESH)
def test_no_promise_is_broken_in_a_fresh_seed(seed: int) -> None:
    result = play(seed)

    assert not result.violation, result.violation


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_once_failed_stays_good(seed: int) -> None:
    result = play(seed)

    assert not result.violation, result.violation


def test_a_seed_plays_the_same_in_another_process_under_another_hash_seed() -> None:
    here = {str(seed): play(seed).digest for seed in (3, 5)}

    there = json.loads(
        subprocess.run(
            [sys.executable, "-m", "outlast.sim", "--digests", "3,5"],
            env={**os.environ, "PYTHONHASHSEED": "7"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )

    assert here == there


@pytest.mark.parametrize("plant", ["fence_by_read", "ack_before_commit", "lease_check_off"])
def test_a_planted_bug_is_found_within_a_few_seeds(plant: str) -> None:
    with planted(plant):
        found = next((seed for seed in range(1, 41) if play(seed).violation), 0)

    assert found, f"{plant} was not found"


def test_taking_a_planted_bug_back_leaves_nothing_of_it() -> None:
    before = play(3).digest
    for plant in PLANTS:
        with planted(plant):
            pass

    assert play(3).digest == before


def test_a_round_adds_up_what_its_seeds_have_shown() -> None:
    total, first, second = Round(), play(3), play(5)

    total.add(first)
    total.add(second)

    assert total.seeds == 2
    assert total.events == first.events + second.events > 0
    assert total.faults["net_loss"] == first.faults.get("net_loss", 0) + second.faults.get("net_loss", 0)
