"""The feed in SQLite: read a page of it in one committed state, and drop its beginning."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from outlast.core.feed import WITH_ROW, Entry, Place, What, entries_of
from outlast.core.writes import AttemptRow, FeedRow, HistoryRow
from outlast.store.base import FeedFound, TaskNames
from outlast.store.compression import unpack
from outlast.store.feed import pages_of, within
from outlast.store.sqlite import queries, writing
from outlast.store.sqlite.connection import Connection
from outlast.store.sqlite.reading import one_state

_ids: Final = msgspec.json.Encoder().encode


def read_feed(
    connection: Connection, shard: int, namespace: str, *, after: Place, events_max: int, bytes_max: int
) -> FeedFound:
    """Return what the feed of ``namespace`` has behind ``after``, as ``Store.read_feed`` says."""
    with one_state(connection):
        rows = connection.execute(queries.FEED, (namespace, *after))
        entries = entries_of(
            (FeedRow(of, number, first, count, at, unpack(blob)) for of, number, first, count, at, blob in rows),
            after=after,
            events_max=events_max,
        )
        rows.close()
        history = pages_of(entries, partial(_page, connection), bytes_max=bytes_max)
        attempts = _attempts(connection, entries)
        cut = within(entries, history, attempts, bytes_max=bytes_max)
        tasks = _tasks(connection, cut)
        run_ids = {entry.id for entry in cut if entry.what is What.HISTORY}
        run_ids |= {task.run_id for task in tasks.values() if task.run_id}
        ends = connection.execute(queries.FEED_END, (namespace,)).fetchall()
        floor = connection.execute(queries.FEED_FLOOR, (namespace,)).fetchall()
        number, incarnation, identity = connection.execute(queries.FEED_OF_STORE, (shard,)).fetchall()[0]
        return FeedFound(
            identity=identity,
            incarnation=incarnation,
            last=number,
            floor=Place(*floor[0]) if floor else Place(0),
            entries=cut,
            more=len(cut) < len(entries) or bool(entries and entries[-1].end < ends[0]),
            history=history,
            attempts=attempts,
            tasks=tasks,
            runs=_runs(connection, run_ids),
        )


def forget_feed(connection: Connection, namespace: str, *, before: int, through: int, rows_max: int) -> int:
    """Drop the oldest rows of a feed and keep up to where, in one transaction; return how many."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        count = 0
        end = connection.execute(queries.FEED_PRUNED, (namespace, rows_max, before, through)).fetchall()
        if end:
            connection.execute(queries.SET_FEED_FLOOR, (namespace, end[0][0]))
            connection.execute(queries.FORGET_FEED, (namespace, end[0][0]))
            count = connection.changes()
        connection.execute("COMMIT")
    except BaseException:
        writing.roll_back(connection)
        raise
    return count


def _page(connection: Connection, run_id: str, first_event_id: int) -> HistoryRow | None:
    for count, blob in connection.execute(queries.HISTORY_PAGE, (run_id, first_event_id)).fetchall():
        return HistoryRow(run_id, first_event_id, count, unpack(blob))
    return None


def _attempts(connection: Connection, entries: Sequence[Entry]) -> dict[tuple[str, int], AttemptRow]:
    found: dict[tuple[str, int], AttemptRow] = {}
    for entry in entries:
        if entry.what in WITH_ROW:
            for row in connection.execute(queries.ATTEMPT_OF_LEASE, (entry.id, entry.key)).fetchall():
                found[entry.id, entry.key] = msgspec.convert(row, AttemptRow)
    return found


def _tasks(connection: Connection, entries: Sequence[Entry]) -> dict[str, TaskNames]:
    ids = list(dict.fromkeys(entry.id for entry in entries if entry.what is not What.HISTORY))
    rows = connection.execute(queries.TASK_NAMES, (_ids(ids).decode(),)) if ids else ()
    return {task_id: TaskNames(type_, queue, run_id) for task_id, type_, queue, run_id in rows}


def _runs(connection: Connection, run_ids: set[str]) -> dict[str, tuple[str, str]]:
    rows = connection.execute(queries.RUN_NAMES, (_ids(sorted(run_ids)).decode(),)) if run_ids else ()
    return {run_id: (workflow_id, type_) for run_id, workflow_id, type_ in rows}
