"""Pages and counts over a store's bounded stretches: as many as one answer may cost, with cursors that are checked.

A list is keyset-paged: its cursor is a place, so that what is made or deleted meanwhile moves nothing. It belongs to one
list, by a digest over the namespace and the filter; a cursor of another list, or one that was tampered with, is refused.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import msgspec

from outlast.core import limits
from outlast.core.counters import counted_by
from outlast.core.errors import Invalid
from outlast.core.replies import RunStatus, TaskState
from outlast.core.units import Instant
from outlast.core.writes import RunRow, TaskRow
from outlast.protocol.transport import Count
from outlast.query.check import filter_of
from outlast.query.fields import RUN_FIELDS, TASK_FIELDS
from outlast.query.predicate import Predicate
from outlast.store.base import Place, RunFilter, Stretch, Tally, TaskFilter

WHOLE: Final = range(-(2**63), 2**63)

Row = TypeVar("Row", RunRow, TaskRow)
Wanted = TypeVar("Wanted", RunFilter, TaskFilter)


class Counters(Protocol):
    """Where the counters of a namespace are read."""

    async def read_counters(self, namespace: str) -> dict[str, int]: ...


async def rows_of(
    read: Callable[[Wanted], Awaitable[Stretch[Row]]], wanted: Wanted, place: Callable[[Row], Place]
) -> tuple[Sequence[Row], Place | None, bool]:
    """Return up to ``wanted.limit`` rows, where the next page begins, and whether this one is short for its cost.

    None for the place when nothing is left.
    """
    limit, before = wanted.limit, wanted.before
    rows: list[Row] = []
    for _ in range(limits.LIST_SCANS_MAX):
        found = await read(replace(wanted, before=before, limit=limit + 1 - len(rows), scan=limits.LIST_SCAN_ROWS))
        rows += found.rows
        before = found.next
        if len(rows) > limit:
            return rows[:limit], place(rows[limit - 1]), False
        if before is None:
            return rows, None, False
        await asyncio.sleep(0)  # other work goes on between two stretches
    return rows, before, True


async def count_of(read: Callable[[Wanted], Awaitable[Tally]], wanted: Wanted) -> Count:
    """Return how many rows match: all of them, or those among as many as one answer may look at."""
    count, before = 0, wanted.before
    for _ in range(limits.LIST_SCANS_MAX):
        found = await read(replace(wanted, before=before, scan=limits.LIST_SCAN_ROWS))
        count += found.count
        before = found.next
        if before is None:
            return Count(count=count)
        await asyncio.sleep(0)
    return Count(count=count, approximate=True)


async def count_by_counters(store: Counters, namespace: str, kind: str, state: str, queue: str = "") -> Count:
    """Return the exact number of runs ("runs") or tasks ("tasks") by the counters that commits keep."""
    counters = await store.read_counters(namespace)
    total = 0
    for name, value in counters.items():
        of, of_queue, of_state = counted_by(name)
        if of == kind and (not state or of_state == state) and (not queue or of_queue == queue):
            total += value
    return Count(count=total)


def run_filter(query: str, *, now: Instant) -> Predicate | None:
    """Return what the filter ``query`` asks of runs. Raises Invalid or TooLarge."""
    return filter_of(query, RUN_FIELDS, now=now)


def task_filter(query: str, *, now: Instant) -> Predicate | None:
    """Return what the filter ``query`` asks of tasks. Raises Invalid or TooLarge."""
    return filter_of(query, TASK_FIELDS, now=now)


def limit_of(limit: int) -> int:
    """Return ``limit``. Raises Invalid for one that a page may not have."""
    if not 1 <= limit <= limits.LIST_LIMIT_MAX:
        raise Invalid(
            "invalid_request", f"limit is {limit}.", remedy=f"Give a number from 1 to {limits.LIST_LIMIT_MAX}."
        )
    return limit


def one_of(field: str, value: str, kinds: type[RunStatus] | type[TaskState]) -> str:
    """Return ``value``. Raises Invalid unless it is empty or one of ``kinds``."""
    names = [str(kind.value) for kind in kinds]
    if value and value not in names:
        raise Invalid("invalid_request", f'{field} is "{value}".', remedy=f"Give one of {', '.join(names)}.")
    return value


def digest_of(*parts: object) -> bytes:
    """Return what tells one list from every other."""
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode(errors="replace"), digest_size=8).digest()


def cursor_of(place: Place | None, list_digest: bytes) -> str:
    """Return the cursor for ``place`` in the list; "" for None, the end."""
    if place is None:
        return ""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((*place, list_digest))).decode().rstrip("=")


def place_of(cursor: str, list_digest: bytes) -> Place | None:
    """Return the place that ``cursor`` stands for, None for none. Raises Invalid ("invalid_cursor")."""
    if not cursor:
        return None
    try:
        if len(cursor) > limits.CURSOR_BYTES_MAX:
            raise ValueError(cursor)
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        at, id_, of_list = msgspec.msgpack.decode(raw, type=tuple[int, str, bytes])
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        at, id_, of_list = 0, "", b""
    if not of_list or at not in WHOLE:
        raise Invalid(
            "invalid_cursor", "The cursor is not one that a list gave.", remedy="Use the cursor of the last page."
        )
    if of_list != list_digest:
        raise Invalid(
            "invalid_cursor",
            "The cursor belongs to a list with another filter.",
            remedy="Ask for each page with the same filter, or begin again without a cursor.",
        )
    return at, id_
