"""The page of guarantees: each sentence names what shows it, and what is named exists."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.house.sources import functions_of, modules, text_of

PAGE = Path("docs/guarantees.md")
LEGEND = "## Acknowledged means durable"  # what stands above it says how to read the rest
CASE = re.compile(r"[A-Z]{3}-\d{2}")
INVARIANT = re.compile(
    r"(?:require|Violation|Finding|finding|broken)\((?:[^()]|\([^()]*\))*?\d+,\s*\"(\w+)\"", re.DOTALL
)


def rows_of(page: str) -> list[tuple[str, list[str]]]:
    """Return each promise of ``page`` with the names beside it."""
    lines = page.partition(LEGEND)[2].splitlines()
    cells = [
        line.strip("|").split(" | ") for line in lines if line.startswith("| ") and not line.startswith("| promise")
    ]
    return [(promise.strip(), re.findall(r"`([^`]+)`", shown)) for promise, shown in cells]


@cache
def known() -> set[str]:
    """Return whatever may be named: cases that are tested, tests, invariants, checks of the chaos runs."""
    cases = {
        name for name, case in tomllib.loads(text_of(Path("tests/cases.toml"))).items() if case["status"] == "tested"
    }
    tests = {
        function.name
        for path in modules()
        if path.parts[0] == "tests"
        for function in functions_of(path)
        if function.name.startswith(("test_", "check_"))
    }
    invariants = {
        name
        for path in modules()
        if path.parts[:3] == ("src", "outlast", "sim")
        for name in INVARIANT.findall(text_of(path))
    }
    return cases | tests | invariants


ROWS = rows_of(text_of(PAGE))


def unshown(rows: list[tuple[str, list[str]]]) -> list[str]:
    """Return what is promised without proof, or with one that there is not."""
    names = known()
    bare = [promise for promise, shown in rows if not shown]
    return bare + [f"{promise}: there is no {name}" for promise, shown in rows for name in shown if name not in names]


def test_each_promise_is_shown_by_something_that_exists() -> None:
    assert len(ROWS) > 30
    assert unshown(ROWS) == []


@pytest.mark.parametrize(
    "row",
    [
        ("A promise.", []),
        ("A promise.", ["test_that_nobody_has_written"]),
        ("A promise.", ["XYZ-01"]),
        ("A promise.", ["RTY-06"]),
        ("A promise.", ["no_such_invariant"]),
    ],
)
def test_a_promise_that_nothing_shows_is_found(row: tuple[str, list[str]]) -> None:
    assert len(unshown([row])) == 1


def test_every_sentence_of_a_table_is_whole() -> None:
    assert [promise for promise, _ in ROWS if not promise.endswith(".")] == []
