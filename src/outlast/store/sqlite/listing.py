"""Lists and counts: which index a list walks, and one bounded stretch of the walk.

A list goes newest first along an index. A stretch is so many entries of that index; what matches in it is returned, with the
place where the next stretch begins. So no list reads more than it was allowed to, however little matches.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outlast.core.replies import TaskState
from outlast.core.writes import RunRow, TaskRow
from outlast.query.predicate import Compare, Kind, Operator, Predicate, conjuncts, equals
from outlast.store.base import Place, RunFilter, Stretch, Tally, TaskFilter
from outlast.store.sqlite import queries
from outlast.store.sqlite.conditions import condition, stored
from outlast.store.sqlite.connection import Connection

RUN: Final = ", ".join(f"r.{name}" for name in RunRow.__struct_fields__)
TASK: Final = ", ".join(f"r.{name}" for name in TaskRow.__struct_fields__)


@dataclass(slots=True)
class Walk:
    """A way along an index: ``source`` and the conditions that keep to its range, then those that rows must meet."""

    source: str
    at: str
    id: str
    seek: list[str]
    seek_values: list[Any]
    where: list[str]
    where_values: list[Any]

    def narrow(self, text: str, *values: Any) -> None:
        """Keep to a range of the index."""
        self.seek.append(text)
        self.seek_values += values

    def meet(self, text: str, *values: Any) -> None:
        """Ask something of the rows."""
        self.where.append(text)
        self.where_values += values

    def begin(self, before: Place | None) -> None:
        """Begin behind ``before``."""
        if before is not None:
            self.narrow(f"({self.at}, {self.id}) < (?, ?)", *before)

    def end_of(self, connection: Connection, scan: int) -> Place | None:
        """Return the last place of the first ``scan`` entries; None when there are not that many, or all may be read."""
        if scan <= 0:
            return None
        sql = (
            f"SELECT {self.at}, {self.id} FROM {self.source} WHERE {' AND '.join(self.seek)} "
            f"ORDER BY {self.at} DESC, {self.id} DESC LIMIT 1 OFFSET ?"
        )
        for row in connection.execute(sql, (*self.seek_values, scan - 1)).fetchall():
            return row[0], row[1]
        return None

    def rows(self, connection: Connection, columns: str, *, limit: int, scan: int) -> tuple[list[Any], Place | None]:
        """Return up to ``limit`` rows of one stretch, and where to go on; None at the end."""
        end = self.end_of(connection, scan)
        if end is not None:
            self.narrow(f"({self.at}, {self.id}) >= (?, ?)", *end)
        sql = (
            f"SELECT {columns}, {self.at}, {self.id} FROM {self.source} "
            f"WHERE {' AND '.join(self.seek + self.where)} ORDER BY {self.at} DESC, {self.id} DESC LIMIT ?"
        )
        found = connection.execute(sql, (*self.seek_values, *self.where_values, limit)).fetchall()
        if found and len(found) == limit:
            end = (found[-1][-2], found[-1][-1])
        return [row[:-2] for row in found], end

    def count(self, connection: Connection, *, scan: int) -> Tally:
        """Return how many rows of one stretch match, and where to go on."""
        end = self.end_of(connection, scan)
        if end is not None:
            self.narrow(f"({self.at}, {self.id}) >= (?, ?)", *end)
        sql = f"SELECT count(*) FROM {self.source} WHERE {' AND '.join(self.seek + self.where)}"
        rows = connection.execute(sql, (*self.seek_values, *self.where_values)).fetchall()
        return Tally(rows[0][0], end)


def list_runs(connection: Connection, wanted: RunFilter) -> Stretch[RunRow]:
    """Return runs that match, newest first."""
    if wanted.limit <= 0:
        return Stretch([], None)
    rows, end = _runs(wanted).rows(connection, RUN, limit=wanted.limit, scan=wanted.scan)
    return Stretch(msgspec.convert(rows, list[RunRow]), end)


def list_tasks(connection: Connection, wanted: TaskFilter) -> Stretch[TaskRow]:
    """Return tasks that match, newest first."""
    if wanted.limit <= 0:
        return Stretch([], None)
    rows, end = _tasks(wanted).rows(connection, TASK, limit=wanted.limit, scan=wanted.scan)
    return Stretch(msgspec.convert(rows, list[TaskRow]), end)


def count_runs(connection: Connection, wanted: RunFilter) -> Tally:
    """Return how many runs of one stretch match."""
    return _runs(wanted).count(connection, scan=wanted.scan)


def count_tasks(connection: Connection, wanted: TaskFilter) -> Tally:
    """Return how many tasks of one stretch match."""
    return _tasks(wanted).count(connection, scan=wanted.scan)


def _runs(wanted: RunFilter) -> Walk:
    where = wanted.where
    workflow_id = wanted.workflow_id or equals(where, "workflow_id")
    status = wanted.status or equals(where, "status")
    if workflow_id:
        # Left alone, SQLite prefers the index that gives the order, and walks through the whole namespace.
        walk = _walk("runs r INDEXED BY runs_by_workflow", "r.started_at", "r.run_id", wanted.namespace)
        walk.narrow("r.workflow_id = ?", workflow_id)
    elif status in queries.RUN_TROUBLES:
        walk = _walk("runs r INDEXED BY runs_by_trouble", "r.started_at", "r.run_id", wanted.namespace)
        walk.narrow(f"r.status = ? AND r.{queries.RUN_TROUBLE}", status)
    else:
        walk = _by_label("run", wanted.namespace, where) or _walk(
            "runs r INDEXED BY runs_by_start", "r.started_at", "r.run_id", wanted.namespace
        )
    for name, value in (("type", wanted.type), ("status", wanted.status)):
        if value:
            walk.meet(f"r.{name} = ?", value)
    _ask(walk, where, "run", time="started_at", before=wanted.before)
    return walk


def _tasks(wanted: TaskFilter) -> Walk:
    where = wanted.where
    run_id = wanted.run_id
    state = wanted.state or equals(where, "state")
    if run_id:
        # Ids of activities begin with that of their run, so that its tasks are one range of the key.
        walk = _walk("tasks r INDEXED BY sqlite_autoindex_tasks_1", "r.enqueued_at", "r.task_id", wanted.namespace)
        walk.narrow("r.task_id > ? AND r.task_id < ? AND r.run_id = ?", f"{run_id}:", f"{run_id};", run_id)
    elif state == TaskState.LEASED:
        walk = _walk("tasks r INDEXED BY tasks_leased", "r.enqueued_at", "r.task_id", wanted.namespace)
        walk.narrow("r.state = 'leased'")
    elif state in queries.TASK_TROUBLES:
        walk = _walk("tasks r INDEXED BY tasks_by_trouble", "r.enqueued_at", "r.task_id", wanted.namespace)
        walk.narrow(f"r.state = ? AND r.{queries.TASK_TROUBLE}", state)
    else:
        walk = _by_label("task", wanted.namespace, where) or _walk(
            "tasks r INDEXED BY tasks_by_enqueue", "r.enqueued_at", "r.task_id", wanted.namespace
        )
    for name, value in (("type", wanted.type), ("state", wanted.state), ("queue", wanted.queue)):
        if value:
            walk.meet(f"r.{name} = ?", value)
    if wanted.standalone:
        walk.meet("r.run_id = ''")
    _ask(walk, where, "task", time="enqueued_at", before=wanted.before)
    return walk


def _walk(source: str, at: str, id: str, namespace: str) -> Walk:
    return Walk(source, at, id, ["r.namespace = ?"], [namespace], [], [])


def _by_label(of: str, namespace: str, where: Predicate | None) -> Walk | None:
    """Return the walk along what has one value of a label, if ``where`` asks for one."""
    table = "runs r" if of == "run" else "tasks r"
    key = "r.run_id" if of == "run" else "r.task_id"
    for part in conjuncts(where):
        match part:
            case Compare(field=field, operator=Operator.EQUAL, value=value) if field.kind is Kind.LABEL:
                source = f"labels w INDEXED BY labels_by_value CROSS JOIN {table} ON {key} = w.id"
                walk = Walk(source, "w.at", "w.id", [], [], [], [])
                walk.narrow("w.namespace = ? AND w.of = ? AND w.name = ? AND w.value = ?", namespace, of)
                walk.seek_values += [field.column, stored(value)]
                return walk
            case _:
                continue
    return None


def _ask(walk: Walk, where: Predicate | None, of: str, *, time: str, before: Place | None) -> None:
    walk.begin(before)
    if where is None:
        return
    for part in conjuncts(where):
        if isinstance(part, Compare) and part.field.column == time and part.operator is not Operator.EQUAL:
            # It ends the walk, rather than being asked of each row behind it.
            walk.narrow(f"{walk.at} {part.operator.value} ?", part.value)
        else:
            text, values = condition(part, of)
            walk.meet(text, *values)
