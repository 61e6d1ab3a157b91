"""`make setup` says what to install where Python is too old or lacks a part."""

import subprocess
from pathlib import Path

from tests.house.sources import ROOT


def set_up_with(python: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the set-up of a checkout that has nothing but the script, with an interpreter that is the shell text ``python``."""
    interpreter, script = folder / "python3", folder / "tools" / "setup.sh"
    interpreter.write_text(f"#!/bin/sh\n{python}\n")
    interpreter.chmod(0o755)
    script.parent.mkdir()
    script.write_text((ROOT / "tools" / "setup.sh").read_text())
    script.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(interpreter)}
    return subprocess.run([script], env=environment, capture_output=True, text=True, check=False, timeout=30)


def test_an_old_python_is_refused_with_what_to_install(tmp_path: Path) -> None:
    done = set_up_with('case "$1" in --version) echo "Python 3.8.1" ;; *) exit 1 ;; esac', tmp_path)

    assert done.returncode == 1
    assert "is not Python 3.11 or newer (Python 3.8.1)" in done.stderr
    assert "apt-get install" in done.stderr
    assert "dnf install" in done.stderr
    assert "brew install" in done.stderr


def test_a_python_without_venv_is_refused_with_what_to_install(tmp_path: Path) -> None:
    done = set_up_with('case "$*" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac', tmp_path)

    assert done.returncode == 1
    assert "has no venv or no ensurepip" in done.stderr
    assert "python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()
