"""Tells apps that a module is being imported for its declarations only, so that one which starts itself says so."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from outlast.sdk.misuse import StartedAtImport

_IMPORTING: Final[list[str]] = []


@contextmanager
def importing(name: str) -> Generator[None]:
    """While this holds, an app that starts is refused: the module ``name`` is only asked for its declarations."""
    _IMPORTING.append(name)
    try:
        yield
    finally:
        _IMPORTING.pop()


def user_place() -> tuple[str, int]:
    """Return file and line of the innermost code that is not ours; an empty file when there is none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - cheaper than inspect  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_globals.get("__name__", "").startswith("outlast."):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def refuse_start_at_import() -> None:
    """Raise StartedAtImport, naming where user code starts its app, if a module is being imported for its declarations."""
    if not _IMPORTING:
        return
    file, line = user_place()
    raise StartedAtImport(
        "started_at_import",
        f"{file}:{line} starts an app while {_IMPORTING[-1]} is being imported for its tasks and workflows.",
        remedy='Put what starts it under:  if __name__ == "__main__":',
    )
