"""Idempotency keys over REST."""

import asyncio
from typing import Any

import pytest

from outlast.core.writes import CommitOutcome
from tests.engine.doubles import FaultyStore, run
from tests.gateway.serving import served

KEY = {"idempotency-key": "k-1", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "first", "other"),
    [
        ("tasks", {"type": "resize", "input": [1]}, {"type": "resize", "input": [2]}),
        ("tasks", {"type": "resize"}, {"type": "resize", "priority": 1}),
        ("tasks", {"type": "resize"}, {"type": "resize", "queue": "other"}),
        ("workflows", {"type": "order", "id": "o-1"}, {"type": "order", "id": "o-1", "input": [1]}),
        ("workflows", {"type": "order"}, {"type": "ship"}),
        ("workflows", {"type": "order"}, {"type": "order", "tags": {"a": "b"}}),
        ("workflows", {"type": "order", "id": "o-1"}, {"type": "order", "id": "o-2"}),
        ("workflows", {"type": "order", "id": "o-1"}, {"type": "order"}),
        ("workflows", {"type": "order"}, {"type": "order", "id": "o-2"}),
        ("tasks:batch", {"items": [{"type": "a"}]}, {"items": [{"type": "a"}, {"type": "b"}]}),
        ("tasks:batch", {"items": [{"type": ""}, {"type": "a"}]}, {"items": [{"type": "c"}]}),
    ],
    ids=str,
)
def test_the_same_key_with_another_body_is_refused_and_leaves_no_trace(path: str, first: Any, other: Any) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            made = await client.send("POST", f"/api/v1/{path}", json=first, headers=KEY)
            before = (await transport.list_tasks()).tasks, (await transport.list_runs()).runs
            refused = await client.send("POST", f"/api/v1/{path}", json=other, headers=KEY)
            after = (await transport.list_tasks()).tasks, (await transport.list_runs()).runs

            assert made.status in {200, 201}
            assert (refused.status, refused.json()["code"]) == (409, "idempotency_key_reused")
            assert [len(part) for part in before] == [len(part) for part in after]

    run(work)


