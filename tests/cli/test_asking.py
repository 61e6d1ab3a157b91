"""``outlast workflow query`` beside a program that runs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import App, workflow


class Counting:
    @workflow.run
    async def go(self) -> None:
        await workflow.wait_for_signal("end")

    @workflow.query
    def times(self, number: int) -> int:
        return 3 * number


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a program at work in it: one run named "c"."""
    app = App(f"sqlite:///{tmp_path}/outlast.db")
    counting = app.workflow(type("Counting", (Counting,), {}))
    with app:
        counting.go.using(id="c").start()
        yield tmp_path


def ask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "outlast.cli", "workflow", "query", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_query_prints_what_the_code_says(folder: Path) -> None:
    said = ask(folder, "c", "times", "7")
    as_json = ask(folder, "c", "times", "7", "--json")

    assert (said.returncode, said.stdout) == (0, "21\n")
    assert json.loads(as_json.stdout) == {"id": "c", "result": [21]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("c", "tmies", "7"), "it answers: times"),
        (("c", "times"), "times"),
        (("c", "times", "seven"), "no JSON"),
        (("nobody", "times", "7"), "no workflow nobody"),
    ],
    ids=["name", "missing", "json", "id"],
)
def test_a_query_that_cannot_be_answered_says_why(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    said = ask(folder, *arguments)

    assert said.returncode != 0
    assert says in said.stderr
    assert "Traceback" not in said.stderr
