"""Spans, instants and tables for people."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from unicodedata import combining, east_asian_width

GAP: Final = 2  # columns between those of a table
VALUE_SHOWN: Final = 200  # columns of a value; the whole of it is in --json
NARROWEST: Final = 8  # columns of a cell that was cut
ID_COLUMNS: Final = 42  # of the first column, which names the row: half an id is none, so a longer line is better

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def span(nanoseconds: int) -> str:
    """Return "30 ms", "1.3 s", "4 m 12 s", "2 h 3 m", "3 d 4 h"."""
    seconds = max(0, nanoseconds) / 1e9
    if round(seconds * 1000) < 1000:  # noqa: PLR2004 - as it is shown: what is rounded to the next unit is told in that
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < 10:  # noqa: PLR2004 - tenths say something only there
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size or parts:
            parts.append(f"{left // size} {unit}")
            left %= size
    shown = parts[:2]
    if len(shown) > 1 and shown[1].startswith("0 "):
        shown.pop()
    return " ".join(shown)


def instant(nanoseconds: int) -> str:
    """Return "30 Nov 2026 03:26:41" in UTC; "-" for none."""
    if not nanoseconds:
        return "-"
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    return when.strftime("%d %b %Y %H:%M:%S")


def ago(nanoseconds: int, now: int) -> str:
    """Return how long ago, or "in …" for what is to come; "-" for none."""
    if not nanoseconds:
        return "-"
    return f"{span(now - nanoseconds)} ago" if nanoseconds <= now else f"in {span(nanoseconds - now)}"


def clean(text: str) -> str:
    """Return ``text`` on one line, with what a terminal would obey written out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def table(
    heads: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    width: int = 0,
    paint: Callable[[str, str], str] | None = None,
) -> str:
    """Return rows in columns; each cell on one line. Where ``width`` is given, long cells are cut so that lines fit it.

    ``paint`` is given the head of a column and a padded cell, and returns it with what colours it.
    """
    cells = [heads, *(tuple(clean(cell) for cell in row) for row in rows)]
    widths = [max(columns(row[n]) for row in cells) for n in range(len(heads))]
    if width:
        _narrow(widths, width - GAP * (len(heads) - 1))
    lines = [_line(row, widths, heads, paint if n else None) for n, row in enumerate(cells)]
    return "\n".join(lines) + "\n"


def columns(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def cut(text: str, width: int) -> str:
    """Return ``text`` within ``width`` columns, the cut marked."""
    if columns(text) <= width:
        return text
    kept = ""
    for sign in text:
        if columns(kept + sign) >= width:
            break
        kept += sign
    return kept + "…"


def _narrow(widths: list[int], room: int) -> None:
    """Take from the widest column until all fit, down to a width in which a cell still says something."""
    least = [min(widths[0], ID_COLUMNS)] + [NARROWEST] * (len(widths) - 1)
    while sum(widths) > room:
        wide = sorted((n for n, width in enumerate(widths) if width > least[n]), key=lambda n: widths[n])
        if not wide:
            return
        widest = wide[-1]
        rest = widths[wide[-2]] if len(wide) > 1 else 0
        over = sum(widths) - room
        widths[widest] = max(least[widest], min(widths[widest] - 1, max(rest, widths[widest] - over)))


def _line(
    row: tuple[str, ...], widths: list[int], heads: tuple[str, ...], paint: Callable[[str, str], str] | None
) -> str:
    parts: list[str] = []
    for head, cell, width in zip(heads, row, widths, strict=True):
        text = cut(cell, width)
        padded = text + " " * (width - columns(text))
        parts.append(paint(head, padded) if paint is not None else padded)
    return (" " * GAP).join(parts).rstrip()
