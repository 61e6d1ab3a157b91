"""Both type checkers agree with every promise in golden.py: nothing more, nothing less."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GOLDEN = HERE / "golden.py"
TOOLS = Path(sys.executable).parent


def marked_wrong() -> set[int]:
    lines = GOLDEN.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.rstrip().endswith("# wrong")}


@pytest.mark.slow
def test_mypy_finds_exactly_the_planted_mistakes(tmp_path: Path) -> None:
    command = [TOOLS / "mypy", "--strict", "--python-version", "3.11", "--no-error-summary", "--hide-error-context"]
    command += ["--cache-dir", tmp_path, "--config-file", os.devnull, GOLDEN]

    said = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )

    found = {int(line) for line in re.findall(r"golden\.py:(\d+): error:", said.stdout)}
    assert found == marked_wrong(), said.stdout


@pytest.mark.slow
def test_basedpyright_finds_exactly_the_planted_mistakes(tmp_path: Path) -> None:
    config = tmp_path / "pyrightconfig.json"
    settings = {"include": [str(GOLDEN)], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    config.write_text(json.dumps({**settings, "pythonVersion": "3.11"}))

    said = subprocess.run(
        [TOOLS / "basedpyright", "--outputjson", "-p", config, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )

    diagnostics = json.loads(said.stdout)["generalDiagnostics"]
    found = {entry["range"]["start"]["line"] + 1 for entry in diagnostics if entry["severity"] == "error"}
    assert found == marked_wrong(), said.stdout


def test_there_are_promises_and_planted_mistakes() -> None:
    assert len(marked_wrong()) >= 20
    assert GOLDEN.read_text().count("assert_type(") >= 30
