"""``app.queues`` and ``app.workers``: how much waits, and who takes it."""

from collections.abc import Callable

from outlast.core.admin import DescribeWorkers, WorkersInfo
from outlast.protocol.transport import QueueInfo
from outlast.protocol.transport import Queues as QueuesInfo
from outlast.sdk.client import Client


class Queues:
    """The queues of an app's namespace; a queue is there as soon as something waits in it."""

    __slots__ = ("_connect",)

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    def list(self) -> QueuesInfo:
        """Return the queues with open work, by name, in ``items``; ``more`` says that there are others."""
        client = self._connect()
        return client.portal.run(client.transport.list_queues(), instead="app.queues.alist()")

    async def alist(self) -> QueuesInfo:
        """Return what ``list`` does."""
        client = self._connect()
        return await client.arun(client.transport.list_queues(), instead="app.queues.alist()")

    def describe(self, name: str) -> QueueInfo:
        """Return how full a queue is and since when its oldest work waits; all zeros for one that is empty."""
        client = self._connect()
        found = client.portal.run(client.transport.list_queues(queue=name), instead="app.queues.adescribe(…)")
        return found.items[0]

    async def adescribe(self, name: str) -> QueueInfo:
        """Return what ``describe`` does."""
        client = self._connect()
        found = await client.arun(client.transport.list_queues(queue=name), instead="app.queues.adescribe(…)")
        return found.items[0]


class Workers:
    """The workers that poll for an app's namespace."""

    __slots__ = ("_connect",)

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    def list(self, *, queue: str = "") -> WorkersInfo:
        """Return who polls, those seen last first, in ``items``; ``more`` says that there are others.

        Known are those that were heard of since the engine has the store. ``queue``: only those of one queue.
        """
        return self._connect().ask(DescribeWorkers(queue=queue), WorkersInfo, instead="app.workers.alist(…)")

    async def alist(self, *, queue: str = "") -> WorkersInfo:
        """Return what ``list`` does."""
        return await self._connect().aask(DescribeWorkers(queue=queue), WorkersInfo, instead="app.workers.alist(…)")
