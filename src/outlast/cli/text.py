"""Spans, instants and tables for people."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def span(nanoseconds: int) -> str:
    """Return "30 ms", "1.3 s", "4 m 12 s", "2 h 3 m", "3 d 4 h"."""
    seconds = max(0, nanoseconds) / 1e9
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004 - tenths say something only there
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


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows in columns; each cell on one line."""
    cells = [heads, *(tuple(clean(cell) for cell in row) for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(heads))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines) + "\n"
