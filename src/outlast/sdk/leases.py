"""Keeps the leases of a worker's attempts: heartbeats, what they answer, and what is done when they come too late."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from outlast.core.errors import Refusal
from outlast.core.inputs import Heartbeat, HeartbeatItem, TaskToken
from outlast.core.limits import BATCH_ITEMS_MAX, REQUEST_BYTES_MAX
from outlast.core.replies import HeartbeatReply
from outlast.protocol.transport import Transport
from outlast.sdk.attempt import BEATS_PER_LEASE, Attempt
from outlast.sdk.pool import CoroutinePool

LOGGER: Final = logging.getLogger("outlast.worker")

PAUSE_MIN: Final = 0.02
PAUSE_MAX: Final = 1.0
CALL_TIMEOUT: Final = 2.0  # seconds for one heartbeat call before it is sent again
UNSTARTED_MAX: Final = 1.0  # seconds after which what has not begun is handed back: the estimate was wrong
BLOCKED_MAX: Final = 2.0  # seconds for which a coroutine may hold up the others before it is named


class Leases:
    """Renews the lease of every attempt in ``attempts`` each third of its length, and sooner when a handler spoke.

    Lives on the worker's loop. ``cancel`` and ``lose`` are called for attempts whose handlers are to stop; ``drop`` for
    those whose lease has gone before they began; ``hand_back`` for those that could not begin in time.
    """

    def __init__(
        self,
        transport: Transport,
        worker: str,
        attempts: Mapping[TaskToken, Attempt],
        *,
        cancel: Callable[[Attempt], None],
        lose: Callable[[Attempt], None],
        drop: Callable[[Attempt], None],
        hand_back: Callable[[list[Attempt]], None],
        coroutines: CoroutinePool,
    ) -> None:
        self._transport = transport
        self._worker = worker
        self._attempts = attempts
        self._cancel = cancel
        self._lose = lose
        self._drop = drop
        self._hand_back = hand_back
        self._coroutines = coroutines
        self._wanted = asyncio.Event()
        self._next_at = 0.0
        self._blocker = ""  # the attempt that was named last for blocking its loop
        self._unheard = False  # the last heartbeat has had no answer
        self._running: asyncio.AbstractEventLoop | None = None

    def watch(self, attempt: Attempt) -> None:
        """Take ``attempt`` into account for when to look next."""
        if attempt.beat_at < self._next_at:
            self._next_at = attempt.beat_at
            self._wanted.set()

    def said(self, attempt: Attempt) -> None:
        """A handler has said something that should travel soon. From any thread."""
        if attempt.said:
            return
        attempt.said = True
        if self._running is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._running.call_soon_threadsafe(self._wanted.set)

    async def run(self) -> None:
        """Renew for ever."""
        self._running = asyncio.get_running_loop()
        while True:
            now = time.monotonic()
            self._look_after(now)
            due = [attempt for attempt in self._attempts.values() if _due_at(attempt) <= now]
            for batch in _batches(due):
                await self._beat(batch)
            await asyncio.sleep(PAUSE_MIN)
            self._wanted.clear()
            now = time.monotonic()
            self._next_at = min(map(_due_at, self._attempts.values()), default=now + PAUSE_MAX)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), min(max(0.0, self._next_at - now), PAUSE_MAX))

    async def _beat(self, attempts: list[Attempt]) -> None:
        sent_at = time.monotonic()
        items: list[HeartbeatItem] = []
        for attempt in attempts:
            said, attempt.said, attempt.sent_at = attempt.said, False, sent_at
            details = attempt.details if said else None
            items.append(HeartbeatItem(token=attempt.lease.token, details=details, progress=said))
        request = Heartbeat(items=tuple(items), worker=self._worker)
        timeout = min(CALL_TIMEOUT, *(attempt.window / BEATS_PER_LEASE for attempt in attempts))
        try:
            reply: Any = await self._transport.call(request, timeout=timeout)
        except Refusal as error:
            if not self._unheard:  # once in an outage: it is sent again every second or two
                LOGGER.info("heartbeat_failed tasks=%d code=%s", len(items), error.code)
            self._unheard = True
            reply = None
        if not isinstance(reply, HeartbeatReply):
            for attempt, item in zip(attempts, items, strict=True):
                attempt.said = attempt.said or item.progress
                attempt.beat_at = time.monotonic() + min(0.5, attempt.window / 20)  # again soon, well within the lease
            return
        self._unheard = False
        for attempt, answer in zip(attempts, reply.items, strict=True):
            if answer.action == "stop":
                attempt.beat_at = sent_at + attempt.window
                if attempt.held:  # else it has ended, and the answer to its outcome is on the way
                    attempt.void = True
                    self._lose(attempt)
                continue
            attempt.renewed_at = sent_at
            attempt.beat_at = sent_at + attempt.window / BEATS_PER_LEASE
            if answer.action == "cancel":
                self._cancel(attempt)

    def _look_after(self, now: float) -> None:
        """Tell handlers whose lease has surely run out, hand back what could not begin, name one that blocks its loop."""
        stale: list[Attempt] = []
        for attempt in list(self._attempts.values()):
            if not attempt.held:
                continue
            if now - attempt.renewed_at > attempt.window:
                if attempt.claim():
                    self._drop(attempt)
                elif not attempt.lost:
                    LOGGER.warning("lease_missed task=%s", attempt.name)
                    self._lose(attempt)
            elif now - attempt.taken_at > UNSTARTED_MAX and not attempt.lease.begin_needed and attempt.claim():
                stale.append(attempt)
        if stale:
            self._hand_back(stale)
        self._name_blocker(now)

    def _name_blocker(self, now: float) -> None:
        windows = [attempt.window for attempt in self._attempts.values() if attempt.is_async and attempt.held]
        if not windows:
            return
        stuck = self._coroutines.ping(now)
        if stuck < min(min(windows) / 2, BLOCKED_MAX):
            if not stuck:
                self._blocker = ""
            return
        name, stack = self._coroutines.blocker()
        if name and name != self._blocker:
            self._blocker = name
            LOGGER.warning(
                "handler_blocks_loop task=%s seconds=%.1f\n"
                "Declare it with `def`, or put the slow part into asyncio.to_thread.\n%s",
                name,
                stuck,
                stack,
            )


def _batches(attempts: list[Attempt]) -> list[list[Attempt]]:
    """Return ``attempts`` in parts that go in one request each, by number and by the size of what handlers said."""
    batches: list[list[Attempt]] = []
    room = 0
    for attempt in attempts:
        details = attempt.details
        size = 100 if details is None or not attempt.said else 100 + len(details.data)
        if not batches or len(batches[-1]) >= BATCH_ITEMS_MAX or size > room:
            batches.append([])
            room = REQUEST_BYTES_MAX // 2
        batches[-1].append(attempt)
        room -= size
    return batches


def _due_at(attempt: Attempt) -> float:
    """Return when the next heartbeat of ``attempt`` is due, on the monotonic clock."""
    if attempt.said and attempt.held:
        return min(attempt.beat_at, attempt.sent_at + attempt.said_pause)
    return attempt.beat_at
