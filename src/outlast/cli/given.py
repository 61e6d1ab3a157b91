"""What a command was given: its flags, the environment and the settings file, as the sources of its settings."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from outlast.cli.arguments import Arguments
from outlast.core.errors import Invalid
from outlast.server.settings import TABLE, sources_of
from outlast.server.sources import CONFIG_VARIABLE, PROFILE_VARIABLE, Sources, find_file

PORT_MAX: Final = 65_535


def sources(arguments: Arguments, *, without: frozenset[str] = frozenset()) -> Sources:
    """Return where this command's settings come from; flags of settings in ``without`` are left out. Raises Invalid."""
    environ = os.environ
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise Invalid("invalid_request", "The current folder is gone.", remedy="Change to one that is there.") from None
    file = find_file(
        here,
        named=getattr(arguments, "config", None) or environ.get(CONFIG_VARIABLE, ""),
        profile=getattr(arguments, "profile", None) or environ.get(PROFILE_VARIABLE, ""),
        table=TABLE,
    )
    flags = {name: text for name, text in _flags(arguments).items() if name not in without}
    found = sources_of(flags, environ, file)
    port = getattr(arguments, "port", None)
    return found if port is None else sources_of({**flags, "http.listen": _with_port(found, port)}, environ, file)


def _flags(arguments: Arguments) -> dict[str, str | None]:
    given: Mapping[str, Any] = vars(arguments)
    flags: dict[str, str | None] = {}
    for row in TABLE:
        value = given.get(row.name)
        flags[row.name] = ",".join(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]
    return flags


def _with_port(found: Sources, port: str) -> str:
    """``--port`` stands for the port of ``--listen``."""
    if not port.isascii() or not port.isdigit() or int(port[:6]) > PORT_MAX:
        raise Invalid(
            "invalid_request", f'--port is "{port}".', remedy=f"Give a number up to {PORT_MAX}; 0 picks a free one."
        )
    return f"{found.text('http.listen').rpartition(':')[0] or '127.0.0.1'}:{port}"
