"""Reads of committed rows: histories, attempts, lists, and descriptions made from rows alone.

The running engine and a look into a store that nobody runs share it. A row of another namespace is not found.
"""

import contextlib
from dataclasses import dataclass, replace
from typing import Final, Protocol

import msgspec

from outlast.core import codec
from outlast.core.admin import NamespaceInfo
from outlast.core.counters import RUNS, TASKS
from outlast.core.errors import Invalid, NotFound
from outlast.core.events import Timed
from outlast.core.replies import (
    PendingActivity,
    RunStatus,
    TaskInfo,
    TaskState,
    WorkflowInfo,
    WorkflowTask,
)
from outlast.core.run import Run
from outlast.core.shard.damage import UNREADABLE
from outlast.core.shard.gather import run_of, task_of
from outlast.core.shard.outputs import with_events
from outlast.core.shard.why import info_of_activity, info_of_run, info_of_task
from outlast.core.task import EXPIRED, FAILED, LETTERS, Task
from outlast.core.units import Instant
from outlast.core.writes import AttemptRow, HistoryRow, Load, LoadKeys, Page, RunRow, TaskRow
from outlast.engine.blobs import fetched
from outlast.engine.listing import (
    count_by_counters,
    count_of,
    cursor_of,
    digest_of,
    limit_of,
    one_of,
    place_of,
    rows_of,
    run_filter,
    task_filter,
)
from outlast.engine.queues import queues_of
from outlast.protocol.transport import Attempt, Count, HistoryPage, Listing, Queues, RunsAsked, TasksAsked
from outlast.query.fields import TASK_FIELDS
from outlast.query.predicate import All, OneOf, Predicate
from outlast.store.base import BlobStore, RunFilter, Stretch, Tally, TaskFilter, Turns, Waiting

PAGE_EVENTS: Final = 1_000
PAGE_BYTES: Final = 1024 * 1024
ACTIVITIES_SHOWN: Final = 500


class Reads(Protocol):
    """The part of a Store that only reads."""

    async def load(self, load: Load) -> Page: ...

    async def read_history(self, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]: ...

    async def read_attempts(self, task_id: str) -> list[AttemptRow]: ...

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]: ...

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]: ...

    async def count_runs(self, filter: RunFilter) -> Tally: ...

    async def count_tasks(self, filter: TaskFilter) -> Tally: ...

    async def read_counters(self, namespace: str) -> dict[str, int]: ...

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]: ...

    async def read_turns(self) -> list[Turns]: ...

    async def read_namespaces(self) -> dict[str, NamespaceInfo]: ...


