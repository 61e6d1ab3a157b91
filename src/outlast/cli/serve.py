"""``outlast serve``: engine and HTTP API until told to stop."""

import asyncio
import os
import sys

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.running import log_to_stderr, run_fast, until_told
from outlast.core.errors import Invalid
from outlast.server.assemble import Server
from outlast.server.settings import DEFAULT_LISTEN, Settings, read_settings, value_of


def serve(arguments: Arguments) -> int:
    """Serve, and print one line with the address once requests are taken."""
    settings = read_settings(flags_of(arguments), os.environ)
    log_to_stderr()
    return run_fast(lambda: _serve(settings))


def flags_of(arguments: Arguments) -> dict[str, str | None]:
    """Return the flags as the table of settings names them; --port stands for the port of --listen."""
    listen = arguments.listen
    if arguments.port is not None:
        if not arguments.port.isdigit():
            raise Invalid(
                "invalid_request", f'--port is "{arguments.port}".', remedy="Give a number; 0 picks a free one."
            )
        host = (
            value_of("listen", {"listen": listen}, os.environ).rpartition(":")[0] or DEFAULT_LISTEN.rpartition(":")[0]
        )
        listen = f"{host}:{arguments.port}"
    return {
        "store": arguments.store,
        "listen": listen,
        "namespaces": getattr(arguments, "namespaces", None),
        "announce_file": getattr(arguments, "announce_file", None),
        "task_lease": getattr(arguments, "task_lease", None),
    }


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
