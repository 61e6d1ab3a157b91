"""A folder with a store, in which the commands of a test run."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.cli import main
from tests.cli.kept import keep

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OUTLAST_"):
            monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kept(folder: Path) -> Path:
    """A folder with an outlast.db that nobody runs (see ``kept.keep``)."""
    keep(folder)
    return folder


@pytest.fixture
def outlast(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in this process; return its exit code and what it wrote to stdout and stderr."""

    def run(*argv: str, stdin: str = "", terminal: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", _Typed(stdin, is_terminal=terminal))
        capsys.readouterr()
        code = main(list(argv))
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


class _Typed(io.StringIO):
    """What is typed or piped into a command."""

    def __init__(self, text: str, *, is_terminal: bool) -> None:
        super().__init__(text)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def rows(out: str) -> list[Any]:
    """Return the objects of JSON lines."""
    return [msgspec.json.decode(line) for line in out.splitlines()]
