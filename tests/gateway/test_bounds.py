"""Pages have bounds whatever is asked for, and text that a filter holds stays text."""

from typing import Any
from urllib.parse import urlencode

import pytest

from outlast.core import limits
from outlast.gateway.openapi import document
from outlast.gateway.table import ROUTES
from tests.engine.doubles import a_start, a_task, run
from tests.gateway.serving import served


def target(path: str, **query: str) -> str:
    """Return an address with its query."""
    return f"{path}?{urlencode(query)}"


@pytest.mark.parametrize("limit", ["1000000000", "-1", "0", "abc", "1.5", "1e3", str(limits.LIST_LIMIT_MAX + 1)])
@pytest.mark.parametrize("path", ["workflows", "tasks", "workflows/o-1/history"])
def test_a_page_of_no_size_that_there_is_gets_a_refusal_that_names_it(path: str, limit: str) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await transport.call(a_start("o-1"))
            refused = await client.send("GET", f"/api/v1/{path}?limit={limit}")

            assert refused.status == 400
            assert "limit" in refused.body.decode()
            assert refused.json()["remedy"] or refused.json()["errors"]

    run(work)


def test_a_list_without_a_limit_is_a_page_of_fifty_with_the_way_on() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            for n in range(51):
                await transport.call(a_task(task_id=f"t-{n}"))
            page = (await client.send("GET", "/api/v1/tasks")).json()
            rest = (await client.send("GET", f"/api/v1/tasks?cursor={page['next']}")).json()

            assert len(page["items"]) == 50
            assert len(rest["items"]) == 1
            assert rest["next"] == ""

    run(work)


ODD = ("O'Brien", '"x"', "' or 1=1 --", "%", "_", "\\", "a-b", "order by id; drop table runs", "x" * 200, "ä😀")


@pytest.mark.parametrize("value", ODD)
def test_a_value_in_a_filter_finds_itself_and_nothing_else(value: str) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            for n, type_ in enumerate((*ODD, "plain")):
                await transport.call(a_task(task_id=f"t-{n}", type=type_))
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            address = target("/api/v1/tasks", query=f'type = "{quoted}"')
            found = await client.send("GET", address)

            assert found.status == 200
            assert [item["type"] for item in found.json()["items"]] == [value]

    run(work)


@pytest.mark.parametrize(
    "filter_", ["(" * 5_000, "type = '" + "x" * 10_000 + "'", 'na"me = 1', "type = 'a\x00b", "nope = 1", "type like"]
)
def test_a_filter_that_is_none_or_too_much_is_refused(filter_: str) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await transport.call(a_task(task_id="t-1"))
            refused = await client.send("GET", target("/api/v1/tasks", query=filter_))

            assert refused.status in {400, 413}
            assert refused.json()["code"]
            assert refused.json()["remedy"]

    run(work)


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("listWorkers", "workers?queue="),
        ("getQueue", "queues/"),
        ("getTask", "tasks/"),
        ("getWorkflow", "workflows/"),
        ("listTasks", "tasks?queue="),
        ("listWorkflows", "workflows?type="),
        ("listQueues", "queues?queue="),
        ("explain", "explain/"),
    ],
)
def test_a_name_that_is_too_long_gets_an_answer_that_the_document_names(operation: str, path: str) -> None:
    paths: dict[str, dict[str, Any]] = document(ROUTES)["paths"]
    (named,) = (
        found["responses"]
        for methods in paths.values()
        for method, found in methods.items()
        if method == "get" and found["operationId"] == operation
    )

    async def work() -> None:
        async with served() as (client, _):
            answer = await client.send("GET", f"/api/v1/{path}{'x' * 1_500}")

            assert answer.status < 500
            assert str(answer.status) in named

    run(work)
