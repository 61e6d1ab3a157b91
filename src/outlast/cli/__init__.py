"""The command line. Nothing but the parser is imported until a command runs, so that help is quick."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see ``exits``)."""
    from outlast.cli.parser import run

    return run(list(sys.argv[1:] if argv is None else argv))
