"""``outlast serve``: engine and HTTP API until told to stop."""

import asyncio
import sys

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.running import log_to_stderr, run_fast, until_told
from outlast.server.assemble import Server
from outlast.server.settings import Settings, settings_from


def serve(arguments: Arguments) -> int:
    """Serve, and print one line with the address once requests are taken."""
    settings = settings_from(sources(arguments))
    log_to_stderr(settings.log_level, settings.log_format)
    return run_fast(lambda: _serve(settings))


async def _serve(settings: Settings) -> int:
    server = Server(settings)
    await server.start()
    sys.stdout.write(f"outlast serves {settings.store} at {server.address}\n")
    sys.stdout.flush()
    try:
        await until_told(asyncio.get_running_loop())
    finally:
        await server.stop()
    return exits.DONE
