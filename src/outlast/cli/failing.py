"""A failure told for people: what it was, the lines of user code that it went through, and what came before it."""

from typing import Final

from outlast.cli.text import clean
from outlast.core.failure import Failure
from outlast.protocol.traces import frames_of

LINES_SHOWN: Final = 8  # of one error
FRAMES_SHOWN: Final = 3  # the whole trace is in --json
CAUSES_SHOWN: Final = 2


def line(label: str, text: str) -> str:
    """Return a line of an answer: its label, and what it says."""
    return f"  {label:<10} {clean(text)}"


def lines(label: str, text: str) -> list[str]:
    """Return a text of several lines below one another: an error that tells two sides is read so."""
    parts = [part for part in text.splitlines() if part.strip()][:LINES_SHOWN]
    return [line("" if n else label, part) for n, part in enumerate(parts)]


def error_lines(label: str, failure: Failure, *, of: str = "") -> list[str]:
    """Return an error, where it was raised and by whom that was called; then its causes, each told once."""
    said = f"{failure.type}: {failure.message}"
    told = lines(label, f"{of}: {said}" if of else said) + _places(failure)
    cause, left = failure.cause, CAUSES_SHOWN
    while cause is not None and left:
        same = f"{cause.type}: {cause.message}" == said
        told += ([] if same else lines("cause", f"{cause.type}: {cause.message}")) + _places(cause)
        cause, left = cause.cause, left - 1
    return told


def _places(failure: Failure) -> list[str]:
    shown = frames_of(failure)[:FRAMES_SHOWN]
    return [
        line("called at" if n else "raised at", f"{frame.place}   {frame.source}".rstrip())
        for n, frame in enumerate(shown)
        if frame.place not in failure.message
    ]
