"""``outlast serve``: engine and HTTP API until told to stop; SIGHUP has it read its settings again."""

import asyncio
import signal
import sys

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.running import log_to_stderr, run_fast, set_log_level, until_told
from outlast.server.assemble import Server
from outlast.server.looking import refuse_old_schema
from outlast.server.reloading import Reloader
from outlast.server.settings import Settings, settings_from
from outlast.server.stores import path_of


def serve(arguments: Arguments) -> int:
    """Serve, and print one line with the address once requests are taken."""
    settings = settings_from(sources(arguments))
    if not settings.store.startswith("memory:"):
        refuse_old_schema(path_of(settings.store))
    log_to_stderr(settings.log_level, settings.log_format)
    reloader = Reloader(
        lambda: sources(arguments), {"log.level": lambda found: set_log_level(found.choice("log.level"))}
    )
    return run_fast(lambda: _serve(settings, reloader))


async def _serve(settings: Settings, reloader: Reloader) -> int:
    server = Server(settings)
    await server.start()
    loop = asyncio.get_running_loop()
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, reloader.reload)
    sys.stdout.write(f"outlast serves {settings.store} at {server.address}\n")
    sys.stdout.flush()
    try:
        await until_told(loop)
    finally:
        await server.stop()
    return exits.DONE
