"""``outlast workflow result`` and ``outlast task result`` beside a program that runs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import App


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a program at work in it that polls for nothing, and has a run and a task that wait for it."""
    app = App(f"sqlite:///{tmp_path}/outlast.db", worker=False)

    @app.workflow
    async def order(number: int) -> int:
        return number

    @app.task
    def resize(number: int) -> int:
        return number

    with app:
        order.using(id="order-1").start(1)
        resize.using(id="resize-1").enqueue(1)
        yield tmp_path


@pytest.mark.parametrize(("noun", "id"), [("workflow", "order-1"), ("task", "resize-1")])
def test_a_result_that_will_not_come_by_itself_is_not_waited_for_without_a_word(
    folder: Path, noun: str, id: str
) -> None:
    command = [sys.executable, "-m", "outlast.cli", noun, "result", id, "--wait", "100ms"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    first, second, _ = said.stderr.splitlines()
    assert (said.stdout, "has not ended within 100ms" in second) == ("", True)
    assert first.startswith(f"{id} waits for a worker")
    assert first.endswith(f"see outlast why {id}")
