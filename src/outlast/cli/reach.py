"""Where a command looks: a server, the engine that has the file, or the file itself when nothing runs."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.printing import talk
from outlast.core.admin import NamespaceInfo
from outlast.core.errors import Invalid, NotFound, Unavailable
from outlast.core.inputs import DescribeTask, DescribeWorkflow, Request
from outlast.core.limits import FEED_PAGE_EVENTS
from outlast.core.replies import Reply, TaskInfo, WorkflowInfo
from outlast.protocol.opening import Opener
from outlast.protocol.transport import (
    Attempt,
    Count,
    FeedPage,
    HistoryPage,
    Listing,
    Queues,
    RunsAsked,
    TasksAsked,
    Transport,
)
from outlast.server.payloads import opener_from
from outlast.server.places import BlobPlace, place_from

if TYPE_CHECKING:
    from outlast.server.looking import Opened

REACH_WITHIN: Final = 5.0  # seconds: somebody waits at a terminal
LOOK_EVERY: Final = 0.5  # seconds between looks into a file for what a feed has new
NAME_SERVER: Final = "Name its server: --server URL, or OUTLAST_SERVER."


class Look(Protocol):
    """What the commands read. ``address`` is where the engine is reached; empty when the store is read directly.

    ``holder`` is then the engine that has the store, if one does.
    """

    address: str
    holder: str

    async def workflow(self, workflow_id: str, run_id: str = "") -> WorkflowInfo: ...

    async def task(self, task_id: str) -> TaskInfo: ...

    async def history(self, workflow_id: str, run_id: str, first_event_id: int = 1) -> HistoryPage: ...

    async def attempts(self, task_id: str) -> tuple[Attempt, ...]: ...

    async def runs(self, asked: RunsAsked, *, cursor: str, limit: int) -> Listing: ...

    async def tasks(self, asked: TasksAsked, *, cursor: str, limit: int) -> Listing: ...

    async def count_runs(self, asked: RunsAsked) -> Count: ...

    async def count_tasks(self, asked: TasksAsked) -> Count: ...

    async def queues(self, queue: str) -> Queues: ...

    async def feed(self, *, after: str, wait: float) -> FeedPage: ...

    async def namespaces(self) -> tuple[NamespaceInfo, ...]: ...

    async def send(self, request: Request, *, wait: float | None = REACH_WITHIN) -> Reply:
        """Send a request; ``wait`` is how many seconds it may take, None for as long as it takes."""
        ...


class Remote:
    """Through a server. Values come as they are stored, and are opened here."""

    def __init__(self, transport: Transport, address: str, opener: Opener) -> None:
        self._transport = transport
        self._opener = opener
        self.address = address
        self.holder = ""

    async def workflow(self, workflow_id: str, run_id: str = "") -> WorkflowInfo:
        """Describe a run."""
        reply = await self.send(DescribeWorkflow(workflow_id=workflow_id, run_id=run_id))
        assert isinstance(reply, WorkflowInfo)
        return reply

    async def task(self, task_id: str) -> TaskInfo:
        """Describe a task."""
        reply = await self.send(DescribeTask(task_id=task_id))
        assert isinstance(reply, TaskInfo)
        return reply

    async def history(self, workflow_id: str, run_id: str, first_event_id: int = 1) -> HistoryPage:
        """Return a page of committed events."""
        page = await self._transport.read_history(workflow_id, run_id, first_event_id=first_event_id)
        return self._opener.open(page)

    async def attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return self._opener.open_texts(await self._transport.read_attempts(task_id))

    async def runs(self, asked: RunsAsked, *, cursor: str, limit: int) -> Listing:
        """Return a page of runs."""
        return self._opener.open(await self._transport.list_runs(asked, cursor=cursor, limit=limit))

    async def tasks(self, asked: TasksAsked, *, cursor: str, limit: int) -> Listing:
        """Return a page of tasks."""
        return self._opener.open(await self._transport.list_tasks(asked, cursor=cursor, limit=limit))

    async def count_runs(self, asked: RunsAsked) -> Count:
        """Count runs."""
        return await self._transport.count_runs(asked)

    async def count_tasks(self, asked: TasksAsked) -> Count:
        """Count tasks."""
        return await self._transport.count_tasks(asked)

    async def queues(self, queue: str) -> Queues:
        """Return how full queues are."""
        return await self._transport.list_queues(queue=queue)

    async def feed(self, *, after: str, wait: float) -> FeedPage:
        """Return a page of the feed."""
        return self._opener.open(await self._transport.read_feed(after=after, wait=wait))

    async def namespaces(self) -> tuple[NamespaceInfo, ...]:
        """Return every namespace."""
        return await self._transport.list_namespaces()

    async def send(self, request: Request, *, wait: float | None = REACH_WITHIN) -> Reply:
        """Send a request. Raises Conflict ("payload_locked") for values that are to be encrypted where there is no key."""
        return self._opener.open(await self._transport.call(self._opener.code(request), timeout=wait))


class Direct:
    """Through the store itself."""

    def __init__(self, opened: "Opened", namespace: str, opener: Opener) -> None:
        from outlast.engine.reading import Reader

        self.address = ""
        self.holder = opened.holder
        self._shown = opened.shown
        self._opener = opener
        self._store = opened.store
        self._reader = Reader(opened.store, opened.blobs)
        self._namespace = namespace

    async def workflow(self, workflow_id: str, run_id: str = "") -> WorkflowInfo:
        """Describe a run."""
        return self._opener.open(await self._reader.describe_workflow(self._namespace, workflow_id, run_id))

    async def task(self, task_id: str) -> TaskInfo:
        """Describe a task."""
        return self._opener.open(await self._reader.describe_task(self._namespace, task_id))

    async def history(self, workflow_id: str, run_id: str, first_event_id: int = 1) -> HistoryPage:
        """Return a page of committed events."""
        page = await self._reader.read_history(self._namespace, workflow_id, run_id, first_event_id=first_event_id)
        return self._opener.open(page)

    async def attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return self._opener.open_texts(await self._reader.read_attempts(self._namespace, task_id))

    async def runs(self, asked: RunsAsked, *, cursor: str, limit: int) -> Listing:
        """Return a page of runs."""
        page = await self._reader.list_runs(self._namespace, asked, cursor=cursor, limit=limit, now=_now())
        return self._opener.open(page)

    async def tasks(self, asked: TasksAsked, *, cursor: str, limit: int) -> Listing:
        """Return a page of tasks."""
        page = await self._reader.list_tasks(self._namespace, asked, cursor=cursor, limit=limit, now=_now())
        return self._opener.open(page)

    async def count_runs(self, asked: RunsAsked) -> Count:
        """Count runs."""
        return await self._reader.count_runs(self._namespace, asked, now=_now())

    async def count_tasks(self, asked: TasksAsked) -> Count:
        """Count tasks."""
        return await self._reader.count_tasks(self._namespace, asked, now=_now())

    async def queues(self, queue: str) -> Queues:
        """Return how full queues are."""
        return await self._reader.list_queues(self._namespace, queue=queue)

    async def feed(self, *, after: str, wait: float) -> FeedPage:
        """Return a page of the feed; looked for now and then while there is none."""
        from outlast.engine.feed import read_feed

        while True:
            page = await read_feed(self._store, self._namespace, after=after, limit=FEED_PAGE_EVENTS)
            if page.events or wait <= 0:
                return self._opener.open(page)
            after = page.next
            await asyncio.sleep(min(wait, LOOK_EVERY))
            wait -= LOOK_EVERY

    async def namespaces(self) -> tuple[NamespaceInfo, ...]:
        """Return the default namespace and those that were made; others that settings name are the engine's to tell."""
        found = {"default": NamespaceInfo(name="default"), **await self._reader.read_namespaces()}
        return tuple(found[name] for name in sorted(found))

    async def send(self, request: Request, *, wait: float | None = REACH_WITHIN) -> Reply:
        """Refuse: what is sent is for an engine."""
        del request, wait  # refused whatever it is
        raise needs_engine(
            self,
            f"No engine is running on {self._shown}, and this needs one.",
            remedy="Start one, with a worker where code is to run: outlast dev app.py, or the program that has the store.",
        )


