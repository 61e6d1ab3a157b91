"""Programs beside a contender's driver: its server, its database, its worker. Each is stopped by its own id."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
READY_WITHIN = 40.0  # seconds
STOP_WITHIN = 8.0  # seconds


class NotReady(Exception):
    """A program has ended, or was not ready in time."""


def free_port() -> int:
    """Return a port of this machine's loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Say whether somebody takes connections at ``port``."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


class Programs:
    """Programs that end with the block that they were started in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        end_with: signal.Signals = signal.SIGTERM,
    ) -> subprocess.Popen[bytes]:
        """Start a program and return when ``ready``. What it prints goes to NAME.log.

        Raises:
            NotReady: it has ended, or took too long.
        """
        with (self.folder / f"{name}.log").open("ab") as log:
            program = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                cwd=self.folder,
                user=user,
                group=user and "nogroup",
                extra_groups=[] if user else None,
            )
        self._running.append((program, end_with))
        ends = time.monotonic() + READY_WITHIN
        while not ready():
            if program.poll() is not None:
                raise NotReady(f"{name} ended with {program.returncode}: {self.last_line(name)}")
            if time.monotonic() > ends:
                raise NotReady(f"{name} was not ready within {READY_WITHIN:g} s: {self.last_line(name)}")
            time.sleep(0.05)
        return program

    def worker(self, script: str, *arguments: str, mark: Path) -> None:
        """Start a worker in this interpreter's environment; it makes the file ``mark`` when it is ready."""
        mark.unlink(missing_ok=True)
        self.start("worker", [sys.executable, script, "worker", *arguments], ready=mark.exists)

    def last_line(self, name: str) -> str:
        """Return the end of a program's log."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"

    def stop(self) -> None:
        """Stop what runs, the last first."""
        while self._running:
            program, end_with = self._running.pop()
            if program.poll() is None:
                program.send_signal(end_with)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(STOP_WITHIN)
            if program.poll() is None:
                program.kill()
                program.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
