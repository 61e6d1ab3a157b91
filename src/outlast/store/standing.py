"""Whether a store may be worked on, and what is said when it may not.

A store that is being filled, a backup, and one whose work was moved away say so in a row of their own. Whoever opens one to
work on it is refused, so that no work goes on in two places and none begins on half of it.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from outlast.core.units import SECOND
from outlast.store.base import StoreError

FILLING: Final = "filling"
VERIFIED: Final = "verified"  # all is there and was compared; the store that it comes from is still to be marked
MOVED: Final = "moved"
BACKUP: Final = "backup"
UNFINISHED: Final = frozenset({FILLING, VERIFIED})


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """The row, in the order of its columns. ``at`` is when it was written, ``incarnation`` that of the other store then."""

    state: str
    place: str = ""
    token: str = ""
    at: int = 0
    incarnation: int = 0
    reason: str = ""
    facts: str = ""


COLUMNS: Final = Standing.__struct_fields__


def refuse(standing: Standing | None, shown: str, *, url: str) -> None:
    """Raise StoreError when the store called ``shown``, at ``url``, may not be worked on."""
    if standing is not None:
        raise refusal_of(standing, shown, url=url)


def refuse_half(standing: Standing | None, shown: str, *, url: str) -> None:
    """Raise StoreError when the store is being filled: not even looked at, since a half may be missing."""
    if standing is not None and standing.state in UNFINISHED:
        raise refusal_of(standing, shown, url=url)


def refusal_of(standing: Standing, shown: str, *, url: str) -> StoreError:
    """Return why a store of this standing may not be worked on, and the way out."""
    day = f"{datetime.fromtimestamp(standing.at / SECOND, tz=UTC):%Y-%m-%d %H:%M} UTC"
    if standing.state == MOVED:
        return StoreError(
            "store_moved",
            f"The work of {shown} was moved to {standing.place} at {day}{f': {standing.reason}' if standing.reason else ''}.",
            remedy=f"Work there: OUTLAST_STORE={standing.place}. To bring it back: outlast move {standing.place}"
            f" {url}. To go on from here as it was then, when nothing goes on there: outlast move --take-back {url}",
        )
    if standing.state == BACKUP:
        return StoreError(
            "store_set_aside",
            f"{shown} is a backup of {standing.place}, made at {day}; it is read, not worked on.",
            remedy=f"Bring it back into a store: outlast restore {shown} --store URL",
        )
    return StoreError(
        "store_set_aside",
        f"{shown} has not been filled to its end: what fills it from {standing.place} has run since {day}, or was cut off.",
        remedy="Let it end, or say the same outlast move or outlast restore again: it begins anew.",
    )
