"""Large values over REST: whole where one thing is asked for, never in a list, and said to be lost where they are."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from outlast.core.inputs import CompleteTasks, Completion, EnqueueTask, TaskSucceeded
from outlast.core.payload import Payload
from outlast.core.replies import Work
from outlast.gateway.app import Gateway
from outlast.store.memory.blobs import MemoryBlobStore
from tests.engine.doubles import FaultyStore, a_poll, running
from tests.gateway.asgi import AsgiClient

T = TypeVar("T")
LARGE = b'"' + b"x" * 300_000 + b'"'


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives."""
    return asyncio.run(work)


async def shown(blobs: MemoryBlobStore, *, lose: bool) -> tuple[Any, bytes, Any]:
    """Return a task with a large result as REST gives it: alone, as a list, and its result."""
    async with running(FaultyStore(), blobs) as (engine, transport):
        client = AsgiClient(Gateway(engine))
        await transport.call(EnqueueTask(type="resize", queue="default", task_id="t-1"))
        work = await transport.call(a_poll())
        assert isinstance(work, Work)
        done = Completion(token=work.tasks[0].token, outcome=TaskSucceeded(result=(Payload("json/plain", LARGE),)))
        await transport.call(CompleteTasks(worker="w1", items=(done,)))
        if lose:
            blobs.blobs.clear()
        alone = await client.send("GET", "/api/v1/tasks/t-1")
        result = await client.send("GET", "/api/v1/tasks/t-1/result")
        assert (alone.status, result.status) == (200, 200)
        listed = await client.send("GET", "/api/v1/tasks")
        listing = await transport.list_tasks()
        assert (listing.tasks[0].result[0].size, listing.tasks[0].result[0].data) == (len(LARGE), b"")
        return alone.json()["result"][0], listed.body, result.json()["result"][0]


def test_a_large_value_is_whole_alone_and_absent_from_lists() -> None:
    alone, listed, result = run(shown(MemoryBlobStore(), lose=False))

    assert alone == result == "x" * 300_000
    assert len(listed) < 2_000


def test_a_large_value_that_is_lost_is_said_to_be_and_is_no_fault_of_the_server() -> None:
    alone, _, result = run(shown(MemoryBlobStore(), lose=True))

    assert alone == result
    assert (alone["encoding"], alone["size"]) == ("json/plain", len(LARGE))
    assert alone["blob"] in alone["why"]
    assert "missing" in alone["why"]
