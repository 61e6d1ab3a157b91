"""Where handlers run: plain functions in threads, coroutines on a loop of their own. Never on the worker's loop."""

import asyncio
import contextvars
import sys
import threading
import traceback
import types
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final

from outlast.sdk.attempt import Attempt
from outlast.sdk.backlog import Backlog
from outlast.sdk.portal import Portal

TURN_MAX: Final = 0.005  # seconds for which attempts that never wait hold up the others on their loop
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


@types.coroutine
def _driven(attempt: Attempt, context: contextvars.Context, keep: Callable[[], None]) -> Generator[Any, Any, None]:
    """Await the attempt in ``context``; ``keep`` is called before it waits for the first time."""
    work, step = attempt.arun(), context.run
    send, value = work.send, None
    kept = False
    while True:
        try:
            waited_for = step(send, value)
        except StopIteration:
            return
        if not kept:
            kept = True
            keep()
        try:
            value = yield waited_for
            send = work.send
        except BaseException as error:  # noqa: BLE001 - a cancellation, as a rule: it is for the handler
            send, value = work.throw, error


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

    def _begin(self, attempts: Iterable[Attempt]) -> None:
        """Run the attempts, in one task for as long as none of them waits.

        A task costs as much as a short handler. An attempt that waits keeps the task to itself from then on, and those
        behind it go on in a new one.
        """
        loop = asyncio.get_running_loop()
        behind = deque(attempts)
        task = loop.create_task(self._run(behind, loop.time() + TURN_MAX), name="outlast-attempts")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, waiting: deque[Attempt], until: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        while waiting:
            attempt = waiting.popleft()
            if not attempt.claim():
                continue
            attempt.started = True
            attempt.task = task
            task.set_name(attempt.name)
            own = False

            def keep() -> None:
                nonlocal own
                own = True
                if waiting:
                    self._begin(waiting)

            await _driven(attempt, contextvars.copy_context(), keep)
            attempt.task = None
            self._finished.append(attempt)
            self._hands.call()
            if own:
                return
            if waiting and (task.cancelling() or task.get_loop().time() > until):
                # A cancellation that nobody took is this attempt's; and others on the loop want their turn.
                self._begin(waiting)
                return

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.task is not None:
            attempt.task.cancel()

    def _answer(self) -> None:
        self._pinged_at = 0.0
