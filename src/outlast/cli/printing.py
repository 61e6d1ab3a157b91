"""How answers leave: JSON lines, ids for pipes, or text; talk goes to stderr, unless it was asked to be quiet."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from outlast.cli.arguments import Arguments
from outlast.cli.text import clean, table

Painter = Callable[[str, str], str]

_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")  # within a string JSON has them as escapes only
_PAINTED_HEADS: Final = frozenset({"STATUS", "STATE", "OUTCOME"})
_RED: Final = frozenset(
    {"failed", "timed_out", "timed out", "terminated", "expired", "worker_lost", "held", "uncertain"}
)
_GREEN: Final = frozenset({"completed", "succeeded", "done", "fired", "received", "recorded"})
_YELLOW: Final = frozenset({"retry_wait", "retry wait", "waiting", "enqueued", "requested"})
_CYAN: Final = frozenset({"running", "leased", "started"})
_CODES: Final = ((_RED, "31"), (_GREEN, "32"), (_YELLOW, "33"), (_CYAN, "36"))


def mode_of(arguments: Arguments) -> str:
    """Return "json", "id" or "table"."""
    return "json" if getattr(arguments, "json", False) else (getattr(arguments, "output", None) or "table")


def json_line(item: object) -> str:
    """Return one line of JSON. A value that was stored with line ends between its parts, as others may, has spaces there."""
    return msgspec.json.encode(item).translate(_LINE_ENDS).decode() + "\n"


def put(text: str) -> None:
    """Write to stdout."""
    sys.stdout.write(text)


def talk(arguments: Arguments, text: str) -> None:
    """Write a sentence to stderr, unless told to be quiet."""
    if not getattr(arguments, "quiet", False):
        sys.stdout.flush()  # where both go to one place, it is told in the order in which it was said
        sys.stderr.write(text + "\n")


def rows_text(
    arguments: Arguments,
    items: Iterable[Any],
    heads: tuple[str, ...],
    row: Callable[[Any], tuple[str, ...]],
    *,
    id: str = "id",
) -> str:
    """Return items in the form that was asked for: JSON lines, ids, or a table made with ``row``."""
    mode = mode_of(arguments)
    if mode == "json":
        return "".join(json_line(item) for item in items)
    if mode == "id":
        return "".join(_id_line(getattr(item, id)) for item in items)
    return table_text(heads, [row(item) for item in items])


def tells_none(arguments: Arguments, said: str) -> bool:
    """Say on stderr that a list has nothing; return False where that is no answer: JSON has no lines, a watch its headings."""
    if mode_of(arguments) == "json" or getattr(arguments, "watch", False):
        return False
    talk(arguments, said)
    return True


def _id_line(id: str) -> str:
    """Return a line that ``-`` reads as ``id``: one that could be taken for another, or for several, as an object."""
    if id.isprintable() and id.strip() and not id.startswith("{"):
        return f"{id}\n"
    return json_line({"id": id})


def table_text(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table that fits the terminal, its states coloured there."""
    return table(heads, rows, width=terminal_width(), paint=paint_state if colours() else None)


def terminal_width() -> int:
    """Return how many columns stdout has; 0 when it is no terminal and need not fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def colours(stream: Any = None) -> bool:
    """Say whether to colour: only a terminal, and not with NO_COLOR."""
    out = sys.stdout if stream is None else stream
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str) -> str:
    """Return ``text`` in a colour of the terminal."""
    return f"\x1b[{code}m{text}\x1b[0m"


def paint_state(head: str, cell: str) -> str:
    """Return a cell of a column of states in the colour of the state."""
    if head not in _PAINTED_HEADS:
        return cell
    state = cell.strip()
    code = next((code for states, code in _CODES if state in states), "")
    return paint(cell, code) if code else cell


def fields_text(fields: dict[str, Any]) -> str:
    """Return the fields of an event on one line, without those that say nothing."""
    return " ".join(f"{name}={_short(value)}" for name, value in _filled(fields).items())


def _filled(part: Any) -> Any:
    """Return a part of an event without what says nothing, at any depth: a line of a terminal is short."""
    if isinstance(part, dict):
        found = {name: _filled(value) for name, value in cast("dict[str, Any]", part).items()}
        return {name: value for name, value in found.items() if value not in (None, "", 0, [])}
    return [_filled(value) for value in cast("list[object]", part)] if isinstance(part, list) else part


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json_line(value).strip()
    return clean(text if len(text) <= 60 else text[:57] + "…")  # noqa: PLR2004 - a line of a terminal
