"""The feed: read a page of it in one committed state."""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core.feed import WITH_ROW, Entry, Place, What, entries_of
from outlast.core.writes import AttemptRow, FeedRow, HistoryRow
from outlast.store.base import FeedFound, TaskNames
from outlast.store.compression import unpack
from outlast.store.feed import within
from outlast.store.postgres.reading import ATTEMPTS, one_state
from outlast.store.postgres.session import Reads
from outlast.store.postgres.text import escaped, unescaped
from outlast.store.postgres.words import ATTEMPT

ROWS_A_READ: Final = 50  # of the feed
PAGES_A_READ: Final = 50  # of histories

_FEED: Final = f"""
    SELECT number, first, count, at, changes FROM outlast.feed WHERE shard = $1 AND namespace = $2
    AND (number, first) > ($3, $4) AND (number > $5 OR first + count > $6) ORDER BY number, first LIMIT {ROWS_A_READ}
"""
_END: Final = """
    SELECT number, first + count FROM outlast.feed WHERE shard = $1 AND namespace = $2
    ORDER BY number DESC, first DESC LIMIT 1
"""
_FLOOR: Final = "SELECT number, seen FROM outlast.feed_floors WHERE shard = $1 AND namespace = $2"
_STORE: Final = (
    "SELECT s.last_number, s.incarnation, m.identity FROM outlast.shards s, outlast.meta m WHERE s.shard = $1"
)
_PAGES: Final = """
    SELECT k.run_id, k.first_event_id, h.count, h.blob
    FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS k(run_id, first_event_id, n)
    CROSS JOIN LATERAL (SELECT * FROM outlast.history t
        WHERE t.run_id = k.run_id AND t.first_event_id = k.first_event_id AND t.shard = $1 OFFSET 0) h
    ORDER BY k.n
"""
_ATTEMPTS: Final = f"""
    SELECT {ATTEMPT} FROM (SELECT a.* FROM unnest($2::text[], $3::bigint[]) AS k(task_id, lease)
        CROSS JOIN LATERAL (SELECT * FROM outlast.attempts t
        WHERE t.task_id = k.task_id AND t.lease = k.lease AND t.late = 0 AND t.shard = $1 OFFSET 0) a) found
"""
_TASKS: Final = """
    SELECT f.task_id, f.type, f.queue, f.run_id FROM unnest($2::text[]) AS k(task_id)
    CROSS JOIN LATERAL (SELECT * FROM outlast.tasks t
        WHERE t.task_id = k.task_id AND t.shard = $1 OFFSET 0) f
"""
_RUNS: Final = """
    SELECT r.run_id, r.workflow_id, r.type FROM unnest($2::text[]) AS k(run_id)
    CROSS JOIN LATERAL (SELECT * FROM outlast.runs t
        WHERE t.run_id = k.run_id AND t.shard = $1 OFFSET 0) r
"""


async def read_feed(reads: Reads, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound:
    """Return what the feed of ``namespace`` has behind ``after``, as ``Store.read_feed`` says."""
    of = escaped(namespace)
    async with one_state(reads):
        rows = await _rows(reads, namespace, after, events_max)
        entries = entries_of(rows, after=after, events_max=events_max)
        history = await _pages(reads, entries, bytes_max)
        attempts = await _attempts(reads, entries)
        cut = within(entries, history, attempts, bytes_max=bytes_max)
        tasks = await _tasks(reads, {entry.id for entry in cut if entry.what is not What.HISTORY})
        run_ids = {entry.id for entry in cut if entry.what is What.HISTORY}
        run_ids |= {task.run_id for task in tasks.values() if task.run_id}
        ends = await reads.fetch(_END, of)
        floor = await reads.fetch(_FLOOR, of)
        ((number, incarnation, identity),) = await reads.fetch(_STORE)
        return FeedFound(
            identity=identity,
            incarnation=incarnation,
            last=number,
            floor=Place(*floor[0]) if floor else Place(0),
            entries=cut,
            more=len(cut) < len(entries) or bool(entries and entries[-1].end < tuple(ends[0])),
            history=history,
            attempts=attempts,
            tasks=tasks,
            runs=await _runs(reads, run_ids),
        )


async def _rows(reads: Reads, namespace: str, after: Place, events_max: int) -> list[FeedRow]:
    """Return the rows behind ``after`` until they have ``events_max`` events, not counting those of the first."""
    found: list[FeedRow] = []
    place = (after.number, -1)
    while True:
        rows = await reads.fetch(_FEED, escaped(namespace), *place, *after)
        found += [FeedRow(namespace, number, first, count, at, unpack(blob)) for number, first, count, at, blob in rows]
        if len(rows) < ROWS_A_READ or sum(row.count for row in found[1:]) >= events_max:
            return found
        place = (found[-1].number, found[-1].first)


async def _pages(reads: Reads, entries: Sequence[Entry], bytes_max: int) -> dict[tuple[str, int], HistoryRow]:
    """Return the pages of histories that ``entries`` name, until they have more than ``bytes_max`` bytes."""
    found: dict[tuple[str, int], HistoryRow] = {}
    keys = [(entry.id, entry.key) for entry in entries if entry.what is What.HISTORY]
    left = bytes_max
    for begin in range(0, len(keys), PAGES_A_READ):
        for id_, first, count, blob in await reads.fetch(_PAGES, *_columns(keys[begin : begin + PAGES_A_READ])):
            row = HistoryRow(unescaped(id_), first, count, unpack(blob))
            found[row.run_id, first] = row
            left -= len(row.blob)
            if left < 0:
                return found
    return found


async def _attempts(reads: Reads, entries: Sequence[Entry]) -> dict[tuple[str, int], AttemptRow]:
    keys = [(entry.id, entry.key) for entry in entries if entry.what in WITH_ROW]
    rows: list[AttemptRow] = ATTEMPTS.read(await reads.fetch(_ATTEMPTS, *_columns(keys))) if keys else []
    return {(row.task_id, row.lease): row for row in rows}


async def _tasks(reads: Reads, ids: set[str]) -> dict[str, TaskNames]:
    rows = await reads.fetch(_TASKS, list(map(escaped, ids))) if ids else []
    return {
        task_id: TaskNames(type_, queue, run_id)
        for task_id, type_, queue, run_id in (map(unescaped, row) for row in rows)
    }


async def _runs(reads: Reads, ids: set[str]) -> dict[str, tuple[str, str]]:
    rows = await reads.fetch(_RUNS, list(map(escaped, ids))) if ids else []
    return {run_id: (workflow_id, type_) for run_id, workflow_id, type_ in (map(unescaped, row) for row in rows)}


def _columns(keys: Iterable[tuple[str, int]]) -> tuple[list[str], list[int]]:
    ids, numbers = zip(*keys, strict=True)
    return list(map(escaped, ids)), list(numbers)
