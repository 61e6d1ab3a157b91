"""Where handlers run: plain functions in threads, coroutines on a loop of their own. Never on the worker's loop."""

import asyncio
import functools
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from outlast.core.inputs import TaskCanceled
from outlast.sdk.attempt import Attempt
from outlast.sdk.backlog import Backlog
from outlast.sdk.portal import Portal

LEAKED_MAX: Final = 32  # stuck threads that are replaced; beyond it a stuck one keeps its slot


class Hands:
    """Gives finished work back to the worker's loop: one hand-over for all that has finished meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, collect: Callable[[], None]) -> None:
        self._loop = loop
        self._collect = collect
        self._called = False

    def call(self) -> None:
        """Have ``collect`` run on the loop soon. From any thread."""
        if not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop has ended: nobody waits for what is still coming in
                self._called = False

    def _run(self) -> None:
        self._called = False  # before collecting: what comes after this asks for another run
        self._collect()


class ThreadPool:
    """Threads for plain functions, started when there is work for them."""

    def __init__(self, threads_max: int, finished: deque[Attempt], hands: Hands) -> None:
        self.threads_max = threads_max
        self.leaked = 0
        self._finished = finished
        self._hands = hands
        self._backlog: Backlog[Attempt | None] = Backlog()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def submit(self, attempts: Sequence[Attempt], *, held: int) -> None:
        """Have each attempt run as soon as a thread is free; ``held`` are in here now, these among them.

        From the worker's loop.
        """
        self._backlog.put(attempts)
        for _ in range(min(self.threads_max, held) + self.leaked - len(self._threads)):
            thread = threading.Thread(target=self._work, name="outlast-task", daemon=True)
            self._threads.add(thread)
            thread.start()

    def abandon(self) -> bool:
        """Replace a thread whose handler lost its lease and does not return; False when too many are stuck already."""
        if self.leaked >= LEAKED_MAX:
            return False
        self.leaked += 1
        self.submit((), held=self.threads_max)
        return True

    def recovered(self) -> None:
        """An abandoned handler has returned: one thread too many is there now, and ends."""
        self.leaked -= 1
        self._backlog.put((None,))  # whichever thread takes it ends

    def close(self) -> None:
        """End the threads that are idle; those that run a handler end with it."""
        self._closed = True
        self._backlog.put([None] * len(self._threads))

    def _work(self) -> None:
        take, finished, hands = self._backlog.take, self._finished.append, self._hands.call
        while True:
            attempt = take()
            if attempt is None:
                break
            if not attempt.claim():
                continue
            attempt.started = True
            attempt.run()
            finished(attempt)
            hands()
            del attempt
        self._threads.discard(threading.current_thread())


class CoroutinePool:
    """A loop on a thread of its own for coroutines of users: one that blocks it does not hold up the worker."""

    def __init__(self, finished: deque[Attempt], hands: Hands) -> None:
        self._finished = finished
        self._hands = hands
        self._portal: Portal | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._pinged_at = 0.0  # when a ping was sent that has not been answered; 0 for none

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Have each attempt run. From the worker's loop."""
        if self._portal is None:
            self._portal = Portal("outlast-async")
        self._portal.loop.call_soon_threadsafe(self._begin, list(attempts))

    def cancel(self, attempt: Attempt) -> None:
        """Cancel the attempt's coroutine, if it still runs. From any thread."""
        if self._portal is not None:
            self._portal.loop.call_soon_threadsafe(self._cancel, attempt)

    def ping(self, now: float) -> float:
        """Return for how many seconds the loop has not turned, and ask it to show that it does."""
        if self._portal is None:
            return 0.0
        if self._pinged_at:
            return now - self._pinged_at
        self._pinged_at = now
        self._portal.loop.call_soon_threadsafe(self._answer)
        return 0.0

    def blocker(self) -> tuple[str, str]:
        """Return the name of the attempt that the loop is executing now, and where."""
        portal = self._portal
        if portal is None:
            return "", ""
        task = asyncio.current_task(portal.loop)
        frames = sys._current_frames()  # noqa: SLF001 - the only way to a thread's stack  # pyright: ignore[reportPrivateUsage]
        frame = frames.get(portal.thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)[-8:]) if frame is not None else ""
        return (task.get_name() if task is not None else ""), stack

    def close(self) -> None:
        """Cancel what still runs, and end the loop."""
        if self._portal is not None:
            self._portal.close()

    def _begin(self, attempts: list[Attempt]) -> None:
        loop = asyncio.get_running_loop()
        for attempt in attempts:
            if not attempt.claim():
                continue
            attempt.started = True
            task = loop.create_task(attempt.arun(), name=attempt.name)
            attempt.task = task
            self._running.add(task)
            task.add_done_callback(functools.partial(self._ended, attempt))

    def _ended(self, attempt: Attempt, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        attempt.task = None
        if attempt.outcome is None:  # cancelled before its first line
            attempt.outcome = TaskCanceled()
        self._finished.append(attempt)
        self._hands.call()

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.task is not None:
            attempt.task.cancel()

    def _answer(self) -> None:
        self._pinged_at = 0.0
