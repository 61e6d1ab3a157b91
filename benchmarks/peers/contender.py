"""A contender while it runs: its program in a process of its own, asked for one figure after another."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers.environment import Environment

ROOT = Path(__file__).resolve().parents[2]
START_WITHIN = 120.0  # seconds
STOP_WITHIN = 20.0  # seconds
OWN = "outlast"
ON_POSTGRES = "outlast on PostgreSQL"
EMBEDDED = "outlast, one process"
TURN_SLACK = 100.0  # seconds beyond what a turn was given


class Failed(Exception):
    """A contender did not start, or gave no figure; with what it said."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Who is measured. ``peer`` is empty for Outlast; ``shape`` is what its program is told.

    ``beside`` names the contender of Outlast that it is set beside: of the same shape, on the same kind of store if it can be.
    """

    name: str
    peer: str
    shape: str
    beside: str = OWN

    def command(self, environment: Environment | None, folder: Path) -> list[str]:
        """Return how its program is started."""
        if environment is None:
            return [sys.executable, "-m", "benchmarks.peers.outlast_driver", str(folder), self.shape]
        program = [str(environment.python), str(ROOT / "benchmarks" / "peers" / f"{self.peer}_driver.py"), str(folder)]
        if environment.server is not None:
            program.append(str(environment.server))
        elif self.shape:
            program.append(self.shape)
        return program


CONTENDERS = (
    Contender(OWN, "", "processes"),
    Contender("restate", "restate", ""),
    Contender(ON_POSTGRES, "", "postgres", ON_POSTGRES),
    Contender("pgqueuer", "pgqueuer", "", ON_POSTGRES),
    Contender("absurd", "absurd", "", ON_POSTGRES),
    Contender("dbos", "dbos", "processes", ON_POSTGRES),
    Contender(EMBEDDED, "", "embedded", EMBEDDED),
    Contender("dbos, one process", "dbos", "embedded", EMBEDDED),
)
BESIDE = {contender.name: contender.beside for contender in CONTENDERS}


class Seat:
    """A started contender with a fresh store. ``about`` and ``workloads`` are what it said of itself."""

    def __init__(self, contender: Contender, environment: Environment | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outlast-peers-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "driver.log"
        with self._log.open("wb") as log:
            self._program = subprocess.Popen(
                contender.command(environment, Path(self._folder.name)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        try:
            said = self._read(START_WITHIN)
        except Failed:
            self.stop()
            raise
        self.about: dict[str, str] = said["about"]
        self.workloads: list[str] = said["workloads"]

    def ask(self, workload: str, seconds: float) -> float:
        """Return the figure of one turn. Raises Failed; the contender may then be of no further use."""
        assert self._program.stdin is not None
        try:
            self._program.stdin.write(json.dumps({"workload": workload, "seconds": seconds}).encode() + b"\n")
            self._program.stdin.flush()
        except OSError as error:
            raise Failed(f"its program has gone: {error}") from error
        said = self._read(seconds + TURN_SLACK)
        if "error" in said:
            raise Failed(str(said["error"]))
        return float(said["value"])

    def stop(self) -> None:
        """End its program and everything that it started, by the ids of this group of processes."""
        assert self._program.stdin is not None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._program.stdin.close()
            self._program.wait(STOP_WITHIN)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)  # what it left behind: it is the leader of a group of its own
        self._program.wait()
        if self._program.stdout is not None:
            self._program.stdout.close()
        self._folder.cleanup()

    def _read(self, within: float) -> dict[str, Any]:
        out = self._program.stdout
        assert out is not None
        ends = time.monotonic() + within
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([out], [], [], max(0.0, ends - time.monotonic()))
            part = os.read(out.fileno(), 65_536) if readable else b""
            if not part:
                what = "said nothing" if not readable else f"ended with {self._program.wait()}"
                raise Failed(f"its program {what}: {self._last_line()}")
            line += part
        said: dict[str, Any] = json.loads(line)
        return said

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "no word in its log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
