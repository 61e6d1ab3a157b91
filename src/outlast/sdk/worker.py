"""The worker: polls, has handlers and workflow code run, heartbeats, answers, and stops without losing a finished word.

Everything here runs on one event loop on a thread of its own, which user code never sees: plain handlers run in threads,
coroutines on another loop, workflow code in threads of its own. So no handler can hold up a heartbeat.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from outlast.core.errors import Denied, NotFound, Refusal, Rejected
from outlast.core.inputs import Poll, ReturnTasks, StopWorker, TaskToken, WorkflowToken
from outlast.core.replies import Work
from outlast.core.units import SECOND
from outlast.protocol.interpreter import Tuned
from outlast.protocol.transport import Transport
from outlast.sdk.client import default_identity, mint
from outlast.sdk.converter import Converter
from outlast.sdk.handlers import Handlers
from outlast.sdk.options import WorkerOptions
from outlast.sdk.pause import Pause
from outlast.sdk.portal import Portal
from outlast.sdk.registry import Registry
from outlast.sdk.turns import Turns

LOGGER: Final = logging.getLogger("outlast.worker")

POLL_WAIT: Final = 20 * SECOND
POLL_SLACK: Final = 10.0  # seconds beyond the wait after which an answer is given up and asked for again
IDLE_LOOK: Final = 1.0  # seconds after which to look again whether anything is declared
PAUSE_FIRST: Final = 0.1
PAUSE_MAX: Final = 30.0
CALL_TIMEOUT: Final = 5.0  # seconds for the few words at a stop
LAST_WORD: Final = 10.0  # seconds beyond the grace in which finished work may still be acknowledged
HEALTHY: Final = 2 * POLL_WAIT / SECOND + POLL_SLACK


class Worker:
    """Runs what ``registry`` declares, for the engine at the other end of ``transport``."""

    def __init__(
        self,
        registry: Registry,
        transport: Transport,
        converter: Converter,
        *,
        options: WorkerOptions,
        portal: Portal,
    ) -> None:
        self.id = mint()
        self.error: BaseException | None = None  # what ended the worker: wrong credentials, an unknown namespace
        self.polled_at = time.monotonic()  # monotonic seconds of the last poll that was answered
        self._registry = registry
        self._transport = transport
        self._options = options
        self._identity = options.identity or default_identity()
        self._portal = portal
        self._stopping = False
        self._ended = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._poll_ids: dict[str, str] = {}  # of the polls that have not been answered
        self._asking: set[asyncio.Task[Any]] = set()  # polls that wait for their answers
        self._polls: list[asyncio.Task[None]] = []
        self._handlers = Handlers(
            registry,
            transport,
            converter,
            worker=self.id,
            identity=self._identity,
            threads=options.threads,
            coroutines=options.coroutines,
            loop=portal.loop,
        )
        self._turns = Turns(
            registry,
            transport,
            converter,
            worker=self.id,
            identity=self._identity,
            build=options.build,
            slots=options.workflow_slots,
            runs_cached=options.runs_cached,
            loop=portal.loop,
        )

    @property
    def healthy(self) -> bool:
        """Whether a poll was answered lately; False also after the worker has ended."""
        return self.error is None and time.monotonic() - self.polled_at < HEALTHY

    @property
    def leaked_threads(self) -> int:
        """How many threads are stuck in user code whose time has passed."""
        return self._turns.leaked + self._handlers.leaked

    @property
    def running(self) -> int:
        """How many attempts are in hand, the finished but not yet acknowledged among them."""
        return len(self._handlers)

    def start(self) -> None:
        """Begin to poll. Raises BadDeclaration if something declared cannot be read."""
        self._registry.check()
        self._portal.submit(self._start()).result()

    def stop(self, grace: float) -> None:
        """Take nothing more, hand back what has not begun, and return when all that finished is acknowledged.

        Handlers that still run after ``grace`` seconds are told to stop; their leases run out by themselves.
        """
        if not self._portal.loop.is_closed():
            self._portal.submit(self._stop(grace)).result()

    def refresh(self) -> None:
        """Poll afresh, since something was declared. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._portal.loop.call_soon_threadsafe(self._ask_again)

    def _ask_again(self) -> None:
        for asking in self._asking:
            asking.cancel()
        self._handlers.wake()
        self._turns.wake()

    async def _start(self) -> None:
        Tuned.begin()
        self._loops = [
            *(self._spawn(name, run) for name, run in self._handlers.loops()),
            *(self._spawn(name, run) for name, run in self._turns.loops()),
        ]
        self._polls = [
            self._spawn("poll-threads", lambda: self._poll_tasks(is_async=False)),
            self._spawn("poll-coroutines", lambda: self._poll_tasks(is_async=True)),
            self._spawn("poll-workflows", self._poll_workflows),
        ]

    async def _stop(self, grace: float) -> None:
        if self._stopping:
            await self._ended.wait()
            return
        self._stopping = True
        deadline = time.monotonic() + grace
        heard = True  # the engine answers
        try:
            await self._transport.call(StopWorker(worker=self.id), timeout=CALL_TIMEOUT)
        except (Refusal, TimeoutError):
            heard = False
        self._handlers.wake()
        self._turns.wake()
        _, late = await asyncio.wait(self._polls, timeout=CALL_TIMEOUT if heard else 0.1)
        for task in late:
            task.cancel()
        await self._hand_back(self._handlers.take_unstarted(), self._turns.take_unstarted())
        await self._handlers.finish(deadline)
        until = deadline + LAST_WORD
        if not heard:  # no longer than an answer can be of use: what has a lease no more runs again anyway
            until = min(until, max(self._handlers.leased_until, time.monotonic() + CALL_TIMEOUT))
            self._handlers.tell_unheard(until)
        for drained in (self._handlers.drained(), self._turns.drained()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(drained, max(0.1, until - time.monotonic()))
        await self._end()

    async def _end(self) -> None:
        for task in [*self._polls, *self._loops]:
            task.cancel()
        await asyncio.gather(*self._polls, *self._loops, return_exceptions=True)
        self._handlers.close()
        self._turns.close()
        Tuned.end()
        self._ended.set()

    def _spawn(self, name: str, run: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self._forever(name, run), name=f"outlast-{name}")

    async def _forever(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Keep ``run`` going whatever it raises; only what no repeat can mend ends the worker."""
        pause = Pause(PAUSE_FIRST, PAUSE_MAX)
        while True:
            began = time.monotonic()
            try:
                await run()
            except (Denied, NotFound) as error:
                self._fail(error)
                return
            except Exception as error:
                if time.monotonic() - began > PAUSE_MAX:
                    pause.reset()
                expected = isinstance(error, Refusal)
                LOGGER.warning("worker_loop_failed loop=%s error=%s", name, error, exc_info=not expected)
                await pause.wait()
            else:
                return

    def _fail(self, error: Refusal) -> None:
        if self.error is None and not self._stopping:
            LOGGER.error("worker_ended code=%s error=%s", error.code, error)
            self.error = error
            self._stopping = True
            self._closing = asyncio.get_running_loop().create_task(self._end(), name="outlast-end")

    async def _poll_tasks(self, *, is_async: bool) -> None:
        handlers = self._handlers
        while not self._stopping:
            room = handlers.room(is_async=is_async)
            types = handlers.types(is_async=is_async)
            if room > 0 and types:
                await self._take(await self._work("async" if is_async else "plain", task_types=types, slots=room))
            else:
                await handlers.freed(is_async=is_async, timeout=None if types else IDLE_LOOK)

    async def _poll_workflows(self) -> None:
        turns = self._turns
        while not self._stopping:
            room = turns.room()
            types = tuple(self._registry.workflows)
            if room > 0 and types:
                await self._take(await self._work("workflow", workflow_types=types, workflow_slots=room))
            else:
                await turns.freed(timeout=None if types else IDLE_LOOK)

    async def _take(self, work: Work) -> None:
        if self._stopping:
            await self._hand_back([lease.token for lease in work.tasks], [task.token for task in work.workflow_tasks])
            return
        if work.tasks:
            self._handlers.take(work.tasks)
        if work.workflow_tasks:
            self._turns.take(work.workflow_tasks)
        if work.queries:
            self._turns.ask(work.queries)
        if work.stop:
            await asyncio.sleep(PAUSE_FIRST)

    async def _work(
        self,
        kind: str,
        *,
        task_types: tuple[str, ...] = (),
        workflow_types: tuple[str, ...] = (),
        slots: int = 0,
        workflow_slots: int = 0,
    ) -> Work:
        """Ask for work. The poll keeps its id until it is answered, so that what was given out meanwhile is given again.

        Raises:
            Refusal: there is no answer, for a reason that ``_forever`` waits out or that ends the worker.
        """
        poll = Poll(
            poll_id=self._poll_ids.setdefault(kind, mint()),
            worker=self.id,
            queues=self._options.queues or self._registry.queues(),
            task_types=task_types,
            workflow_types=workflow_types,
            slots=slots,
            workflow_slots=workflow_slots,
            wait=POLL_WAIT,
            identity=self._identity,
            build=self._options.build,
        )
        asking = asyncio.get_running_loop().create_task(
            self._transport.call(poll, timeout=poll.wait / SECOND + POLL_SLACK), name="outlast-poll"
        )
        self._asking.add(asking)
        try:
            reply: Any = await asking
        except asyncio.CancelledError:
            if not asking.cancelled() or self._stopping:
                raise
            reply = Work()  # taken back by ``refresh``: what the engine then gives out to nobody it takes back
        except Refusal as error:
            if error.code == "timeout" or self._stopping:
                return Work()
            if isinstance(error, Rejected):
                self._poll_ids.pop(kind, None)
            raise
        finally:
            self._asking.discard(asking)
            asking.cancel()
        self._poll_ids.pop(kind, None)
        self.polled_at = time.monotonic()
        return reply if isinstance(reply, Work) else Work()

    async def _hand_back(self, tokens: list[TaskToken], workflow_tokens: list[WorkflowToken]) -> None:
        if not tokens and not workflow_tokens:
            return
        request = ReturnTasks(tokens=tuple(tokens), workflow_tokens=tuple(workflow_tokens), worker=self.id)
        try:
            await self._transport.call(request, timeout=CALL_TIMEOUT)
        except Refusal as error:
            LOGGER.warning("return_failed tasks=%d error=%s", len(tokens), error)
