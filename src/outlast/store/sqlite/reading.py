"""Reads on a connection: pages, histories, attempts, lists. Each sees one committed state."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, assert_never

import msgspec

from outlast.core.replies import TaskState
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
from outlast.store.base import RunFilter, TaskFilter
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
            with _one_state(connection):
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


def list_runs(connection: Connection, filter_: RunFilter) -> list[RunRow]:
    """Return runs that match, newest first."""
    conditions = {"type": filter_.type, "status": filter_.status, "workflow_id": filter_.workflow_id}
    where, values = _where(filter_.namespace, conditions)
    if filter_.status in queries.RUN_TROUBLES:
        where += f" AND {queries.RUN_TROUBLE}"
    if filter_.before is not None:
        where += " AND (started_at, run_id) < (?, ?)"
        values += list(filter_.before)
    # Left alone, SQLite prefers the index that gives the order, and walks through the whole namespace.
    source = "runs INDEXED BY runs_by_workflow" if filter_.workflow_id else "runs"
    sql = f"SELECT {queries.RUN} FROM {source} WHERE {where} ORDER BY started_at DESC, run_id DESC LIMIT ?"
    return msgspec.convert(_rows(connection, sql, [*values, max(filter_.limit, 0)]), list[RunRow])


def list_tasks(connection: Connection, filter_: TaskFilter) -> list[TaskRow]:
    """Return tasks that match, newest first."""
    conditions = {"type": filter_.type, "state": filter_.state, "queue": filter_.queue, "run_id": filter_.run_id}
    where, values = _where(filter_.namespace, conditions)
    if filter_.state in queries.TASK_TROUBLES:
        where += f" AND {queries.TASK_TROUBLE}"
    if filter_.run_id:
        # Ids of activities begin with that of their run, so that its tasks are one range of the key.
        where += " AND task_id > ? AND task_id < ?"
        values += [f"{filter_.run_id}:", f"{filter_.run_id};"]
    if filter_.standalone:
        where += " AND run_id = ''"
    if filter_.before is not None:
        where += " AND (enqueued_at, task_id) < (?, ?)"
        values += list(filter_.before)
    source = "tasks"
    if filter_.run_id:
        source = "tasks INDEXED BY sqlite_autoindex_tasks_1"
    elif filter_.state == TaskState.LEASED:
        source = "tasks INDEXED BY tasks_leased"
        where += " AND state = 'leased'"
    sql = f"SELECT {queries.TASK} FROM {source} WHERE {where} ORDER BY enqueued_at DESC, task_id DESC LIMIT ?"
    return msgspec.convert(_rows(connection, sql, [*values, max(filter_.limit, 0)]), list[TaskRow])


def _where(namespace: str, conditions: dict[str, str]) -> tuple[str, list[Any]]:
    asked = {name: value for name, value in conditions.items() if value}
    return " AND ".join(["namespace = ?", *(f"{name} = ?" for name in asked)]), [namespace, *asked.values()]


def _load_keys(connection: Connection, wanted: LoadKeys) -> Page:
    if not wanted.workflows and not wanted.runs and not (wanted.tasks and wanted.dedup):
        return _load_found(connection, wanted)  # one statement sees one commit by itself
    with _one_state(connection):
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
def _one_state(connection: Connection) -> Generator[None]:
    """Let several statements see the same commit, although the writer goes on between them."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")
