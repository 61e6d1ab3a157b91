"""The worker's attempts at tasks: starting them, keeping their leases, sending what became of them.

Lives on the worker's loop. Three senders gather what arrives while their calls are in flight: begins, heartbeats, completions.
A completion is sent again, under the same token, until it is answered. Two calls with completions may be in flight: what ends
while one waits for its commit goes into the next commit, not into the one behind that.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from outlast.core.errors import Refusal, Unavailable
from outlast.core.inputs import (
    Begin,
    CompleteTasks,
    Completion,
    ReturnTasks,
    TaskCanceled,
    TaskFailed,
    TaskSucceeded,
    TaskToken,
)
from outlast.core.limits import BATCH_ITEMS_MAX, REQUEST_BYTES_MAX
from outlast.core.payload import size_of
from outlast.core.replies import Begun, CompletionsReply, TaskLease
from outlast.protocol.transport import Transport
from outlast.sdk.attempt import Attempt, too_large
from outlast.sdk.batching import Sender
from outlast.sdk.converter import Converter
from outlast.sdk.leases import Leases
from outlast.sdk.pause import Pause
from outlast.sdk.pool import CoroutinePool, Hands, ThreadPool
from outlast.sdk.registry import Registry

LOGGER: Final = logging.getLogger("outlast.worker")

PREFETCH_MAX: Final = 500  # attempts taken beyond the slots, where handlers are so short that a poll would starve them
PREFETCH_SPAN: Final = 0.05  # seconds of work that may wait in here
UNACKED_MAX: Final = 5000  # finished attempts that wait for the engine's word; beyond it nothing new is taken
RETURN_TIMEOUT: Final = 2.0
TELL_AFTER: Final = 1.0  # seconds of a stop after which it is told what it waits for
AWAITED_SHOWN: Final = 5
LAST_BREATH: Final = 0.2  # seconds for coroutines that were cancelled at a stop to tidy up
PAUSE_FIRST: Final = 0.05
PAUSE_MAX: Final = 5.0
TOO_MUCH: Final = frozenset({
    "payload_too_large", "body_too_large", "invalid_request", "malformed_body", "unsupported_encoding", "limit_exceeded",
})  # fmt: skip


class Slots:
    """How many attempts of one kind are in hand, and how many more may be taken."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self.changed = asyncio.Event()
        self._finished = 0
        self._since = time.monotonic()
        self._rate = 0.0  # finished per second, lately

    def room(self) -> int:
        """Return how many may be asked for: the free slots, and a little work ahead where handlers are short."""
        now = time.monotonic()
        spent = now - self._since
        if spent >= PREFETCH_SPAN:
            self._rate = self._finished / spent
            self._finished = 0
            self._since = now
        elif self._finished > self._rate * PREFETCH_SPAN:
            self._rate = self._finished / PREFETCH_SPAN
        ahead = int(self._rate * PREFETCH_SPAN)
        return self.most + (min(ahead, PREFETCH_MAX) if ahead > self.most else 0) - self.held

    def give(self) -> None:
        """Give one slot back."""
        self.held -= 1
        self._finished += 1
        self.changed.set()


