"""How a contender's program talks with the one that measures: a line of JSON in for each turn, a line out for its figure.

A program is started with a folder of its own, says once what it is, and then answers turns until its input ends. Whatever
else it or its libraries print goes to its log. Only the standard library is needed.
"""

import asyncio
import itertools
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TextIO

from benchmarks.peers.tally import Tally

SHORT = 0.0005  # seconds between two looks at the tally

Measure = Callable[[float], Awaitable[float]]  # seconds that the turn may take -> the figure in the workload's unit


class NotDone(Exception):
    """Something did not happen in the time that it had."""


async def closed_loop(callers: int, seconds: float, once: Callable[[int], Awaitable[object]]) -> float:
    """Return how many ``once`` a second are answered when ``callers`` call it one after another for ``seconds``."""
    numbers = itertools.count()
    done = 0
    began = time.perf_counter()

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await once(next(numbers))
            done += 1

    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - began)


async def until(condition: Callable[[], bool], *, within: float = 60.0, step: float = 0.005) -> None:
    """Return once ``condition`` holds. Raises NotDone when it does not within so many seconds."""
    ends = time.monotonic() + within
    while not condition():
        if time.monotonic() > ends:
            raise NotDone(f"not done within {within:g} s")
        await asyncio.sleep(step)


async def median_ms(seconds: float, once: Callable[[int], Awaitable[float]], *, pause: float = 0.01) -> float:
    """Return the median of what ``once`` gives in seconds, one at a time on an idle system, in milliseconds."""
    taken: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds and len(taken) < 500:
        taken.append(await once(len(taken) + 1))
        await asyncio.sleep(pause)
    return statistics.median(taken) * 1_000


async def to_handler_ms(
    seconds: float, tally: Tally, submit: Callable[[int], Awaitable[object]], *, pause: float = 0.01
) -> float:
    """Return the median from a submission to the handler that stamps its number, one at a time, in milliseconds."""

    async def once(number: int) -> float:
        began = time.time()
        await submit(number)
        await until(lambda: tally.stamped(number) > 0, step=SHORT)
        return tally.stamped(number) - began

    tally.clear()
    return await median_ms(seconds, once, pause=pause)


async def timed(once: Callable[[], Awaitable[object]], *, times: int = 3) -> float:
    """Return the median of how many seconds ``once`` takes."""
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await once()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def say(out: TextIO, **facts: Any) -> None:
    """Write one line."""
    out.write(json.dumps(facts) + "\n")
    out.flush()


def own_output() -> TextIO:
    """Return where lines are read, and send everything that is printed from now on to the log."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


async def serve(out: TextIO, about: Mapping[str, str], measures: Mapping[str, Measure]) -> None:
    """Say what this contender is and can do, then answer each turn until there is none."""
    say(out, about=dict(about), workloads=list(measures))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        try:
            say(out, value=await measures[asked["workload"]](asked["seconds"]))
        except Exception as error:  # noqa: BLE001 - the one that measures says it
            traceback.print_exc()
            say(out, error=f"{type(error).__name__}: {error}"[:300])
