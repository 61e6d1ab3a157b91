"""Reads over ``Tables`` beside the loads: histories, attempts and lists, with the answers that a database gives."""

from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from itertools import islice

from outlast.core.writes import AttemptRow, HistoryRow, RunRow, TaskRow
from outlast.store.base import RunFilter, TaskFilter
from outlast.store.memory.tables import Tables
from outlast.store.references import digests_in


def read_history(tables: Tables, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
    """Return pages from the one that holds ``first_event_id`` until ``events_max`` events from there are covered."""
    pages: list[HistoryRow] = []
    if events_max <= 0:
        return pages
    rows = tables.history.get(run_id, [])
    begin = bisect_right(rows, first_event_id, key=lambda row: row.first_event_id)
    for row in rows[max(begin - 1, 0) :]:
        end = row.first_event_id + row.count
        if end <= first_event_id:
            continue
        pages.append(copy(row))
        if end - first_event_id >= events_max:
            break
    return pages


def read_attempts(tables: Tables, task_id: str) -> list[AttemptRow]:
    """Return how the leases of a task ended, in order of (lease, late)."""
    rows = tables.attempts.get(task_id, {})
    return [copy(rows[key]) for key in sorted(rows)]


def list_runs(tables: Tables, wanted: RunFilter) -> list[RunRow]:
    """Return runs that match, newest first."""
    return [copy(row) for row in islice(_runs(tables, wanted), max(wanted.limit, 0))]


def list_tasks(tables: Tables, wanted: TaskFilter) -> list[TaskRow]:
    """Return tasks that match, newest first."""
    return [copy(row) for row in islice(_tasks(tables, wanted), max(wanted.limit, 0))]


def named_blobs(tables: Tables, digests: AbstractSet[str]) -> set[str]:
    """Return those of ``digests`` that a row names."""
    named: set[str] = set()
    for parked in tables.parked.values():
        named |= digests_in(row.blob for row in parked.values())
    named |= digests_in(blob for row in tables.tasks.values() for blob in (row.spec, row.status))
    named |= digests_in(blob for row in tables.runs.values() for blob in (row.fixed, row.state, row.outcome))
    for pages in tables.history.values():
        named |= digests_in(page.blob for page in pages)
    return named & digests


def _runs(tables: Tables, wanted: RunFilter) -> Iterator[RunRow]:
    keys = tables.runs_by_start.get(wanted.namespace)
    if keys is None:
        return
    for _, run_id in keys.before(wanted.before):
        row = tables.runs[run_id]
        if wanted.type and row.type != wanted.type:
            continue
        if wanted.status and row.status != wanted.status:
            continue
        if wanted.workflow_id and row.workflow_id != wanted.workflow_id:
            continue
        yield row


def _tasks(tables: Tables, wanted: TaskFilter) -> Iterator[TaskRow]:
    keys = tables.tasks_by_enqueue.get(wanted.namespace)
    if keys is None:
        return
    for _, task_id in keys.before(wanted.before):
        row = tables.tasks[task_id]
        if wanted.type and row.type != wanted.type:
            continue
        if wanted.state and row.state != wanted.state:
            continue
        if wanted.queue and row.queue != wanted.queue:
            continue
        if wanted.run_id and not (row.run_id == wanted.run_id and task_id.startswith(f"{wanted.run_id}:")):
            continue
        if wanted.standalone and row.run_id:
            continue
        yield row