class Handlers:
    """Everything this worker has leased of tasks."""

    def __init__(
        self,
        registry: Registry,
        transport: Transport,
        converter: Converter,
        *,
        worker: str,
        identity: str,
        threads: int,
        coroutines: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._registry = registry
        self._transport = transport
        self._converter = converter
        self._worker = worker
        self._identity = identity
        self._loop = loop
        self._attempts: dict[TaskToken, Attempt] = {}
        self._finished: deque[Attempt] = deque()
        hands = Hands(loop, self._collect)
        self._threads = ThreadPool(threads, self._finished, hands)
        self._coroutines = CoroutinePool(self._finished, hands)
        self._slots = {False: Slots(threads), True: Slots(coroutines)}
        self._begins = Sender(self._begin, items_max=BATCH_ITEMS_MAX)
        self._completions = Sender(
            self._complete, items_max=BATCH_ITEMS_MAX, bytes_max=REQUEST_BYTES_MAX // 2, size=_size
        )
        self._leases = Leases(
            transport,
            worker,
            self._attempts,
            cancel=self._cancel,
            lose=self._lose,
            drop=self._drop,
            hand_back=self._hand_back,
            coroutines=self._coroutines,
        )

    def __len__(self) -> int:
        return len(self._attempts)

    @property
    def leaked(self) -> int:
        """How many threads are stuck in handlers that have lost their lease."""
        return self._threads.leaked

    @property
    def leased_until(self) -> float:
        """Until when the last lease in hand holds (monotonic), as far as the engine has said."""
        return max((attempt.renewed_at + attempt.window for attempt in self._attempts.values()), default=0.0)

    def loops(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """Return what the worker keeps running, by name."""
        complete = ("complete", self._completions.run)
        return [("begin", self._begins.run), complete, complete, ("heartbeat", self._leases.run)]

    def types(self, *, is_async: bool) -> tuple[str, ...]:
        """Return the task types of one kind that are declared now."""
        names: list[str] = []
        for name in list(self._registry.tasks):
            definition = self._registry.task(name)
            if definition is not None and definition.is_async is is_async:
                names.append(name)
        return tuple(names)

    def room(self, *, is_async: bool) -> int:
        """Return how many attempts of one kind may be asked for now."""
        if len(self._attempts) >= UNACKED_MAX:
            return 0
        return self._slots[is_async].room()

    async def freed(self, *, is_async: bool, timeout: float | None) -> None:
        """Return when there may be room again."""
        changed = self._slots[is_async].changed
        changed.clear()
        if self.room(is_async=is_async) > 0 and timeout is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), timeout)

    def wake(self) -> None:
        """Have whoever waits for room look again."""
        for slots in self._slots.values():
            slots.changed.set()

    def take(self, leases: tuple[TaskLease, ...]) -> None:
        """Have handlers run under ``leases``."""
        ready: list[Attempt] = []
        to_begin: list[Attempt] = []
        foreign: list[TaskToken] = []
        now = time.monotonic()
        for lease in leases:
            if lease.token in self._attempts:
                continue  # the same poll was answered twice
            definition = self._registry.task(lease.type)
            if definition is None:
                foreign.append(lease.token)
                continue
            attempt = Attempt(lease, definition, self._converter, now)
            attempt.prepare(self._leases.said)
            self._attempts[lease.token] = attempt
            self._slots[definition.is_async].held += 1
            self._leases.watch(attempt)
            (to_begin if lease.begin_needed else ready).append(attempt)
        self._begins.put(to_begin)
        self._run(ready)
        self._return(foreign)

    def take_unstarted(self) -> list[TaskToken]:
        """Return the tokens of what has not begun, which will not begin any more."""
        tokens: list[TaskToken] = []
        for attempt in list(self._attempts.values()):
            if not attempt.started and attempt.claim():
                tokens.append(attempt.lease.token)
                self._drop(attempt)
        return tokens

    async def finish(self, deadline: float) -> None:
        """Return when all handlers have ended; after ``deadline`` (monotonic) they are told to stop, and left.

        What takes longer than a moment is told, so that nobody takes the wait for a program that hangs.
        """
        tell_at = time.monotonic() + TELL_AFTER
        while any(attempt.held for attempt in self._attempts.values()):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._any_freed(), min(left, 1.0))
            if time.monotonic() >= tell_at:
                tell_at = deadline
                _log_awaited([attempt for attempt in self._attempts.values() if attempt.held], deadline)
        late = [attempt for attempt in self._attempts.values() if attempt.held]
        for attempt in late:
            LOGGER.warning("handler_left_running task=%s", attempt.name)
            self._lose(attempt)
        if late:
            await asyncio.sleep(LAST_BREATH)

    def tell_unheard(self, until: float) -> None:
        """Log that the engine is silent and what waits for it, if anything does."""
        if self._attempts:
            LOGGER.warning(
                "stopping waits_for=the server unacknowledged=%d for_at_most=%.0f s; a second signal ends the process at "
                "once, and the work runs again",
                len(self._attempts),
                max(0.0, until - time.monotonic()),
            )

    async def drained(self) -> None:
        """Return when every finished attempt has been answered for."""
        self._collect()
        await self._completions.drained()

    def close(self) -> None:
        """End the threads that run handlers, as far as they are idle."""
        self._threads.close()
        self._coroutines.close()

    async def _any_freed(self) -> None:
        for slots in self._slots.values():
            slots.changed.clear()
        waits = [asyncio.ensure_future(slots.changed.wait()) for slots in self._slots.values()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # Starting and ending.

    def _run(self, attempts: list[Attempt]) -> None:
        plain = [attempt for attempt in attempts if not attempt.is_async]
        if plain:
            self._threads.submit(plain, held=self._slots[False].held)
        if len(plain) < len(attempts):
            self._coroutines.submit([attempt for attempt in attempts if attempt.is_async])

    async def _begin(self, attempts: list[Attempt]) -> None:
        tokens = tuple(attempt.lease.token for attempt in attempts)
        reply: Any = await self._answered(Begin(tokens=tokens, worker=self._worker))
        if not isinstance(reply, Begun):
            raise Unavailable("internal", f"The answer to Begin is a {type(reply).__name__}.")
        ready: list[Attempt] = []
        for attempt, refused in zip(attempts, reply.items, strict=True):
            if refused is None and attempt.lease.token in self._attempts:
                ready.append(attempt)
            elif refused is not None and attempt.claim():
                LOGGER.info("begin_refused task=%s code=%s", attempt.name, refused.code)
                self._drop(attempt)
        self._run(ready)

    def _collect(self) -> None:
        finished, out = self._finished, list[Attempt]()
        while finished:
            attempt = finished.popleft()
            if attempt.held:
                attempt.held = False
                self._slots[attempt.is_async].give()
            elif not attempt.is_async:
                self._threads.recovered()
            if attempt.void or (attempt.lost and isinstance(attempt.outcome, TaskCanceled)):
                self._forget(attempt)  # stopped since the lease is lost: that is no outcome of the task
            else:
                if isinstance(attempt.outcome, TaskFailed):
                    LOGGER.warning("attempt_failed task=%s error=%s", attempt.name, attempt.complaint)
                out.append(attempt)
        self._completions.put(out)

    async def _complete(self, attempts: list[Attempt]) -> None:
        """Send outcomes until they are answered for."""
        items = tuple(_completion(attempt) for attempt in attempts)
        request = CompleteTasks(items=items, worker=self._worker, identity=self._identity)
        try:
            reply: Any = await self._answered(request)
        except Refusal as error:
            if isinstance(error, Unavailable):
                raise
            await self._complete_apart(attempts, error)
            return
        if not isinstance(reply, CompletionsReply):
            raise Unavailable("internal", f"The answer to CompleteTasks is a {type(reply).__name__}.")
        for attempt, refused in zip(attempts, reply.items, strict=True):
            if refused is None:
                self._forget(attempt)
            elif refused.retryable:
                self._completions.put([attempt])
            else:
                self._replace(attempt, refused.code, refused.fact)

    async def _complete_apart(self, attempts: list[Attempt], error: Refusal) -> None:
        """The request as a whole was refused for good: find the item that is to blame, spare the others."""
        if len(attempts) == 1:
            self._replace(attempts[0], error.code, error.fact)
            return
        half = len(attempts) // 2
        await self._complete(attempts[:half])
        await self._complete(attempts[half:])

    def _replace(self, attempt: Attempt, code: str, fact: str) -> None:
        """The outcome was refused for good: say so in its place if it is at fault, else the lease was lost."""
        if isinstance(attempt.outcome, TaskSucceeded) and code in TOO_MUCH:
            attempt.refused(too_large(code, fact))
            if attempt.context is not None:
                attempt.context.drop_details()
            self._completions.put([attempt])
            return
        LOGGER.warning("outcome_refused task=%s code=%s fact=%s", attempt.name, code, fact)
        self._forget(attempt)

    async def _answered(self, request: Begin | CompleteTasks) -> Any:
        """Send ``request`` until it is answered; raises only what refuses it for good."""
        pause = Pause(PAUSE_FIRST, PAUSE_MAX)
        while True:
            try:
                return await self._transport.call(request, timeout=None)
            except Unavailable as error:
                LOGGER.info("engine_unavailable request=%s code=%s", type(request).__name__, error.code)
            await pause.wait()

    def _forget(self, attempt: Attempt) -> None:
        self._attempts.pop(attempt.lease.token, None)
        if len(self._attempts) == UNACKED_MAX - 1:
            self.wake()

    def _drop(self, attempt: Attempt) -> None:
        if attempt.held:
            attempt.held = False
            self._slots[attempt.is_async].held -= 1
            self._slots[attempt.is_async].changed.set()
        self._forget(attempt)

    def _hand_back(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            self._drop(attempt)
        self._return([attempt.lease.token for attempt in attempts])

    def _return(self, tokens: list[TaskToken]) -> None:
        if tokens:
            request = ReturnTasks(tokens=tuple(tokens), worker=self._worker)
            self._returning = self._loop.create_task(self._send_back(request), name="outlast-return")

    async def _send_back(self, request: ReturnTasks) -> None:
        try:
            await self._transport.call(request, timeout=RETURN_TIMEOUT)
        except Refusal as error:  # their leases run out by themselves
            LOGGER.warning("return_failed tasks=%d error=%s", len(request.tokens), error)

    def _cancel(self, attempt: Attempt) -> None:
        context = attempt.context
        if attempt.asked_to_stop:
            return
        attempt.asked_to_stop = True
        if attempt.claim():  # it has not begun, and will not
            attempt.outcome = TaskCanceled()
            self._finished.append(attempt)
            self._collect()
            return
        if context is not None:
            context.tell_cancelled()
        if attempt.is_async:
            self._coroutines.cancel(attempt)

    def _lose(self, attempt: Attempt) -> None:
        """Tell the handler that the lease is lost, and give its slot to others."""
        if attempt.claim():  # it has not begun, and will not
            self._drop(attempt)
            return
        attempt.lost = True
        if attempt.context is not None:
            attempt.context.tell_lease_lost()
        if attempt.is_async:
            self._coroutines.cancel(attempt)
        elif attempt.held and attempt.started and self._threads.abandon():
            attempt.held = False
            self._slots[False].give()
        if attempt.void and not attempt.held:
            self._forget(attempt)


def _completion(attempt: Attempt) -> Completion:
    outcome = attempt.outcome
    if outcome is None:
        raise AssertionError(f"{attempt.name} has finished without an outcome")
    return Completion(token=attempt.lease.token, outcome=outcome, details=attempt.details)


def _log_awaited(held: list[Attempt], deadline: float) -> None:
    names = ", ".join(attempt.name for attempt in held[:AWAITED_SHOWN])
    more = f" and {len(held) - AWAITED_SHOWN} more" if len(held) > AWAITED_SHOWN else ""
    LOGGER.warning(
        "stopping waits_for=%s%s for_at_most=%.0f s; a second signal ends the process at once, and the work runs again",
        names,
        more,
        max(0.0, deadline - time.monotonic()),
    )


def _size(attempt: Attempt) -> int:
    outcome = attempt.outcome
    size = 100 if attempt.details is None else 100 + len(attempt.details.data)
    return size + size_of(outcome.result) if isinstance(outcome, TaskSucceeded) else size + 20_000
