"""How late do 5,000 timers fire that are due at the same instant, and how late is the code that waited for them?

Estimate before measuring: a thousand due timers are one tick and one commit of some 4,000 rows, 60 ms each: the last is fired
0.3 s after it was due. The code then takes its turns at some 5,000 a second, so the last has its turn after a second more.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from benchmarks.figures import Figure, fresh_store
from outlast import App, workflow
from outlast.core.events import TimerFired, TimerStarted
from outlast.sdk.handle import WorkflowHandle

TIMERS = 5_000
AHEAD = timedelta(seconds=20)  # in which all must have been set, for those that are set later are late by that
READERS = 16

app = App("memory:")


@app.workflow
async def sleeper(due: datetime) -> float:
    await workflow.sleep(due - workflow.now())
    return (workflow.now() - due).total_seconds()


async def fired(handle: WorkflowHandle[float]) -> float:
    """Return how late a run's timer was fired, in seconds, by its history."""
    page = await app.connect().transport.read_history(handle.id, handle.run_id)
    due, fired_at = 0, 0
    for at, event in page.events:
        if isinstance(event, TimerStarted):
            due = event.fire_at
        elif isinstance(event, TimerFired):
            fired_at = at
    return (fired_at - due) / 1e9


async def lateness() -> tuple[list[float], list[float]]:
    """Return how late timers fired, and how late the turns of the code were that waited, both in order."""
    due = datetime.now(UTC) + AHEAD
    handles = await sleeper.astart_many([(due,) for _ in range(TIMERS)])
    turns = await asyncio.gather(*(handle.aresult(timeout="100s") for handle in handles))
    firings: list[float] = []
    waiting = list(handles)

    async def reader() -> None:
        while waiting:
            firings.append(await fired(waiting.pop()))

    await asyncio.gather(*(reader() for _ in range(READERS)))
    return sorted(firings), sorted(turns)


def measure(*, full: bool) -> list[Figure]:  # noqa: ARG001 - five thousand is the question
    """Return the 99th percentile of both."""
    with fresh_store() as store:
        app.store = store
        with app:
            began = time.process_time()
            firings, turns = asyncio.run(lateness())
            used = time.process_time() - began
    place = int(TIMERS * 0.99)
    note = f"{used:.1f} s of processor in all"
    return [
        Figure(name="5,000 timers due at once: fired late, p99", value=firings[place], unit="s", wanted=0.5, note=note),
        Figure(name="5,000 timers due at once: turn of the code late, p99", value=turns[place], unit="s"),
    ]