@pytest.mark.parametrize("path", ["tasks", "workflows"])
def test_the_same_body_in_another_order_and_spacing_is_a_repeat(path: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            one = b'{"type":"order","input":[{"a":1,"b":2}]}'
            two = b'{ "input": [ {"b": 2, "a": 1} ],  "type": "order" }'
            first = await client.send("POST", f"/api/v1/{path}", body=one, headers=KEY)
            again = await client.send("POST", f"/api/v1/{path}", body=two, headers=KEY)

            assert (first.status, again.status) == (201, 200)
            assert again.headers["idempotent-replayed"] == "true"
            assert first.json()["id"] == again.json()["id"]

    run(work)


def test_a_key_is_free_for_another_address_and_another_namespace() -> None:
    async def work() -> None:
        async with served(namespaces=frozenset({"default", "shop"})) as (client, _):
            here = await client.send("POST", "/api/v1/tasks", json={"type": "order"}, headers=KEY)
            run_ = await client.send("POST", "/api/v1/workflows", json={"type": "order"}, headers=KEY)
            there = await client.send("POST", "/api/v1/namespaces/shop/tasks", json={"type": "x"}, headers=KEY)

            assert (here.status, run_.status, there.status) == (201, 201, 201)

    run(work)


@pytest.mark.parametrize("bad", [{"type": ""}, {"type": "x", "delay": "soon"}, {"typo": 1}], ids=str)
def test_a_refused_request_leaves_its_key_free(bad: Any) -> None:
    async def work() -> None:
        async with served() as (client, _):
            refused = await client.send("POST", "/api/v1/tasks", json=bad, headers=KEY)
            good = await client.send("POST", "/api/v1/tasks", json={"type": "resize"}, headers=KEY)

            assert (refused.status, good.status) == (400, 201)

    run(work)


def test_a_key_whose_answer_was_lost_gives_the_same_task_again() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with served(store) as (client, transport):
            store.outcomes.append(CommitOutcome.UNKNOWN)
            store.unknown_happens = True
            lost = await client.send("POST", "/api/v1/tasks", json={"type": "resize"}, headers=KEY)
            again = lost
            for _ in range(200):
                again = await client.send("POST", "/api/v1/tasks", json={"type": "resize"}, headers=KEY)
                if again.status != 503:
                    break
                await asyncio.sleep(0.01)

            assert (lost.status, lost.json()["retryable"]) == (503, True)
            assert (again.status, again.headers.get("idempotent-replayed")) == (200, "true")
            assert len((await transport.list_tasks()).tasks) == 1

    run(work)


@pytest.mark.parametrize("path", ["tasks", "workflows"])
def test_a_hundred_first_uses_at_once_make_one_thing(path: str) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            replies = await asyncio.gather(
                *(client.send("POST", f"/api/v1/{path}", json={"type": "order"}, headers=KEY) for _ in range(100))
            )
            made = (await transport.list_tasks()).tasks + (await transport.list_runs()).runs

            assert len({reply.json()["id"] for reply in replies}) == 1
            assert sorted(reply.status for reply in replies) == [200] * 99 + [201]
            assert len(made) == 1

    run(work)


def test_a_batch_that_is_sent_again_stores_nothing_twice() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            items = [{"type": "resize", "input": [n]} for n in range(20)]
            items[3] = {"type": ""}
            items[7] = {"type": "resize", "key": "own"}
            items[8] = {"type": "resize", "input": "no list"}
            first = await client.send("POST", "/api/v1/tasks:batch", json={"items": items}, headers=KEY)
            again = await client.send("POST", "/api/v1/tasks:batch", json={"items": items}, headers=KEY)

            statuses = [item["status"] for item in first.json()["items"]]
            assert statuses == [400 if n in {3, 8} else 201 for n in range(20)]
            assert first.json()["items"][8]["pointer"] == "/items/8/input"
            assert [item.get("id") for item in first.json()["items"]] == [i.get("id") for i in again.json()["items"]]
            assert {item["status"] for item in again.json()["items"]} == {200, 400}
            assert len((await transport.list_tasks()).tasks) == 18

    run(work)


@pytest.mark.parametrize("path", ["tasks", "workflows", "workflows/o-1/signal"])
def test_a_key_that_would_protect_nothing_is_refused(path: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            body = {"name": "go"} if "signal" in path else {"type": "order"}
            empty = await client.send("POST", f"/api/v1/{path}", json=body, headers={"idempotency-key": " "})
            long = await client.send("POST", f"/api/v1/{path}", json=body, headers={"idempotency-key": "k" * 1001})

            assert (empty.status, long.status) == (400, 413)

    run(work)


def test_a_signal_with_the_same_key_arrives_once() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            send = [
                await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "go"}, headers=KEY)
                for _ in range(2)
            ]
            other = await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "stop"}, headers=KEY)
            history = (await client.send("GET", "/api/v1/workflows/o-1/history")).json()

            assert [reply.status for reply in send] == [202, 200]
            assert [reply.headers.get("idempotent-replayed") for reply in send] == [None, "true"]
            assert (other.status, other.json()["code"]) == (409, "idempotency_key_reused")
            assert [event["kind"] for event in history["events"]].count("WorkflowExecutionSignaled") == 1

    run(work)


@pytest.mark.parametrize(
    "item", [b'{"type":"b","inpu\xce":1}', b'{"type":"b","input":[' + b"[" * 20_000 + b"]" * 20_000 + b"]}"]
)
def test_a_keyed_batch_that_cannot_be_read_whole_leaves_no_trace(item: bytes) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            body = b'{"items":[{"type":"a"},' + item + b"]}"
            reply = await client.send("POST", "/api/v1/tasks:batch", body=body, headers=KEY)
            good = await client.send("POST", "/api/v1/tasks:batch", json={"items": [{"type": "a"}]}, headers=KEY)

            assert (reply.status, reply.json()["code"]) == (400, "malformed_body")
            assert good.json()["items"][0]["status"] == 201
            assert len((await transport.list_tasks()).tasks) == 1

    run(work)
