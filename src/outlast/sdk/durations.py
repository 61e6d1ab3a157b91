"""Lengths of time as users write them: "250ms", "10m", "3d", a timedelta, or a number of seconds."""

import math
import re
from datetime import timedelta
from typing import Final

from outlast.core import limits
from outlast.core.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, Nanos
from outlast.sdk.exceptions import InvalidDuration

Duration = timedelta | float | int | str

UNITS: Final[dict[str, int]] = {
    "us": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": DAY,
    "w": 7 * DAY,
}
DIGITS_MAX: Final = 20  # of a whole number; more is over any bound
FORMS: Final = 'Write "250ms", "10s", "15m", "2h", "3d", "1h30m", a timedelta, or a number of seconds.'

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)")
_WHOLE: Final = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")


def nanos_of(duration: Duration, *, name: str = "duration") -> Nanos:
    """Return ``duration`` in nanoseconds, at least one for one above 0; ``name`` says in an error which argument it was.

    Raises:
        InvalidDuration: It is negative, longer than limits.SPAN_MAX, or not a length of time at all.
    """
    span = _read(duration, name)
    if span < 0:
        raise InvalidDuration(f"{name} is {duration!r}: a length of time is not negative.", remedy=FORMS)
    if span > limits.SPAN_MAX:
        raise InvalidDuration(
            f"{name} is {duration!r}: longer than {limits.SPAN_MAX // (365 * DAY)} years.", remedy=FORMS
        )
    return Nanos(span)


def seconds_of(duration: Duration, *, name: str = "duration") -> float:
    """Return ``duration`` in seconds; raises as ``nanos_of`` does."""
    return nanos_of(duration, name=name) / SECOND


def _read(duration: Duration, name: str) -> int:
    if isinstance(duration, timedelta):
        return ((duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds) * MICROSECOND
    if isinstance(duration, str):
        return _read_text(duration, name)
    if isinstance(duration, bool) or not isinstance(duration, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidDuration(f"{name} is a {type(duration).__name__}: not a length of time.", remedy=FORMS)
    if isinstance(duration, int):
        return duration * SECOND
    if not math.isfinite(duration):
        raise InvalidDuration(f"{name} is {duration!r}: not a length of time.", remedy=FORMS)
    if abs(duration) > limits.SPAN_MAX:  # so many seconds may be no number at all in nanoseconds
        return limits.SPAN_MAX + 1 if duration > 0 else -1
    return _some(round(duration * 1_000_000_000), over=duration > 0)


def _read_text(text: str, name: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise InvalidDuration(f"{name} is {text[:80]!r}: not a length of time.", remedy=FORMS)
    span = sum(_scaled(number, UNITS[unit]) for number, unit in _PART.findall(text))
    return _some(span, over=any(float(number) > 0 for number, _ in _PART.findall(text)))


def _some(span: int, *, over: bool) -> int:
    """Return ``span``, and 1 in place of 0 for a length that is above 0: none at all would mean that there is no bound."""
    return max(span, 1) if over else span


def _scaled(number: str, unit: int) -> int:
    whole, _, fraction = number.partition(".")
    if len(whole) > DIGITS_MAX:
        return limits.SPAN_MAX + 1
    # Whole numbers only: a float of nanoseconds would lose the last digits of long spans.
    digits = fraction[:12]
    return int(whole) * unit + (int(digits) * unit // 10 ** len(digits) if digits else 0)
