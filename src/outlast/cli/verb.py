"""What a command is to the parser, and the options that many commands have."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Option = Callable[[argparse.ArgumentParser], object]


@dataclass(frozen=True, slots=True)
class Verb:
    """One command: ``run`` names the module below ``outlast.cli`` and the function in it.

    ``shape`` names the struct that each object of ``--json`` has, in ``outlast.cli.shapes`` or in what REST gives; empty
    where there is no ``--json``.
    """

    words: tuple[str, ...]
    help: str
    run: str
    options: tuple[Option, ...] = ()
    shape: str = ""
    examples: tuple[str, ...] = ()


def option(*names: str, **settings: object) -> Option:
    """Return what adds an option to a parser."""
    return lambda parser: parser.add_argument(*names, **settings)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def setting(name: str, *, metavar: str = "NAME", several: bool = False, sentence: str = "") -> Option:
    """Return what adds the flag of a row of the table of settings; its sentence is the help, unless another is given."""

    def add(parser: argparse.ArgumentParser) -> object:
        from outlast.server.settings import TABLE

        row = next(row for row in TABLE if row.name == name)
        said = sentence or row.sentence.rstrip(".")
        text = f"{said} (default: {row.default})" if row.default and not sentence else said
        action = "append" if several else "store"
        return parser.add_argument(row.flag, dest=name, metavar=metavar, action=action, help=text)

    return add


CONFIG: Final = (
    option("--config", metavar="FILE", help="settings file (default: outlast.toml, else pyproject.toml, here)"),
    option("--profile", metavar="NAME", help="profile of the settings file"),
)
NAMESPACE: Final = setting("namespace")
PLACE: Final = (
    setting("store", metavar="URL", sentence="sqlite:///FILE (default: sqlite:///outlast.db)"),
    setting("server", metavar="URL", sentence="address of a server, for example http://127.0.0.1:7070"),
    *CONFIG,
)
WHERE: Final = (*PLACE, NAMESPACE)
JSON: Final = option("--json", action="store_true", help="JSON on stdout; --json-schema describes it")
QUIET: Final = option("-q", "--quiet", action="store_true", help="say nothing on stderr but errors")
OUTPUT: Final = (
    JSON,
    option("-o", "--output", choices=("table", "json", "id"), help="id: ids alone, for pipes"),
    QUIET,
)
WATCH: Final = (
    option("--watch", action="store_true", help="show it again as it changes"),
    option("--every", default="1s", metavar="TIME", help="how often --watch looks (default: 1s)"),
)
DRY_RUN: Final = option("--dry-run", action="store_true", help="say what would be done, and do nothing")
CHANGE: Final = (
    option("--reason", default="", metavar="TEXT", help="why; it is recorded"),
    DRY_RUN,
    option("-y", "--yes", action="store_true", help="do not ask when it is more than one"),
    JSON,
    QUIET,
)
IDS: Final = option("ids", nargs="+", metavar="ID", help="ids; - reads them from stdin")
