"""A token that may look and act, and not see what is in the work."""

from pathlib import Path

import pytest

from outlast.core.errors import Invalid
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    AwaitTask,
    CompleteTasks,
    Completion,
    DescribeTask,
    DescribeWorkflow,
    EnqueueTask,
    QueryWorkflow,
    TaskFailed,
    TaskSucceeded,
)
from outlast.core.payload import Payload
from outlast.core.replies import Work
from outlast.gateway.app import Policy
from outlast.gateway.auth import read_tokens
from outlast.protocol.wire import encode
from tests.engine.doubles import a_poll, run
from tests.gateway.serving import served
from tests.gateway.test_rights import PACKED, bearer, token

SECRET = "visa-4242"
PLAIN = Payload("json/plain", f'"{SECRET}"'.encode())


def tokens_file(folder: Path, text: str) -> str:
    """Return the path of a tokens file."""
    (folder / "tokens.toml").write_text(text)
    return str(folder / "tokens.toml")


def test_a_token_may_look_and_act_without_seeing_what_is_in_the_work(tmp_path: Path) -> None:
    rows = '[[tokens]]\nname = "desk"\ntoken = "desk"\nroles = ["operator"]\npayloads = false\n'
    desk = bearer("desk")
    policy = Policy(tokens=(*read_tokens(tokens_file(tmp_path, rows)), token("admin", "*")))

    async def work() -> None:
        async with served(policy=policy) as (client, transport):
            await transport.call(EnqueueTask(type="charge", queue="default", task_id="t-1", input=(PLAIN,)))
            await transport.call(EnqueueTask(type="charge", queue="default", task_id="t-2", input=(PLAIN,)))
            reply = await transport.call(a_poll(task_types=("charge",), slots=2))
            assert isinstance(reply, Work)
            cause = Failure(kind=FailureKind.APPLICATION, type="LookupError", message=SECRET)
            error = Failure(
                kind=FailureKind.APPLICATION, type="E", message=SECRET, trace=SECRET, final=True, cause=cause
            )
            outcomes = (TaskSucceeded(result=(PLAIN,)), TaskFailed(failure=error))
            items = tuple(
                Completion(token=lease.token, outcome=outcome)
                for lease, outcome in zip(reply.tasks, outcomes, strict=True)
            )
            await transport.call(CompleteTasks(worker="w1", items=items))
            body = {"type": "order", "id": "order-7", "input": [SECRET]}
            assert (await client.send("POST", "/api/v1/workflows", json=body, headers=desk)).status == 201
            signal = {"name": "pay", "input": [SECRET]}
            target = "/api/v1/workflows/order-7/signal"
            assert (await client.send("POST", target, json=signal, headers=desk)).status == 202
            reads = [f"tasks{rest}" for rest in ("", "/t-1", "/t-2", "/t-1/result", "/t-2/result", "/t-2/attempts")]
            reads += [f"workflows{rest}" for rest in ("", "/order-7", "/order-7/history", "/order-7/result")]
            reads += ["feed", "explain/t-2", "explain/order-7"]
            for path in reads:
                seen = await client.send("GET", f"/api/v1/{path}", headers=desk)
                assert seen.status in {200, 202}
                assert SECRET not in seen.body.decode(), path
            shown = await client.send("GET", "/api/v1/tasks/t-1/result", headers=desk)
            why = "This token may not see values."
            assert shown.json()["result"] == [{"encoding": "json/plain", "why": why, "size": len(PLAIN.data)}]
            wire = ["history?workflow_id=order-7", "attempts?task_id=t-2", "runs", "tasks", "feed"]
            for path in wire:
                seen = await client.send("GET", f"/api/v1/worker/{path}", headers={**desk, **PACKED})
                assert seen.status == 200
                assert SECRET.encode() not in seen.body, path
            for request in (
                DescribeTask(task_id="t-2"),
                AwaitTask(task_id="t-1"),
                DescribeWorkflow(workflow_id="order-7"),
            ):
                for path, sent in (("call", request), ("waits", (request,))):
                    if path == "call" or isinstance(request, AwaitTask):
                        seen = await client.send(
                            "POST", f"/api/v1/worker/{path}", body=encode(sent), headers={**desk, **PACKED}
                        )
                        assert seen.status == 200
                        assert SECRET.encode() not in seen.body, (path, request)
            asked = QueryWorkflow(workflow_id="order-7", name="card")
            denied = await client.send("POST", "/api/v1/worker/call", body=encode(asked), headers={**desk, **PACKED})
            assert denied.status == 403
            full = await client.send("GET", "/api/v1/tasks/t-1/result", headers=bearer("admin"))
            assert full.json()["result"] == [SECRET]

    run(work)


def test_a_token_that_takes_work_cannot_be_kept_from_its_values(tmp_path: Path) -> None:
    rows = '[[tokens]]\nname = "w"\ntoken = "w"\nroles = ["worker"]\npayloads = false\n'

    with pytest.raises(Invalid, match="payloads = false"):
        read_tokens(tokens_file(tmp_path, rows))
