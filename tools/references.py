"""Make the reference pages of docs/ that are read off the code: Python, errors, events, limits, commands, settings.

python -m tools.references           write them
python -m tools.references --check   end with 1 when one is not what the code says

The pages are tracked, so that they can be read where they are and a change of the code shows as a change of the page.
"""

import ast
import inspect
import re
import sys
import types
from argparse import Action, ArgumentParser
from pathlib import Path
from typing import Any, get_args

import msgspec

from outlast.cli.verbs import VERBS
from outlast.core import errors, events, limits
from outlast.gateway import openapi
from outlast.gateway.table import ROUTES
from outlast.protocol.errors import KINDS
from outlast.query import fields
from outlast.server.settings import TABLE
from tools import sdk_page

ROOT = Path(__file__).resolve().parent.parent
MADE = "% Made from {source} by `make references`. Do not edit.\n\n"


def errors_page() -> str:
    """Return the page of error codes: each with what it means."""
    lines = [
        MADE.format(source="src/outlast/core/errors.py"),
        "# Errors by code\n\n",
        "Every refusal has a code for programs, a fact and a remedy for people.\n",
        "A code never changes its meaning.\n",
        "A refused request has left no trace.\n\n",
        "Over HTTP the answer is `application/problem+json` with the status below.\n\n",
    ]
    for code, meaning in errors.CODES.items():
        kind = KINDS[code]
        again = "the same request may succeed later" if kind.retryable else "the same request is refused again"
        lines.append(f"## {code}\n\n{meaning}\n\nStatus {kind.status}; {again}.\n*{kind.remedy}*\n\n")
    return "".join(lines).rstrip("\n") + "\n"


def kinds_of_event() -> list[type[msgspec.Struct]]:
    """Return every struct of the catalogue that has a number, in the order of the numbers."""
    found: dict[int, type[msgspec.Struct]] = {}
    for value in vars(events).values():
        for kind in get_args(value) if isinstance(value, types.UnionType) else (value,):
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                tag = kind.__struct_config__.tag
                if kind.__module__ == events.__name__ and isinstance(tag, int):
                    found[tag] = kind
    return [found[tag] for tag in sorted(found)]


def events_page() -> str:
    """Return the page of events: number, name, what it says, fields."""
    lines = [
        MADE.format(source="src/outlast/core/events.py"),
        "# Events\n\n",
        "The facts a history is made of.\n",
        "A number is never used again, and fields are only ever appended.\n\n",
    ]
    for kind in kinds_of_event():
        says = inspect.cleandoc(kind.__doc__ or "") if "__doc__" in vars(kind) else ""
        lines.append(f"## {kind.__struct_config__.tag} {kind.__name__}\n\n")
        lines.append(f"{says}\n\n" if says else "")
        lines.append(", ".join(f"`{name}`" for name in kind.__struct_fields__) + "\n\n")
    return "".join(lines).rstrip("\n") + "\n"


def shown(value: ast.expr | None) -> str:
    """Return a bound as it is written: a span with its unit, a count with its factors."""
    if isinstance(value, ast.Call):
        value = value.args[0]
    text = ast.unparse(value) if value else ""
    return re.sub(r"\d+", lambda found: f"{int(found[0]):,}", text).replace("*", "×")


def filters_page() -> str:
    """Return the page of the filter language: its fields, from the tables that check it, and its grammar."""
    lines = [
        MADE.format(source="src/outlast/query"),
        "# Filters\n\n",
        "A filter says which workflows or tasks a list shows and a count counts.\n",
        "It is the same text in the SDK (`query=`), in REST (`?query=`) and on the command line (`--query`).\n",
        "[Find things](../guides/find-things.md) shows it by example.\n\n",
    ]
    for title, table in (("Fields of workflows", fields.RUN_FIELDS), ("Fields of tasks", fields.TASK_FIELDS)):
        lines.append(f"## {title}\n\n| field | value |\n|---|---|\n")
        for name, field in table.items():
            values = ", ".join(f"`{choice}`" for choice in field.choices) or KINDS_OF_FIELD[field.kind]
            lines.append(f"| `{name}` | {values} |\n")
        for group, what in fields.LABELS.items():
            if group == "tag" or table is fields.RUN_FIELDS:
                lines.append(f"| `{group}.NAME` | {what} |\n")
        lines.append("\n")
    grammar = ROOT.joinpath("src/outlast/query/grammar.lark").read_text()
    lines.append(f"## Grammar\n\n```text\n{grammar}```\n")
    return "".join(lines)


