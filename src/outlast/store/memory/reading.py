"""Reads over ``Tables`` beside the loads: histories, attempts and lists, with the answers that a database gives."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from itertools import islice
from typing import TypeVar

from outlast.core import limits
from outlast.core.feed import WITH_ROW, What, entries_of
from outlast.core.feed import Place as FeedPlace
from outlast.core.writes import AttemptRow, HistoryRow, RunRow, TaskRow
from outlast.query.evaluate import matches
from outlast.store.base import FeedFound, Place, RunFilter, Stretch, Tally, TaskFilter, TaskNames, Turns, Waiting
from outlast.store.feed import pages_of, within
from outlast.store.memory.keys import SortedKeys
from outlast.store.memory.tables import Tables
from outlast.store.references import digests_in

_R = TypeVar("_R", RunRow, TaskRow)


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


def read_feed(tables: Tables, namespace: str, *, after: FeedPlace, events_max: int, bytes_max: int) -> FeedFound:
    """Return what a feed has behind ``after``."""
    rows = tables.feed.get(namespace, [])
    begin = bisect_left(rows, after.number, key=lambda row: row.number)
    entries = entries_of(islice(rows, begin, None), after=after, events_max=events_max)
    is_whole = not entries or (entries[-1].end >= (rows[-1].number, rows[-1].first + rows[-1].count))

    def page(run_id: str, first_event_id: int) -> HistoryRow | None:
        pages = tables.history.get(run_id, [])
        at = bisect_left(pages, first_event_id, key=lambda row: row.first_event_id)
        return copy(pages[at]) if at < len(pages) and pages[at].first_event_id == first_event_id else None

    history = pages_of(entries, page, bytes_max=bytes_max)
    attempts = {
        (entry.id, entry.key): copy(ended)
        for entry in entries
        if entry.what in WITH_ROW and (ended := tables.attempts.get(entry.id, {}).get((entry.key, 0))) is not None
    }
    cut = within(entries, history, attempts, bytes_max=bytes_max)
    tasks = {
        entry.id: TaskNames(task.type, task.queue, task.run_id)
        for entry in cut
        if entry.what is not What.HISTORY and (task := tables.tasks.get(entry.id)) is not None
    }
    run_ids = {entry.id for entry in cut if entry.what is What.HISTORY} | {task.run_id for task in tasks.values()}
    return FeedFound(
        identity=tables.identity,
        incarnation=tables.incarnation,
        last=tables.held.last_number,
        floor=tables.feed_floors.get(namespace, FeedPlace(0)),
        entries=cut,
        more=len(cut) < len(entries) or not is_whole,
        history=history,
        attempts=attempts,
        tasks=tasks,
        runs={id_: (run.workflow_id, run.type) for id_ in run_ids if (run := tables.runs.get(id_)) is not None},
    )


def list_runs(tables: Tables, wanted: RunFilter) -> Stretch[RunRow]:
    """Return runs that match, newest first."""
    walk = _Walk(tables.runs_by_start.get(wanted.namespace), wanted.before, wanted.scan)
    return walk.rows(lambda run_id: _run(tables, wanted, run_id), wanted.limit)


def list_tasks(tables: Tables, wanted: TaskFilter) -> Stretch[TaskRow]:
    """Return tasks that match, newest first."""
    walk = _Walk(tables.tasks_by_enqueue.get(wanted.namespace), wanted.before, wanted.scan)
    return walk.rows(lambda task_id: _task(tables, wanted, task_id), wanted.limit)


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


def count_runs(tables: Tables, wanted: RunFilter) -> Tally:
    """Return how many runs match."""
    walk = _Walk(tables.runs_by_start.get(wanted.namespace), wanted.before, wanted.scan)
    return Tally(sum(_run(tables, wanted, run_id) is not None for run_id in walk), walk.next)


def count_tasks(tables: Tables, wanted: TaskFilter) -> Tally:
    """Return how many tasks match."""
    walk = _Walk(tables.tasks_by_enqueue.get(wanted.namespace), wanted.before, wanted.scan)
    return Tally(sum(_task(tables, wanted, task_id) is not None for task_id in walk), walk.next)


def read_waiting(tables: Tables, namespace: str, queue: str) -> list[Waiting]:
    """Return what waits in a queue, by type."""
    found: list[Waiting] = []
    for (of, of_queue, type_), keys in sorted(tables.ready_tasks.items(), key=lambda item: item[0]):
        if (of, of_queue) != (namespace, queue) or not keys:
            continue
        head = [tables.tasks[task_id] for _, task_id in islice(keys, limits.QUEUE_HEAD_ROWS)]
        since = min(max(row.enqueued_at, row.run_at) for row in head)
        more = len(keys) > limits.QUEUE_COUNT_MAX
        found.append(Waiting(type_, min(len(keys), limits.QUEUE_COUNT_MAX), since, more))
    return found[: limits.QUEUES_SHOWN_MAX]


def read_turns(tables: Tables) -> list[Turns]:
    """Return which queues' runs need a workflow task."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for ready_at, run_id in islice(tables.ready_runs, limits.QUEUE_COUNT_MAX):
        row = tables.runs[run_id]
        found.setdefault((row.namespace, row.queue, row.type), []).append(ready_at)
    return [Turns(*key, len(found[key]), min(found[key])) for key in sorted(found)]


class _Walk:
    """The ids behind a place, as many as may be looked at; ``next`` is where it stopped, None at the end."""

    def __init__(self, keys: SortedKeys[tuple[int, str]] | None, before: Place | None, scan: int) -> None:
        self.next: Place | None = None
        self._keys = iter(()) if keys is None else keys.before(before)
        self._scan = scan

    def __iter__(self) -> Iterator[str]:
        for n, place in enumerate(self._keys, 1):
            self.next = place
            yield place[1]
            if n == self._scan:
                return
        self.next = None

    def rows(self, row_of: Callable[[str], _R | None], limit: int) -> Stretch[_R]:
        """Return up to ``limit`` of the rows that are wanted."""
        found: list[_R] = []
        if limit <= 0:
            return Stretch(found, None)
        for id_ in self:
            if (row := row_of(id_)) is not None:
                found.append(copy(row))
                if len(found) == limit:
                    break
        return Stretch(found, self.next)


def _run(tables: Tables, wanted: RunFilter, run_id: str) -> RunRow | None:
    row = tables.runs[run_id]
    if wanted.type and row.type != wanted.type:
        return None
    if wanted.status and row.status != wanted.status:
        return None
    if wanted.workflow_id and row.workflow_id != wanted.workflow_id:
        return None
    if wanted.where is not None and not matches(wanted.where, row, tables.labels.get(run_id, {})):
        return None
    return row


def _task(tables: Tables, wanted: TaskFilter, task_id: str) -> TaskRow | None:
    row = tables.tasks[task_id]
    if wanted.type and row.type != wanted.type:
        return None
    if wanted.state and row.state != wanted.state:
        return None
    if wanted.queue and row.queue != wanted.queue:
        return None
    if wanted.run_id and not (row.run_id == wanted.run_id and task_id.startswith(f"{wanted.run_id}:")):
        return None
    if wanted.standalone and row.run_id:
        return None
    if wanted.where is not None and not matches(wanted.where, row, tables.labels.get(task_id, {})):
        return None
    return row
