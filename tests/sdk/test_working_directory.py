"""Tasks may change the working directory of the process: what an app names by a relative path stays where it was."""

import os
import sqlite3
from pathlib import Path

import pytest

from outlast import App

LARGE = "x" * 400_000  # kept beside the store, in a folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Begin in one folder, and have another one to go to."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    return there


def test_work_goes_on_in_the_same_store_when_a_task_changes_the_directory(elsewhere: Path) -> None:
    app = App("sqlite:///work.db")

    @app.task
    def move_to(folder: str) -> str:
        os.chdir(folder)
        return LARGE

    @app.task
    def double(number: int) -> int:
        return 2 * number

    with app:
        first = double.enqueue(1)
        assert first.result(timeout="20s") == 2
        moved = move_to.enqueue(str(elsewhere))
        assert moved.result(timeout="20s") == LARGE
        assert [double.enqueue(n).result(timeout="20s") for n in range(20)] == [2 * n for n in range(20)]
        assert first.result(timeout="20s") == 2
    with app:
        assert moved.result(timeout="20s") == LARGE
        assert first.result(timeout="20s") == 2

    assert not list(elsewhere.iterdir())


def test_an_outbox_stays_the_file_it_was(elsewhere: Path) -> None:
    app = App("sqlite:///work.db", outboxes=["sqlite:///shop.db"])

    @app.task
    def note(number: int) -> int:
        return number

    with app:
        pass
    shop = sqlite3.connect("shop.db")
    os.chdir(elsewhere)
    with app:
        with shop:
            handle = note.using(tx=shop).enqueue(7)
        assert handle.result(timeout="20s") == 7
    shop.close()

    assert not list(elsewhere.iterdir())
