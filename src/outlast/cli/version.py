"""``outlast version``."""

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from outlast.cli.arguments import Arguments
from outlast.cli.exits import DONE


def version(_: Arguments) -> int:
    """Print the version of the package."""
    try:
        number = version_of("outlast")
    except PackageNotFoundError:
        number = "unknown: it runs from a checkout"
    sys.stdout.write(f"outlast {number}\n")
    return DONE
