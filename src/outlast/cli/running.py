"""Running until told to stop: signals, and the log when we are the program."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

from outlast.cli.printing import json_line
from outlast.gateway.values import instant
from outlast.server.settings import LogFormat

Result = TypeVar("Result")


class JsonLines(logging.Formatter):
    """One JSON object a line, for machines that gather logs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with its instant, level, logger and text, and the trace if there is one."""
        body: dict[str, object] = {
            "at": instant(int(record.created * 1e9)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            body["trace"] = self.formatException(record.exc_info)
        return json_line(body).rstrip("\n")


def log_to_stderr(level: str = "info", format: LogFormat = LogFormat.AUTO) -> None:
    """Log one line each on stderr: for people on a terminal, JSON lines elsewhere, unless ``format`` says which."""
    lines = sys.stderr.isatty() if format is LogFormat.AUTO else format is LogFormat.LINE
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(line_formatter() if lines else JsonLines())
    root = logging.getLogger()
    root.addHandler(handler)
    set_log_level(level)
    logging.getLogger("uvicorn").setLevel("ERROR")  # neither its starting nor what strangers send is news


def line_formatter() -> logging.Formatter:
    """Return what makes a record a line for people."""
    formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
    formatter.converter = time.gmtime
    return formatter


def set_log_level(level: str) -> None:
    """Log from this level on."""
    logging.getLogger().setLevel(level.upper())


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