def needs_engine(look: Look, fact: str, *, remedy: str) -> Unavailable:
    """Return ``fact`` as an error, or where an engine has the store that its server is to be named."""
    if look.holder:
        fact, remedy = f"{look.holder} has the store, and this needs that engine.", NAME_SERVER
    return Unavailable("unavailable", fact, remedy=remedy)


def _now() -> int:
    return time.time_ns()  # noqa: TID251 - what "2h ago" counts from is the watch of the person who asks


@asynccontextmanager
async def reached(arguments: Arguments, *, write: bool = False) -> AsyncGenerator[Look]:
    """Give what the settings name: a server, the engine that has the store's file, or the file itself.

    With ``write``, where nobody has the file an engine is started in this process for as long as the change takes.
    """
    if arguments.server and arguments.store:
        raise Invalid("invalid_request", "Both --server and --store are given.", remedy="Give one of them.")
    found = sources(arguments)
    opener = opener_from(found)
    namespace, token = found.text("namespace"), found.text("token")
    address = "" if arguments.store else found.text("server")
    url = found.text("store")
    if not address:
        address = _holder_of(url)
    if address:
        from outlast.sdk.http import HttpTransport

        transport = HttpTransport(address, namespace=namespace, token=token, patience=REACH_WITHIN)
        try:
            yield Remote(transport, address, opener)
        finally:
            await transport.close()
        return
    from outlast.server.looking import looked_into

    place = place_from(found)
    async with looked_into(url, place) as opened:  # it says what is wrong with the store, and makes none
        if not write:
            if opened.refused is not None and opened.refused.code == "store_moved":
                talk(arguments, f"{opened.refused.fact} What is shown is as it was then.")
            yield Direct(opened, namespace, opener)
            return
        name = opened.shown
    async with _engine(arguments, url, name, namespace, place) as own:
        yield Remote(own, "this process", opener)


def _holder_of(url: str) -> str:
    from outlast.server.stores import holder_of, is_postgres, path_of

    if url.startswith("memory:"):
        raise NotFound(
            "store_not_found", "A store in memory is seen by its own process only.", remedy="Use --server URL."
        )
    return "" if is_postgres(url) else holder_of(path_of(url))


@asynccontextmanager
async def _engine(
    arguments: Arguments, url: str, name: str, namespace: str, place: BlobPlace
) -> AsyncGenerator[Transport]:
    """Give the way to an engine of this process, which has the store for a moment."""
    from outlast.server.embedded import start

    engine = await asyncio.to_thread(start, url, namespace=namespace, serve=False, blobs=place)
    talk(arguments, f"No engine was running on {name}: one runs here for this change.")
    try:
        yield engine.transport
    finally:
        await engine.transport.close()
        await asyncio.to_thread(engine.stop)
