"""What lasts ends with the policy that let it in: a token that was taken out gets nothing more, a key opens nothing more."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Encrypt, KeyRing
from outlast.core.inputs import AwaitTask, EnqueueTask
from outlast.gateway.app import Gateway, Policy
from outlast.gateway.auth import one_token
from outlast.protocol.opening import opener_of
from outlast.protocol.wire import MSGPACK, encode
from tests.engine.doubles import a_poll, run, running
from tests.gateway.asgi import AsgiClient, Response
from tests.gateway.serving import served

OLD, NEW = ({"authorization": f"Bearer {name}"} for name in ("old", "new"))
PACKED = {"content-type": MSGPACK}
STREAM = {"accept": "text/event-stream"}
EVENTS = "/api/v1/workflows/o-1/events"
RING = KeyRing({"2026-11": bytes(range(32))}, current="2026-11")
SEALED = Policy(opener=opener_of([Encrypt.name], RING))


def setting(came: asyncio.Event, word: bytes) -> Callable[[bytes], None]:
    """Return what sets ``came`` when ``word`` has come."""
    return lambda body: came.set() if word in body else None


async def began(client: AsgiClient, headers: dict[str, str]) -> None:
    """Start workflow o-1."""
    await client.send(
        "POST", "/api/v1/workflows", json={"type": "order", "id": "o-1", "input": ["visa"]}, headers=headers
    )


async def once_more(client: AsgiClient, headers: dict[str, str]) -> None:
    """Let something happen in workflow o-1."""
    said = {"name": "go", "input": ["later"]}
    assert (await client.send("POST", "/api/v1/workflows/o-1/signal", json=said, headers=headers)).status == 202


@pytest.mark.parametrize("target", ["/api/v1/feed", EVENTS])
def test_a_stream_ends_with_its_token_and_is_refused_when_it_comes_back(target: str) -> None:
    async def work() -> None:
        async with served(policy=Policy(one_token("old"))) as (client, _):
            await began(client, OLD)
            came = asyncio.Event()
            stream = asyncio.create_task(
                client.send("GET", target, headers={**STREAM, **OLD}, on_piece=setting(came, b"visa"))
            )
            await came.wait()
            client.app.replace(Policy(one_token("new")))
            await once_more(client, NEW)
            async with asyncio.timeout(5):
                body = (await stream).body
            again = await client.send("GET", target, headers={**STREAM, **OLD})

            assert b"later" not in body
            assert again.status == 401

    run(work)


def test_a_stream_that_nothing_happens_to_ends_at_once() -> None:
    async def work() -> None:
        async with served() as (client, _):
            stream = asyncio.create_task(client.send("GET", "/api/v1/feed", headers=STREAM))
            await asyncio.sleep(0.05)
            client.app.replace(Policy())
            async with asyncio.timeout(5):
                assert (await stream).status == 200

    run(work)


def test_readers_at_one_place_get_values_by_their_own_policy() -> None:
    async def read(client: AsgiClient) -> bytes:
        hang_up = asyncio.Event()
        answer = await client.send(
            "GET",
            "/api/v1/feed",
            headers=STREAM,
            hang_up=hang_up,
            on_piece=setting(hang_up, b"data: "),
        )
        return answer.body

    async def work() -> None:
        async with served(policy=SEALED) as (client, _):
            await began(client, {})
            opened = await read(client)
            client.app.replace(Policy())
            closed = await read(client)

            assert b"visa" in opened
            assert b"visa" not in closed
            assert b'"key":"2026-11"' in closed

    run(work)


async def held(client: AsgiClient, method: str, target: str, **sent: Any) -> tuple[bool, Response]:
    """Ask, replace the policy while it is held, and return whether it was held and what came."""
    asking = asyncio.create_task(client.send(method, target, headers={**OLD, **sent.pop("headers", {})}, **sent))
    await asyncio.sleep(0.1)
    was_held = not asking.done()
    client.app.replace(Policy(one_token("new")))
    async with asyncio.timeout(5):
        return was_held, await asking


@pytest.mark.parametrize(
    "target", ["/api/v1/feed?after=now&wait=20s", "/api/v1/workflows/o-1/history?after=3&wait=20s"], ids=str
)
def test_a_page_that_is_held_is_refused_when_the_policy_ends(target: str) -> None:
    async def work() -> None:
        async with served(policy=Policy(one_token("old"))) as (client, _):
            await began(client, OLD)
            known = (await client.send("GET", "/api/v1/workflows/o-1", headers=OLD)).json()["events"]
            was_held, reply = await held(client, "GET", target.replace("after=3", f"after={known}"))

            assert was_held
            assert (reply.status, reply.json()["code"]) == (503, "unavailable")
            assert "who may call" in reply.json()["detail"]

    run(work)


def test_a_result_that_is_waited_for_is_refused_when_the_policy_ends() -> None:
    async def work() -> None:
        async with served(policy=Policy(one_token("old"))) as (client, _):
            await began(client, OLD)
            was_held, reply = await held(client, "GET", "/api/v1/workflows/o-1/result?wait=20s")

            assert was_held
            assert (reply.status, reply.json()["code"]) == (503, "unavailable")

    run(work)


def test_a_poll_of_a_worker_ends_with_the_policy_and_takes_no_work_after() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            client = AsgiClient(Gateway(engine, policy=Policy(one_token("old"))))
            poll = encode(a_poll(task_types=("resize",), wait=20_000_000_000))
            was_held, reply = await held(client, "POST", "/api/v1/worker/call", body=poll, headers=PACKED)
            await transport.call(EnqueueTask(type="resize", queue="default", task_id="t-1"))
            task = (await client.send("GET", "/api/v1/tasks/t-1", headers=NEW)).json()

            assert was_held
            assert reply.status == 503
            assert task["state"] == "enqueued"

    run(work)


def test_many_waits_by_one_exchange_end_with_the_policy() -> None:
    async def work() -> None:
        async with running() as (engine, transport):
            client = AsgiClient(Gateway(engine, policy=Policy(one_token("old"))))
            await transport.call(EnqueueTask(type="resize", queue="default", task_id="t-1"))
            body = encode((AwaitTask(task_id="t-1"),))
            was_held, reply = await held(client, "POST", "/api/v1/worker/waits", body=body, headers=PACKED)

            assert was_held
            assert (reply.status, reply.body) == (200, b"")

    run(work)
