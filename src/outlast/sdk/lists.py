"""``app.workflows`` and ``app.tasks``: what there is, by filter, as iterators that fetch page after page, and how many."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from outlast.core import limits
from outlast.core.errors import Invalid
from outlast.core.replies import Accepted, TaskInfo, TasksRetried, WorkflowInfo
from outlast.protocol.finding import found_tasks
from outlast.protocol.transport import Count, Listing, RunsAsked, TasksAsked, Transport
from outlast.sdk.client import PATIENCE, Client, retry_request

PAGE: Final = 100  # entries that are fetched at a time

Fetch = Callable[[Transport, str, int], Coroutine[Any, Any, Listing]]  # by cursor, at most so many


@dataclass(frozen=True, slots=True)
class Retried:
    """What ``app.tasks.retry`` brought back, or with ``dry_run`` would bring back."""

    ids: tuple[str, ...]  # of the tasks
    more: bool  # whether others meet the filter


class Workflows:
    """The workflow runs of an app's namespace."""

    __slots__ = ("_connect",)

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    def list(
        self, query: str = "", *, type: str = "", state: str = "", id: str = "", limit: int | None = None
    ) -> Iterator[WorkflowInfo]:
        """Yield runs, newest first, that meet ``query``: a filter such as ``state = failed and started > 2h ago``.

        Pages are fetched as they are needed. Raises Invalid ("invalid_query") for a filter that cannot be read.
        """
        fetch = _fetch_runs(RunsAsked(query=query, type=type, status=state, workflow_id=id))
        for page in _pages(self._connect, fetch, limit, "app.workflows.alist(…)"):
            yield from page.runs

    async def alist(
        self, query: str = "", *, type: str = "", state: str = "", id: str = "", limit: int | None = None
    ) -> AsyncIterator[WorkflowInfo]:
        """Yield what ``list`` does, for ``async for``."""
        fetch = _fetch_runs(RunsAsked(query=query, type=type, status=state, workflow_id=id))
        async for page in _apages(self._connect, fetch, limit, "app.workflows.alist(…)"):
            for info in page.runs:
                yield info

    def count(self, query: str = "", *, type: str = "", state: str = "", id: str = "") -> Count:
        """Return how many runs meet ``query``; exact unless it says ``approximate``: then there are at least so many."""
        client = self._connect()
        asked = RunsAsked(query=query, type=type, status=state, workflow_id=id)
        return client.portal.run(client.transport.count_runs(asked), instead="app.workflows.acount(…)")

    async def acount(self, query: str = "", *, type: str = "", state: str = "", id: str = "") -> Count:
        """Return what ``count`` does."""
        client = self._connect()
        asked = RunsAsked(query=query, type=type, status=state, workflow_id=id)
        return await client.arun(client.transport.count_runs(asked), instead="app.workflows.acount(…)")


