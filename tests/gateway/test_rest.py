"""REST, through the ASGI application in process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from outlast.core import limits
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import CompleteTasks, Completion, TaskFailed, TaskSucceeded
from outlast.core.replies import Work
from outlast.core.writes import CommitOutcome
from outlast.gateway.app import ROUTES, Gateway
from tests.engine.doubles import FaultyStore, a_poll, json_of, run, running
from tests.gateway.asgi import AsgiClient


@asynccontextmanager
async def served(store: FaultyStore | None = None, *, token: str = "") -> AsyncGenerator[tuple[AsgiClient, Any]]:
    async with running(store or FaultyStore()) as (engine, transport):
        yield AsgiClient(Gateway(engine, token=token)), transport


def test_a_workflow_is_started_described_and_listed() -> None:
    async def work() -> None:
        async with served() as (client, _):
            started = await client.send(
                "POST", "/api/v1/workflows", json={"type": "order", "id": "o/1", "input": [{"n": 1}]}
            )
            got = await client.send("GET", "/api/v1/workflows/o%2F1")
            listed = await client.send("GET", "/api/v1/namespaces/default/workflows?status=running")

            assert started.status == 201
            assert got.json()["id"] == "o/1"
            assert got.json()["status"] == "running"
            assert [item["id"] for item in listed.json()["items"]] == ["o/1"]

    run(work)


def test_the_same_key_starts_once_and_says_that_it_is_a_repeat() -> None:
    async def work() -> None:
        async with served() as (client, _):
            headers = {"idempotency-key": "k-1"}
            first = await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"}, headers=headers)
            again = await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"}, headers=headers)
            other = await client.send("POST", "/api/v1/workflows", json={"type": "ship", "id": "o-1"}, headers=headers)

            assert (first.status, again.status) == (201, 200)
            assert again.headers["idempotent-replayed"] == "true"
            assert first.json()["run_id"] == again.json()["run_id"]
            assert (other.status, other.json()["code"]) == (409, "idempotency_key_reused")

    run(work)


def test_a_task_runs_from_enqueue_to_result() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            made = await client.send("POST", "/api/v1/tasks", json={"type": "resize", "input": ["a.png"]})
            waiting = asyncio.create_task(client.send("GET", f"/api/v1/tasks/{made.json()['id']}/result?wait=10s"))
            polled = await transport.call(a_poll())
            await transport.call(_all(polled, TaskSucceeded(result=(json_of(b'{"done":true}'),))))

            result = await waiting
            info = await client.send("GET", f"/api/v1/tasks/{made.json()['id']}")
            attempts = await client.send("GET", f"/api/v1/tasks/{made.json()['id']}/attempts")

            assert polled.tasks[0].input == (json_of(b'"a.png"'),)
            assert result.json()["result"] == [{"done": True}]
            assert info.json()["state"] == "succeeded"
            assert [item["outcome"] for item in attempts.json()["items"]] == ["succeeded"]

    run(work)


def test_a_failed_task_tells_its_error() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            made = await client.send("POST", "/api/v1/tasks", json={"type": "resize", "retry": {"max_attempts": 1}})
            polled = await transport.call(a_poll())
            failure = Failure(kind=FailureKind.APPLICATION, type="ValueError", message="no such picture", final=True)
            await transport.call(_all(polled, TaskFailed(failure=failure)))

            result = await client.send("GET", f"/api/v1/tasks/{made.json()['id']}/result")

            assert result.json()["state"] == "failed"
            assert result.json()["failure"]["message"] == "no such picture"

    run(work)


def test_a_result_that_is_not_there_yet_is_202() -> None:
    async def work() -> None:
        async with served() as (client, _):
            made = await client.send("POST", "/api/v1/tasks", json={"type": "resize"})

            result = await client.send("GET", f"/api/v1/tasks/{made.json()['id']}/result?wait=10ms")

            assert (result.status, result.json()["state"]) == (202, "open")

    run(work)


def test_the_result_of_an_open_run_has_the_status_that_other_answers_have() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "order-7"})

            result = await client.send("GET", "/api/v1/workflows/order-7/result?wait=10ms")
            described = await client.send("GET", "/api/v1/workflows/order-7")

            assert (result.status, result.json()["status"]) == (202, "running")
            assert described.json()["status"] == "running"

    run(work)


def test_a_signal_and_a_cancel_are_taken() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            signal = await client.send(
                "POST", "/api/v1/workflows/o-1/signal", json={"name": "approve", "input": [{"by": "ann"}]}
            )
            cancel = await client.send("POST", "/api/v1/workflows/o-1/cancel")
            history = await client.send("GET", "/api/v1/workflows/o-1/history")

            kinds = [event["kind"] for event in history.json()["events"]]
            assert (signal.status, cancel.status) == (202, 202)
            assert kinds[0] == "WorkflowExecutionStarted"
            assert "WorkflowExecutionSignaled" in kinds
            assert "WorkflowExecutionCancelRequested" in kinds

    run(work)


def test_a_terminated_workflow_gives_its_outcome() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            ended = await client.send("POST", "/api/v1/workflows/o-1/terminate", json={"reason": "test"})
            result = await client.send("GET", "/api/v1/workflows/o-1/result")

            assert ended.status == 202
            assert result.json()["status"] == "terminated"

    run(work)


def test_a_batch_answers_item_by_item() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            items = [{"type": "resize"}, {"type": ""}, {"type": "resize", "priority": 9}]
            reply = await client.send("POST", "/api/v1/tasks:batch", json={"items": items})

            assert [item["status"] for item in reply.json()["items"]] == [201, 400, 400]
            assert len((await transport.list_tasks()).tasks) == 1

    run(work)


TORN = {"body": b'{"type": 1', "headers": {"content-type": "application/json"}}


@pytest.mark.parametrize(
    ("method", "target", "send", "status", "code"),
    [
        ("POST", "/api/v1/workflows", TORN, 400, "malformed_body"),
        ("POST", "/api/v1/workflows", {"json": {"type": 1}}, 400, "malformed_body"),
        ("POST", "/api/v1/workflows", {"json": {"type": "order", "colour": "red"}}, 400, "unknown_field"),
        ("POST", "/api/v1/workflows", {"json": {"type": "order", "namespace": "other"}}, 400, "unknown_field"),
        ("POST", "/api/v1/workflows", {"body": b"type=order"}, 415, "unsupported_encoding"),
        ("POST", "/api/v1/workflows", {"json": {"type": "x" * 300}}, 413, "limit_exceeded"),
        ("POST", "/api/v1/workflows", {"json": {"type": "order", "run_timeout": "soon"}}, 400, "invalid_request"),
        ("POST", "/api/v1/workflows", {"json": {"type": "order", "delay": -1}}, 400, "invalid_request"),
        ("GET", "/api/v1/workflows/nope", {}, 404, "workflow_not_found"),
        ("GET", "/api/v1/tasks/nope", {}, 404, "task_not_found"),
        ("POST", "/api/v1/workflows/nope/signal", {"json": {"name": "x"}}, 404, "workflow_not_found"),
        ("GET", "/api/v1/namespaces/other/workflows", {}, 404, "namespace_not_found"),
        ("GET", "/api/v1/nothing", {}, 404, "route_not_found"),
        ("GET", "/elsewhere", {}, 404, "route_not_found"),
        ("DELETE", "/api/v1/workflows", {}, 405, "method_not_allowed"),
        ("GET", "/api/v1/workflows?limit=0", {}, 400, "invalid_request"),
        ("GET", "/api/v1/workflows?limit=many", {}, 400, "invalid_request"),
        ("GET", "/api/v1/workflows?colour=red", {}, 400, "unknown_field"),
        ("GET", "/api/v1/workflows?cursor=%00%FFx", {}, 400, "invalid_request"),
        ("GET", "/api/v1/workflows?status=happy", {}, 400, "invalid_request"),
        ("GET", "/api/v1/workflows/%ff", {}, 400, "invalid_request"),
        ("GET", "/api/v1/tasks/x/result?wait=2h", {}, 400, "invalid_request"),
        ("GET", "/api/v1/tasks/x/result?wait=nan", {}, 400, "invalid_request"),
    ],
    ids=str,
)
def test_bad_input_gets_a_code_a_fact_and_a_remedy(
    method: str, target: str, send: dict[str, Any], status: int, code: str
) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(method, target, **send)

            assert (reply.status, reply.json()["code"]) == (status, code)
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.json()["detail"]
            assert reply.json()["remedy"]

    run(work)


def test_a_malformed_body_names_the_place() -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("POST", "/api/v1/tasks", json={"type": "resize", "tags": {"plan": 3}})

            assert "$.tags" in reply.json()["detail"]

    run(work)


@pytest.mark.parametrize(
    "value",
    [b'"\xff"', b'"\xed\xa0\x80"', b'{"\xff":1}', b'"\\ud800"', b"1e999", b"NaN", b"[" * 20_000 + b"]" * 20_000],
    ids=["no utf-8", "surrogate", "key", "escaped surrogate", "infinite", "nan", "deep"],
)
@pytest.mark.parametrize("path", ["tasks", "workflows", "workflows/o-1/signal"])
def test_a_value_that_no_worker_could_read_leaves_no_trace(path: str, value: bytes) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            named = b'"name":"paid"' if path.endswith("signal") else b'"type":"resize"'
            body = b"{" + named + b',"input":[1,' + value + b"]}"

            reply = await client.send(
                "POST", f"/api/v1/{path}", body=body, headers={"content-type": "application/json"}
            )

            assert (reply.status, reply.json()["code"]) == (400, "malformed_body")
            assert reply.json()["remedy"]
            assert (await transport.list_tasks()).tasks == ()
            assert len((await transport.list_runs()).runs) == 1

    run(work)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("tasks", b'{"type":"x","inpu\xc2":1}'),
        ("tasks", b'{"type":"x","retry":{"\xff":1}}'),
        ("tasks:batch", b'{"items":[{"\xc2":1}],"\xc2":1}'),
        ("workflows/o-1/signal", b'{"name":"x","\xc2":1}'),
        ("workflows", b'{"type":"x","tags":{"\xc2":"1"}}'),
        ("worker/call", b'["start_workflow","\xc2"]'),
    ],
)
def test_a_name_that_is_no_utf8_is_no_fault_of_ours(path: str, body: bytes) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(
                "POST", f"/api/v1/{path}", body=body, headers={"content-type": "application/json"}
            )

            assert (reply.status, reply.json()["code"]) == (400, "malformed_body")

    run(work)


@pytest.mark.parametrize("path", ["tasks", "worker/call", "worker/calls"])
def test_a_body_nested_too_deeply_is_no_fault_of_ours(path: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(
                "POST", f"/api/v1/{path}", body=b"[" * 100_000, headers={"content-type": "application/json"}
            )

            assert (reply.status, reply.json()["code"]) == (400, "malformed_body")

    run(work)


@pytest.mark.parametrize("wait", ["%C2%B2", "%D9%A3", "x", ".", "1e9", "nans", "-1"])
def test_a_wait_that_is_no_span_is_refused(wait: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", f"/api/v1/tasks/t-1/result?wait={wait}")

            assert (reply.status, reply.json()["code"]) == (400, "invalid_request")

    run(work)


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_over_the_limit_is_refused_without_reading_on(declared: bool) -> None:
    async def work() -> None:
        async with served() as (client, transport):
            chunk = b" " * (1024 * 1024)
            headers = {"content-type": "application/json"}
            if declared:
                headers["content-length"] = str(limits.REQUEST_BYTES_MAX + 1)

            reply = await client.send("POST", "/api/v1/tasks", body=[chunk] * 6, headers=headers)

            assert (reply.status, reply.json()["code"]) == (413, "body_too_large")
            assert (await transport.list_tasks()).tasks == ()

    run(work)


def test_a_body_that_does_not_come_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.gateway.exchange.BODY_WITHIN", 0.05)

    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(
                "POST", "/api/v1/tasks", body=[b"{", b"}"], headers={"content-type": "application/json"}, slow=True
            )

            assert (reply.status, reply.json()["code"]) == (504, "timeout")

    run(work)


def test_a_payload_over_the_limit_is_refused_with_its_place() -> None:
    async def work() -> None:
        async with served() as (client, _):
            big = "x" * (limits.PAYLOAD_BYTES_MAX + 1)

            reply = await client.send("POST", "/api/v1/tasks", json={"type": "resize", "input": [1, big]})

            assert (reply.status, reply.json()["code"]) == (413, "payload_too_large")
            assert "input[1]" in reply.json()["detail"]

    run(work)


def test_a_stranger_without_the_token_is_refused() -> None:
    async def work() -> None:
        async with served(token="s3cret") as (client, _):
            without = await client.send("GET", "/api/v1/workflows")
            wrong = await client.send("GET", "/api/v1/workflows", headers={"authorization": "Bearer s3cre\xff"})
            right = await client.send(
                "GET", "/api/v1/workflows", headers={"authorization": "Bearer s3cret", "host": "jobs.example"}
            )

            assert (without.status, wrong.status, right.status) == (401, 401, 200)
            assert "s3cret" not in without.body.decode()

    run(work)


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}, {"host": "[::bad"}],
    ids=str,
)
def test_a_page_from_elsewhere_cannot_use_the_loopback_address(headers: dict[str, str]) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", "/api/v1/workflows", headers=headers)

            assert (reply.status, reply.json()["code"]) == (403, "denied")

    run(work)


def test_readiness_tells_of_a_full_store_with_the_reason() -> None:
    async def work() -> None:
        store = FaultyStore()
        async with served(store) as (client, _):
            before = await client.send("GET", "/readyz")
            store.outcomes.append(CommitOutcome.FULL)
            refused = await client.send("POST", "/api/v1/tasks", json={"type": "resize"})
            after = await client.send("GET", "/readyz")
            alive = await client.send("GET", "/livez")

            assert (before.status, after.status, alive.status) == (200, 503, 200)
            assert (refused.status, refused.json()["code"]) == (503, "store_full")
            assert refused.headers["retry-after"]
            assert after.json()["code"] == "store_full"

    run(work)


def test_a_fault_of_ours_shows_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenStore(FaultyStore):
        async def list_runs(self, filter: Any) -> Any:
            raise ZeroDivisionError("a secret detail")

    async def work() -> None:
        async with served(BrokenStore()) as (client, _):
            reply = await client.send("GET", "/api/v1/workflows")

            assert (reply.status, reply.json()["code"]) == (500, "internal")
            assert "secret" not in reply.body.decode()

    run(work)
    assert "a secret detail" in caplog.text


def test_a_head_request_has_no_body() -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("HEAD", "/api/v1/workflows")

            assert (reply.status, reply.body) == (200, b"")
            assert int(reply.headers["content-length"]) > 0

    run(work)


def test_pages_follow_each_other_without_gap_or_repeat() -> None:
    async def work() -> None:
        async with served() as (client, _):
            for n in range(7):
                await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": f"o-{n}"})
            seen: list[str] = []
            cursor = ""
            for _ in range(4):
                page = (await client.send("GET", f"/api/v1/workflows?limit=2&cursor={cursor}")).json()
                seen += [item["id"] for item in page["items"]]
                cursor = page["next"]

            assert seen == [f"o-{n}" for n in reversed(range(7))]
            assert cursor == ""

    run(work)


def test_every_route_has_a_summary_that_is_a_sentence() -> None:
    assert all(route.summary.endswith(".") for route in ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def _all(polled: Work, outcome: TaskSucceeded | TaskFailed) -> CompleteTasks:
    return CompleteTasks(
        worker="w1", items=tuple(Completion(token=lease.token, outcome=outcome) for lease in polled.tasks)
    )


def test_the_body_of_an_error_is_problem_json() -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", "/api/v1/tasks/nope")

            body = msgspec.json.decode(reply.body)
            assert body["status"] == 404
            assert body["type"] == "/errors/task_not_found"
            assert body["title"]
            assert body["retryable"] is False

    run(work)


def test_a_run_says_what_will_go_wrong_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HISTORY_EVENTS_WARN", 3)

    async def work() -> None:
        async with served() as (client, _):
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            before = await client.send("GET", "/api/v1/workflows/o-1")
            for _ in range(2):
                await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "x"})
            after = await client.send("GET", "/api/v1/workflows/o-1")

            assert before.json()["warning"] == ""
            assert "continue as new" in after.json()["warning"]

    run(work)
