"""Reads on a connection: pages, histories, attempts. Each sees one committed state."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, assert_never

import msgspec

from outlast.core import codec, limits
from outlast.core.admin import NamespaceInfo
from outlast.core.writes import (
    AttemptRow,
    DedupRow,
    HistoryRow,
    Load,
    LoadKeys,
    LoadLeasedTasks,
    LoadReadyRuns,
    LoadReadyTasks,
    LoadTimers,
    Page,
    ParkedRow,
    RunRow,
    TaskRow,
    TimerRow,
)
from outlast.store.base import Turns, Waiting
from outlast.store.compression import unpack
from outlast.store.sqlite import queries
from outlast.store.sqlite.connection import Connection

MANY_KEYS: Final = 4  # from so many on, one statement for all of them is cheaper


def load(connection: Connection, wanted: Load) -> Page:
    """Return the page that ``wanted`` asks for."""
    match wanted:
        case LoadKeys():
            return _load_keys(connection, wanted)
        case LoadReadyTasks(namespace=namespace, queue=queue, type=type_, after=after, limit=limit):
            rows = _rows(connection, queries.READY_TASKS, (namespace, queue, type_, *after, max(limit, 0)))
            return Page(tasks=msgspec.convert(rows, list[TaskRow]))
        case LoadTimers(after=after, limit=limit):
            rows = _rows(connection, queries.TIMERS, (*after, max(limit, 0)))
            return Page(timers=msgspec.convert(rows, list[TimerRow]))
        case LoadReadyRuns(after=after, limit=limit):
            with one_state(connection):
                rows = _rows(connection, queries.READY_RUNS, (*after, max(limit, 0)))
                return _with_parked(connection, msgspec.convert(rows, list[RunRow]))
        case LoadLeasedTasks(after=after, limit=limit):
            rows = _rows(connection, queries.LEASED_TASKS, (after, max(limit, 0)))
            return Page(tasks=msgspec.convert(rows, list[TaskRow]))
        case _:
            assert_never(wanted)


def read_history(connection: Connection, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
    """Return pages from the one that holds ``first_event_id`` until ``events_max`` events from there are covered."""
    pages: list[HistoryRow] = []
    if events_max <= 0:
        return pages
    cursor = connection.execute(queries.HISTORY, (run_id, first_event_id))
    for id_, first, count, blob in cursor:
        if first + count <= first_event_id:
            continue
        pages.append(HistoryRow(id_, first, count, unpack(blob)))
        if first + count - first_event_id >= events_max:
            break
    cursor.close()
    return pages


def read_attempts(connection: Connection, task_id: str) -> list[AttemptRow]:
    """Return how the leases of a task ended, in order of (lease, late)."""
    return msgspec.convert(_rows(connection, queries.ATTEMPTS, (task_id,)), list[AttemptRow])


def read_waiting(connection: Connection, namespace: str, queue: str) -> list[Waiting]:
    """Return what waits in a queue, by type, from the index of ready tasks alone."""
    found: list[Waiting] = []
    type_ = ""
    while rows := _rows(connection, queries.NEXT_TYPE, (namespace, queue, type_)):
        type_ = rows[0][0]
        place = (namespace, queue, type_)
        count: int = _rows(connection, queries.COUNT_READY, (*place, limits.QUEUE_COUNT_MAX + 1))[0][0]
        since: int = _rows(connection, queries.OLDEST_READY, (*place, limits.QUEUE_HEAD_ROWS))[0][0]
        more = count > limits.QUEUE_COUNT_MAX
        found.append(Waiting(type_, min(count, limits.QUEUE_COUNT_MAX), since, more))
        if len(found) == limits.QUEUES_SHOWN_MAX:
            break
    return found


def read_turns(connection: Connection) -> list[Turns]:
    """Return which queues' runs need a workflow task."""
    return [Turns(*row) for row in connection.execute(queries.TURNS, (limits.QUEUE_COUNT_MAX,))]


def read_namespaces(connection: Connection) -> dict[str, NamespaceInfo]:
    """Return the namespaces by name."""
    found = [codec.decode_namespace(blob) for (blob,) in connection.execute(queries.NAMESPACES)]
    return {info.name: info for info in found}


def read_counters(connection: Connection, namespace: str) -> dict[str, int]:
    """Return the counters of a namespace by name."""
    return dict(_rows(connection, queries.COUNTERS_OF, (namespace,)))


def _load_keys(connection: Connection, wanted: LoadKeys) -> Page:
    if not wanted.workflows and not wanted.runs and not (wanted.tasks and wanted.dedup):
        return _load_found(connection, wanted)  # one statement sees one commit by itself
    with one_state(connection):
        return _load_found(connection, wanted)


def _load_found(connection: Connection, wanted: LoadKeys) -> Page:
    runs: dict[str, tuple[Any, ...]] = {}
    for key in wanted.workflows:
        for row in connection.execute(queries.RUN_BY_WORKFLOW, key):
            runs[row[2]] = row
    others = [run_id for run_id in wanted.runs if run_id not in runs]
    for row in _found(connection, queries.RUN_BY_ID, queries.RUNS_BY_ID, others):
        runs[row[2]] = row
    page = _with_parked(connection, msgspec.convert(list(runs.values()), list[RunRow]))
    tasks = _found(connection, queries.TASK_BY_ID, queries.TASKS_BY_ID, wanted.tasks)
    dedup = _found(connection, queries.DEDUP_BY_KEY, queries.DEDUP_BY_KEYS, wanted.dedup)
    page.tasks = msgspec.convert(tasks, list[TaskRow])
    page.dedup = msgspec.convert(dedup, list[DedupRow])
    return page


def _found(connection: Connection, one: str, many: str, keys: Sequence[str | tuple[str, ...]]) -> list[Any]:
    """Return the rows of ``keys``, by one statement for all of them where there are several."""
    keys = list(dict.fromkeys(keys))
    if len(keys) >= MANY_KEYS:
        listed = msgspec.json.encode(keys).decode()
        if "\\u0000" not in listed:  # SQLite ends a text in JSON there
            return _rows(connection, many, (listed,))
    rows: list[Any] = []
    for key in keys:
        rows += _rows(connection, one, (key,) if isinstance(key, str) else key)
    return rows


def _with_parked(connection: Connection, runs: list[RunRow]) -> Page:
    parked = [ParkedRow(*row) for run in runs for row in connection.execute(queries.PARKED_OF_RUN, (run.run_id,))]
    return Page(runs=runs, parked=parked)


def _rows(connection: Connection, sql: str, values: Sequence[Any]) -> list[Any]:
    return connection.execute(sql, values).fetchall()


@contextmanager
def one_state(connection: Connection) -> Generator[None]:
    """Let several statements see the same commit, although the writer goes on between them."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")
