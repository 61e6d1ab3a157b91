"""Real processes of the command line, each in a folder of its own, ended by their own pid."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import aiohttp

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE = 30.0  # seconds: the machine may be busy


class Program:
    """One process; what it prints goes to files."""

    def __init__(self, folder: Path, *args: str, name: str = "program", env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *args], cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                env={**_environment(), **(env or {})}, start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def until_said(self, text: str) -> str:
        return wait_until(lambda: self.said() if text in self.said() else "", self.said, self.process)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)


def wait_until(look: Any, told: Any = lambda: "", process: Any = None) -> Any:
    """Return what ``look`` returns once it is true."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = look()
        if found:
            return found
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode}: {told()}")
        time.sleep(0.02)
    raise AssertionError(f"it did not come within {PATIENCE} s: {told()}")


@contextlib.contextmanager
def serving(folder: Path, *args: str, name: str = "serve", **settings: Any) -> Generator[tuple[Program, str]]:
    """Give an engine on a free port, and its address."""
    file = folder / f"{name}.address"
    file.unlink(missing_ok=True)
    program = Program(
        folder, "-m", "outlast.cli", "serve", "--port", "0", "--announce-file", str(file), *args, name=name, **settings
    )
    try:
        yield program, wait_until(lambda: file.exists() and file.read_text(), program.said, program.process)
    finally:
        program.kill()


def command(folder: Path, *args: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "outlast.cli", *args], cwd=folder, capture_output=True, text=True, check=False,
        env={**_environment(), **(env or {})}, timeout=PATIENCE, stdin=subprocess.DEVNULL,
    )  # fmt: skip


async def post(address: str, path: str, body: Any) -> Any:
    """Send JSON and return the JSON answer."""
    async with aiohttp.ClientSession() as session, session.post(f"{address}/api/v1/{path}", json=body) as response:
        return await response.json(content_type=None)


async def get(address: str, path: str) -> Any:
    """Return the JSON at ``path``."""
    async with aiohttp.ClientSession() as session, session.get(f"{address}/api/v1/{path}") as response:
        return await response.json(content_type=None)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    return {**kept, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
