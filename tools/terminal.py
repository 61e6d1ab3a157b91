"""A terminal with a shell in it, as the reader of a page has one: commands are typed, Ctrl-C is pressed, output is read.

The shell is bash on a pseudo-terminal, so programs print what they print for people. It is ended with all it started.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROWS, COLUMNS = 40, 110
ASKS: Final = re.compile("\x1e(\\d+)\x1e")  # what the shell prints in place of a prompt: how the last command ended
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
INTERRUPT: Final = b"\x03"


class Late(Exception):
    """A program did not end, or did not print what was waited for, in time. ``printed`` is what it did print."""

    def __init__(self, printed: str) -> None:
        super().__init__("It took too long.")
        self.printed = printed


class Terminal:
    """One terminal. ``busy`` says that a program runs in it; ``unread`` is what was printed and not taken yet."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.unread = ""
        self.busy = True
        self.status = 0
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        modes = termios.tcgetattr(slave)
        modes[1] &= ~termios.ONLCR
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        # The first terminal that a new session opens is its own: so Ctrl-C reaches what runs in it.
        shell = f"PS1= PS2= exec bash --norc --noprofile --noediting -i <>{os.ttyname(slave)} >&0 2>&1"
        prompt = {"PROMPT_COMMAND": r'printf "\036%d\036" "$?"', "TERM": "dumb", "HISTFILE": ""}
        self._shell = subprocess.Popen(
            ["bash", "-c", shell],
            cwd=folder,
            env=environment | prompt,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_hear_interrupts,  # noqa: PLW1509 - whoever plays pages has no threads that hold locks
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the shell and every program of its session."""
        for process in _session_of(self._shell.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._shell.wait(timeout=10)
        os.close(self._master)

    def type(self, line: str) -> None:
        """Type a line and press Enter; the terminal is busy until the shell asks for the next."""
        os.write(self._master, line.encode() + b"\n")
        self.busy = True

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._master, INTERRUPT)

    def wait(self, seconds: float) -> str:
        """Return what was printed until the shell asked for the next line. Raises Late."""
        ends = time.monotonic() + seconds
        while self.busy:
            if time.monotonic() > ends:
                raise Late(self.unread)
            self.read()
        return self.take()

    def read(self) -> None:
        """Take in what has been printed; wait a moment if there is nothing."""
        if not select.select([self._master], [], [], 0.05)[0]:
            return
        with contextlib.suppress(OSError):
            printed = os.read(self._master, 65536).decode(errors="replace")
            self.unread = ESCAPES.sub("", self.unread + printed).replace("\r", "")
        asked = ASKS.search(self.unread)
        if asked is not None:
            self.status = int(asked[1])
            self.unread = self.unread[: asked.start()] + self.unread[asked.end() :]
            self.busy = False

    def take(self, length: int | None = None) -> str:
        """Return what is unread, or its first ``length`` characters; it is read then."""
        printed = self.unread[:length]
        self.unread = self.unread[len(printed) :]
        return printed


def _hear_interrupts() -> None:
    """Hear Ctrl-C as in a terminal: what is started in the background of a script inherits that it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _session_of(leader: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found
