"""Encrypted values over REST: opened and coded by a server that was given the keys, closed and refused by others."""

import asyncio
import base64
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from outlast import Encrypt, KeyRing, Zstd
from outlast.core.failure import SEALED, Failure, FailureKind
from outlast.core.inputs import CompleteTasks, Completion, EnqueueTask, TaskFailed, TaskSucceeded
from outlast.core.payload import Payload
from outlast.core.replies import Work
from outlast.gateway.app import Policy
from outlast.protocol.codecs import CODED, Chain
from outlast.protocol.opening import opener_of
from outlast.protocol.seals import sealed
from tests.engine.doubles import a_poll
from tests.gateway.serving import served

T = TypeVar("T")
RING = KeyRing({"2026-11": bytes(range(32))}, current="2026-11")
OTHER = KeyRing({"2026-11": bytes(range(1, 33))}, current="2026-11")
CHAIN = Chain([Zstd(), Encrypt(RING)])
NAMES = ("zstd", "encrypt")
TASK = "/api/v1/tasks/t-1"
CARD = b'"visa-4242"'


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives."""
    return asyncio.run(work)


async def finish(transport: Any, result: Payload) -> Payload:
    """Enqueue a task, complete it with ``result``, and return the input as its worker had it."""
    card = CHAIN.encode(Payload("json/plain", CARD))
    await transport.call(EnqueueTask(type="charge", queue="default", task_id="t-1", input=(card,)))
    lease = (await leased(transport)).tasks[0]
    done = Completion(token=lease.token, outcome=TaskSucceeded(result=(result,)))
    await transport.call(CompleteTasks(worker="w1", items=(done,)))
    return lease.input[0]


async def leased(transport: Any) -> Work:
    """Return the work that a worker gets."""
    work = await transport.call(a_poll(task_types=("charge",)))
    assert isinstance(work, Work)
    return work


async def result_with(policy: Policy, result: Payload) -> Any:
    """Return what REST gives as the result of a task that ended with ``result``."""
    async with served(policy=policy) as (client, transport):
        await finish(transport, result)
        answer = await client.send("GET", f"{TASK}/result")
        assert answer.status == 200
        return answer.json()["result"][0]


def test_a_server_with_the_keys_shows_values() -> None:
    given = run(result_with(Policy(opener=opener_of(NAMES, RING)), CHAIN.encode(Payload("json/plain", CARD))))

    assert given == "visa-4242"


@pytest.mark.parametrize("names", [(), NAMES], ids=["nothing is said", "keys are missing"])
def test_a_server_without_the_keys_says_which_key_it_is(names: tuple[str, ...]) -> None:
    coded = CHAIN.encode(Payload("json/plain", CARD))

    given = run(result_with(Policy(opener=opener_of(names, None)), coded))

    assert given["encoding"] == CODED
    assert (given["of"], given["codecs"], given["key"]) == ("json/plain", ["aes-256-gcm"], "2026-11")
    assert base64.b64decode(given["data"]) == coded.data
    assert "no keys are given here" in given["why"]


def cut(coded: Payload) -> Payload:
    """Return a coded payload that lost its end."""
    return Payload(coded.encoding, coded.data[:-5], coded.metadata)


def test_another_key_of_the_same_name_is_said_and_is_no_fault_of_the_server() -> None:
    given = run(result_with(Policy(opener=opener_of(NAMES, OTHER)), CHAIN.encode(Payload("json/plain", CARD))))

    assert 'cannot be decrypted with key "2026-11"' in given["why"]


@pytest.mark.parametrize(
    "damaged",
    [
        cut(CHAIN.encode(Payload("json/plain", CARD))),
        Payload(CODED, b"", {"codecs": b"aes-256-gcm", "encoding": b"json/plain"}),
        Payload(CODED, b"\xff", {"codecs": b"aes-256-gcm", "encoding": b"json/plain"}),
        Payload(CODED, b"x", {"codecs": b"zstd " * 1000, "encoding": b"json/plain"}),
        Payload(CODED, b"x"),
        Payload(CODED, b"x", {"codecs": b"\xff\xfe", "encoding": b"\xff", "key": b"\xff"}),
    ],
    ids=["truncated", "empty", "one byte", "a thousand codecs", "no metadata", "no text"],
)
def test_damaged_values_are_shown_as_closed_and_never_end_in_a_fault(damaged: Payload) -> None:
    given = run(result_with(Policy(opener=opener_of(NAMES, RING)), damaged))

    assert given["encoding"] == CODED
    assert given["why"]


def test_values_sent_to_a_server_with_the_keys_are_coded_before_the_engine_has_them() -> None:
    async def check() -> tuple[int, Payload, bytes]:
        async with served(policy=Policy(opener=opener_of(NAMES, RING))) as (client, transport):
            sent = await client.send("POST", "/api/v1/tasks", json={"type": "charge", "input": ["visa-4242"]})
            work = await leased(transport)
            return sent.status, work.tasks[0].input[0], CHAIN.decode(work.tasks[0].input[0]).data

    status, stored, opened = run(check())

    assert status == 201
    assert stored.encoding == CODED
    assert b"visa" not in stored.data
    assert opened == CARD


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        ("/api/v1/tasks", {"type": "charge", "input": ["visa-4242"]}, 409),
        ("/api/v1/workflows", {"type": "order", "input": ["visa-4242"]}, 409),
        ("/api/v1/tasks", {"type": "charge"}, 201),
    ],
    ids=["task", "workflow", "no value"],
)
def test_values_that_should_be_encrypted_are_refused_where_there_is_no_key(target: str, body: Any, status: int) -> None:
    async def check() -> Any:
        async with served(policy=Policy(opener=opener_of(NAMES, None))) as (client, _):
            return await client.send("POST", target, json=body)

    answer = run(check())

    assert answer.status == status
    if status == 409:
        assert answer.json()["code"] == "payload_locked"
        assert "payloads.keys" in answer.json()["remedy"]
        assert "visa" not in answer.body.decode()


def test_search_attributes_are_never_coded_as_they_are_what_runs_are_found_by() -> None:
    async def check() -> list[Any]:
        async with served(policy=Policy(opener=opener_of(NAMES, RING))) as (client, _):
            body = {"type": "order", "id": "o", "input": ["visa"], "attributes": {"plan": "pro"}}
            assert (await client.send("POST", "/api/v1/workflows", json=body)).status == 201
            events = (await client.send("GET", "/api/v1/workflows/o/history")).json()["events"]
            return [events[0]["fields"]["input"], events[0]["fields"]["search_attributes"]]

    assert run(check()) == [["visa"], {"plan": "pro"}]


def test_keys_that_cannot_be_had_are_a_refusal_and_not_a_fault() -> None:
    class Away:
        asked = 0

        def current(self) -> tuple[str, bytes]:
            self.asked += 1
            if self.asked > 1:
                raise ConnectionError("kms://secret-host is away")
            return RING.current()

        def find(self, key_id: str) -> bytes | None:
            raise ConnectionError("kms://secret-host is away")

    async def check() -> tuple[Any, Any]:
        async with served(policy=Policy(opener=opener_of(NAMES, Away()))) as (client, transport):
            refused = await client.send("POST", "/api/v1/tasks", json={"type": "charge", "input": ["visa-4242"]})
            await finish(transport, CHAIN.encode(Payload("json/plain", CARD)))
            return refused, (await client.send("GET", f"{TASK}/result")).json()["result"][0]

    refused, shown = run(check())

    assert (refused.status, refused.json()["code"]) == (409, "payload_locked")
    assert "secret-host" not in refused.body.decode()
    assert 'key "2026-11" cannot be had' in shown["why"]


def test_the_feed_shows_values_as_histories_do() -> None:
    async def check() -> tuple[bytes, bytes]:
        async with served(policy=Policy(opener=opener_of(NAMES, RING))) as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o", "input": ["visa-4242"]})
            opened = await client.send("GET", "/api/v1/feed")
            client.app.replace(Policy())
            return opened.body, (await client.send("GET", "/api/v1/feed")).body

    opened, closed = run(check())

    assert b"visa-4242" in opened
    assert b"visa-4242" not in closed
    assert b'"key":"2026-11"' in closed


@pytest.mark.parametrize("keys", [True, False], ids=["with the keys", "without"])
def test_texts_of_errors_are_opened_by_a_server_with_the_keys_and_closed_by_others(keys: bool) -> None:
    async def work() -> None:
        opener = opener_of(NAMES, RING if keys else None)
        async with served(policy=Policy(opener=opener)) as (client, transport):
            await transport.call(EnqueueTask(type="charge", queue="default", task_id="t-1"))
            token = (await leased(transport)).tasks[0].token
            error = Failure(
                kind=FailureKind.APPLICATION, type="ValueError", message="bad visa-4242", trace="at x", final=True
            )
            failed = Completion(token=token, outcome=TaskFailed(failure=sealed(error, CHAIN)))
            await transport.call(CompleteTasks(worker="w1", items=(failed,)))
            for path in ("tasks", "tasks/t-1", "tasks/t-1/attempts", "tasks/t-1/result", "explain/t-1", "feed"):
                said = str((await client.send("GET", f"/api/v1/{path}")).json())
                assert SEALED not in said
                assert "visa-4242" not in said or keys
                assert "bad visa-4242" in said or not keys or path.startswith("explain")

    run(work())
