"""An event loop on a thread of its own, and the way into it from any other thread or loop."""

import asyncio
import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any, Final, TypeVar

from outlast.sdk.misuse import Blocked, NotStarted
from outlast.sdk.runtime import current_runtime

LOGGER: Final = logging.getLogger("outlast.worker")

R = TypeVar("R")

THREADS: Final[set[int]] = set()  # idents of the threads whose loops must never be blocked by a verb of ours


class Portal:
    """A running event loop on a thread of its own. Made running; ``close`` ends it."""

    def __init__(self, name: str, *, fast: bool = False) -> None:
        """``fast`` takes uvloop where it is installed: hand-overs between threads cost half."""
        self.loop = _new_loop() if fast else asyncio.new_event_loop()
        self._closed = False
        self._forked = False
        self._ending = False  # the next stop of the loop is its end
        self._crossings: dict[int, _Crossing] = {}
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self.thread.start()
        started.wait()

    def run(self, work: Coroutine[Any, Any, R], *, instead: str) -> R:
        """Run ``work`` on the loop and return what it returns, blocking this thread. ``instead`` names the async twin.

        Raises:
            Blocked: this thread runs a loop of the SDK's, or workflow code.
        """
        try:
            self._check(instead, blocking=True)
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError:
            raise _stopped() from None
        except BaseException:
            future.cancel()
            raise

    def check(self, instead: str = "", *, blocking: bool = False) -> None:
        """Refuse a call that may not be made here, or for which there is nothing any more; raises as ``run`` and ``arun``."""
        self._check(instead, blocking=blocking)

    async def arun(self, work: Coroutine[Any, Any, R], *, instead: str) -> R:
        """Run ``work`` on the loop and return what it returns, without blocking the loop of the caller."""
        try:
            self._check(instead, blocking=False)
        except BaseException:
            work.close()
            raise
        if threading.get_ident() == self.thread.ident:
            return await work
        loop = asyncio.get_running_loop()
        crossing = self._crossings.get(id(loop))
        if crossing is None or crossing.loop is not loop:
            crossing = self._open_crossing(loop)
        result: R = await crossing.run(work)
        return result

    def submit(self, work: Coroutine[Any, Any, R]) -> "Future[R]":
        """Run ``work`` on the loop without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """End the loop: what still runs on it is cancelled. Returns when its thread has ended."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(RuntimeError, FutureTimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result(timeout=5)
        self._ending = True
        with contextlib.suppress(RuntimeError):  # it was stopped a moment ago, and has ended
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=5)

    def forget_parents(self) -> None:
        """Refuse calls from now on, in a child of a fork: the thread that runs the loop is the parent's."""
        self._closed = self._forked = True

    def _open_crossing(self, loop: asyncio.AbstractEventLoop) -> "_Crossing":
        for key, crossing in list(self._crossings.items()):
            if crossing.loop.is_closed():
                del self._crossings[key]
        crossing = self._crossings[id(loop)] = _Crossing(loop, self.loop)
        return crossing

    def _check(self, instead: str, *, blocking: bool) -> None:
        if current_runtime() is not None:
            raise Blocked(
                "blocking_call_in_workflow",
                "Workflow code asked an engine directly: the answer is not recorded, so a replay could get another one.",
                remedy="Do it in a task and await that: `await my_task.execute(…)`; "
                "`await my_task.aenqueue(…)` enqueues one that outlives the run.",
            )
        if blocking and threading.get_ident() in THREADS:
            raise Blocked(
                "blocking_call_on_loop",
                "A blocking verb was called in a coroutine on an event loop of the app's: it would wait for itself.",
                remedy=f"Write: await {instead}",
            )
        if self._closed:
            raise forked() if self._forked else _stopped()

    def _run(self, started: threading.Event) -> None:
        ident = threading.get_ident()
        THREADS.add(ident)
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started.set)
        try:
            while not self._ending:
                self._turn()
        finally:
            THREADS.discard(ident)
            self.loop.close()

    def _turn(self) -> None:
        """Run the loop until it is stopped: by ``close``, or by code that thinks it its own, which does not end it."""
        error: BaseException | None = None
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as raised:  # asyncio lets no other out of a task or a callback
            error = raised
        if not self._ending:
            said = "stop() was called" if error is None else f"a task or callback raised {type(error).__name__}"
            LOGGER.warning("loop_stopped_by_user_code thread=%s reason=%s; it goes on", self.thread.name, said)


class _Crossing:
    """From one caller's loop to the portal's and back: many calls share a wake-up, and so do what they return.

    Each side appends to a deque and wakes the other only if nobody has yet; the waking side clears the mark before it
    empties the deque, so that nothing is left lying.
    """

    __slots__ = ("_asked", "_ended", "_portal_woken", "_portals", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, portals: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._portals = portals
        self._asked: deque[tuple[Coroutine[Any, Any, Any], _Crossed]] = deque()
        self._ended: deque[tuple[asyncio.Task[Any], _Crossed]] = deque()
        self._portal_woken = False
        self._woken = False

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what ``work`` returns on the portal's loop; a caller that is cancelled takes it along."""
        crossed = _Crossed(self.loop.create_future())
        self._asked.append((work, crossed))
        if not self._portal_woken:
            self._portal_woken = True
            try:
                self._portals.call_soon_threadsafe(self._take)
            except RuntimeError:  # the portal has closed
                self._portal_woken = False
                self._asked.clear()
                work.close()
                raise
        try:
            return await crossed.future
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):
                self._portals.call_soon_threadsafe(crossed.cancel)
            raise

    def _take(self) -> None:
        self._portal_woken = False
        while self._asked:
            work, crossed = self._asked.popleft()
            crossed.task = self._portals.create_task(work)
            crossed.task.add_done_callback(partial(self._end, crossed))

    def _end(self, crossed: "_Crossed", task: "asyncio.Task[Any]") -> None:
        self._ended.append((task, crossed))
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the caller's loop has closed: nobody takes what is here
                self._ended.clear()

    def _deliver(self) -> None:
        self._woken = False
        while self._ended:
            task, crossed = self._ended.popleft()
            future = crossed.future
            if task.cancelled():
                future.cancel()
            elif (error := task.exception()) is not None:
                if not future.done():
                    future.set_exception(error)
            elif not future.done():
                future.set_result(task.result())


class _Crossed:
    """One call on its way: the future on the caller's side, the task on the portal's."""

    __slots__ = ("future", "task")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self.future = future
        self.task: asyncio.Task[Any] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


def forked() -> NotStarted:
    """Return what is raised in a child of the process that started the app."""
    return NotStarted(
        "app_not_started",
        f"The app was started before this process ({os.getpid()}) was forked off: its engine and threads are the parent's.",
        remedy="Start it after the fork, by `with app:` in the child, which then is a client of the parent's engine.",
    )


def _stopped() -> NotStarted:
    return NotStarted("app_not_started", "The app has stopped.", remedy="Keep the call within `with app:`.")


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - optional, and slow to load
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
