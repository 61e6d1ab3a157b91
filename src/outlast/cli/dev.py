"""``outlast dev``: engine and HTTP API here, workers in child processes that follow the edits of their code, one log."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.children import Child, Work
from outlast.cli.edits import edited, folder_of, look
from outlast.cli.given import sources
from outlast.cli.merged import MergedLog
from outlast.cli.running import run_fast
from outlast.core.errors import Invalid
from outlast.server.assemble import Server
from outlast.server.settings import Settings, is_loopback, settings_from
from outlast.server.stores import holder_of, path_of, shown
from outlast.store.base import StoreError

AGAIN_AFTER: Final = 1.0  # seconds before a worker that died is started again
AGAIN_AFTER_MAX: Final = 30.0
DEATHS_MAX: Final = 5  # in a row, each within QUICK seconds of its start
QUICK: Final = 5.0
LOOK_EVERY: Final = 0.4  # seconds between looks at the files
WORKERS_MAX: Final = 64

_SAID_WHY: Final = frozenset({exits.USAGE, exits.NOT_FOUND, exits.REFUSED})  # starting it again would change nothing


def dev(arguments: Arguments) -> int:
    """Run until told to stop."""
    from outlast.sdk.loading import look_for

    look_for(arguments.target)  # before an engine starts and a store is made for nothing
    found = sources(arguments)
    settings = settings_from(found)
    namespaces = dict.fromkeys((*settings.namespaces, found.text("namespace")))
    settings = msgspec.structs.replace(settings, namespaces=tuple(namespaces))
    if not is_loopback(settings.host):
        raise Invalid(
            "invalid_request",
            f"dev does not listen on {settings.host}.",
            remedy="Use outlast serve for other machines.",
        )
    if not 1 <= arguments.workers <= WORKERS_MAX:
        raise Invalid(
            "invalid_request", f"--workers is {arguments.workers}.", remedy=f"Give a number from 1 to {WORKERS_MAX}."
        )
    log = MergedLog()
    log.take_logging("engine", settings.log_level)
    options: list[str] = ["--log-level", settings.log_level]
    if found.find("namespace").chosen:
        options += ["--namespace", found.text("namespace")]
    for queue in found.names("worker.queues"):
        options += ["--queue", queue]
    return run_fast(lambda: _dev(arguments, settings, tuple(options), log))


async def _dev(arguments: Arguments, settings: Settings, options: tuple[str, ...], log: MergedLog) -> int:
    server = Server(settings)
    try:
        server.bind()
    except StoreError as error:
        raise _with_way(error, settings.store, arguments.target) from None
    told = asyncio.Event()
    keeper = Keeper(Work(arguments.target, server.address, options), arguments.workers, log, told)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, keeper.tell)
    try:
        log.say(f"loading {arguments.target}…")  # what it imports may take a while, which looks like a hang
        code = await keeper.begin()  # before an engine starts and a store is made for an app that there is not
        if code is not None:
            return code
        await server.start()
        sys.stdout.write(f"outlast dev: {shown(settings.store)} at {server.address}, worker for {arguments.target}\n")
        sys.stdout.flush()
        try:
            return await keeper.keep(reload=not arguments.no_reload)
        finally:
            await server.stop()
    finally:
        await keeper.end()
        server.unbind()


def _with_way(error: StoreError, store: str, target: str) -> StoreError:
    """Return the error of a file that an engine has with what can be typed to use that one."""
    address = holder_of(path_of(store)) if error.code == "store_locked" else ""
    if not address:
        return error
    return StoreError(
        error.code,
        error.fact,
        remedy=f"Give that engine a worker: outlast worker start {quote(target)} --server {address}. "
        f"Look at it: outlast workflow list --server {address}. "
        "Or stop it first, or use a file of its own: --store sqlite:///other.db",
    )


class Keeper:
    """Keeps workers alive and their code fresh, until told to stop."""

    def __init__(self, work: Work, count: int, log: MergedLog, told: asyncio.Event) -> None:
        self._work = work
        self._count = count
        self._log = log
        self._told = told
        self._children: list[Child] = []
        self._started = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()  # children were replaced

    def tell(self) -> None:
        """Stop in good order; told a second time, at once."""
        if self._told.is_set():
            for child in self._children:
                child.kill()
            os._exit(exits.INTERRUPTED)
        self._told.set()

    async def begin(self) -> int | None:
        """Start the first worker; return None once its app is loaded, the exit code when it has none or all was ended."""
        first = await self._start()
        self._children = [first]
        if await first.has_loaded(self._told):
            return None
        if self._told.is_set():
            return exits.DONE
        code = first.ended.result() if first.ended is not None else 0
        return code if code in _SAID_WHY else None  # what died of itself is started again

    async def keep(self, *, reload: bool) -> int:
        """Run until told to stop, or until the workers do not stay up; return the exit code. It was begun before."""
        watching = asyncio.create_task(self._follow_edits(), name="dev-edits") if reload else None
        try:
            self._children += [await self._start() for _ in range(self._count - 1)]
            return await self._keep_alive()
        finally:
            if watching is not None:
                watching.cancel()
            await self.end()

    async def end(self) -> None:
        """Return when every worker has ended."""
        await asyncio.gather(*(child.stop() for child in self._children), *self._leaving)

    async def _start(self) -> Child:
        self._started += 1
        child = Child(f"worker-{self._started}", self._work, self._log)
        await child.start()
        return child

    async def _keep_alive(self) -> int:
        """Start again what died; give up on what dies at once again and again, and on code that says why it cannot run."""
        loop = asyncio.get_running_loop()
        deaths, pause = 0, AGAIN_AFTER
        began = loop.time()
        while not self._told.is_set():
            dead = await self._wait_for_death()
            if dead is None:
                continue
            code = dead.ended.result() if dead.ended is not None else 0
            if code in _SAID_WHY and not dead.is_ready.is_set():
                return code
            deaths = deaths + 1 if loop.time() - began < QUICK else 0
            if deaths >= DEATHS_MAX:
                return exits.complain("internal", "The worker does not stay up.", "See its log above.")
            pause = AGAIN_AFTER if not deaths else min(pause * 2, AGAIN_AFTER_MAX)
            self._log.say(f"{dead.name} ended with {code}; another is started in {pause:.0f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), pause)
            began = loop.time()
            if not self._told.is_set() and dead in self._children:
                self._children[self._children.index(dead)] = await self._start()
        return exits.DONE

    async def _wait_for_death(self) -> Child | None:
        """Return a child that has ended, None when told to stop or when the children are others now."""
        self._news.clear()
        ends = {child.ended for child in self._children if child.ended is not None}
        waits = {asyncio.ensure_future(self._told.wait()), asyncio.ensure_future(self._news.wait())}
        await asyncio.wait({*ends, *waits}, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._told.is_set():
            return None
        return next((child for child in self._children if child.ended is not None and child.ended.done()), None)

    async def _follow_edits(self) -> None:
        folder = folder_of(self._work.target)
        before = await asyncio.to_thread(look, folder)
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = await asyncio.to_thread(look, folder)
            if now == before:
                continue
            settled = await self._settled(folder, now)
            changed, before = edited(before, settled, folder), settled
            try:
                await self._replace(changed)
            except OSError as error:
                self._log.say(f"no other worker could be started: {error}")

    async def _settled(self, folder: Path, seen: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Wait until two looks in a row see the same: an editor may still be writing."""
        while True:
            await asyncio.sleep(LOOK_EVERY / 4)
            now = await asyncio.to_thread(look, folder)
            if now == seen:
                return now
            seen = now

    async def _replace(self, changed: list[str]) -> None:
        """Start workers on the code as it is now; the old ones end when the new are up, and go on when they are not."""
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")  # noqa: PLR2004
        self._log.say(f"{shown} changed: the worker is started again; open runs are kept")
        fresh = [await self._start()]
        if not await fresh[0].came_up(self._told):
            if not self._told.is_set():
                self._log.say("the edit cannot run (see above): the worker from before it goes on")
            await fresh[0].stop()
            return
        fresh += [await self._start() for _ in range(self._count - 1)]
        old, self._children = self._children, fresh
        self._news.set()
        for child in old:
            leaving = asyncio.create_task(child.stop(), name=f"dev-leaving-{child.name}")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        self._log.say(f"{fresh[0].name} runs the new code")
