"""The transport within one process: from any loop on any thread to the engine's loop and back, cheaply.

Many calls share one wake-up of the engine's loop, and their replies share one wake-up of the caller's.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from outlast.core.admin import NamespaceInfo
from outlast.core.errors import Unavailable
from outlast.core.inputs import Poll, Request
from outlast.core.limits import FEED_PAGE_EVENTS
from outlast.core.replies import Refused, Reply, Work
from outlast.engine.frontend import Engine
from outlast.protocol.again import PAUSE_FIRST, longer, send_again
from outlast.protocol.errors import exception_of
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
)
from outlast.store.base import StoreError

Result = TypeVar("Result")

_STOPPED: Final = Refused(
    code="unavailable", fact="The engine has stopped.", remedy="Start the app again.", retryable=False
)


class _Call:
    """One call of another loop; the ticket the core carries."""

    __slots__ = ("future", "gone", "port", "request")

    def __init__(self, port: "_Port", request: Request, future: "asyncio.Future[Reply]") -> None:
        self.port = port
        self.request = request
        self.future = future
        self.gone = False

    def settle(self, reply: Reply) -> bool:
        if self.gone:
            return False
        return self.port.answer(self, reply)


class _Port:
    """The crossing between one caller's loop and the engine's.

    Each side appends to a deque and wakes the other only if nobody has yet; the waking side clears the mark before it
    empties the deque, so that nothing is left lying.
    """

    __slots__ = (
        "_answered",
        "_asked",
        "_engine",
        "_engine_woken",
        "_gone",
        "_namespace",
        "_principal",
        "_woken",
        "loop",
    )

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, namespace: str, principal: str) -> None:
        self.loop = loop
        self._engine = engine
        self._namespace = namespace
        self._principal = principal
        self._asked: deque[_Call] = deque()
        self._answered: deque[tuple[_Call, Reply]] = deque()
        self._gone: deque[_Call] = deque()
        self._engine_woken = False
        self._woken = False

    # On the caller's loop.

    def ask(self, request: Request) -> _Call:
        call = _Call(self, request, self.loop.create_future())
        self._asked.append(call)
        self._wake_engine()
        return call

    def forget(self, call: _Call) -> None:
        call.gone = True
        self._gone.append(call)
        self._wake_engine()
        future = call.future
        if future.done() and not future.cancelled() and future.exception() is None:
            # The reply was there when its caller went away.
            self._return(call, future.result())

    def _deliver(self) -> None:
        self._woken = False
        answered = self._answered
        while answered:
            call, reply = answered.popleft()
            if not call.future.done():
                call.future.set_result(reply)
            else:
                self._return(call, reply)

    def _return(self, call: _Call, reply: Reply) -> None:
        """Hand leases back that came too late."""
        request = call.request
        if not isinstance(reply, Work) or not isinstance(request, Poll):
            return
        give_back = partial(self._engine.give_back, reply, request.worker, namespace=self._namespace)
        with contextlib.suppress(RuntimeError):  # the engine's loop is closed
            self._engine.loop.call_soon_threadsafe(give_back)

    def _wake_engine(self) -> None:
        if self._engine_woken:
            return
        self._engine_woken = True
        try:
            self._engine.loop.call_soon_threadsafe(self._take)
        except RuntimeError:  # the engine's loop is closed
            self._refuse_asked()

    def _refuse_asked(self) -> None:
        self._engine_woken = False
        while self._asked:
            call = self._asked.popleft()
            if not call.future.done():
                call.future.set_result(_STOPPED)

    # On the engine's loop.

    def _take(self) -> None:
        self._engine_woken = False
        asked, gone, engine = self._asked, self._gone, self._engine
        while asked:
            call = asked.popleft()
            if not call.gone:
                engine.post(call, call.request, namespace=self._namespace, principal=self._principal)
        while gone:
            engine.forget(gone.popleft())

    def answer(self, call: _Call, reply: Reply) -> bool:
        self._answered.append((call, reply))
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the caller's loop is closed: nobody takes what is here
                self._answered.clear()
                return False
        return True


class InProcessTransport:
    """``protocol.transport.Transport`` for an engine in this process, from any loop and thread."""

    from_any_loop: Final = True  # nothing is held open for a loop that calls

    def __init__(self, engine: Engine, *, namespace: str, principal: str = "local") -> None:
        self.namespace = namespace
        self._engine = engine
        self._principal = principal
        self._ports: dict[int, _Port] = {}

    async def call(self, request: Request, *, timeout: float | None = None) -> Reply:
        """Send ``request`` and return its reply, as the Transport protocol says."""
        port = self._port()
        reply = await self._once(port, request, timeout)
        if isinstance(reply, Refused):
            if send_again(request, reply) and reply.retryable:
                return await self._again(port, request, reply, timeout)
            raise exception_of(reply)
        return reply

    def ask(self, request: Request) -> _Call:
        """Send ``request`` once; the future of what is returned will hold the reply, which may be Refused."""
        return self._port().ask(request)

    def forget(self, call: _Call) -> None:
        """Say that nobody waits for the reply to ``call``. From any thread."""
        call.port.forget(call)

    async def _once(self, port: _Port, request: Request, timeout: float | None) -> Reply:
        call = port.ask(request)
        alarm = None
        if timeout is not None:
            alarm = port.loop.call_later(timeout, _time_out, call.future, timeout)
        try:
            return await call.future
        except (asyncio.CancelledError, Unavailable):
            port.forget(call)
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _again(self, port: _Port, request: Request, reply: Reply, timeout: float | None) -> Reply:
        """Wait the trouble out, sending the same ids again, until ``timeout`` has passed."""
        ends = None if timeout is None else port.loop.time() + timeout
        pause = PAUSE_FIRST
        while isinstance(reply, Refused) and send_again(request, reply) and reply.retryable:
            left = None if ends is None else ends - port.loop.time()
            if self._engine.stopped or (left is not None and left <= pause):
                raise exception_of(reply)
            await asyncio.sleep(pause)
            pause = longer(pause)
            reply = await self._once(port, request, None if left is None else left - pause / 2)
        if isinstance(reply, Refused):
            raise exception_of(reply)
        return reply

    async def read_history(
        self, workflow_id: str, run_id: str, *, first_event_id: int = 1, wait: float = 0.0
    ) -> HistoryPage:
        """Return committed events of a run."""
        return await self._read(
            self._engine.read_history(self.namespace, workflow_id, run_id, first_event_id=first_event_id, wait=wait)
        )

    async def read_attempts(self, task_id: str) -> tuple[Attempt, ...]:
        """Return how the leases of a task ended."""
        return await self._read(self._engine.reader.read_attempts(self.namespace, task_id))

    async def list_runs(self, asked: RunsAsked = ANY_RUNS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of runs, newest first."""
        engine = self._engine
        now = engine.clock.now()
        return await self._read(engine.reader.list_runs(self.namespace, asked, cursor=cursor, limit=limit, now=now))

    async def count_runs(self, asked: RunsAsked = ANY_RUNS) -> Count:
        """Return how many runs match."""
        engine = self._engine
        return await self._read(engine.reader.count_runs(self.namespace, asked, now=engine.clock.now()))

    async def list_tasks(self, asked: TasksAsked = ANY_TASKS, *, cursor: str = "", limit: int = 50) -> Listing:
        """Return a page of tasks, newest first."""
        engine = self._engine
        now = engine.clock.now()
        return await self._read(engine.reader.list_tasks(self.namespace, asked, cursor=cursor, limit=limit, now=now))

    async def count_tasks(self, asked: TasksAsked = ANY_TASKS) -> Count:
        """Return how many tasks match."""
        engine = self._engine
        return await self._read(engine.reader.count_tasks(self.namespace, asked, now=engine.clock.now()))

    async def list_queues(self, *, queue: str = "") -> Queues:
        """Return the queues that have open work."""
        return await self._read(self._engine.reader.list_queues(self.namespace, queue=queue))

    async def list_namespaces(self) -> tuple[NamespaceInfo, ...]:
        """Return every namespace by name."""
        return self._engine.namespaces.all()

    async def read_feed(self, *, after: str = "", limit: int = FEED_PAGE_EVENTS, wait: float = 0.0) -> FeedPage:
        """Return committed events behind a cursor, held until there are some."""
        return await self._read(self._engine.feeds.wait(self.namespace, after=after, limit=limit, wait=wait))

    async def close(self) -> None:
        """Let the engine run on; whoever started it stops it."""

    async def _read(self, reading: Coroutine[Any, Any, Result]) -> Result:
        loop = self._engine.loop
        if self._engine.stopped or loop.is_closed():
            reading.close()
            raise exception_of(_STOPPED)
        try:
            if asyncio.get_running_loop() is loop:
                return await reading
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(reading, loop))
        except StoreError as error:
            raise Unavailable(error.code, error.fact, remedy=error.remedy) from error

    def _port(self) -> _Port:
        loop = asyncio.get_running_loop()
        port = self._ports.get(id(loop))
        return port if port is not None and port.loop is loop else self._open_port(loop)

    def _open_port(self, loop: asyncio.AbstractEventLoop) -> _Port:
        for key, port in list(self._ports.items()):
            if port.loop.is_closed():
                del self._ports[key]
        port = _Port(self._engine, loop, self.namespace, self._principal)
        self._ports[id(loop)] = port
        return port


def _time_out(future: "asyncio.Future[Reply]", timeout: float) -> None:
    if not future.done():
        future.set_exception(
            Unavailable(
                "timeout", f"There was no answer within {timeout:g} s.", remedy="Wait longer, or look with outlast why."
            )
        )
