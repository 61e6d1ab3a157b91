"""How many events of a history a worker replays in a second, and what one turn from memory costs.

python benchmarks/replay.py [activities]     one after another, and in groups of a hundred
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from outlast.sdk.replay import WorkflowRun
from tests.sdk.histories import CONVERTER, Stage, definition_of, task, workflow_task

WANTED = 40_000  # events a second


@task
def work(number: int) -> int:
    return number


async def one_after_another(count: int) -> int:
    total = 0
    for number in range(count):
        total += await work.execute(number)
    return total


async def in_groups(count: int) -> int:
    total = 0
    for first in range(0, count, 100):
        total += sum(await asyncio.gather(*(work.execute(first + number) for number in range(100))))
    return total


def play(function: Callable[..., Any], count: int) -> tuple[Stage, float]:
    """Return a history of ``count`` activities and the processor seconds its turns took from memory."""
    stage = Stage().start(function, count)
    spent = 0.0
    while stage.closed is None:
        began = time.process_time()
        stage.turn()
        spent += time.process_time() - began
        for activity_id in list(stage.activities):
            stage.complete(activity_id, 1)
    stage.close()
    return stage, spent


def replays(stage: Stage, function: Callable[..., Any]) -> float:
    """Return events a second of processor time: the best of five replays, on a machine that others use as well."""
    definition = definition_of(function)
    whole = workflow_task(stage.history)
    best = 0.0
    for _ in range(5):
        began = time.process_time()
        run = WorkflowRun(definition, CONVERTER)
        run.advance(whole)
        best = max(best, len(stage.history) / (time.process_time() - began))
        run.close()
    return best


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for function in (one_after_another, in_groups):
        stage, spent = play(function, count)
        rate = replays(stage, function)
        turns = len(stage.turns)
        print(
            f"{function.__name__}: {len(stage.history):,} events, {rate:,.0f} events/s replayed (wanted {WANTED:,}); "
            f"{turns:,} turns from memory, {spent / turns * 1e6:,.0f} us each"
        )


if __name__ == "__main__":
    main()
