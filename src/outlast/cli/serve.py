"""``outlast serve``: engine and HTTP API until told to stop; SIGHUP has it read its settings again."""

import asyncio
import signal
import sys

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.running import log_to_stderr, run_fast, set_log_level, until_told
from outlast.server.assemble import Server, policy_of
from outlast.server.looking import refuse_old_schema
from outlast.server.reloading import Apply, Reloader
from outlast.server.settings import Settings, check_all, settings_from
from outlast.server.sources import Sources
from outlast.server.stores import is_postgres, path_of, shown


def serve(arguments: Arguments) -> int:
    """Serve, and print one line with the address once requests are taken."""
    settings = settings_from(sources(arguments))
    if not settings.store.startswith("memory:") and not is_postgres(settings.store):
        refuse_old_schema(path_of(settings.store))
    log_to_stderr(settings.log_level, settings.log_format)
    return run_fast(lambda: _serve(arguments, settings))


async def _serve(arguments: Arguments, settings: Settings) -> int:
    server = Server(settings)
    reloader = _reloader(arguments, server)
    await server.start()
    loop = asyncio.get_running_loop()
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, reloader.reload)
    sys.stdout.write(f"outlast serves {shown(settings.store)} at {server.address}\n")
    sys.stdout.flush()
    try:
        await until_told(loop)
    finally:
        await server.stop()
    return exits.DONE


def _reloader(arguments: Arguments, server: Server) -> Reloader:
    def check(found: Sources) -> None:
        check_all(found)
        policy_of(settings_from(found))

    def policy(found: Sources) -> None:
        server.replace_policy(settings_from(found))

    apply: dict[str, Apply] = {
        "token": policy,
        "http.rate": policy,
        "http.burst": policy,
        "payloads.codecs": policy,
        "log.level": lambda found: set_log_level(found.choice("log.level")),
    }
    # The file's content may be another though its name is not: it is read again with every reload.
    return Reloader(
        lambda: sources(arguments), apply, check, always={"http.tokens_file": policy, "payloads.keys": policy}
    )
