"""Bringing tasks back over REST: one by its address, many by their ids or by a filter."""

from typing import Any

import pytest

from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import CompleteTasks, Completion, TaskFailed, TaskSucceeded
from outlast.core.replies import Work
from tests.engine.doubles import a_poll, a_task, run
from tests.gateway.asgi import AsgiClient
from tests.gateway.test_rest import served

FINAL = TaskFailed(failure=Failure(kind=FailureKind.APPLICATION, type="Declined", message="no money", final=True))


async def ended(transport: Any, *ids: str, outcome: Any = FINAL) -> None:
    """Make tasks and end them all with ``outcome``."""
    for id_ in ids:
        await transport.call(a_task(task_id=id_))
    polled = await transport.call(a_poll(slots=100))
    assert isinstance(polled, Work)
    items = tuple(Completion(token=lease.token, outcome=outcome) for lease in polled.tasks)
    await transport.call(CompleteTasks(worker="w1", items=items))


async def state_of(client: AsgiClient, id_: str) -> str:
    return str((await client.send("GET", f"/api/v1/tasks/{id_}")).json()["state"])


def test_a_failed_task_is_brought_back_once_for_a_key() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await ended(transport, "t-1")
            headers = {"idempotency-key": "k-1"}
            body = {"reason": "the bank is back"}

            first = await client.send("POST", "/api/v1/tasks/t-1/retry", json=body, headers=headers)
            await ended(transport)
            again = await client.send("POST", "/api/v1/tasks/t-1/retry", json=body, headers=headers)
            attempts = (await client.send("GET", "/api/v1/tasks/t-1/attempts")).json()["items"]

            assert (first.status, first.json()["changed"], again.status) == (202, True, 202)
            assert await state_of(client, "t-1") == "failed"
            assert [item["outcome"] for item in attempts] == ["failed", "retried", "failed"]
            assert attempts[1]["error_message"] == "the bank is back"

    run(work)


def test_what_has_succeeded_or_is_not_there_is_not_brought_back() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await ended(transport, "t-1", outcome=TaskSucceeded())
            await transport.call(a_task(task_id="t-open"))

            done = await client.send("POST", "/api/v1/tasks/t-1/retry")
            missing = await client.send("POST", "/api/v1/tasks/none/retry")
            open_ = await client.send("POST", "/api/v1/tasks/t-open/retry")

            assert (done.status, done.json()["code"]) == (409, "task_closed")
            assert (missing.status, missing.json()["code"]) == (404, "task_not_found")
            assert (open_.status, open_.json()["changed"]) == (200, False)

    run(work)


def test_a_filter_brings_back_as_many_as_it_may_and_says_that_there_are_more() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await ended(transport, "t-1", "t-2", "t-3")
            wanted = {"query": "closed > 1h ago", "limit": 2}

            would = await client.send("POST", "/api/v1/tasks:retry", json={**wanted, "dry_run": True})
            did = await client.send("POST", "/api/v1/tasks:retry", json=wanted)
            rest = await client.send("POST", "/api/v1/tasks:retry", json=wanted)

            assert [item["id"] for item in would.json()["items"]] == ["t-3", "t-2"]
            assert (would.json()["dry_run"], would.json()["more"]) == (True, True)
            assert did.json()["items"] == [{"id": "t-3", "changed": True}, {"id": "t-2", "changed": True}]
            assert ([item["id"] for item in rest.json()["items"]], rest.json()["more"]) == (["t-1"], False)

    run(work)


def test_each_named_task_has_an_answer_of_its_own() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await ended(transport, "t-1")

            reply = await client.send("POST", "/api/v1/tasks:retry", json={"ids": ["t-1", "none"]})

            back, missing = reply.json()["items"]
            assert back == {"id": "t-1", "changed": True}
            assert (missing["changed"], missing["code"]) == (False, "task_not_found")

    run(work)


def test_a_key_stands_for_the_ids_and_the_reason_that_came_with_it() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await ended(transport, "t-1", "t-2", "t-3")
            headers = {"idempotency-key": "k-1"}
            body = {"ids": ["t-1", "t-2"], "reason": "why"}

            first = await client.send("POST", "/api/v1/tasks:retry", json=body, headers=headers)
            again = await client.send("POST", "/api/v1/tasks:retry", json=body, headers=headers)
            others = [
                await client.send("POST", "/api/v1/tasks:retry", json={"ids": ["t-3"]}, headers=headers),
                await client.send("POST", "/api/v1/tasks:retry", json={**body, "reason": "other"}, headers=headers),
                await client.send("POST", "/api/v1/tasks/t-3/retry", headers=headers),
            ]

            assert (first.status, again.status, again.json()) == (200, 200, first.json())
            assert [(other.status, other.json()["code"]) for other in others] == [(409, "idempotency_key_reused")] * 3
            assert await state_of(client, "t-3") == "failed"

    run(work)


def test_a_key_is_refused_beside_a_filter_and_brings_nothing_back() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await ended(transport, "t-1")
            headers = {"idempotency-key": "k-1"}

            reply = await client.send("POST", "/api/v1/tasks:retry", json={"state": "failed"}, headers=headers)
            by_id = await client.send("POST", "/api/v1/tasks:retry", json={"ids": ["t-1"]}, headers=headers)

            assert (reply.status, reply.json()["code"]) == (400, "invalid_request")
            assert "filter" in reply.json()["detail"]
            assert by_id.json()["items"] == [{"id": "t-1", "changed": True}]

    run(work)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_request"),
        ({"ids": ["t"], "type": "resize"}, "invalid_request"),
        ({"state": "succeeded"}, "invalid_request"),
        ({"query": "state = faild"}, "invalid_query"),
        ({"type": "resize", "limit": 1001}, "malformed_body"),
    ],
    ids=["nothing", "both", "no such state", "no filter", "too many"],
)
def test_a_wrong_request_to_bring_tasks_back_is_refused(body: dict[str, Any], code: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("POST", "/api/v1/tasks:retry", json=body)

            assert (reply.status, reply.json()["code"]) == (400, code)

    run(work)
