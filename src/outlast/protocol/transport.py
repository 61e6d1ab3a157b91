"""The seam between the SDK and an engine, in this process or at the end of a connection."""

from typing import Final, Protocol

import msgspec

from outlast.core.admin import NamespaceInfo
from outlast.core.events import Event, Timed
from outlast.core.inputs import Request
from outlast.core.limits import FEED_PAGE_EVENTS
from outlast.core.replies import Reply, TaskInfo, WorkflowInfo


class HistoryPage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Events of one run from ``first_event_id`` on. ``next_event_id`` is 0 at the end of the history.

    ``closed``: the run had closed when it was read, so that nothing follows its last event.
    """

    workflow_id: str
    run_id: str
    first_event_id: int
    events: tuple[Timed, ...]
    next_event_id: int = 0
    closed: bool = False


class Attempt(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How one lease of a task ended."""

    attempt: int
    outcome: str
    worker: str = ""
    identity: str = ""
    started_at: int = 0
    ended_at: int = 0
    error_type: str = ""
    error_message: str = ""
    late: bool = False


class RunsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a list or a count is of; empty for any. ``query`` is in the filter language."""

    type: str = ""
    status: str = ""
    workflow_id: str = ""
    query: str = ""


class TasksAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks, as RunsAsked. ``run_id``: activities of that run; ``standalone``: no activities.

    ``dead_letters``: what may be brought back, standalone tasks in ``state``, or without one those that failed or expired.
    """

    type: str = ""
    state: str = ""
    queue: str = ""
    run_id: str = ""
    standalone: bool = False
    query: str = ""
    dead_letters: bool = False


ANY_RUNS: Final = RunsAsked()
ANY_TASKS: Final = TasksAsked()


class Listing(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A page of runs or tasks; ``next`` is an opaque cursor, empty at the end.

    ``short``: as much was looked at as one page may cost before it was full; there may be more, ``next`` goes on.
    """

    runs: tuple[WorkflowInfo, ...] = ()
    tasks: tuple[TaskInfo, ...] = ()
    next: str = ""
    short: bool = False


class Count(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How many match. ``approximate``: at least so many; as much was looked at as one answer may cost."""

    count: int
    approximate: bool = False


class QueueType(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Tasks of one type that may be leased now. ``more``: at least so many. ``oldest_at``: since when the oldest waits."""

    type: str
    ready: int
    oldest_at: int = 0
    more: bool = False


class QueueInfo(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How much waits in a queue and runs from it. ``delayed``: for its time or for a retry; ``turns``: of workflows.

    ``oldest_at``: since when the oldest ready task or turn waits, 0 for none; in a long queue, the oldest at its head.
    ``approximate``: there are more ready tasks than are counted one by one, so that ready and delayed are not told apart.
    """

    queue: str
    ready: int = 0
    delayed: int = 0
    leased: int = 0
    held: int = 0
    uncertain: int = 0
    turns: int = 0
    oldest_at: int = 0
    types: tuple[QueueType, ...] = ()
    approximate: bool = False


class Queues(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Queues with open work, by name. ``more``: there are others."""

    items: tuple[QueueInfo, ...] = ()
    more: bool = False


class FeedEvent(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """One committed event. Reading on behind ``cursor`` gives those that follow, none left out and none twice.

    ``kind`` is that of the event in the history of a run, or one of those in protocol/feed.py. ``commit`` is the number of the
    commit that wrote it: greater for a later one. ``type`` is that of the workflow or task.
    """

    cursor: str
    commit: int
    at: int
    kind: str
    type: str = ""
    workflow_id: str = ""
    run_id: str = ""
    event_id: int = 0
    task_id: str = ""
    queue: str = ""
    state: str = ""  # that a task has closed in
    attempt: Attempt | None = None  # how a lease ended
    event: Event | None = None  # as the history has it; a payload above 256 KB stays a reference
    gone: bool = False  # its run or task has been forgotten: nothing but its ids is left


class FeedPage(msgspec.Struct, frozen=True, array_like=True, kw_only=True, weakref=True, eq=False):
    """Events in order. ``next`` is where to read on, also when there are none; ``more``: there are some already."""

    events: tuple[FeedEvent, ...] = ()
    next: str = ""
    more: bool = False


class Transport(Protocol):
    """How the SDK reaches an engine. Every method raises outlast.core.errors.Refusal for what is refused."""

    namespace: str

    async def call(self, request: Request, *, timeout: float | None = None) -> Reply:
        """Send ``request`` and return its reply; a ``Refused`` comes as the exception it stands for.

        A request whose answer was lost is sent again with the same ids, so that it happens once. ``timeout`` in seconds
        bounds the whole; None waits for ever. Raises Unavailable with code "timeout" when it has passed.
        """
        ...

    async def read_history(
        self, workflow_id: str, run_id: str, *, first_event_id: int = 1, wait: float = 0.0
    ) -> HistoryPage:
        """Return committed events of a run; "" is the latest run of the workflow.

        Where there is none yet and the run is open, the page comes with the next event, or empty after ``wait`` seconds.
        """
        ...

    async def read_attempts(self, task_id: str) -> tuple[Attempt, ...]: ...

    async def list_runs(self, asked: RunsAsked = ANY_RUNS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of runs, newest first; ``cursor`` is what the page before gave as ``next``."""
        ...

    async def count_runs(self, asked: RunsAsked = ANY_RUNS) -> Count: ...

    async def list_tasks(self, asked: TasksAsked = ANY_TASKS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of tasks, newest first, as ``list_runs`` does."""
        ...

    async def count_tasks(self, asked: TasksAsked = ANY_TASKS) -> Count: ...

    async def list_queues(self, *, queue: str = "") -> Queues:
        """Return the queues that have open work; only ``queue`` if it is given."""
        ...

    async def list_namespaces(self) -> tuple[NamespaceInfo, ...]:
        """Return every namespace by name. Change them by ``call``: CreateNamespace, UpdateNamespace, DeleteNamespace."""
        ...

    async def read_feed(self, *, after: str = "", limit: int = FEED_PAGE_EVENTS, wait: float = 0.0) -> FeedPage:
        """Return committed events behind the cursor ``after``: from the oldest that is kept for "", no old ones for "now".

        When there is none yet the answer is held for up to ``wait`` seconds. Raises Invalid for a cursor of another feed
        ("invalid_cursor"), or one behind which events are not kept any more ("cursor_expired").
        """
        ...

    async def close(self) -> None: ...
