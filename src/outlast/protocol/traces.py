"""The lines of user code that a recorded error went through, read off the trace that the SDK keeps with it."""

import re
from typing import Final, NamedTuple

from outlast.core.failure import Failure

_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+)(?:, in .*)?(?:\n    (.*))?$', re.MULTILINE)
_OURS: Final = "/outlast/sdk/"  # a trace without a line of the user's has those of the SDK, which tell nobody else much


class Frame(NamedTuple):
    """A line of user code that an error went through."""

    place: str  # "file:line"
    source: str  # the line as it was then, "" where it was not to be had


def frames_of(failure: Failure) -> tuple[Frame, ...]:
    """Return the user's lines that the trace names, the innermost first; none for a trace of another language."""
    found = [
        Frame(f"{file}:{line}", source.strip())
        for file, line, source in _FRAME.findall(failure.trace)
        if _OURS not in file
    ]
    return tuple(reversed(found))
