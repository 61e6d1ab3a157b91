"""Worker processes of ``dev``: started, followed, replaced after an edit, and ended with their parent."""

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from typing import Final

from outlast.cli.merged import MergedLog
from outlast.cli.worker import loaded_line, ready_line

STOP_WITHIN: Final = 70.0  # seconds: the drain of a worker and a little
END_WITHIN: Final = 5.0  # seconds for one that is told a second time


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker process is for."""

    target: str
    address: str
    options: tuple[str, ...] = ()


class Child:
    """One worker process, whose output goes to the merged log."""

    def __init__(self, name: str, work: Work, log: MergedLog) -> None:
        self.name = name
        self.is_loaded = asyncio.Event()
        self.is_ready = asyncio.Event()
        self._work = work
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.ended: asyncio.Task[int] | None = None

    async def start(self) -> None:
        """Start the process. It ends by itself when this one does, however that ends."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "outlast.cli", "worker", "start", self._work.target, "--server", self._work.address,
            "--parent", str(os.getpid()), *self._work.options,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1", "OUTLAST_LOG__FORMAT": "line"},
        )  # fmt: skip
        self.ended = asyncio.create_task(self._live(self._process), name=f"dev-{self.name}")

    async def has_loaded(self, told: asyncio.Event) -> bool:
        """Return True when it has loaded its app, False when it has ended or ``told`` was set instead."""
        return await self._reaches(self.is_loaded, told)

    async def came_up(self, told: asyncio.Event) -> bool:
        """Return True when it polls, False when it has ended or ``told`` was set instead."""
        return await self._reaches(self.is_ready, told)

    async def _reaches(self, mark: asyncio.Event, told: asyncio.Event) -> bool:
        assert self.ended is not None
        waits = {asyncio.ensure_future(mark.wait()), asyncio.ensure_future(told.wait())}
        await asyncio.wait({*waits, self.ended}, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return mark.is_set() and not self.ended.done()

    async def stop(self) -> None:
        """Return when it has ended: in good order, or killed when that takes too long."""
        if self._process is None or self.ended is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        if not (await asyncio.wait({self.ended}, timeout=STOP_WITHIN))[0]:
            self._log.say(f"{self.name} does not end within {STOP_WITHIN:.0f} s: it is killed, its tasks run again")
            self.kill()
            await asyncio.wait({self.ended}, timeout=END_WITHIN)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _live(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        loaded, ready = loaded_line(self._work.target), ready_line(self._work.target, self._work.address)
        await self._log.follow(self.name, process.stdout, {loaded: self.is_loaded, ready: self.is_ready})
        return await process.wait()
