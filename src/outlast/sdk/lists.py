"""Lists and counts of workflows and tasks, as iterators that fetch page after page."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from outlast.core.replies import TaskInfo, WorkflowInfo
from outlast.protocol.transport import Count, Listing, RunsAsked, TasksAsked
from outlast.sdk.client import Client

PAGE: Final = 100  # entries that are fetched at a time

Fetch = Callable[[Client, str, int], Coroutine[Any, Any, Listing]]  # by cursor, at most so many


@dataclass(slots=True, frozen=True)
class Lists:
    """What an app can be asked for by filter. ``connect`` returns the way to its engine."""

    connect: Callable[[], Client]

    def workflows(self, query: str, *, type: str, state: str, limit: int | None) -> Iterator[WorkflowInfo]:
        """Yield runs, newest first."""
        for page in self._pages(_fetch_workflows(query, type, state), limit, "app.alist_workflows(…)"):
            yield from page.runs

    async def aworkflows(self, query: str, *, type: str, state: str, limit: int | None) -> AsyncIterator[WorkflowInfo]:
        """Yield runs, newest first."""
        async for page in self._apages(_fetch_workflows(query, type, state), limit, "app.alist_workflows(…)"):
            for info in page.runs:
                yield info

    def tasks(self, query: str, *, type: str, state: str, queue: str, limit: int | None) -> Iterator[TaskInfo]:
        """Yield tasks, newest first."""
        for page in self._pages(_fetch_tasks(query, type, state, queue), limit, "app.alist_tasks(…)"):
            yield from page.tasks

    async def atasks(
        self, query: str, *, type: str, state: str, queue: str, limit: int | None
    ) -> AsyncIterator[TaskInfo]:
        """Yield tasks, newest first."""
        async for page in self._apages(_fetch_tasks(query, type, state, queue), limit, "app.alist_tasks(…)"):
            for info in page.tasks:
                yield info

    def count_workflows(self, query: str, *, type: str, state: str) -> Count:
        """Return how many runs match."""
        client = self.connect()
        work = client.transport.count_runs(RunsAsked(query=query, type=type, status=state))
        return client.portal.run(work, instead="app.acount_workflows(…)")

    async def acount_workflows(self, query: str, *, type: str, state: str) -> Count:
        """Return how many runs match."""
        client = self.connect()
        work = client.transport.count_runs(RunsAsked(query=query, type=type, status=state))
        return await client.arun(work, instead="app.acount_workflows(…)")

    def count_tasks(self, query: str, *, type: str, state: str, queue: str) -> Count:
        """Return how many tasks match."""
        client = self.connect()
        work = client.transport.count_tasks(TasksAsked(query=query, type=type, state=state, queue=queue))
        return client.portal.run(work, instead="app.acount_tasks(…)")

    async def acount_tasks(self, query: str, *, type: str, state: str, queue: str) -> Count:
        """Return how many tasks match."""
        client = self.connect()
        work = client.transport.count_tasks(TasksAsked(query=query, type=type, state=state, queue=queue))
        return await client.arun(work, instead="app.acount_tasks(…)")

    def _pages(self, fetch: Fetch, limit: int | None, instead: str) -> Iterator[Listing]:
        cursor, left = "", _wanted(limit)
        while left > 0:
            client = self.connect()
            page = client.portal.run(fetch(client, cursor, min(left, PAGE)), instead=instead)
            yield page
            cursor, left = page.next, left - len(page.runs) - len(page.tasks)
            if not cursor:
                return

    async def _apages(self, fetch: Fetch, limit: int | None, instead: str) -> AsyncIterator[Listing]:
        cursor, left = "", _wanted(limit)
        while left > 0:
            client = self.connect()
            page = await client.arun(fetch(client, cursor, min(left, PAGE)), instead=instead)
            yield page
            cursor, left = page.next, left - len(page.runs) - len(page.tasks)
            if not cursor:
                return


def _fetch_workflows(query: str, type: str, state: str) -> Fetch:
    return lambda client, cursor, limit: client.transport.list_runs(
        RunsAsked(query=query, type=type, status=state), cursor=cursor, limit=limit
    )


def _fetch_tasks(query: str, type: str, state: str, queue: str) -> Fetch:
    return lambda client, cursor, limit: client.transport.list_tasks(
        TasksAsked(query=query, type=type, state=state, queue=queue), cursor=cursor, limit=limit
    )


def _wanted(limit: int | None) -> int:
    return 2**62 if limit is None else limit
