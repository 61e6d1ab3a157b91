"""The OpenAPI document: what is checked in is what is served, breaks nothing, and its examples work."""

from typing import Any

import msgspec
import pytest
from jsonschema_rs import Draft202012Validator

from outlast.core.errors import CODES
from outlast.gateway.openapi import document, text
from outlast.gateway.route import Route
from outlast.gateway.table import ROUTES
from outlast.protocol.errors import KINDS
from tests.engine.doubles import run
from tests.gateway.breaking import broken
from tests.gateway.serving import served
from tests.house.sources import ROOT

SHOWN = [route for route in ROUTES if not route.wire]
PREVIOUS = ROOT / "tests" / "gateway" / "openapi_previous.json"


def test_the_document_that_is_served_is_the_one_that_is_checked_in() -> None:
    checked_in = (ROOT / "docs" / "reference" / "openapi.json").read_text()

    assert checked_in == text(ROUTES), "run `make references`"


def test_nothing_that_a_client_relies_on_is_gone() -> None:
    before = msgspec.json.decode(PREVIOUS.read_bytes())
    now = msgspec.json.decode(text(ROUTES))

    assert broken(before, now) == []


def _without(path: list[Any], of: Any) -> Any:
    """Return ``of`` without what stands at ``path``."""
    copy = msgspec.json.decode(msgspec.json.encode(of))
    place = copy
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return copy


START = "/api/v1/namespaces/{namespace}/workflows"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (["paths", START], "is gone"),
        (["paths", START, "post"], "is gone"),
        (["paths", START, "post", "responses", "201"], "201"),
        (["paths", START, "get", "parameters", 1], "type"),
        (["components", "schemas", "StartIn", "properties", "tags"], "tags"),
        (["components", "schemas", "StartedOut", "properties", "run_id"], "run_id"),
        (["components", "schemas", "IfOpen", "enum", 0], "fail"),
        (["x-codes", 0], "code"),
    ],
    ids=str,
)
def test_a_change_that_breaks_clients_is_found(path: list[Any], says: str) -> None:
    whole = msgspec.json.decode(text(ROUTES))

    found = broken(whole, _without(path, whole))

    assert any(says in line for line in found), found


def test_a_field_that_becomes_needed_breaks_clients() -> None:
    whole = msgspec.json.decode(text(ROUTES))
    later = msgspec.json.decode(text(ROUTES))
    later["components"]["schemas"]["StartIn"]["required"].append("queue")

    assert any("queue" in line for line in broken(whole, later))


def test_what_is_only_added_breaks_nobody() -> None:
    whole = msgspec.json.decode(text(ROUTES))
    later = msgspec.json.decode(text(ROUTES))
    later["paths"]["/api/v1/more"] = {"get": {"responses": {}}}
    later["components"]["schemas"]["StartIn"]["properties"]["more"] = {"type": "string"}
    later["components"]["schemas"]["StartedOut"]["properties"]["more"] = {"type": "string"}

    assert broken(whole, later) == []


def test_operations_and_acts_have_names_of_their_own() -> None:
    assert len({route.operation for route in ROUTES}) == len(ROUTES)
    assert len({route.act for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path, route.global_) for route in ROUTES}) == len(ROUTES)


def test_every_code_has_a_title_a_status_and_a_remedy() -> None:
    assert set(KINDS) == set(CODES)
    assert [code for code, kind in KINDS.items() if not kind.remedy.endswith(".") or not 400 <= kind.status < 600] == []


def test_every_refusal_that_a_route_names_is_in_the_list() -> None:
    assert {code for route in ROUTES for code in route.refusals} <= set(CODES)


def test_no_schema_refers_to_one_that_is_not_there() -> None:
    whole = text(ROUTES)
    schemas = document(ROUTES)["components"]["schemas"]

    named = {part.partition('"')[0] for part in whole.split('"#/components/schemas/')[1:]}

    assert named <= set(schemas)


# Cancelled and terminated last, so that the others find an open run.
ORDER = {"cancelWorkflow": 1, "terminateWorkflow": 2, "cancelTask": 3, "deleteNamespace": 4}


def test_every_example_is_answered_as_the_document_says() -> None:
    whole = document(ROUTES)

    async def work() -> None:
        async with served() as (client, _):
            made = await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "order-8"})
            task = (await client.send("POST", "/api/v1/tasks", json={"type": "resize"})).json()["id"]
            wrong: list[str] = []
            for route in sorted(SHOWN, key=lambda route: ORDER.get(route.operation, 0)):
                if route.stream:
                    continue
                reply = await client.example(route, task)
                responses = _operation(whole, route)["responses"]
                if str(reply.status) not in responses or (
                    # A query is the one act that needs a worker, which this server has not.
                    reply.status >= 400 and route.gives and route.operation != "queryWorkflow"
                ):
                    wrong.append(f"{route.operation}: {reply.status} {reply.body!r}")
                    continue
                contents = responses[str(reply.status)].get("content", {})
                assert not contents or reply.headers["content-type"] in contents
                for content in (contents[reply.headers["content-type"]],) if contents else ():
                    schema = {**content["schema"], "components": whole["components"]}
                    wrong += [
                        f"{route.operation}: {error.message}"
                        for error in Draft202012Validator(schema).iter_errors(reply.json())
                    ]

            assert made.status == 201
            assert wrong == []

    run(work)


def _operation(whole: dict[str, Any], route: Route) -> dict[str, Any]:
    root = "/api/v1/" if route.global_ else "/api/v1/namespaces/{namespace}/"
    return whole["paths"][root + route.path][route.method.lower()]
