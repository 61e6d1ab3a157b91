"""The tasks and workflows of the workloads, as a user of Outlast would write them."""

import asyncio
import os

from benchmarks.peers.tally import Tally
from benchmarks.peers.workloads import FAN_OUT, STEPS
from outlast import App

TALLY_VARIABLE = "BENCH_TALLY"

app = App("memory:")
_tallies: list[Tally] = []


def tally() -> Tally:
    """Return the tally of this process."""
    if not _tallies:
        _tallies.append(Tally(os.environ[TALLY_VARIABLE]))
    return _tallies[0]


@app.task
async def step(number: int) -> int:
    return number


@app.task
async def nothing(number: int) -> int:
    tally().add()
    return number


@app.task
async def stamp(number: int) -> int:
    tally().stamp(number)
    return number


@app.workflow
async def one_step(number: int) -> int:
    return await step.execute(number)


@app.workflow
async def ten_steps(number: int) -> int:
    total = number
    for n in range(STEPS):
        total += await step.execute(n)
    return total


@app.workflow
async def fan_out() -> int:
    return sum(await asyncio.gather(*(step.execute(n) for n in range(FAN_OUT))))
