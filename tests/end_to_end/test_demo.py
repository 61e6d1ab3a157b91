"""The demo, as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_the_demo_kills_engine_and_worker_and_loses_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    played = subprocess.run(
        [sys.executable, "-m", "examples.orders_demo"],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
    )

    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.splitlines()[-1] == "demo ok: 24 orders, 0 lost, 0 charged twice"
