"""An event loop on a thread of its own, and the way into it from any other thread or loop."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from outlast.sdk.misuse import Blocked, NotStarted
from outlast.sdk.runtime import current_runtime

R = TypeVar("R")

THREADS: Final[set[int]] = set()  # idents of the threads whose loops must never be blocked by a verb of ours


class Portal:
    """A running event loop on a thread of its own. Made running; ``close`` ends it."""

    def __init__(self, name: str, *, fast: bool = False) -> None:
        """``fast`` takes uvloop where it is installed: hand-overs between threads cost half."""
        self.loop = _new_loop() if fast else asyncio.new_event_loop()
        self._closed = False
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
        except BaseException:
            future.cancel()
            raise

    async def arun(self, work: Coroutine[Any, Any, R], *, instead: str) -> R:
        """Run ``work`` on the loop and return what it returns, without blocking the loop of the caller."""
        try:
            self._check(instead, blocking=False)
        except BaseException:
            work.close()
            raise
        if threading.get_ident() == self.thread.ident:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

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
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=5)

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
            raise NotStarted("app_not_started", "The app has stopped.", remedy="Keep the call within `with app:`.")

    def _run(self, started: threading.Event) -> None:
        ident = threading.get_ident()
        THREADS.add(ident)
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started.set)
        try:
            self.loop.run_forever()
        finally:
            THREADS.discard(ident)
            self.loop.close()


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
