"""Lists and counts: which index a list walks, and one bounded stretch of the walk.

A list goes newest first along an index. A stretch is so many entries of that index; what matches in it is returned, with the
place where the next stretch begins. So no list reads more than it was allowed to, however little matches.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from outlast.core.replies import TaskState
from outlast.core.writes import RunRow, TaskRow
from outlast.query.predicate import Compare, Kind, Operator, Predicate, conjuncts, equals
from outlast.store.base import Place, RunFilter, Stretch, Tally, TaskFilter
from outlast.store.postgres.conditions import Bound, condition, equal_label
from outlast.store.postgres.reading import RUNS, TASKS
from outlast.store.postgres.session import Reads
from outlast.store.postgres.text import unescaped
from outlast.store.postgres.words import RUN, RUN_TROUBLES, TASK, TASK_TROUBLES

WHOLE_MIN: Final = -(2**63)
WHOLE_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class Walk:
    """A way along an index: ``source`` and the conditions that keep to its range, then those that rows must meet."""

    source: str
    at: str
    id: str
    seek: list[str]
    bound: Bound
    where: list[str] = field(default_factory=list[str])
    sought: int = 0  # how many of the bound values are those of ``seek``: they are bound first

    def begin(self, before: Place | None) -> None:
        """Begin behind ``before``."""
        if before is not None:
            at, id_ = before
            self.seek.append(f"({self.at}, {self.id}) < ({self.bound.whole(at)}, {self.bound.text(id_)})")

    async def rows(self, reads: Reads, columns: str, *, limit: int, scan: int) -> tuple[list[Any], Place | None]:
        """Return up to ``limit`` rows of one stretch, and where to go on; None at the end."""
        end = await self._end_by(reads, scan)
        sql = (
            f"SELECT {columns}, {self.at}, {self.id} FROM {self.source} "
            f"WHERE {' AND '.join(self.seek + self.where)} {self._order()} LIMIT {int(limit)}"
        )
        found = [tuple(row) for row in await reads.fetch(sql, *self.bound.values)]
        if found and len(found) == limit:
            end = (found[-1][-2], unescaped(found[-1][-1]))
        return [row[:-2] for row in found], end

    async def count(self, reads: Reads, *, scan: int) -> Tally:
        """Return how many rows of one stretch match, and where to go on."""
        end = await self._end_by(reads, scan)
        sql = f"SELECT count(*) FROM {self.source} WHERE {' AND '.join(self.seek + self.where)}"
        ((count,),) = await reads.fetch(sql, *self.bound.values)
        return Tally(count, end)

    async def _end_by(self, reads: Reads, scan: int) -> Place | None:
        """Keep to the first ``scan`` entries; return the last place of them, None when there are not that many."""
        if scan <= 0:
            return None
        # The conditions on rows have bound values of their own, which this statement does not speak of.
        sql = (
            f"SELECT {self.at}, {self.id} FROM {self.source} "
            f"WHERE {' AND '.join(self.seek)} {self._order()} LIMIT 1 OFFSET {int(scan) - 1}"
        )
        for at, id_ in await reads.fetch(sql, *self.bound.values[: self.sought]):
            place = (at, unescaped(id_))
            self.seek.append(f"({self.at}, {self.id}) >= ({self.bound.whole(at)}, {self.bound.text(place[1])})")
            return place
        return None

    def _order(self) -> str:
        return f"ORDER BY {self.at} DESC, {self.id} DESC"


async def list_runs(reads: Reads, wanted: RunFilter) -> Stretch[RunRow]:
    """Return runs that match, newest first."""
    if wanted.limit <= 0:
        return Stretch([], None)
    rows, end = await _runs(wanted).rows(reads, RUN, limit=wanted.limit, scan=wanted.scan)
    return Stretch(RUNS.read(rows), end)


async def list_tasks(reads: Reads, wanted: TaskFilter) -> Stretch[TaskRow]:
    """Return tasks that match, newest first."""
    if wanted.limit <= 0:
        return Stretch([], None)
    rows, end = await _tasks(wanted).rows(reads, TASK, limit=wanted.limit, scan=wanted.scan)
    return Stretch(TASKS.read(rows), end)


async def count_runs(reads: Reads, wanted: RunFilter) -> Tally:
    """Return how many runs of one stretch match."""
    return await _runs(wanted).count(reads, scan=wanted.scan)


async def count_tasks(reads: Reads, wanted: TaskFilter) -> Tally:
    """Return how many tasks of one stretch match."""
    return await _tasks(wanted).count(reads, scan=wanted.scan)


def _runs(wanted: RunFilter) -> Walk:
    where = wanted.where
    workflow_id = wanted.workflow_id or equals(where, "workflow_id")
    status = wanted.status or equals(where, "status")
    bound = Bound()
    if workflow_id:
        walk = _walk("outlast.runs r", "r.started_at", "r.run_id", wanted.namespace, bound)
        walk.seek.append(f"r.workflow_id = {bound.text(workflow_id)}")
    elif status in RUN_TROUBLES:
        walk = _troubled("run", wanted.namespace, status, bound)
    else:
        walk = _by_label("run", wanted.namespace, where, bound) or _walk(
            "outlast.runs r", "r.started_at", "r.run_id", wanted.namespace, bound
        )
    others = _sought(walk, where, time="started_at", before=wanted.before)
    for name, value in (("type", wanted.type), ("status", wanted.status)):
        if value:
            walk.where.append(f"r.{name} = {bound.text(value)}")
    walk.where += [condition(part, "run", bound) for part in others]
    return walk


def _tasks(wanted: TaskFilter) -> Walk:
    where = wanted.where
    run_id = wanted.run_id
    state = wanted.state or equals(where, "state")
    bound = Bound()
    if run_id:
        # Ids of activities begin with that of their run, so that its tasks are one range of the key.
        walk = _walk("outlast.tasks r", "r.enqueued_at", "r.task_id", wanted.namespace, bound)
        begin, end = bound.text(f"{run_id}:"), bound.text(f"{run_id};")
        walk.seek.append(f"r.task_id > {begin} AND r.task_id < {end} AND r.run_id = {bound.text(run_id)}")
    elif state == TaskState.LEASED:
        source = "outlast.leased_tasks w JOIN outlast.tasks r ON r.shard = w.shard AND r.task_id = w.task_id"
        walk = _walk(source, "r.enqueued_at", "r.task_id", wanted.namespace, bound, shard="w.shard = $1")
    elif state in TASK_TROUBLES:
        walk = _troubled("task", wanted.namespace, state, bound)
    else:
        walk = _by_label("task", wanted.namespace, where, bound) or _walk(
            "outlast.tasks r", "r.enqueued_at", "r.task_id", wanted.namespace, bound
        )
    others = _sought(walk, where, time="enqueued_at", before=wanted.before)
    for name, value in (("type", wanted.type), ("state", wanted.state), ("queue", wanted.queue)):
        if value:
            walk.where.append(f"r.{name} = {bound.text(value)}")
    if wanted.standalone:
        walk.where.append("r.run_id = ''")
    walk.where += [condition(part, "task", bound) for part in others]
    return walk


def _walk(source: str, at: str, id: str, namespace: str, bound: Bound, *, shard: str = "r.shard = $1") -> Walk:
    return Walk(source, at, id, [shard, f"r.namespace = {bound.text(namespace)}"], bound)


_JOINED: Final = {
    "run": "JOIN outlast.runs r ON r.shard = w.shard AND r.run_id = w.id",
    "task": "JOIN outlast.tasks r ON r.shard = w.shard AND r.task_id = w.id",
}


def _troubled(of: str, namespace: str, state: str, bound: Bound) -> Walk:
    seek = f"w.shard = $1 AND w.namespace = {bound.text(namespace)} AND w.of = '{of}' AND w.state = {bound.text(state)}"
    return Walk(f"outlast.troubles w {_JOINED[of]}", "w.at", "w.id", [seek], bound)


def _by_label(of: str, namespace: str, where: Predicate | None, bound: Bound) -> Walk | None:
    """Return the walk along what has one value of a label, if ``where`` asks for one."""
    for part in conjuncts(where):
        match part:
            case Compare(field=asked, operator=Operator.EQUAL, value=value) if asked.kind is Kind.LABEL:
                seek = (
                    f"w.shard = $1 AND w.namespace = {bound.text(namespace)} AND w.of = '{of}' "
                    f"AND w.name = {bound.text(asked.column)} AND {equal_label(value, bound)}"
                )
                return Walk(f"outlast.labels w {_JOINED[of]}", "w.at", "w.id", [seek], bound)
            case _:
                continue
    return None


def _sought(walk: Walk, where: Predicate | None, *, time: str, before: Place | None) -> list[Predicate]:
    """Keep the walk behind ``before`` and within the times that are asked for; return what is left to ask of rows."""
    walk.begin(before)
    others: list[Predicate] = []
    for part in conjuncts(where):
        if isinstance(part, Compare) and part.field.column == time and part.operator is not Operator.EQUAL:
            # It ends the walk, rather than being asked of each row behind it.
            walk.seek.append(f"{walk.at} {part.operator.value} {_instant(part.value, walk.bound)}")
        else:
            others.append(part)
    walk.sought = len(walk.bound.values)
    return others


def _instant(value: object, bound: Bound) -> str:
    if isinstance(value, int) and WHOLE_MIN <= value <= WHOLE_MAX:
        return bound.whole(value)
    assert isinstance(value, int | float)
    return bound.number(value)
