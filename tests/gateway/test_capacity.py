"""Queues, workers and namespaces over REST."""

import asyncio
from typing import Any

import pytest

from outlast.gateway.app import Policy
from outlast.protocol.wire import MSGPACK, encode
from tests.engine.doubles import a_poll, run
from tests.gateway.serving import served
from tests.gateway.test_rights import bearer, token

PACKED = {"content-type": MSGPACK, "accept": MSGPACK}


def test_a_queue_tells_how_much_waits_and_since_when() -> None:
    async def work() -> None:
        async with served() as (client, _):
            for n in range(3):
                await client.send("POST", "/api/v1/tasks", json={"type": "resize", "queue": "images", "input": [n]})
            await client.send("POST", "/api/v1/tasks", json={"type": "crop", "queue": "images", "delay": "1h"})
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "queue": "orders"})
            listed = (await client.send("GET", "/api/v1/queues")).json()
            images = (await client.send("GET", "/api/v1/queues/images")).json()
            empty = (await client.send("GET", "/api/v1/queues/none")).json()

            assert [queue["name"] for queue in listed["items"]] == ["images", "orders"]
            assert (images["ready"], images["delayed"], images["types"][0]["type"]) == (3, 1, "resize")
            assert images["oldest_at"]
            assert listed["items"][1]["turns"] == 1
            assert (empty["name"], empty["ready"], empty["oldest_at"]) == ("none", 0, None)

    run(work)


def test_a_worker_that_polls_is_listed_with_what_it_takes() -> None:
    async def work() -> None:
        async with served() as (client, _):
            gone = asyncio.Event()
            poll = encode(a_poll(queues=("images",), worker="w-7", identity="me@host"))
            polling = asyncio.create_task(
                client.send("POST", "/api/v1/worker/call", body=poll, headers=PACKED, hang_up=gone)
            )
            items: list[Any] = []
            while not items:
                items = (await client.send("GET", "/api/v1/workers?queue=images")).json()["items"]
                await asyncio.sleep(0.01)
            none = (await client.send("GET", "/api/v1/workers?queue=mail")).json()["items"]
            gone.set()
            await polling

            assert [(item["worker"], item["queues"], item["task_types"]) for item in items] == [
                ("w-7", ["images"], ["resize"])
            ]
            assert none == []

    run(work)


def test_a_namespace_is_made_used_changed_and_deleted() -> None:
    async def work() -> None:
        async with served() as (client, _):
            body = {"name": "shop", "settings": {"retention": "7d", "description": "the shop"}}
            made = await client.send("POST", "/api/v1/namespaces", json=body)
            used = await client.send("POST", "/api/v1/namespaces/shop/tasks", json={"type": "resize"})
            listed = (await client.send("GET", "/api/v1/namespaces")).json()
            changed = await client.send("PATCH", "/api/v1/namespaces/shop", json={"starts_per_second": 5})
            refused = await client.send("DELETE", "/api/v1/namespaces/shop?confirm=shop")
            unsaid = await client.send("DELETE", "/api/v1/namespaces/shop?force=true")
            deleted = await client.send("DELETE", "/api/v1/namespaces/shop?confirm=shop&force=true")
            after = await client.send("POST", "/api/v1/namespaces/shop/tasks", json={"type": "resize"})

            assert (made.status, made.json()["settings"]["retention"]) == (201, "PT604800S")
            assert used.status == 201
            assert [item["name"] for item in listed["items"]] == ["default", "shop"]
            assert changed.json()["settings"]["starts_per_second"] == 5
            assert changed.json()["settings"]["description"] == "the shop"
            assert (refused.status, refused.json()["code"]) == (409, "namespace_in_use")
            assert unsaid.status == 400
            assert (deleted.status, deleted.json()["state"]) == (202, "deleting")
            assert (after.status, after.json()["code"]) == (404, "namespace_not_found")

    run(work)


def test_a_change_that_was_made_from_an_older_state_is_refused() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/namespaces", json={"name": "shop"})
            tag = (await client.send("GET", "/api/v1/namespaces/shop")).headers["etag"]
            first = await client.send(
                "PATCH", "/api/v1/namespaces/shop", json={"description": "a"}, headers={"if-match": tag}
            )
            second = await client.send(
                "PATCH", "/api/v1/namespaces/shop", json={"description": "b"}, headers={"if-match": tag}
            )
            deletion = await client.send("DELETE", "/api/v1/namespaces/shop?confirm=shop", headers={"if-match": tag})
            now = await client.send("GET", "/api/v1/namespaces/shop")

            assert (first.status, second.status, deletion.status) == (200, 412, 412)
            assert second.headers["etag"] == first.headers["etag"] == now.headers["etag"]
            assert now.json()["settings"]["description"] == "a"

    run(work)


def test_the_same_key_makes_a_namespace_once() -> None:
    async def work() -> None:
        async with served() as (client, _):
            headers = {"idempotency-key": "k-1"}
            first = await client.send("POST", "/api/v1/namespaces", json={"name": "shop"}, headers=headers)
            again = await client.send("POST", "/api/v1/namespaces", json={"name": "shop"}, headers=headers)
            other = await client.send("POST", "/api/v1/namespaces", json={"name": "shop"})

            assert (first.status, again.status) == (201, 200)
            assert again.headers["idempotent-replayed"] == "true"
            assert (other.status, other.json()["code"]) == (409, "namespace_exists")

    run(work)


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/api/v1/namespaces", {"name": "shop"}),
        ("PATCH", "/api/v1/namespaces/default", {"description": "x"}),
        ("DELETE", "/api/v1/namespaces/default?confirm=default&force=true", None),
    ],
    ids=str,
)
@pytest.mark.parametrize("role", ["reader", "operator", "worker"])
def test_only_an_admin_changes_namespaces(role: str, method: str, target: str, body: Any) -> None:
    async def work() -> None:
        async with served(policy=Policy(tokens=(token(role, "*"),))) as (client, _):
            reply = await client.send(method, target, json=body, headers=bearer(role))

            assert (reply.status, reply.json()["code"]) == (403, "denied")

    run(work)


def test_an_admin_of_one_namespace_changes_that_one_and_sees_no_other() -> None:
    async def work() -> None:
        policy = Policy(tokens=(token("admin", "shop"),))
        async with served(policy=policy, namespaces=frozenset({"default", "shop"})) as (client, _):
            own = await client.send(
                "PATCH", "/api/v1/namespaces/shop", json={"description": "x"}, headers=bearer("admin")
            )
            other = await client.send(
                "PATCH", "/api/v1/namespaces/default", json={"description": "x"}, headers=bearer("admin")
            )
            shown = await client.send("GET", "/api/v1/namespaces/default", headers=bearer("admin"))
            made = await client.send("POST", "/api/v1/namespaces", json={"name": "new"}, headers=bearer("admin"))
            listed = (await client.send("GET", "/api/v1/namespaces", headers=bearer("admin"))).json()

            assert (own.status, other.status, shown.status, made.status) == (200, 403, 403, 403)
            assert [item["name"] for item in listed["items"]] == ["shop"]

    run(work)
