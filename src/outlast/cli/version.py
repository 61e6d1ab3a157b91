"""``outlast version``."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from outlast.cli.arguments import Arguments
from outlast.cli.exits import DONE


def version(arguments: Arguments) -> int:
    """Print the version of the package, and with --json what it runs on."""
    try:
        number = version_of("outlast")
    except PackageNotFoundError:
        number = "unknown: it runs from a checkout"
    if not arguments.json:
        print(f"outlast {number}")
        return DONE
    from outlast.cli.printing import json_line, put
    from outlast.cli.shapes import VersionOut
    from outlast.server.looking import schema_known, sqlite_version

    out = VersionOut(version=number, python=platform.python_version(), sqlite=sqlite_version(), schema=schema_known())
    put(json_line(out))
    return DONE