KINDS_OF_FIELD = {
    "text": "text",
    "instant": "a point in time: `2h ago`, `15m ahead`, `now`, `today`, `yesterday`, a date, or an instant of RFC 3339",
    "number": "a number",
}


def limits_page() -> str:
    """Return the page of bounds: name, value, and the reason that stands beside it in the source."""
    source = inspect.getsource(limits)
    text = source.splitlines()
    lines = [
        MADE.format(source="src/outlast/core/limits.py"),
        "# Limits\n\n",
        "Everything has a bound, and at the bound new work is refused rather than kept.\n",
        "\n",
        "| name | value | why |\n|---|---|---|\n",
    ]
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            why = text[node.lineno - 1].partition("#")[2].strip()
            lines.append(f"| `{node.target.id}` | {shown(node.value)} | {why} |\n")
    return "".join(lines)


class Recorder(ArgumentParser):
    """Takes the options of a verb as the parser would, and keeps a line for each."""

    def __init__(self) -> None:
        super().__init__(add_help=False)
        self.rows: list[str] = []

    def add_argument(self, *names: str, **settings: Any) -> Action:  # type: ignore[override]
        value = settings.get("metavar", "") if names[0].startswith("-") else ""
        value = str(value).replace("|", "\\|")
        shown = " ".join([f"`{name}`" for name in names] + ([f"*{value}*"] if value else []))
        self.rows.append(f"| {shown} | {settings.get('help', '')} |\n")
        return super().add_argument(*names, **settings)


def commands_page() -> str:
    """Return the page of the command line: each command with its options."""
    lines = [MADE.format(source="src/outlast/cli/verbs.py"), "# Commands\n\n"]
    for verb in VERBS:
        recorder = Recorder()
        for option in verb.options:
            option(recorder)
        lines.append(f"## outlast {' '.join(verb.words)}\n\n{verb.help}\n\n")
        if recorder.rows:
            lines += ["| option | |\n|---|---|\n", *recorder.rows, "\n"]
    return "".join(lines).rstrip("\n") + "\n"


def settings_page() -> str:
    """Return the page of the settings."""
    lines = [
        MADE.format(source="src/outlast/server/settings.py"),
        "# Settings\n\n",
        "A flag beats the environment, which beats the file (`outlast.toml`, or `[tool.outlast]` of `pyproject.toml`).\n",
        "The name is the key in the file; a dot stands for a table.\n",
        "A secret can also be read from a file that the variable with `_FILE` at its end names.\n\n",
        "| setting | flag | environment | default | a change | |\n|---|---|---|---|---|---|\n",
    ]
    for row in TABLE:
        default = f"`{row.default}`" if row.default else ""
        flag = f"`{row.flag}`" if row.flag else ""
        change = "at once" if row.reloadable else "restart"
        lines.append(f"| {row.name} | {flag} | `{row.env}` | {default} | {change} | {row.sentence} |\n")
    return "".join(lines)


def rest_page() -> str:
    """Return the page of REST addresses: one table for each kind of thing."""
    lines = [
        MADE.format(source="src/outlast/gateway/table.py"),
        "# REST\n\n",
        "Addresses are below `/api/v1/namespaces/{namespace}/`, and for the default namespace below `/api/v1/` as well;\n",
        "those with a star are below `/api/v1/` alone.\n",
        "Shapes and codes stand in `/api/openapi.json`, which every server serves.\n",
    ]
    for kind in dict.fromkeys(route.act.partition(".")[0] for route in ROUTES if not route.wire):
        lines += [f"\n## {kind}\n\n", "| | address | what | needs |\n|---|---|---|---|\n"]
        lines += [
            f"| {route.method} | `{route.path}`{'*' if route.global_ else ''} | {route.summary} | {route.needs} |\n"
            for route in ROUTES
            if not route.wire and route.act.partition(".")[0] == kind
        ]
    return "".join(lines)


def openapi_page() -> str:
    """Return the OpenAPI document."""
    return openapi.text(ROUTES)


def sdk_page_of_code() -> str:
    """Return the page of what programs import."""
    return MADE.format(source="src/outlast/sdk") + sdk_page.page()


PAGES = {
    "sdk.md": sdk_page_of_code,
    "openapi.json": openapi_page,
    "rest.md": rest_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "limits.md": limits_page,
    "filters.md": filters_page,
    "commands.md": commands_page,
    "settings.md": settings_page,
}


def main() -> int:
    stale: list[str] = []
    for name, make in PAGES.items():
        path = ROOT / "docs" / "reference" / name
        text = make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"docs/reference/{name} written")
    if stale and "--check" in sys.argv[1:]:
        print(f"docs/reference/: {', '.join(stale)} differ from the code. Run `make references`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
