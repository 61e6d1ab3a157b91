"""Retention, and the end of namespaces: what closed long ago is forgotten, a bounded stretch at a time, through the shard.

The sweeper only finds; the shard decides, so that nothing is forgotten that has moved meanwhile. Where it stops, for whatever
reason, the next round begins anew: what is gone is not found again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from outlast.core import limits
from outlast.core.admin import DropNamespace, Forget, Forgotten, NamespaceInfo, NamespaceState
from outlast.core.inputs import Asked, CancelTask, TerminateWorkflow
from outlast.core.replies import Refused, Reply, RunStatus
from outlast.core.writes import RunRow, TaskRow
from outlast.engine.namespaces import Namespaces
from outlast.engine.ports import Clock
from outlast.query.fields import RUN_FIELDS, TASK_FIELDS
from outlast.query.predicate import All, Compare, Exists, Not, Operator
from outlast.store.base import Found, Place, RunFilter, TaskFilter

LOG: Final = logging.getLogger("outlast.engine")

SWEEP_EVERY: Final = 60.0  # seconds between rounds
REASON: Final = "its namespace is being deleted"


class Lists(Protocol):
    """Where the sweeper finds what there is."""

    async def list_runs(self, filter: RunFilter) -> Found[RunRow]: ...

    async def list_tasks(self, filter: TaskFilter) -> Found[TaskRow]: ...


@dataclass(slots=True)
class Sweeper:
    """Rounds over all namespaces. ``ask`` hands the shard a request in a namespace and returns its reply."""

    store: Lists
    namespaces: Namespaces
    clock: Clock
    ask: Callable[[Asked, str], Awaitable[Reply]]
    _called: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Sweep now and then, and soon when called."""
        while True:
            try:
                async with asyncio.timeout(SWEEP_EVERY):
                    await self._called.wait()
            except TimeoutError:
                pass  # it is time all the same
            self._called.clear()
            try:
                await self.sweep()
            except Exception:
                LOG.exception("a sweep was ended; the next begins anew")

    def call(self) -> None:
        """Have the next round begin soon."""
        self._called.set()

    async def sweep(self) -> None:
        """Do one round."""
        for info in self.namespaces.all():
            now = self.clock.now()
            if info.state is NamespaceState.DELETING:
                await self._empty(info, now)
            elif info.settings.retention:
                await self.forget(info.name, now - info.settings.retention)

    async def forget(self, namespace: str, before: int) -> None:
        """Forget what closed before ``before``: tasks, then runs with their activities."""
        await self._forget_tasks(
            TaskFilter(
                namespace=namespace,
                standalone=True,
                where=All((
                    Compare(TASK_FIELDS["closed"], Operator.LESS, before),
                    Compare(TASK_FIELDS["enqueued"], Operator.LESS, before),
                )),
            ),
            before,
        )  # fmt: skip
        wanted = All((
            Compare(RUN_FIELDS["closed"], Operator.LESS, before),
            Compare(RUN_FIELDS["started"], Operator.LESS, before),
        ))  # fmt: skip
        place: Place | None = None
        while True:
            found = await self.store.list_runs(
                RunFilter(
                    namespace=namespace,
                    where=wanted,
                    before=place,
                    limit=limits.SWEEP_RUNS,
                    scan=limits.LIST_SCAN_ROWS,
                )
            )
            if found.rows:
                await self._forget_runs(namespace, [row.run_id for row in found.rows], before)
            place = found.next
            if place is None:
                return
            await asyncio.sleep(0)

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
        place: Place | None = None
        while True:
            found = await self.store.list_tasks(
                TaskFilter(
                    namespace=wanted.namespace,
                    run_id=wanted.run_id,
                    standalone=wanted.standalone,
                    where=wanted.where,
                    before=place,
                    limit=limits.SWEEP_TASKS,
                    scan=limits.LIST_SCAN_ROWS,
                )
            )
            closed = tuple(row.task_id for row in found.rows if row.closed_at)
            if closed:
                await self._forget(Forget(tasks=closed, closed_before=before), wanted.namespace)
            place = found.next
            if place is None:
                return
            await asyncio.sleep(0)

    async def _forget(self, request: Forget, namespace: str) -> None:
        reply = await self.ask(request, namespace)
        if not isinstance(reply, Forgotten):
            raise NotSwept(reply)

    async def _empty(self, info: NamespaceInfo, now: int) -> None:
        """End what is open in a namespace that is being deleted, forget all of it, and then the namespace."""
        name = info.name
        place: Place | None = None
        while True:
            runs = await self.store.list_runs(
                RunFilter(
                    namespace=name,
                    status=RunStatus.RUNNING,
                    before=place,
                    limit=limits.SWEEP_RUNS,
                    scan=limits.LIST_SCAN_ROWS,
                )
            )
            for row in runs.rows:
                await self.ask(
                    TerminateWorkflow(
                        workflow_id=row.workflow_id, run_id=row.run_id, request_id=f"end:{row.run_id}", reason=REASON
                    ),
                    name,
                )
            place = runs.next
            if place is None:
                break
        await self._cancel_tasks(name)
        await self.forget(name, now + 1)
        reply = await self.ask(DropNamespace(name=name), name)
        if isinstance(reply, Forgotten) or (isinstance(reply, Refused) and reply.code == "namespace_not_found"):
            self.namespaces.gone(name)
            LOG.info("the namespace %s has been deleted", name)

    async def _cancel_tasks(self, namespace: str) -> None:
        place: Place | None = None
        while True:
            found = await self.store.list_tasks(
                TaskFilter(
                    namespace=namespace,
                    where=Not(Exists(TASK_FIELDS["closed"])),
                    before=place,
                    limit=limits.SWEEP_TASKS,
                    scan=limits.LIST_SCAN_ROWS,
                )
            )
            for row in found.rows:
                await self.ask(CancelTask(task_id=row.task_id, reason=REASON), namespace)
            place = found.next
            if place is None:
                return


class NotSwept(Exception):
    """The shard did not take what it was asked to forget."""
