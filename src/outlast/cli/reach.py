"""Where a command looks: a server, the engine that has the file, or the file itself when nothing runs."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from outlast.cli.arguments import Arguments
from outlast.core.errors import Invalid, NotFound, Unavailable
from outlast.core.inputs import DescribeTask, DescribeWorkflow, Request
from outlast.core.replies import Reply, TaskInfo, WorkflowInfo
from outlast.protocol.transport import Attempt, HistoryPage, Listing, Transport

REACH_WITHIN = 5.0  # seconds


class Look(Protocol):
    """What the commands read."""

    async def workflow(self, workflow_id: str, run_id: str = "") -> WorkflowInfo: ...

    async def task(self, task_id: str) -> TaskInfo: ...

    async def history(self, workflow_id: str, run_id: str, first_event_id: int = 1) -> HistoryPage: ...

    async def attempts(self, task_id: str) -> tuple[Attempt, ...]: ...

    async def runs(self, *, type: str, status: str, cursor: str, limit: int) -> Listing: ...

    async def send(self, request: Request) -> Reply: ...


class Remote:
    """Through a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

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
        return await self._transport.read_history(workflow_id, run_id, first_event_id=first_event_id)

    async def attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return await self._transport.read_attempts(task_id)

    async def runs(self, *, type: str, status: str, cursor: str, limit: int) -> Listing:
        """Return a page of runs."""
        return await self._transport.list_runs(type=type, status=status, cursor=cursor, limit=limit)

    async def send(self, request: Request) -> Reply:
        """Send a request."""
        return await self._transport.call(request, timeout=REACH_WITHIN)


class Direct:
    """Through the store's file."""

    def __init__(self, path: str, namespace: str) -> None:
        from outlast.engine.reading import Reader
        from outlast.server.looking import ReadOnlyStore
        from outlast.server.stores import blobs_of

        self._path = path
        self._store = ReadOnlyStore(path)
        self._reader = Reader(self._store, blobs_of(path))
        self._namespace = namespace

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    async def workflow(self, workflow_id: str, run_id: str = "") -> WorkflowInfo:
        """Describe a run."""
        return await self._reader.describe_workflow(self._namespace, workflow_id, run_id)

    async def task(self, task_id: str) -> TaskInfo:
        """Describe a task."""
        return await self._reader.describe_task(self._namespace, task_id)

    async def history(self, workflow_id: str, run_id: str, first_event_id: int = 1) -> HistoryPage:
        """Return a page of committed events."""
        return await self._reader.read_history(self._namespace, workflow_id, run_id, first_event_id=first_event_id)

    async def attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return await self._reader.read_attempts(self._namespace, task_id)

    async def runs(self, *, type: str, status: str, cursor: str, limit: int) -> Listing:
        """Return a page of runs."""
        return await self._reader.list_runs(self._namespace, type=type, status=status, cursor=cursor, limit=limit)

    async def send(self, request: Request) -> Reply:
        """Refuse: a change needs an engine."""
        del request  # refused whatever it is
        raise Unavailable(
            "unavailable",
            f"No engine is running on {self._path}, and a change needs one.",
            remedy="Start one: outlast serve, or the program that has the store.",
        )


@asynccontextmanager
async def reached(arguments: Arguments) -> AsyncGenerator[Look]:
    """Give what the arguments name: --server, else --store, else the environment, else ./outlast.db."""
    if arguments.server and arguments.store:
        raise Invalid("invalid_request", "Both --server and --store are given.", remedy="Give one of them.")
    address = arguments.server or ("" if arguments.store else os.environ.get("OUTLAST_SERVER", ""))
    path = ""
    if not address:
        from outlast.server.settings import value_of
        from outlast.server.stores import holder_of, path_of

        url = value_of("store", {"store": arguments.store}, os.environ)
        if url.startswith("memory:"):
            raise NotFound(
                "store_not_found", "A store in memory is seen by its own process only.", remedy="Use --server URL."
            )
        path = path_of(url)
        address = holder_of(path)
    if not address:
        direct = Direct(path, arguments.namespace)
        try:
            yield direct
        finally:
            direct.close()
        return
    from outlast.sdk.http import HttpTransport

    transport = HttpTransport(address, namespace=arguments.namespace, token=os.environ.get("OUTLAST_TOKEN", ""))
    try:
        yield Remote(transport)
    finally:
        await transport.close()
