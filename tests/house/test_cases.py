"""The registry of acceptance cases is true, and what makes it untrue is found."""

from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tools.cases import REGISTRY, Bug, Case, Findings, check, names_in, prove, read_registry


def faults_of(case: Case) -> str:
    """Return what the tool finds wrong with ``case``."""
    found = Findings()
    check("X-1", case, ROOT, found)
    return " ".join(found.faults)


def test_the_registry_of_cases_is_true() -> None:
    found = Findings()

    for id, case in read_registry(REGISTRY, found).items():
        check(id, case, ROOT, found)

    assert found.faults == []


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (Case(scope="s", says="x", status="tested", plant="p"), "names no test"),
        (Case(scope="s", says="x", status="tested", tests=("tests/conftest.py::test_a",)), "which planted bug"),
        (Case(scope="s", says="x", status="later"), "does not say why"),
        (Case(scope="s", says="x", status="later", reason="r", tests=("tests/gone.py::test_a",)), "there is no file"),
        (Case(scope="s", says="x", status="later", reason="r", tests=("tests/conftest.py::test_a",)), "no such test"),
        (
            Case(scope="s", says="x", status="tested", tests=("a",), plant=Bug(file="Makefile", old="nowhere", new="")),
            "0 times",
        ),
    ],
    ids=["no test", "no plant", "no reason", "no file", "no function", "no place for the bug"],
)
def test_an_untrue_entry_is_found(case: Case, fault: str) -> None:
    assert fault in faults_of(case)


def test_a_misspelt_key_is_found(tmp_path: Path) -> None:
    registry = tmp_path / "cases.toml"
    registry.write_text('["X-1"]\nscope = "s"\nsays = "x"\nstatus = "later"\nreasons = "r"\n')
    found = Findings()

    assert read_registry(registry, found) == {}
    assert "reasons" in found.faults[0]


def test_tests_are_found_in_functions_and_classes(tmp_path: Path) -> None:
    module = tmp_path / "test_it.py"
    module.write_text("def test_a(): ...\ndef other(): ...\nclass TestB:\n    def test_c(self): ...\n")

    assert names_in(module) == {"test_a", "TestB::test_c"}


@pytest.mark.slow
def test_a_planted_bug_that_nothing_finds_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    harmless = Bug(file="Makefile", old=".DEFAULT_GOAL := help", new=".DEFAULT_GOAL := help")
    test = "tests/house/test_cases.py::test_tests_are_found_in_functions_and_classes"
    found = Findings()

    prove("X-1", Case(scope="s", says="x", status="tested", tests=(test,), plant=harmless), found)

    assert "does not fail under the planted bug" in found.faults[0]
    assert "NOT FOUND" in capsys.readouterr().out
