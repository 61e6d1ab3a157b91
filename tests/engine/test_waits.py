"""Waits for results over HTTP: many share one exchange, and each of them ends by itself."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlast.core.errors import NotFound
from outlast.core.inputs import AwaitTask, CompleteTasks, Completion, DescribeTask, EnqueueTasks, TaskSucceeded
from outlast.core.replies import Refused, TaskOutcomeReply, TaskState, Work
from outlast.engine.frontend import Engine
from outlast.gateway.app import Gateway, Policy
from outlast.gateway.auth import ROLES, Caller, Token, digest_of
from outlast.protocol.wire import MSGPACK, decode_reply, encode, frame_of, frames_in
from outlast.sdk.http import HttpTransport
from outlast.server.listener import Listener, bind
from tests.engine.doubles import FaultyStore, a_poll, a_task, json_of, run, running
from tests.gateway.asgi import AsgiClient


@dataclass
class Counted:
    """A gateway that keeps the path of every request, and how many are being answered."""

    gateway: Gateway
    paths: list[str] = field(default_factory=list[str])
    open: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope["path"].rpartition("/")[2])
        self.open += 1
        try:
            await self.gateway(scope, receive, send)
        finally:
            self.open -= 1


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[Engine, Counted, HttpTransport]]:
    async with running(FaultyStore()) as (engine, _):
        counted = Counted(Gateway(engine))
        listener = Listener(counted, bind("127.0.0.1", 0))
        await listener.start()
        transport = HttpTransport(listener.address)
        try:
            yield engine, counted, transport
        finally:
            await transport.close()
            await listener.stop()


async def enqueued(transport: HttpTransport, count: int) -> list[str]:
    ids = [f"t-{n}" for n in range(count)]
    await transport.call(EnqueueTasks(items=tuple(a_task(task_id=id, key=id) for id in ids)))
    return ids


async def finish_one(transport: HttpTransport) -> str:
    """Run one task and return its id."""
    polled = await transport.call(a_poll(slots=1))
    assert isinstance(polled, Work)
    token = polled.tasks[0].token
    done = Completion(token=token, outcome=TaskSucceeded(result=(json_of(b"1"),)))
    await transport.call(CompleteTasks(worker="w1", items=(done,)))
    return token.task_id


def test_waits_that_share_an_exchange_end_one_by_one() -> None:
    async def work() -> None:
        async with served() as (_, counted, transport):
            ids = await enqueued(transport, 3)
            waiting = {id: asyncio.create_task(transport.call(AwaitTask(task_id=id))) for id in ids}
            ended: list[str] = []
            while waiting:
                id = await finish_one(transport)
                reply = await waiting.pop(id)
                ended.append(id)
                assert reply == TaskOutcomeReply(
                    task_id=id, state=TaskState.SUCCEEDED, attempt=1, result=(json_of(b"1"),)
                )
                assert not any(other.done() for other in waiting.values())

            assert sorted(ended) == ids
            assert counted.paths.count("waits") == 1

    run(work)


def test_a_wait_for_what_is_not_there_refuses_only_itself() -> None:
    async def work() -> None:
        async with served() as (_, _, transport):
            (id,) = await enqueued(transport, 1)
            good = asyncio.create_task(transport.call(AwaitTask(task_id=id)))
            with pytest.raises(NotFound):
                await transport.call(AwaitTask(task_id="nope"))
            assert await finish_one(transport) == id
            assert isinstance(await good, TaskOutcomeReply)

    run(work)


def test_waits_that_the_server_sends_back_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.gateway.routes.waits.HELD_MAX", 0.05)
    monkeypatch.setattr("outlast.sdk.line.HELD_MIN", 0.01)

    async def work() -> None:
        async with served() as (_, counted, transport):
            (id,) = await enqueued(transport, 1)
            waiting = asyncio.create_task(transport.call(AwaitTask(task_id=id)))
            while counted.paths.count("waits") < 3:  # noqa: ASYNC110 - nobody tells of a request
                await asyncio.sleep(0.01)
            assert not waiting.done()
            await finish_one(transport)

            assert isinstance(await waiting, TaskOutcomeReply)

    run(work)


def test_an_exchange_ends_when_its_last_wait_is_given_up() -> None:
    async def work() -> None:
        async with served() as (engine, counted, transport):
            ids = await enqueued(transport, 2)
            waiting = [asyncio.create_task(transport.call(AwaitTask(task_id=id))) for id in ids]
            while not counted.open:  # noqa: ASYNC110 - nobody tells of a request
                await asyncio.sleep(0.01)
            waiting[0].cancel()
            await asyncio.sleep(0.05)
            assert counted.open == 1
            waiting[1].cancel()
            while counted.open or engine._shell._open:  # noqa: ASYNC110 - a server notices in its own time
                await asyncio.sleep(0.01)

            assert all(wait.cancelled() for wait in await _ended(waiting))

    run(work)


async def _ended(tasks: list[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    await asyncio.wait(tasks)
    return tasks


def test_a_call_that_was_sent_once_is_cancelled_when_its_answer_is_lost() -> None:
    async def work() -> None:
        transport = HttpTransport("http://127.0.0.1:1")
        call = transport.ask(AwaitTask(task_id="t-1"))
        await asyncio.wait([call.future])
        await transport.close()

        assert call.future.cancelled()

    run(work)


def test_only_waits_for_results_are_taken_among_waits() -> None:
    async def work() -> None:
        async with running(FaultyStore()) as (engine, _):
            client = AsgiClient(Gateway(engine))
            body = encode((AwaitTask(task_id="t-1"), DescribeTask(task_id="t-1")))
            answer = await client.send("POST", "/api/v1/worker/waits", body=body, headers={"content-type": MSGPACK})
            reply = decode_reply(answer.body)

            assert answer.status == 400
            assert isinstance(reply, Refused)
            assert "DescribeTask" in reply.fact

    run(work)


@pytest.mark.parametrize(("role", "status"), [("reader", 200), ("worker", 403)])
def test_who_may_not_read_may_not_wait_for_many(role: str, status: int) -> None:
    async def work() -> None:
        async with running(FaultyStore()) as (engine, _):
            caller = Caller("somebody", ROLES[role])
            client = AsgiClient(Gateway(engine, policy=Policy(tokens=(Token(digest_of(b"secret"), caller),))))
            answer = await client.send(
                "POST",
                "/api/v1/worker/waits",
                body=encode((AwaitTask(task_id="nope"),)),
                headers={"content-type": MSGPACK, "authorization": "Bearer secret"},
            )

            assert answer.status == status

    run(work)


def test_frames_come_whole_however_they_were_cut() -> None:
    replies = [(n, TaskOutcomeReply(task_id=f"t-{n}", state=TaskState.SUCCEEDED)) for n in range(5)]
    stream = frame_of(replies[:2]) + frame_of([]) + frame_of(replies[2:])
    for size in (1, 3, 4, 7, len(stream)):
        buffer, got = bytearray(), list[Any]()
        for first in range(0, len(stream), size):
            buffer += stream[first : first + size]
            for frame in frames_in(buffer):
                got += frame
        assert got == replies
        assert not buffer
