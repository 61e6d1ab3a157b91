"""How far something long is, on stderr: a line that is written over on a terminal, and nothing elsewhere."""

import sys
import time
from collections.abc import Mapping
from typing import Final, Self

from outlast.cli.arguments import Arguments

EVERY: Final = 0.2  # seconds between two looks of a terminal
AFTER: Final = 3.0  # seconds: what takes less needs no such line


class Progress:
    """Shows what is being done; ``say`` is called with it and with how many are done."""

    def __init__(self, arguments: Arguments) -> None:
        self._shows = sys.stderr.isatty() and not getattr(arguments, "quiet", False)
        self._what = ""
        self._first = time.monotonic()
        self._began = self._said = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._said:
            sys.stderr.write("\r\x1b[K")

    def say(self, what: str, done: int) -> None:
        """Show that ``done`` of ``what`` are done, now and then."""
        if not self._shows:
            return
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
        elif now - self._said < EVERY:
            return
        if now - self._first < AFTER:
            return
        self._said = now
        rate = done / (now - self._began) if now > self._began else 0
        sys.stderr.write(f"\r\x1b[K{what}: {done:,}{f', {rate:,.0f} a second' if rate else ''}")
        sys.stderr.flush()


def rows_said(rows: Mapping[str, int], payloads: int) -> str:
    """Return what there is of each kind of row, on one line."""
    counts = {**{name.replace("_", " "): count for name, count in rows.items()}, "payloads": payloads}
    parts = [f"{count:,} {name.removesuffix('s') if count == 1 else name}" for name, count in counts.items() if count]
    return ", ".join(parts) or "nothing"
