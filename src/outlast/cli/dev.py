"""``outlast dev``: engine and HTTP API here, the worker in a child process, one log."""

import asyncio
import contextlib
import signal
import sys
from typing import Final

import msgspec

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.running import log_to_stderr, run_fast
from outlast.core.errors import Invalid
from outlast.server.assemble import Server
from outlast.server.settings import Settings, is_loopback, settings_from

STOP_WITHIN: Final = 70.0  # seconds: the drain of a worker and a little
AGAIN_AFTER: Final = 1.0  # seconds before a worker that died is started again
DEATHS_MAX: Final = 5  # in a row, each within this many seconds of its start
QUICK: Final = 5.0

_SAID_WHY: Final = frozenset({exits.USAGE, exits.NOT_FOUND, exits.REFUSED})  # starting it again would change nothing


def dev(arguments: Arguments) -> int:
    """Run until told to stop."""
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
    log_to_stderr(settings.log_level, settings.log_format)
    return run_fast(lambda: _dev(arguments, settings))


async def _dev(arguments: Arguments, settings: Settings) -> int:
    server = Server(settings)
    await server.start()
    sys.stdout.write(f"outlast dev: {settings.store} at {server.address}, worker for {arguments.target}\n")
    sys.stdout.flush()
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    watching = asyncio.create_task(_keep_worker(arguments, server.address, told), name="dev-worker")
    try:
        return await watching
    finally:
        await server.stop()


async def _keep_worker(arguments: Arguments, address: str, told: asyncio.Event) -> int:
    """Keep one worker process alive until told to stop; give up on one that dies at once again and again."""
    loop = asyncio.get_running_loop()
    deaths = 0
    while not told.is_set():
        began = loop.time()
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "outlast.cli", "worker", "start", arguments.target,
            "--server", address, *(("--namespace", arguments.namespace) if arguments.namespace else ()),
            stdout=sys.stderr, start_new_session=True,
        )  # fmt: skip
        ended = asyncio.create_task(child.wait())
        stopping = asyncio.create_task(told.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await _end(child, ended)
            return exits.DONE
        if child.returncode in _SAID_WHY:
            return child.returncode
        deaths = deaths + 1 if loop.time() - began < QUICK else 0
        sys.stderr.write(f"outlast dev: the worker ended with {child.returncode}; it is started again\n")
        if deaths >= DEATHS_MAX:
            return exits.complain("internal", "The worker does not stay up.", "See its log above.")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), AGAIN_AFTER)
    return exits.DONE


async def _end(child: asyncio.subprocess.Process, ended: "asyncio.Task[int]") -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    done, _ = await asyncio.wait({ended}, timeout=STOP_WITHIN)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await ended
