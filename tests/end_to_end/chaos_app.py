"""The app whose workers are killed: what it does is written to the ledger before and after, and to the destination."""

import asyncio
import http.client
import json
import os
import time
import uuid
from pathlib import Path

from outlast import App, Retry, Signal, TaskContext, TaskError, workflow
from tests.end_to_end.chaos_ledger import Ledger

app = App("memory:")  # the command that starts the worker says which server it works for
ledger = Ledger(Path(os.environ["CHAOS_LEDGER"]), f"worker-{os.getpid()}")
word = Signal("word", str)

ENDLESS = Retry(max_attempts=0, first="20ms", longest="200ms")


@app.task(retry=ENDLESS, timeout="20s")
def apply(ctx: TaskContext, name: str, seconds: float) -> str:
    """Do something at the destination, once by operation id; each execution would return another value."""
    return work(ctx, name, seconds)


@app.task(max_attempts=1, timeout="20s")
def once(ctx: TaskContext, name: str, seconds: float) -> str:
    """As ``apply``, but with one attempt only: it may be executed at most once."""
    return work(ctx, name, seconds)


@app.workflow
async def flow(name: str, pauses: list[float]) -> list[str]:
    """Activities with sleeps between them, and some beside each other at the end."""
    values = [await surely(f"{name}/0", 0.03)]
    for n, pause in enumerate(pauses, 1):
        await workflow.sleep(pause)
        values.append(await surely(f"{name}/{n}", 0.02))
    values += await asyncio.gather(*(surely(f"{name}/{side}", 0.05) for side in ("left", "right")))
    return values


@app.workflow
async def listener(name: str, count: int) -> list[str]:
    """Hear ``count`` words and say them back in the order in which they came."""
    heard = [await word.receive() for _ in range(count)]
    await surely(f"{name}/heard", 0.02)
    return heard


@app.workflow
async def sleeper(name: str) -> str:
    """Sleep until cancelled."""
    await surely(f"{name}/0", 0.02)
    await workflow.sleep("1h")
    return "slept"


async def surely(name: str, seconds: float) -> str:
    """Return the value of an activity. One that was given up since its workers kept dying is another activity next time."""
    turn = 1
    while True:
        try:
            return await apply.execute(f"{name}#{turn}", seconds)
        except TaskError:
            turn += 1


def work(ctx: TaskContext, name: str, seconds: float) -> str:
    token = ctx._lease.token
    facts = {"name": name, "task": token.task_id, "lease": token.lease, "operation": ctx.operation_id}
    ledger.write("started", **facts)
    time.sleep(seconds)
    tell_destination(ctx.operation_id, name)
    value = f"{name}={uuid.uuid4().hex[:12]}"
    ledger.write("finished", value=value, **facts)
    return value


def tell_destination(operation: str, name: str) -> None:
    """Have the effect done; raises when the destination cannot be reached."""
    host, _, port = os.environ["CHAOS_DESTINATION"].removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request("POST", "/", json.dumps({"operation": operation, "name": name}))
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"the destination answered {response.status}")
        response.read()
    finally:
        connection.close()
