"""Which exceptions are bad input or a known state of things, and what they say."""

import traceback
from typing import Final

from outlast.core.errors import Refusal
from outlast.sdk.errors import OutlastError
from outlast.store.base import StoreError

FRAMES_SHOWN: Final = 3


def told(error: Exception) -> tuple[str, str, str] | None:
    """Return code, fact and remedy of ``error``; None for a fault of ours, which deserves its traceback."""
    if isinstance(error, Refusal | StoreError):
        return error.code, error.fact, error.remedy
    if isinstance(error, OutlastError):
        fact = str(error).splitlines()[0]
        if error.code == "module_raised" and error.__cause__ is not None:
            # A module of the user's raised: what it raised, and where, is what is to be mended.
            fact = "\n".join([fact, *places_of(error.__cause__)])
        return error.code, fact, error.remedy
    if isinstance(error, OSError):
        what = f" ({error.filename})" if error.filename else ""
        fact = f"The machine refuses: {error.strerror or str(error) or type(error).__name__}{what}."
        return "unavailable", fact, "Look at the disk, at where the output goes, and at the limits of this user."
    return None


def places_of(error: BaseException) -> list[str]:
    """Return the innermost lines of code that ``error`` came through, the importing machinery left out."""
    if isinstance(error, SyntaxError) and error.filename:
        return [f"    {error.filename}:{error.lineno}   {(error.text or '').strip()}"]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and "/outlast/sdk/" not in frame.filename
        and "/importlib/" not in frame.filename
    ]  # fmt: skip
    return [f"    {frame.filename}:{frame.lineno}   {frame.line or ''}".rstrip() for frame in frames[-FRAMES_SHOWN:]]
