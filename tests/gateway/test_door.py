"""What holds for every address: methods, names, tags, pages, request ids, and what is in the log."""

import asyncio
import logging
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core.errors import CODES
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    AnswerQueries,
    CompleteWorkflowTasks,
    QueryAnswer,
    TerminateWorkflow,
    WorkflowTaskDone,
)
from outlast.core.payload import Payload
from tests.engine.doubles import FaultyStore, a_poll, run
from tests.gateway.serving import served

JSON = {"content-type": "application/json"}


def test_every_answer_has_the_id_of_its_request() -> None:
    async def work() -> None:
        async with served() as (client, _):
            minted = await client.send("GET", "/api/v1/tasks/nope")
            given_ = await client.send("GET", "/api/v1/tasks/nope", headers={"x-request-id": "call-17"})

            assert minted.headers["x-request-id"] == minted.json()["request_id"]
            assert given_.headers["x-request-id"] == given_.json()["request_id"] == "call-17"

    run(work)


@pytest.mark.parametrize("shown", ["x" * 65, "a b", "a\nb", "é", ""], ids=repr)
def test_a_request_id_that_could_spoil_the_log_is_replaced(shown: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", "/api/v1/workflows", headers={"x-request-id": shown})

            assert reply.headers["x-request-id"] != shown

    run(work)


def test_a_fault_is_one_line_in_the_log_with_the_id_of_the_request(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenStore(FaultyStore):
        async def list_runs(self, filter: Any) -> Any:
            raise ZeroDivisionError("a fault")

    async def work() -> None:
        async with served(BrokenStore()) as (client, _):
            reply = await client.send("GET", "/api/v1/workflows?id=%0d%0aFORGED", headers={"x-request-id": "call-18"})

            assert reply.status == 500

    run(work)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "request=call-18" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_every_answer_forbids_guessing_its_type_and_allows_no_other_origin() -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", "/api/v1/workflows", headers={"origin": "http://localhost:3000"})

            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["cache-control"] == "no-store"
            assert not [name for name in reply.headers if name.startswith("access-control")]

    run(work)


@pytest.mark.parametrize(
    ("method", "target", "status", "allow"),
    [
        ("DELETE", "/api/v1/workflows", 405, "GET, HEAD, OPTIONS, POST"),
        ("PUT", "/api/v1/tasks:batch", 405, "OPTIONS, POST"),
        ("OPTIONS", "/api/v1/workflows", 204, "GET, HEAD, OPTIONS, POST"),
        ("OPTIONS", "/api/v1/workflows/o-1/signal", 204, "OPTIONS, POST"),
        ("BREW", "/api/v1/tasks/t-1", 405, "GET, HEAD, OPTIONS"),
    ],
    ids=str,
)
def test_the_methods_of_an_address_are_told(method: str, target: str, status: int, allow: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(method, target)

            assert (reply.status, reply.headers["allow"]) == (status, allow)

    run(work)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/api/v1/workflows/", "slash"),
        ("/api/v1/tasks//cancel", "openapi.json"),
        ("/api/v1/workflow", 'Did you mean "workflows"?'),
        ("/api/v1/", "openapi.json"),
        ("/api/v2/workflows", "/api/v1/"),
        ("/api/v1/namespaces/default/namespaces", "openapi.json"),
        ("/api/v1/namespaces/default/server", "openapi.json"),
    ],
    ids=str,
)
def test_an_address_that_is_none_says_what_was_meant(target: str, says: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", target)

            assert (reply.status, reply.json()["code"]) == (404, "route_not_found")
            assert says in reply.json()["remedy"]

    run(work)


def test_a_misspelt_name_is_answered_with_the_nearest_one_and_its_place() -> None:
    async def work() -> None:
        async with served() as (client, _):
            query = await client.send("GET", "/api/v1/workflows?statuss=running")
            body = await client.send("POST", "/api/v1/tasks", json={"type": "resize", "qeue": "images"})

            assert query.json()["remedy"] == 'Did you mean "status"?'
            assert query.json()["errors"][0]["parameter"] == "statuss"
            assert body.json()["remedy"] == 'Did you mean "queue"?'
            assert body.json()["errors"][0]["pointer"] == "/qeue"
            named = await client.send("POST", "/api/v1/tasks", json={"type": "resize", "args": ["cat.png"]})
            assert named.json()["remedy"] == 'Did you mean "input"? It is the list of arguments.'

    run(work)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"type": 1}, "/type"),
        ({"type": "x", "tags": {"plan": 3}}, "/tags"),
        ({"type": "x", "retry": {"max_attempts": "many"}}, "/retry/max_attempts"),
        ({"type": "x", "retry": {"first": "soon"}}, "/retry/first"),
        ({"type": "x", "retry": {"colour": 1}}, "/retry/colour"),
        ({"type": "x", "delay": "PT"}, "/delay"),
        ([], ""),
    ],
    ids=str,
)
def test_a_fault_in_a_body_names_its_place_by_a_pointer(body: Any, pointer: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("POST", "/api/v1/tasks", json=body)

            assert reply.status == 400
            assert reply.json()["errors"][0].get("pointer", "") == pointer

    run(work)


@pytest.mark.parametrize(
    "id_",
    [
        "o/1",
        "o%2F1",
        "a b",
        "ä",
        "😀",
        "?x=1#y",
        "%",
        "...",
        "count",
        "a//b",
        "x" * 1000,
        "signal",
        ":",
    ],
    ids=lambda id_: repr(id_[:12]),
)
def test_every_id_that_can_be_started_can_be_asked_for(id_: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            started = await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": id_})
            got = await client.send("GET", f"/api/v1/workflows/{quote(id_, safe='')}")
            signal = await client.send(
                "POST", f"/api/v1/namespaces/default/workflows/{quote(id_, safe='')}/signal", json={"name": "go"}
            )
            why = await client.send("GET", f"/api/v1/explain/{quote(id_, safe='')}")

            assert (started.status, got.status, signal.status, why.status) == (201, 200, 202, 200)
            assert got.json()["id"] == why.json()["id"] == id_

    run(work)


@pytest.mark.parametrize("id_", [".", "..", "a\nb", "\x00", " a"], ids=ascii)
def test_an_id_that_no_address_or_line_can_hold_is_refused_at_the_start(id_: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            started = await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": id_})

            assert (started.status, started.json()["code"]) == (400, "invalid_request")

    run(work)


@given(st.text(min_size=1, max_size=40))
@settings(max_examples=40)
def test_any_text_is_an_id_or_is_refused_at_the_start(id_: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            started = await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": id_})
            got = await client.send("GET", f"/api/v1/workflows/{quote(id_, safe='')}")

            assert (started.status, got.status) in {(201, 200), (400, 404), (400, 400)}
            assert started.status == 400 or got.json()["id"] == id_

    run(work)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("text/html, */*;q=0.1", 200),
        ("application/*", 200),
        ("text/html", 406),
        ("image/png, text/plain", 406),
    ],
)
def test_a_caller_that_takes_no_json_is_told_so(accept: str, status: int) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", "/api/v1/workflows", headers={"accept": accept})

            assert reply.status == status

    run(work)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/msgpack", "application/x-www-form-urlencoded"])
def test_an_address_that_takes_json_alone_names_json_alone(kind: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("POST", "/api/v1/tasks", body=b"{}", headers={"content-type": kind})

            told = reply.json() if "json" in reply.headers["content-type"] else msgspec.msgpack.decode(reply.body)
            text = str(told)
            assert reply.status == 415
            assert f'The content type is "{kind}"' in text
            assert "Send application/json." in text

    run(work)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate, gzip"])
@pytest.mark.parametrize("path", ["tasks", "worker/call"])
def test_a_compressed_body_is_refused_before_it_is_opened(encoding: str, path: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(
                "POST", f"/api/v1/{path}", body=b"\x1f\x8b" * 10, headers={**JSON, "content-encoding": encoding}
            )

            assert (reply.status, reply.json()["code"]) == (415, "unsupported_encoding")

    run(work)


def test_what_has_not_changed_is_not_sent_again() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            first = await client.send("GET", "/api/v1/workflows/o-1")
            again = await client.send(
                "GET", "/api/v1/workflows/o-1", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'}
            )
            await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "go"})
            changed = await client.send(
                "GET", "/api/v1/workflows/o-1", headers={"if-none-match": first.headers["etag"]}
            )

            assert (again.status, again.body) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]
            assert changed.status == 200
            assert changed.headers["etag"] != first.headers["etag"]

    run(work)


def test_links_lead_through_all_pages() -> None:
    async def work() -> None:
        async with served() as (client, _):
            for n in range(5):
                await client.send("POST", "/api/v1/tasks", json={"type": "resize", "tags": {"n": str(n)}})
            target = "/api/v1/namespaces/default/tasks?type=resize&limit=2"
            seen: list[str] = []
            while target:
                page = await client.send("GET", target)
                seen += [item["tags"]["n"] for item in page.json()["items"]]
                link = page.headers.get("link", "")
                assert not link or link.endswith('>; rel="next"')
                target = link.partition(">")[0].removeprefix("<")

            assert seen == ["4", "3", "2", "1", "0"]

    run(work)


def test_a_list_holds_nothing_that_may_be_large() -> None:
    async def work() -> None:
        async with served() as (client, _):
            for _ in range(3):
                await client.send("POST", "/api/v1/tasks", json={"type": "resize", "input": ["x" * 100_000]})
            page = await client.send("GET", "/api/v1/tasks")

            assert len(page.json()["items"]) == 3
            assert len(page.body) < 5_000

    run(work)


def test_every_code_has_a_page_that_the_problem_points_at() -> None:
    async def work() -> None:
        async with served(token="s3cret") as (client, _):
            missing = [
                code for code in CODES if code.encode() not in (await client.send("GET", f"/errors/{code}")).body
            ]
            problem = await client.send("GET", "/api/v1/workflows")
            page = await client.send("GET", problem.json()["type"])
            none = await client.send("GET", "/errors/nonsense")

            assert missing == []
            assert (page.status, page.headers["content-type"]) == (200, "text/plain; charset=utf-8")
            assert none.status == 401

    run(work)


@pytest.mark.parametrize("probe", ["livez", "readyz", "startupz"])
def test_a_probe_lists_its_checks_when_asked(probe: str) -> None:
    async def work() -> None:
        async with served(token="s3cret") as (client, _):
            short = await client.send("GET", f"/{probe}")
            long = await client.send("GET", f"/{probe}?verbose")

            assert (short.status, long.status) == (200, 200)
            assert "checks" not in short.json()
            assert all(check["ok"] for check in long.json()["checks"])

    run(work)


def test_the_document_of_addresses_is_given_to_everybody() -> None:
    async def work() -> None:
        async with served(token="s3cret") as (client, _):
            reply = await client.send("GET", "/api/openapi.json")

            assert reply.status == 200
            assert reply.json()["openapi"] == "3.1.0"

    run(work)


def test_counts_are_written_as_prometheus_reads_them() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/tasks", json={"type": "resize"})
            await client.send("GET", "/api/v1/tasks/nope")
            await client.send("GET", "/nowhere")
            text = (await client.send("GET", "/metrics")).body.decode()

            assert 'outlast_http_requests_total{operation="enqueueTask",status="201"} 1.0' in text
            assert 'outlast_http_requests_total{operation="getTask",status="404"} 1.0' in text
            assert 'outlast_http_requests_total{operation="none",status="404"} 1.0' in text
            assert 'outlast_http_request_seconds_count{operation="enqueueTask"} 1.0' in text
            assert "outlast_ready 1.0" in text

    run(work)


def test_the_server_says_what_it_is_and_as_whom_the_caller_is_known() -> None:
    async def work() -> None:
        async with served() as (client, _):
            info = (await client.send("GET", "/api/v1/server")).json()

            assert (info["principal"], info["ready"], info["api"]) == ("local", True, "v1")
            assert info["limits"]["batch_items"] == 1000

    run(work)


def test_why_takes_the_id_of_either_kind() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            task = (await client.send("POST", "/api/v1/tasks", json={"type": "resize"})).json()["id"]
            workflow_why = (await client.send("GET", "/api/v1/explain/o-1")).json()
            task_why = (await client.send("GET", f"/api/v1/explain/{task}")).json()
            nothing = await client.send("GET", "/api/v1/explain/nope")

            assert (workflow_why["kind"], task_why["kind"]) == ("workflow", "task")
            assert 'none polls queue "default"' in workflow_why["waits_for"]
            assert nothing.status == 404

    run(work)


def test_a_query_goes_to_a_worker_and_its_answer_comes_back() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            (turn,) = (await transport.call(a_poll())).workflow_tasks
            done = WorkflowTaskDone(token=turn.token)
            await transport.call(CompleteWorkflowTasks(worker="w1", done=(done,)))
            asking = asyncio.ensure_future(
                client.send("POST", "/api/v1/workflows/o-1/query", json={"name": "count", "input": ["tea"]})
            )
            (query,) = (await transport.call(a_poll(poll_id="next"))).queries
            said = QueryAnswer(token=query.token, result=(Payload("json/plain", b"3"),))
            await transport.call(AnswerQueries(worker="w1", items=(said,)))
            reply = await asking

            assert (query.name, query.input) == ("count", (Payload("json/plain", b'"tea"'),))
            assert (reply.status, reply.json()) == (200, {"id": "o-1", "result": [3]})

    run(work)


def test_what_the_code_raises_when_it_is_asked_is_a_problem() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            await transport.call(TerminateWorkflow(workflow_id="o-1", request_id="end"))
            asking = asyncio.ensure_future(client.send("POST", "/api/v1/workflows/o-1/query", json={"name": "count"}))
            (query,) = (await transport.call(a_poll())).queries
            failure = Failure(kind=FailureKind.APPLICATION, type="KeyError", message="no such shelf")
            item = QueryAnswer(token=query.token, failure=failure)
            await transport.call(AnswerQueries(worker="w1", items=(item,)))
            reply = await asking

            assert (reply.status, reply.json()["code"]) == (409, "query_failed")
            assert "KeyError: no such shelf" in reply.json()["detail"]

    run(work)


def test_a_query_without_a_worker_is_no_fault_of_the_server() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            reply = await client.send("POST", "/api/v1/workflows/o-1/query", json={"name": "state", "wait": "10ms"})

            assert (reply.status, reply.json()["code"], reply.json()["retryable"]) == (409, "query_unanswered", True)
            assert "start one" in reply.json()["remedy"]

    run(work)


@pytest.mark.parametrize("name", ["authorization", "idempotency-key", "if-match", "content-type", "host", "origin"])
def test_a_header_that_says_two_things_is_refused(name: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            twice = {name: "application/json", name.upper(): "application/xml"}
            reply = await client.send("POST", "/api/v1/tasks", json={"type": "x"}, headers=twice)

            assert (reply.status, reply.json()["code"]) == (400, "invalid_request")
            assert reply.json()["detail"] == f"The header {name} stands there twice."

    run(work)


@pytest.mark.parametrize("wait", ["-1s", "abc", "61s"])
def test_a_bad_wait_is_named_as_the_parameter_that_it_is(wait: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", f"/api/v1/tasks/t/result?wait={wait}")

            (error,) = reply.json()["errors"]
            assert (reply.status, error["parameter"], "pointer" in error) == (400, "wait", False)

    run(work)
