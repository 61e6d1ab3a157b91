"""Retention, and the end of namespaces: what closed long ago is forgotten, a bounded stretch at a time, through the shard.

The sweeper only finds; the shard decides, so that nothing is forgotten that has moved meanwhile. Where it stops, for whatever
reason, the next round begins anew: what is gone is not found again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from outlast.core import limits
from outlast.core.admin import DropNamespace, Forget, Forgotten, NamespaceInfo, NamespaceState
from outlast.core.feed import Place
from outlast.core.inputs import CancelTask, ShardRequest, TerminateWorkflow
from outlast.core.replies import Refused, Reply, RunStatus
from outlast.core.writes import RunRow, TaskRow
from outlast.engine.feed import END_OF_TIME
from outlast.engine.listing import Row, Wanted
from outlast.engine.namespaces import Namespaces
from outlast.engine.ports import Clock
from outlast.query.fields import RUN_FIELDS, TASK_FIELDS
from outlast.query.predicate import All, Compare, Exists, Not, Operator
from outlast.store.base import FeedFound, RunFilter, Stretch, TaskFilter

LOG: Final = logging.getLogger("outlast.engine")

SWEEP_EVERY: Final = 60.0  # seconds between rounds
REASON: Final = "its namespace is being deleted"


class Lists(Protocol):
    """Where the sweeper finds what there is."""

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]: ...

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]: ...

    async def read_feed(self, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound: ...

    async def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int: ...


@dataclass(slots=True)
class Sweeper:
    """Rounds over all namespaces. ``ask`` hands the shard a request in a namespace and returns its reply.

    ``dropped`` is called when the beginning of a feed has gone.

    Nothing is asked for that closed less than ``kept_min`` nanoseconds ago: the shard would not forget it yet.
    """

    store: Lists
    namespaces: Namespaces
    clock: Clock
    ask: Callable[[ShardRequest, str], Awaitable[Reply]]
    kept_min: int = 0
    feed_age: int = limits.FEED_AGE_MAX
    feed_commits: int = limits.FEED_COMMITS_MAX
    dropped: Callable[[], None] = lambda: None
    beat: Callable[[], None] = lambda: None
    """Is called whenever a sweep has got on: a long one is no hanging one."""

    async def sweep(self) -> None:
        """Do one round. What fails in one namespace is logged, and keeps nothing in the others."""
        for info in self.namespaces.all():
            try:
                await self._sweep(info)
            except NotSwept as error:
                LOG.warning(
                    "the namespace %s was not swept to its end; the next round begins anew: %s", info.name, error
                )
            except Exception:
                LOG.exception("the namespace %s was not swept to its end; the next round begins anew", info.name)

    async def _sweep(self, info: NamespaceInfo) -> None:
        now = self.clock.now()
        if info.state is NamespaceState.DELETING:
            await self._empty(info, now)
            return
        if info.settings.retention:
            await self.forget(info.name, now - max(info.settings.retention, self.kept_min))
        last = await self._last_commit(info.name)
        await self._prune(info.name, before=now - self.feed_age, through=last - self.feed_commits)

    async def _prune(self, namespace: str, *, before: int, through: int) -> None:
        """Drop the beginning of a feed, a slice at a time; other work goes on between two."""
        rows = limits.FEED_PRUNED_ROWS
        while True:
            count = await self.store.forget_feed(namespace, before=before, through=through, rows_max=rows)
            self.beat()
            if count:
                self.dropped()
            if count < rows:
                return
            await asyncio.sleep(0)

    async def _last_commit(self, namespace: str) -> int:
        return (await self.store.read_feed(namespace, after=END_OF_TIME, events_max=1, bytes_max=1)).last

    async def forget(self, namespace: str, before: int) -> None:
        """Forget what closed before ``before``: tasks, then runs with their activities."""
        tasks = All((
            Compare(TASK_FIELDS["closed"], Operator.LESS, before),
            Compare(TASK_FIELDS["enqueued"], Operator.LESS, before),
        ))  # fmt: skip
        await self._forget_tasks(TaskFilter(namespace=namespace, standalone=True, where=tasks), before)
        runs = All((
            Compare(RUN_FIELDS["closed"], Operator.LESS, before),
            Compare(RUN_FIELDS["started"], Operator.LESS, before),
        ))  # fmt: skip
        wanted = RunFilter(namespace=namespace, where=runs, limit=limits.SWEEP_RUNS)
        async for rows in stretches(self.store.list_runs, wanted):
            self.beat()
            if rows:
                await self._forget_runs(namespace, [row.run_id for row in rows], before)

    async def _forget_runs(self, namespace: str, run_ids: list[str], before: int) -> None:
        ready: list[str] = []
        for run_id in run_ids:
            # Rows of activities end with their run, at the latest some time after it.
            await self._forget_tasks(TaskFilter(namespace=namespace, run_id=run_id), self.clock.now())
            left = await self.store.list_tasks(TaskFilter(namespace=namespace, run_id=run_id, limit=1))
            if not left.rows:
                ready.append(run_id)
        await self._forget(Forget(runs=tuple(ready), closed_before=before), namespace)

    async def _forget_tasks(self, wanted: TaskFilter, before: int) -> None:
        async for rows in stretches(self.store.list_tasks, replace(wanted, limit=limits.SWEEP_TASKS)):
            closed = tuple(row.task_id for row in rows if row.closed_at)
            if closed:
                await self._forget(Forget(tasks=closed, closed_before=before), wanted.namespace)

    async def _forget(self, request: Forget, namespace: str) -> None:
        reply = await self.ask(request, namespace)
        self.beat()
        if not isinstance(reply, Forgotten):
            raise NotSwept(reply.fact if isinstance(reply, Refused) else str(reply))

    async def _empty(self, info: NamespaceInfo, now: int) -> None:
        """End what is open in a namespace that is being deleted, forget all of it, and then the namespace."""
        name = info.name
        open_runs = RunFilter(namespace=name, status=RunStatus.RUNNING, limit=limits.SWEEP_RUNS)
        async for runs in stretches(self.store.list_runs, open_runs):
            self.beat()
            for run in runs:
                await self.ask(
                    TerminateWorkflow(
                        workflow_id=run.workflow_id, run_id=run.run_id, request_id=f"end:{run.run_id}", reason=REASON
                    ),
                    name,
                )
        open_tasks = TaskFilter(namespace=name, where=Not(Exists(TASK_FIELDS["closed"])), limit=limits.SWEEP_TASKS)
        async for tasks in stretches(self.store.list_tasks, open_tasks):
            self.beat()
            for task in tasks:
                await self.ask(CancelTask(task_id=task.task_id, reason=REASON), name)
        await self.forget(name, now + 1)
        await self._prune(name, before=0, through=await self._last_commit(name))
        if isinstance(await self.ask(DropNamespace(name=name), name), Forgotten):
            LOG.info("the namespace %s has been deleted", name)


async def stretches(read: Callable[[Wanted], Awaitable[Stretch[Row]]], wanted: Wanted) -> AsyncGenerator[Sequence[Row]]:
    """Give what matches ``wanted``, at most its ``limit`` of rows at a time; other work goes on between two stretches."""
    while True:
        found = await read(replace(wanted, scan=limits.LIST_SCAN_ROWS))
        yield found.rows
        if found.next is None:
            return
        wanted = replace(wanted, before=found.next)
        await asyncio.sleep(0)


class NotSwept(Exception):
    """The shard did not take what it was asked to forget."""