class Tasks:
    """The tasks and activities of an app's namespace; ``standalone`` leaves activities out, ``run_id`` asks for one run's."""

    __slots__ = ("_connect",)

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    def list(
        self,
        query: str = "",
        *,
        type: str = "",
        state: str = "",
        queue: str = "",
        run_id: str = "",
        standalone: bool = False,
        limit: int | None = None,
    ) -> Iterator[TaskInfo]:
        """Yield tasks, newest first, as ``app.workflows.list`` does runs."""
        asked = TasksAsked(query=query, type=type, state=state, queue=queue, run_id=run_id, standalone=standalone)
        for page in _pages(self._connect, _fetch_tasks(asked), limit, "app.tasks.alist(…)"):
            yield from page.tasks

    async def alist(
        self,
        query: str = "",
        *,
        type: str = "",
        state: str = "",
        queue: str = "",
        run_id: str = "",
        standalone: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[TaskInfo]:
        """Yield what ``list`` does, for ``async for``."""
        asked = TasksAsked(query=query, type=type, state=state, queue=queue, run_id=run_id, standalone=standalone)
        async for page in _apages(self._connect, _fetch_tasks(asked), limit, "app.tasks.alist(…)"):
            for info in page.tasks:
                yield info

    def count(
        self,
        query: str = "",
        *,
        type: str = "",
        state: str = "",
        queue: str = "",
        run_id: str = "",
        standalone: bool = False,
    ) -> Count:
        """Return how many tasks meet ``query``, as ``app.workflows.count`` does of runs."""
        client = self._connect()
        asked = TasksAsked(query=query, type=type, state=state, queue=queue, run_id=run_id, standalone=standalone)
        return client.portal.run(client.transport.count_tasks(asked), instead="app.tasks.acount(…)")

    async def acount(
        self,
        query: str = "",
        *,
        type: str = "",
        state: str = "",
        queue: str = "",
        run_id: str = "",
        standalone: bool = False,
    ) -> Count:
        """Return what ``count`` does."""
        client = self._connect()
        asked = TasksAsked(query=query, type=type, state=state, queue=queue, run_id=run_id, standalone=standalone)
        return await client.arun(client.transport.count_tasks(asked), instead="app.tasks.acount(…)")

    def retry(
        self,
        query: str = "",
        *,
        type: str = "",
        state: str = "",
        queue: str = "",
        limit: int = limits.BATCH_ITEMS_MAX,
        reason: str = "",
        dry_run: bool = False,
    ) -> Retried:
        """Bring back up to ``limit`` tasks that failed or expired and meet ``query``, newest first, and say which.

        ``state`` asks for those in one state: "failed", "expired" or "canceled". With ``dry_run`` nothing is done. ``reason``
        stands among their attempts.
        """
        client = self._connect()
        asked = TasksAsked(query=query, type=type, state=state, queue=queue, dead_letters=True)
        work = _retry(client, asked, limit, reason=reason, dry_run=dry_run)
        return client.portal.run(work, instead="app.tasks.aretry(…)")

    async def aretry(
        self,
        query: str = "",
        *,
        type: str = "",
        state: str = "",
        queue: str = "",
        limit: int = limits.BATCH_ITEMS_MAX,
        reason: str = "",
        dry_run: bool = False,
    ) -> Retried:
        """Do what ``retry`` does."""
        client = self._connect()
        asked = TasksAsked(query=query, type=type, state=state, queue=queue, dead_letters=True)
        work = _retry(client, asked, limit, reason=reason, dry_run=dry_run)
        return await client.arun(work, instead="app.tasks.aretry(…)")


async def _retry(client: Client, asked: TasksAsked, limit: int, *, reason: str, dry_run: bool) -> Retried:
    if not 1 <= limit <= limits.BATCH_ITEMS_MAX:
        raise Invalid(
            "invalid_request", f"limit is {limit}.", remedy=f"Give a number from 1 to {limits.BATCH_ITEMS_MAX:,}."
        )
    ids, more = await found_tasks(
        lambda cursor, most: client.transport.list_tasks(asked, cursor=cursor, limit=most), limit
    )
    if dry_run or not ids:
        return Retried(ids, more=more)
    reply = await client.send(retry_request(client, ids, reason), TasksRetried, PATIENCE)
    # One that somebody else has brought back, or that was forgotten meanwhile, is not among them.
    back = [id for id, item in zip(ids, reply.items, strict=True) if isinstance(item, Accepted) and item.changed]
    return Retried(tuple(back), more=more)


def _fetch_runs(asked: RunsAsked) -> Fetch:
    return lambda transport, cursor, limit: transport.list_runs(asked, cursor=cursor, limit=limit)


def _fetch_tasks(asked: TasksAsked) -> Fetch:
    return lambda transport, cursor, limit: transport.list_tasks(asked, cursor=cursor, limit=limit)


def _pages(connect: Callable[[], Client], fetch: Fetch, limit: int | None, instead: str) -> Iterator[Listing]:
    cursor, left = "", _wanted(limit)
    while left > 0:
        client = connect()
        page = client.portal.run(fetch(client.transport, cursor, min(left, PAGE)), instead=instead)
        yield client.converter.opened(page)
        cursor, left = page.next, left - len(page.runs) - len(page.tasks)
        if not cursor:
            return


async def _apages(
    connect: Callable[[], Client], fetch: Fetch, limit: int | None, instead: str
) -> AsyncIterator[Listing]:
    cursor, left = "", _wanted(limit)
    while left > 0:
        client = connect()
        page = await client.arun(fetch(client.transport, cursor, min(left, PAGE)), instead=instead)
        yield client.converter.opened(page)
        cursor, left = page.next, left - len(page.runs) - len(page.tasks)
        if not cursor:
            return


def _wanted(limit: int | None) -> int:
    return 2**62 if limit is None else limit
