"""The writer thread: work is handed to it from the event loop, and its results come back to the loop."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class WriterThread:
    """Runs what it is given, one after another, in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], _T]) -> "asyncio.Future[_T]":
        """Return the future of ``work``, which runs after all that was submitted before it.

        The work runs to its end even when nobody waits for the future any more.
        """
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._work.put((work, future))
        return future

    def stop(self) -> None:
        """End the thread once what was submitted has run; waits for it."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, future = item
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                _hand_over(future, None, error)
            else:
                _hand_over(future, result, None)


def _hand_over(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    try:
        future.get_loop().call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:
        # The loop is closed: its process is on the way out, and nobody is left to be told.
        return


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
