"""The Makefile: its list is complete, and what is given to a target reaches the program."""

import re
import subprocess

import pytest

from tests.house.sources import ROOT

TARGETS = [
    "help",
    "setup",
    "check",
    "fix",
    "test",
    "demo",
    "sim",
    "chaos",
    "powercut",
    "differential",
    "intake",
    "fuzz",
    "bench",
    "bench-peers",
    "churn",
    "cases",
    "readme",
    "docs",
    "references",
    "lock",
    "clean",
]


def make(*arguments: str) -> str:
    """Return what make prints."""
    return subprocess.run(["make", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout


def test_plain_make_lists_every_target() -> None:
    listed = re.findall(r"^  make ([\w-]+) ", make(), re.MULTILINE)

    assert sorted(listed) == sorted(TARGETS)


def test_each_target_but_two_makes_the_environment_first() -> None:
    text = (ROOT / "Makefile").read_text()

    rules = dict(re.findall(r"^([\w-]+):([^#\n]*)", text, re.MULTILINE))
    without = {name for name, needs in rules.items() if "setup" not in needs}

    assert without == {"help", "setup", "clean", "check"}  # check is made of targets that do


@pytest.mark.parametrize(
    ("target", "given", "command"),
    [
        ("sim", ["SEEDS=300", "PLANT=fence_by_read"], "outlast.sim --seeds 300 --plant fence_by_read"),
        ("sim", ["SEED=17"], "outlast.sim --seed 17"),
        ("sim", ["SEEDS=300", "PLANTS=1", "JOBS=1"], "outlast.sim --seeds 300 --plants --jobs 1"),
        ("chaos", ["CYCLES=20", "PLANT=ack_before_commit"], "chaos --cycles 20 --plant ack_before_commit"),
        ("chaos", ["CYCLES=20", "STORE=postgres"], "chaos --cycles 20 --store postgres"),
        ("differential", ["LISTS=1000", "SEED=7"], "differential --lists 1000 --seed 7"),
        (
            "bench",
            ["STORE=postgres", "ONLY=tasks", "SIZE=small"],
            "benchmarks --store postgres --only tasks --size small",
        ),
        ("powercut", ["CUTS=300", "SYNCHRONOUS=NORMAL"], "powercut --cuts 300 --synchronous NORMAL"),
        ("intake", ["KILLS=200", "PLACE=sqlite"], "intake_kills --kills 200 --place sqlite"),
        ("bench-peers", ["PEERS=restate", "SIZE=small"], "benchmarks.peers --peers restate --size small"),
        ("churn", ["STORE=sqlite", "MINUTES=12"], "benchmarks.churn --store sqlite --minutes 12"),
        ("cases", ["ISSUE=spine", "RUN=1"], "tools.cases --scope spine --run"),
        ("test", ["TESTS=tests/store", "JOBS=1"], "pytest -n 1 tests/store"),
    ],
)
def test_what_is_given_to_a_target_reaches_its_program(target: str, given: list[str], command: str) -> None:
    assert command in " ".join(make("--dry-run", "-o", "setup", target, *given).split())
