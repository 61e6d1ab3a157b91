"""The part of reading a feed that is the same for every store: how much of what was found makes one page."""

from collections.abc import Callable, Mapping, Sequence

from outlast.core.feed import WITH_ROW, Entry, What
from outlast.core.writes import AttemptRow, HistoryRow

ENTRY_BYTES = 100  # of an event without a row of its own, roughly


def within(
    entries: Sequence[Entry],
    history: Mapping[tuple[str, int], HistoryRow],
    attempts: Mapping[tuple[str, int], AttemptRow],
    *,
    bytes_max: int,
) -> Sequence[Entry]:
    """Return the first of ``entries`` whose rows have ``bytes_max`` bytes together: as many as fit, and at least one."""
    left = bytes_max
    for n, entry in enumerate(entries):
        left -= _bytes_of(entry, history, attempts)
        if left < 0 and n:
            return entries[:n]
    return entries


def pages_of(
    entries: Sequence[Entry], read: Callable[[str, int], HistoryRow | None], *, bytes_max: int
) -> dict[tuple[str, int], HistoryRow]:
    """Return the pages of histories that ``entries`` name, until they have more than ``bytes_max`` bytes."""
    found: dict[tuple[str, int], HistoryRow] = {}
    left = bytes_max
    for entry in entries:
        if entry.what is not What.HISTORY:
            continue
        row = read(entry.id, entry.key)
        if row is None:
            continue
        found[entry.id, entry.key] = row
        left -= len(row.blob)
        if left < 0:
            break
    return found


def _bytes_of(
    entry: Entry, history: Mapping[tuple[str, int], HistoryRow], attempts: Mapping[tuple[str, int], AttemptRow]
) -> int:
    size = ENTRY_BYTES
    if entry.what is What.HISTORY and (page := history.get((entry.id, entry.key))) is not None:
        size += len(page.blob)
    elif entry.what in WITH_ROW and (attempt := attempts.get((entry.id, entry.key))) is not None:
        size += len(attempt.error_message) + len(attempt.error_trace)
    return size
