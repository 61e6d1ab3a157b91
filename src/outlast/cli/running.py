"""Running until told to stop: signals, and the log when we are the program."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_LEVELS: Final = {"DEBUG", "INFO", "WARNING", "ERROR"}


def log_to_stderr() -> None:
    """Log one line each on stderr; ``OUTLAST_LOG`` sets the level."""
    level = os.environ.get("OUTLAST_LOG", "INFO").upper()
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level if level in _LEVELS else "INFO")
    logging.getLogger("uvicorn").setLevel("ERROR")  # neither its starting nor what strangers send is news


async def until_told(loop: asyncio.AbstractEventLoop) -> None:
    """Return at SIGINT or SIGTERM. A second one ends the process at once."""
    told = asyncio.Event()

    def tell() -> None:
        if told.is_set():
            os._exit(130)
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, tell)
        except NotImplementedError:  # a platform whose loops take no signals
            signal.signal(number, _teller(loop, tell))
    await told.wait()


def _teller(loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    def hear(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(tell)

    return hear


def run_fast(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run ``work`` on the fastest kind of loop there is."""
    from outlast.server.embedded import new_loop

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work())
