"""Every example runs to its end, in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT, text_of, tracked_files

# A module of an example that is no program of its own, or a program that a test of its own runs, says so by this comment.
MARK = "# not run by itself:"
EXAMPLES = [
    path
    for path in tracked_files()
    if path.parts[0] == "examples" and path.suffix == ".py" and path.stem != "__init__" and MARK not in text_of(path)
]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_an_example_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "default"}

    done = subprocess.run(
        [sys.executable, ROOT / path],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
