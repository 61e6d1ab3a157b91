"""Starts programs that say one line when they are ready, and makes sure that none of them outlives its starter."""
# not run by itself: a module of orders_demo.py

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

READY_WITHIN = 20.0  # seconds


class NotReady(Exception):
    """A program has ended, or said nothing, before it was ready."""


class Child:
    """A running program. ``line`` is what it said first; its stderr, and what it says later, goes to ``log``."""

    def __init__(self, name: str, command: list[str], *, log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log = log
        began = time.monotonic()
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C is for the starter: it decides who stops when
            )
        try:
            self.line = self._first_line()
        except NotReady:
            self.kill()
            raise
        self.seconds = time.monotonic() - began

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def last_word(self) -> str:
        """The last word of the first line: where it listens."""
        return self.line.split()[-1]

    def kill(self) -> None:
        """End it with SIGKILL: it has no chance to tidy up."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self._close()

    def stop(self, *, within: float = 10.0) -> None:
        """Ask it to stop in good order; SIGKILL after ``within`` seconds."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(within)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._close()

    def _close(self) -> None:
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _first_line(self) -> str:
        out = self.process.stdout
        assert out is not None
        ends = time.monotonic() + READY_WITHIN
        said = b""
        while not said.endswith(b"\n"):
            readable, _, _ = select.select([out], [], [], max(0.0, ends - time.monotonic()))
            if not readable:
                raise NotReady(f"{self.name} was not ready within {READY_WITHIN:g} s.")
            byte = os.read(out.fileno(), 1)
            if not byte:
                raise NotReady(f"{self.name} ended with {self.process.wait()} before it was ready.")
            said += byte
        return said.decode().strip()


class Children:
    """Programs that end with the block that they were started in, by their own ids, whatever happens in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Child] = []

    def start(self, name: str, command: list[str], **env: str) -> Child:
        """Return the program once it is ready. Raises NotReady."""
        child = Child(name, command, log=self.folder / f"{name}.log", env=env)
        self.all.append(child)
        return child

    def log_tails(self, lines: int = 15) -> str:
        """Return the end of each log that has anything in it."""
        tails: list[str] = []
        for path in sorted(self.folder.glob("*.log")):
            text = path.read_text(errors="replace").splitlines()[-lines:]
            if text:
                tails.append("\n".join([f"--- end of {path} ---", *text]))
        return "\n".join(tails)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self.all):
            child.kill()
