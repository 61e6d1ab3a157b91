"""A client of whichever process has the file; the file is taken over when nobody has it any more."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from outlast.core.admin import NamespaceInfo
from outlast.core.errors import Unavailable
from outlast.core.inputs import Request
from outlast.core.limits import FEED_PAGE_EVENTS
from outlast.core.replies import Reply
from outlast.protocol.transport import (
    ANY_RUNS,
    ANY_TASKS,
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
from outlast.sdk.http import HttpTransport
from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.server")

LOOK_EVERY: Final = 0.25  # seconds between looks at who has the file

Result = TypeVar("Result")


class Moved(Exception):
    """The engine is elsewhere now: send the request there."""


class FollowingTransport:
    """``protocol.transport.Transport`` to the holder of a file, wherever that is.

    ``holder`` returns the address of the holder, "" when there is none that can be reached; ``take_over`` starts an engine
    in this process and returns the way to it, or raises StoreError when somebody else was quicker.
    """

    def __init__(
        self, address: str, *, namespace: str, holder: Callable[[], str], take_over: Callable[[], Transport]
    ) -> None:
        self.namespace = namespace
        self._holder = holder
        self._take_over = take_over
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._address = address
        self._target: Transport = self._client(address)
        self._closed = False

    @property
    def address(self) -> str:
        """Where the holder was last found."""
        return self._address

    async def call(self, request: Request, *, timeout: float | None = None) -> Reply:
        """Send ``request`` to whoever has the file, as the Transport protocol says."""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if ends is None else max(0.0, ends - time.monotonic())
            target = self._target
            try:
                return await target.call(request, timeout=left)
            except Moved:
                await target.close()
                if ends is not None and time.monotonic() >= ends:
                    raise Unavailable(
                        "timeout", f"There was no answer within {timeout:g} s.", remedy="Wait longer."
                    ) from None

    async def read_history(
        self, workflow_id: str, run_id: str, *, first_event_id: int = 1, wait: float = 0.0
    ) -> HistoryPage:
        """Return committed events of a run."""
        return await self._read(
            lambda way: way.read_history(workflow_id, run_id, first_event_id=first_event_id, wait=wait)
        )

    async def read_attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return await self._read(lambda way: way.read_attempts(task_id))

    async def list_runs(self, asked: RunsAsked = ANY_RUNS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of runs, newest first."""
        return await self._read(lambda way: way.list_runs(asked, cursor=cursor, limit=limit))

    async def count_runs(self, asked: RunsAsked = ANY_RUNS) -> Count:
        """Return how many runs match."""
        return await self._read(lambda way: way.count_runs(asked))

    async def list_tasks(self, asked: TasksAsked = ANY_TASKS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of tasks, newest first."""
        return await self._read(lambda way: way.list_tasks(asked, cursor=cursor, limit=limit))

    async def count_tasks(self, asked: TasksAsked = ANY_TASKS) -> Count:
        """Return how many tasks match."""
        return await self._read(lambda way: way.count_tasks(asked))

    async def list_queues(self, *, queue: str = "") -> Queues:
        """Return the queues that have open work."""
        return await self._read(lambda way: way.list_queues(queue=queue))

    async def list_namespaces(self) -> tuple[NamespaceInfo, ...]:
        """Return every namespace by name."""
        return await self._read(lambda way: way.list_namespaces())

    async def read_feed(self, *, after: str = "", limit: int = FEED_PAGE_EVENTS, wait: float = 0.0) -> FeedPage:
        """Return committed events behind a cursor, held until there are some."""
        return await self._read(lambda way: way.read_feed(after=after, limit=limit, wait=wait))

    async def close(self) -> None:
        """Close this loop's connections, and follow no more."""
        self._closed = True
        await self._target.close()

    async def _read(self, read: Callable[[Transport], Awaitable[Result]]) -> Result:
        while True:
            target = self._target
            try:
                return await read(target)
            except Moved:
                await target.close()

    async def _lost(self) -> None:
        """Look who has the file now. Raises Moved when that is another than before."""
        if await asyncio.to_thread(self._look):
            raise Moved

    def _look(self) -> bool:
        with self._lock:
            if self._closed or time.monotonic() - self._looked_at < LOOK_EVERY:
                return not isinstance(self._target, HttpTransport)
            self._looked_at = time.monotonic()
            address = self._holder()
            if address and address != self._address:
                LOG.info("the store is held by the engine at %s now", address)
                self._address, self._target = address, self._client(address)
                return True
            if address or not isinstance(self._target, HttpTransport):
                return not isinstance(self._target, HttpTransport)
            try:
                self._target = self._take_over()
            except StoreError:
                return False  # somebody was quicker, and will say where it is reached
            LOG.info("the store's holder has gone: its engine runs in this process now")
            return True

    def _client(self, address: str) -> HttpTransport:
        return HttpTransport(address, namespace=self.namespace, on_lost=self._lost)