@dataclass(slots=True, frozen=True)
class Reader:
    """Reads of one store. Raises Refusal for what is asked wrongly and StoreError for what the store cannot do."""

    store: Reads
    blobs: BlobStore
    page_events: int = PAGE_EVENTS
    page_bytes: int = PAGE_BYTES

    async def read_history(
        self, namespace: str, workflow_id: str, run_id: str, *, first_event_id: int = 1
    ) -> HistoryPage:
        """Return committed events of a run; an empty ``run_id`` means the latest run of the workflow."""
        row = await self._run(namespace, workflow_id, run_id)
        if first_event_id < 1:
            raise Invalid("invalid_request", f"first_event_id is {first_event_id}.", remedy="Event ids begin at 1.")
        events, following = await self._events(row.run_id, first_event_id, row.next_event_id - 1)
        page = HistoryPage(
            workflow_id=row.workflow_id,
            run_id=row.run_id,
            first_event_id=first_event_id,
            events=events,
            next_event_id=following,
            closed=row.status != RunStatus.RUNNING,
        )
        return await fetched(page, self.blobs)

    async def with_history(self, task: WorkflowTask) -> WorkflowTask:
        """Return ``task`` with the first page of what its worker has to see."""
        events, following = await self._events(task.run_id, task.first_event_id, task.started_event_id - 2)
        return with_events(task, events, next_event_id_to_read=following)

    async def read_attempts(self, namespace: str, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended, in order."""
        await self._task(namespace, task_id)
        rows = await self.store.read_attempts(task_id)
        return tuple(attempt_of(row) for row in rows)

    async def list_runs(
        self, namespace: str, asked: RunsAsked, *, now: int, cursor: str = "", limit: int = 50
    ) -> Listing:
        """Return a page of runs, newest first.

        ``now`` is what "2h ago" in the query counts from. A page that is ``short`` stopped because of how much was looked
        at; ``next`` goes on. Raises Invalid: "invalid_query" with the column, "invalid_cursor" for a cursor of another list.
        """
        digest = digest_of(namespace, "runs", *msgspec.structs.astuple(asked))
        wanted = replace(_run_filter(namespace, asked, now), before=place_of(cursor, digest), limit=limit_of(limit))
        rows, following, short = await rows_of(self.store.list_runs, wanted, lambda row: (row.started_at, row.run_id))
        return Listing(runs=tuple(_run_info(row) for row in rows), next=cursor_of(following, digest), short=short)

    async def count_runs(self, namespace: str, asked: RunsAsked, *, now: int) -> Count:
        """Return how many runs match, as ``list_runs`` would list them; exact unless it says ``approximate``."""
        wanted = _run_filter(namespace, asked, now)
        if not asked.type and not asked.workflow_id and wanted.where is None:
            return await count_by_counters(self.store, namespace, RUNS, asked.status)
        return await count_of(self.store.count_runs, wanted)

    async def list_tasks(
        self, namespace: str, asked: TasksAsked, *, now: int, cursor: str = "", limit: int = 50
    ) -> Listing:
        """Return a page of tasks, newest first, as ``list_runs`` does of runs."""
        digest = digest_of(namespace, "tasks", *msgspec.structs.astuple(asked))
        wanted = replace(_task_filter(namespace, asked, now), before=place_of(cursor, digest), limit=limit_of(limit))
        rows, following, short = await rows_of(
            self.store.list_tasks, wanted, lambda row: (row.enqueued_at, row.task_id)
        )
        return Listing(tasks=tuple(_task_info(row) for row in rows), next=cursor_of(following, digest), short=short)

    async def count_tasks(self, namespace: str, asked: TasksAsked, *, now: int) -> Count:
        """Return how many tasks match, as ``list_tasks`` would list them; exact unless it says ``approximate``."""
        wanted = _task_filter(namespace, asked, now)
        if not asked.type and not asked.run_id and not wanted.standalone and wanted.where is None:
            return await count_by_counters(self.store, namespace, TASKS, asked.state, asked.queue)
        return await count_of(self.store.count_tasks, wanted)

    async def list_queues(self, namespace: str, *, queue: str = "") -> Queues:
        """Return how full the queues of a namespace are; only ``queue`` if it is given, then also when it is empty."""
        return await queues_of(self.store, namespace, queue)

    async def read_namespaces(self) -> dict[str, NamespaceInfo]:
        """Return the namespaces that have a row, by name; those that only the engine's settings name have none."""
        return await self.store.read_namespaces()

    async def describe_workflow(self, namespace: str, workflow_id: str, run_id: str = "") -> WorkflowInfo:
        """Return what the rows say of a run; who polls for it is not known here."""
        row = await self._run(namespace, workflow_id, run_id)
        tasks: list[TaskRow] = []
        if row.status == RunStatus.RUNNING:
            listed = await self.store.list_tasks(
                TaskFilter(namespace=namespace, run_id=row.run_id, limit=ACTIVITIES_SHOWN)
            )
            tasks = [task for task in listed.rows if not task.closed_at]
        return await fetched(_run_info(row, tasks), self.blobs)

    async def queue_of_run(self, namespace: str, workflow_id: str, run_id: str) -> str:
        """Return the queue that a run's turns wait in. Raises NotFound."""
        return (await self._run(namespace, workflow_id, run_id)).queue

    async def queue_of_task(self, namespace: str, task_id: str) -> str:
        """Return the queue that a task was put into. Raises NotFound."""
        return (await self._task(namespace, task_id)).queue

    async def describe_task(self, namespace: str, task_id: str) -> TaskInfo:
        """Return what the row says of a task."""
        return await fetched(_task_info(await self._task(namespace, task_id)), self.blobs)

    async def _events(self, run_id: str, first: int, last: int) -> tuple[tuple[Timed, ...], int]:
        """Return events from ``first`` on, bounded, and the id of the next one to read (0 when ``last`` is reached)."""
        if first > last:
            return (), 0
        rows = await self.store.read_history(
            run_id, first_event_id=first, events_max=min(self.page_events, last - first + 1)
        )
        events: list[Timed] = []
        size, following = 0, first
        for row in rows:
            if events and size + len(row.blob) > self.page_bytes:
                break
            size += len(row.blob)
            page = codec.decode_events(row.blob)
            skip = max(0, following - row.first_event_id)
            events.extend(page[skip : last - row.first_event_id + 1])
            following = min(row.first_event_id + row.count, last + 1)
        return tuple(events), 0 if following > last else following

    async def _run(self, namespace: str, workflow_id: str, run_id: str) -> RunRow:
        if run_id:
            page = await self.store.load(LoadKeys(runs=(run_id,)))
        else:
            page = await self.store.load(LoadKeys(workflows=((namespace, workflow_id),)))
        for row in page.runs:
            if row.namespace == namespace and workflow_id in {row.workflow_id, ""}:
                return row
        named = f'"{workflow_id}"' if workflow_id else f"with run id {run_id}"
        raise NotFound(
            "workflow_not_found",
            f"There is no workflow {named} in namespace {namespace}.",
            remedy="List what there is with: outlast workflow list",
        )

    async def _task(self, namespace: str, task_id: str) -> TaskRow:
        page = await self.store.load(LoadKeys(tasks=(task_id,)))
        for row in page.tasks:
            if row.namespace == namespace:
                return row
        raise NotFound(
            "task_not_found",
            f"There is no task {task_id} in namespace {namespace}.",
            remedy="Look at the id; tasks are found by id, not by key.",
        )


def attempt_of(row: AttemptRow) -> Attempt:
    """Return what ``row`` says of how a lease ended."""
    return Attempt(
        attempt=row.attempt,
        outcome=row.outcome,
        worker=row.worker,
        identity=row.identity,
        started_at=row.started_at,
        ended_at=row.ended_at,
        error_type=row.error_type,
        error_message=row.error_message,
        late=bool(row.late),
    )


def _run_filter(namespace: str, asked: RunsAsked, now: int) -> RunFilter:
    """Return what the store is asked for. Raises Invalid or TooLarge."""
    return RunFilter(
        namespace=namespace,
        type=asked.type,
        status=one_of("status", asked.status, RunStatus),
        workflow_id=asked.workflow_id,
        where=run_filter(asked.query, now=Instant(now)),
    )


def _task_filter(namespace: str, asked: TasksAsked, now: int) -> TaskFilter:
    """Return what the store is asked for. Raises Invalid or TooLarge."""
    where = task_filter(asked.query, now=Instant(now))
    return TaskFilter(
        namespace=namespace,
        type=asked.type,
        state=one_of("state", asked.state, TaskState),
        queue=asked.queue,
        run_id=asked.run_id,
        standalone=asked.standalone or asked.dead_letters,
        where=_dead_letters(asked, where) if asked.dead_letters else where,
    )


def _dead_letters(asked: TasksAsked, where: Predicate | None) -> Predicate | None:
    """Return ``where`` with the states that are asked for. Raises Invalid for a state from which nothing is brought back."""
    if asked.state:
        if asked.state not in LETTERS:
            raise Invalid(
                "invalid_request",
                f'state is "{asked.state}", and what is in it is not brought back.',
                remedy=f"Give one of {', '.join(sorted(LETTERS))}, or none: failed and expired.",
            )
        return where
    states = OneOf(TASK_FIELDS["state"], (str(FAILED), str(EXPIRED)))
    return states if where is None else All((where, states))


def _run_info(row: RunRow, tasks: list[TaskRow] | None = None) -> WorkflowInfo:
    """Return what ``row`` says, with the open ``tasks`` of the run as its activities."""
    try:
        run = run_of(row, [])
    except UNREADABLE as error:
        return _damaged_run(row, error)
    turn = ""
    if row.ready_at:
        turn = "backoff" if run.state.task_retry_at else "ready"
    return info_of_run(
        run,
        turn=turn,
        activities=tuple(_activity_info(task) for task in _opened(tasks or [])),
        why=row.reason,
        why_at=_due(run),
        parked=run.state.parked_count,
    )


def _task_info(row: TaskRow) -> TaskInfo:
    try:
        return info_of_task(task_of(row))
    except UNREADABLE as error:
        return TaskInfo(
            namespace=row.namespace,
            task_id=row.task_id,
            type=row.type,
            queue=row.queue,
            state=TaskState(row.state),
            reason="damaged",
            attempt=row.attempt,
            priority=row.priority,
            enqueued_at=row.enqueued_at,
            run_at=row.run_at,
            closed_at=row.closed_at,
            run_id=row.run_id,
            why=f"nothing that comes: its row cannot be read ({error})",
        )


def _damaged_run(row: RunRow, error: Exception) -> WorkflowInfo:
    return WorkflowInfo(
        namespace=row.namespace,
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        first_run_id=row.first_run_id,
        type=row.type,
        queue=row.queue,
        status=RunStatus(row.status),
        build=row.build,
        started_at=row.started_at,
        closed_at=row.closed_at,
        events=row.next_event_id - 1,
        history_bytes=row.history_bytes,
        cancel_requested=False,
        why=f"nothing that comes: its row cannot be read ({error})",
        warning="its row cannot be read; see: outlast doctor",
    )


def _opened(rows: list[TaskRow]) -> list[Task]:
    opened: list[Task] = []
    for row in rows:
        with contextlib.suppress(*UNREADABLE):
            opened.append(task_of(row))
    return opened


def _due(run: Run) -> int:
    """Return when a run that waits for a signal or a timer goes on by itself, 0 where it waits for something else."""
    if run.closed_at or run.ready_at or run.state.activities:
        return 0
    return min((timer.fire_at for timer in run.state.timers.values()), default=0)


def _activity_info(task: Task) -> PendingActivity:
    return info_of_activity(task.scheduled_event_id, task.spec.activity_id, task)
