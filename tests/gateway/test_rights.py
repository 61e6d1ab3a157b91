"""Who may do what: tokens, roles, namespaces and queues; and how often."""

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest

from outlast.core.errors import Invalid
from outlast.core.inputs import (
    AnswerQueries,
    CompleteTasks,
    CompleteWorkflowTasks,
    Completion,
    DescribeTask,
    EnqueueTask,
    Heartbeat,
    HeartbeatItem,
    QueryAnswer,
    QueryToken,
    Request,
    ReturnTasks,
    StartWorkflow,
    StopWorker,
    TaskSucceeded,
    WorkflowTaskDone,
)
from outlast.core.replies import Refused, Work
from outlast.core.units import SECOND
from outlast.engine.shard.mailbox import Mailbox
from outlast.gateway.admission import Admission, Rate
from outlast.gateway.app import Policy
from outlast.gateway.auth import ROLES, Caller, Token, digest_of, read_tokens
from outlast.gateway.route import Right, Route
from outlast.gateway.routes.worker import NEEDS
from outlast.gateway.table import ROUTES
from outlast.protocol.wire import MSGPACK, decode_reply, encode
from tests.engine.doubles import a_poll, a_start, a_task, run
from tests.gateway.serving import served, target_of

PACKED = {"content-type": MSGPACK, "accept": MSGPACK}
BOTH = frozenset({"default", "shop"})


def token(role: str, *namespaces: str, queues: tuple[str, ...] = ("*",)) -> Token:
    """Return a token whose secret is the role's name."""
    return Token(
        digest_of(role.encode()), Caller(role, ROLES[role], frozenset(namespaces or {"default"}), frozenset(queues))
    )


POLICY = Policy(tokens=tuple(token(role) for role in ROLES))


def bearer(secret: str) -> dict[str, str]:
    """Return the header that shows a secret."""
    return {"authorization": f"Bearer {secret}"}


SCOPED = [route for route in ROUTES if not route.wire and not route.global_]


@pytest.mark.parametrize("route", SCOPED, ids=lambda route: route.operation)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_table_says_and_no_more(role: str, route: Route) -> None:
    async def work() -> None:
        async with served(policy=POLICY) as (client, _):
            await client.send(
                "POST", "/api/v1/workflows", json={"type": "order", "id": "order-7"}, headers=bearer("admin")
            )
            gone = asyncio.Event()
            gone.set()
            reply = await client.send(
                route.method,
                target_of(route, "t-1"),
                json=route.example.get("body"),
                headers=bearer(role),
                hang_up=gone if route.stream else None,
            )

            assert (reply.status == 403) is (route.needs not in ROLES[role])

    run(work)


@pytest.mark.parametrize("route", SCOPED, ids=lambda route: route.operation)
def test_an_id_of_another_namespace_is_as_one_that_is_not_there(route: Route) -> None:
    async def work() -> None:
        policy = Policy(tokens=(token("admin", "*"), token("operator", "shop")))
        async with served(policy=policy, namespaces=BOTH) as (client, transport):
            admin, other = bearer("admin"), bearer("operator")
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "order-7"}, headers=admin)
            task = (await client.send("POST", "/api/v1/tasks", json={"type": "x"}, headers=admin)).json()["id"]
            before = (await transport.list_runs()).runs, (await transport.list_tasks()).tasks
            body = route.example.get("body")
            denied = await client.send(route.method, target_of(route, task), json=body, headers=other)
            assert (denied.status, denied.json()["code"]) == (403, "denied")
            if "{id}" not in route.path:
                return
            theirs = await client.send(route.method, target_of(route, task, "shop"), json=body, headers=other)
            missing_target = target_of(route, "nope", "shop").replace("order-7", "nope")
            missing = await client.send(route.method, missing_target, json=body, headers=other)
            after = (await transport.list_runs()).runs, (await transport.list_tasks()).tasks

            assert theirs.status == missing.status == 404
            assert _same(theirs.json(), task) == _same(missing.json(), "nope")
            assert before == after

    run(work)


def _same(problem: dict[str, Any], id_: str) -> dict[str, Any]:
    """Return a problem without what must differ: its request, and the id that was asked for."""
    text = {name: value for name, value in problem.items() if name != "request_id"}
    return {
        name: str(value).replace(id_, "ID").replace("order-7", "ID").replace("nope", "ID")
        for name, value in text.items()
    }


def test_a_namespace_that_is_not_there_looks_like_one_that_is_not_allowed() -> None:
    async def work() -> None:
        async with served(policy=POLICY, namespaces=BOTH) as (client, _):
            there = await client.send("GET", "/api/v1/namespaces/shop/workflows", headers=bearer("reader"))
            not_there = await client.send("GET", "/api/v1/namespaces/none/workflows", headers=bearer("reader"))

            assert (there.status, not_there.status) == (403, 403)

    run(work)


@pytest.mark.parametrize(
    ("role", "request_", "allowed"),
    [
        ("reader", a_poll(wait=0), False),
        ("operator", a_poll(wait=0), False),
        ("worker", a_poll(wait=0), True),
        ("reader", a_task(), False),
        ("worker", a_task(), False),
        ("operator", a_task(), True),
        ("reader", a_start("o-1"), False),
        ("operator", a_start("o-1"), True),
        ("worker", a_start("o-1"), False),
        ("reader", DescribeTask(task_id="nope"), True),
        ("worker", DescribeTask(task_id="nope"), False),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | bool) else str(value),
)
@pytest.mark.parametrize("path", ["call", "calls"])
def test_each_call_of_the_worker_protocol_needs_its_own_right(
    role: str, request_: EnqueueTask | StartWorkflow | DescribeTask, allowed: bool, path: str
) -> None:
    async def work() -> None:
        async with served(policy=POLICY) as (client, _):
            body = encode(request_) if path == "call" else encode((request_,))
            if path == "calls" and "Poll" in type(request_).__name__:
                return  # polls go alone, whoever sends them
            reply = await client.send("POST", f"/api/v1/worker/{path}", body=body, headers={**PACKED, **bearer(role)})

            assert (reply.status == 403) is not allowed

    run(work)


def test_a_worker_for_one_queue_gets_nothing_of_another() -> None:
    async def work() -> None:
        policy = Policy(tokens=(token("worker", queues=("images",)), token("operator")))
        async with served(policy=policy) as (client, _):
            for queue in ("images", "mail"):
                await client.send(
                    "POST", "/api/v1/tasks", json={"type": "resize", "queue": queue}, headers=bearer("operator")
                )
            headers = {**PACKED, **bearer("worker")}
            own, foreign, both = [
                await client.send("POST", "/api/v1/worker/call", body=encode(a_poll(queues=queues)), headers=headers)
                for queues in (("images",), ("mail",), ("images", "mail"))
            ]

            assert (own.status, foreign.status, both.status) == (200, 403, 403)
            refused = decode_reply(foreign.body)
            assert isinstance(refused, Refused)
            assert refused.code == "denied"

    run(work)


def test_a_worker_for_one_queue_cannot_end_what_another_has() -> None:
    async def work() -> None:
        policy = Policy(tokens=(token("worker", queues=("images",)), token("admin")))
        async with served(policy=policy) as (client, _):
            admin, worker = {**PACKED, **bearer("admin")}, {**PACKED, **bearer("worker")}
            await client.send(
                "POST", "/api/v1/worker/call", body=encode(a_task(task_id="t-1", queue="mail")), headers=admin
            )
            poll = encode(a_poll(queues=("mail",)))
            polled = decode_reply((await client.send("POST", "/api/v1/worker/call", body=poll, headers=admin)).body)
            assert isinstance(polled, Work)
            lease = polled.tasks[0].token
            ending = encode(CompleteTasks(worker="w1", items=(Completion(token=lease, outcome=TaskSucceeded()),)))
            beat = encode(Heartbeat(worker="w1", items=(HeartbeatItem(token=lease),)))
            foreign = [
                (await client.send("POST", "/api/v1/worker/call", body=body, headers=worker)).status
                for body in (ending, beat)
            ]
            task = await client.send("GET", "/api/v1/tasks/t-1", headers=bearer("admin"))

            assert foreign == [403, 403]
            assert task.json()["state"] == "leased"

    run(work)


def test_every_request_of_the_worker_protocol_has_a_right_that_it_needs() -> None:
    assert set(NEEDS) == set(get_args(Request))


def test_a_worker_answers_queries_and_an_operator_does_not() -> None:
    async def work() -> None:
        async with served(policy=POLICY) as (client, _):
            token = QueryToken(run_id="r", incarnation=1, epoch=1, number=1)
            body = encode(AnswerQueries(worker="w1", items=(QueryAnswer(token=token),)))
            said = {
                role: (
                    await client.send("POST", "/api/v1/worker/call", body=body, headers={**PACKED, **bearer(role)})
                ).status
                for role in ("worker", "operator", "reader")
            }

            assert said == {"worker": 200, "operator": 403, "reader": 403}

    run(work)


def full(*_: object, **__: object) -> bool:
    """Take nothing: as much waits as may wait."""
    return False


def test_a_word_about_work_of_another_queue_is_refused_however_busy_the_engine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        policy = Policy(tokens=(token("worker", queues=("images",)),))
        async with served(policy=policy) as (client, transport):
            await transport.call(a_task(task_id="t-1", queue="mail"))
            polled = await transport.call(a_poll(queues=("mail",)))
            assert isinstance(polled, Work)
            monkeypatch.setattr(Mailbox, "put", full)
            ending = CompleteTasks(
                worker="w1", items=(Completion(token=polled.tasks[0].token, outcome=TaskSucceeded()),)
            )
            said = await client.send(
                "POST", "/api/v1/worker/call", body=encode(ending), headers={**PACKED, **bearer("worker")}
            )

            assert said.status == 403

    run(work)


def test_a_worker_for_one_queue_stops_no_worker_of_another() -> None:
    async def work() -> None:
        policy = Policy(tokens=(token("worker", queues=("images",)),))
        async with served(policy=policy) as (client, transport):
            await transport.call(a_poll(worker="theirs", queues=("images", "mail"), wait=0))
            await transport.call(a_poll(worker="ours", queues=("images",), wait=0))
            said = {
                worker: (
                    await client.send(
                        "POST",
                        "/api/v1/worker/call",
                        body=encode(StopWorker(worker=worker)),
                        headers={**PACKED, **bearer("worker")},
                    )
                ).status
                for worker in ("theirs", "ours", "nobody")
            }

            assert said == {"theirs": 403, "ours": 200, "nobody": 403}

    run(work)


def test_a_worker_for_one_queue_has_no_say_in_the_runs_of_another() -> None:
    async def work() -> None:
        policy = Policy(tokens=(token("worker", queues=("images",)), token("admin")))
        async with served(policy=policy) as (client, transport):
            admin, worker = {**PACKED, **bearer("admin")}, {**PACKED, **bearer("worker")}
            for queue in ("mail", "images"):
                await transport.call(a_start(f"o-{queue}", queue=queue))
            polled = await transport.call(a_poll(queues=("mail", "images"), workflow_slots=2))
            assert isinstance(polled, Work)
            turns = {task.workflow_id: task.token for task in polled.workflow_tasks}
            for queue, allowed in (("mail", False), ("images", True)):
                turn = turns[f"o-{queue}"]
                query = QueryToken(run_id=turn.run_id, incarnation=1, epoch=1, number=9)
                said = [
                    await client.send("POST", "/api/v1/worker/call", body=encode(request), headers=worker)
                    for request in (
                        AnswerQueries(worker="w1", items=(QueryAnswer(token=query),)),
                        CompleteWorkflowTasks(worker="w1", done=(WorkflowTaskDone(token=turn),), new_run_ids=("n",)),
                        ReturnTasks(worker="w1", tokens=(), workflow_tokens=(turn,)),
                    )
                ]
                page = f"/api/v1/worker/history?workflow_id=o-{queue}&run_id={turn.run_id}"
                said.append(await client.send("GET", page, headers=worker))
                said.append(await client.send("GET", page, headers=admin))

                assert [reply.status == 200 for reply in said] == [allowed] * 4 + [True]

    run(work)


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer ", "Basic admin", "admin", "Bearer admi", "Bearer adminx", "Bearer \xff"], ids=repr
)
def test_who_shows_no_known_token_is_asked_for_one_and_told_nothing(shown: str) -> None:
    async def work() -> None:
        async with served(policy=POLICY) as (client, _):
            reply = await client.send("GET", "/api/v1/workflows", headers={"authorization": shown})
            metrics = await client.send("GET", "/metrics", headers={"authorization": shown})

            assert (reply.status, reply.json()["code"], metrics.status) == (401, "unauthenticated", 401)
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert "admin" not in reply.body.decode()

    run(work)


GOOD = """
[[tokens]]
name = "ci"
token = "s3cret-canary"
roles = ["operator"]
namespaces = ["default", "shop"]

[[tokens]]
name = "images"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
roles = ["worker"]
queues = ["images"]
"""


def test_a_file_of_tokens_says_who_may_do_what(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(GOOD)
    ci, images = read_tokens(str(file))

    assert ci.caller == Caller("ci", ROLES["operator"], BOTH)
    assert ci.digest == digest_of(b"s3cret-canary")
    assert images.digest == digest_of(b"test")
    assert images.caller.queues == {"images"}
    assert images.caller.namespaces == {"default"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "tokens"),
        ("tokens = []", "0 tokens"),
        ("[[tokens]]\nname = 1", "str"),
        (GOOD.replace('"operator"', '"king"'), "king"),
        (GOOD.replace('["operator"]', "[]"), "no role"),
        (GOOD.replace('token = "s3cret-canary"', ""), "neither"),
        (GOOD.replace('sha256 = "9f', 'token = "x"\nsha256 = "9f'), "both"),
        (GOOD.replace('"9f86', '"zz'), "sha256"),
        (GOOD.replace("queues", "queus"), "queus"),
        (GOOD + "[[", "tokens file"),
    ],
    ids=[
        "empty", "none", "type", "role", "no role", "no secret", "two secrets", "no digest", "misspelt", "no toml"
    ],
)  # fmt: skip
def test_a_file_of_tokens_that_is_wrong_is_refused_and_shows_no_secret(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)

    with pytest.raises(Invalid) as refused:
        read_tokens(str(file))

    assert says in refused.value.fact + refused.value.remedy
    assert "canary" not in str(refused.value)


def test_no_secret_is_in_the_log_whatever_goes_wrong(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def work() -> None:
        policy = Policy(tokens=(Token(digest_of(b"s3cret-canary"), Caller("ci", ROLES["admin"])),))
        async with served(policy=policy) as (client, _):
            for shown in ("s3cret-canary", "s3cret-canary-wrong"):
                for method, target in (("GET", "/api/v1/tasks"), ("POST", "/api/v1/tasks"), ("GET", "/nowhere")):
                    reply = await client.send(method, target, json={"input": ["payload-canary"]}, headers=bearer(shown))
                    assert "canary" not in reply.body.decode()

    run(work)
    assert "canary" not in caplog.text


def test_who_asks_too_often_is_told_when_to_come_back() -> None:
    async def work() -> None:
        policy = Policy(tokens=POLICY.tokens, rate=Rate(per_second=0.5, burst=2))
        async with served(policy=policy) as (client, _):
            replies = [await client.send("GET", "/api/v1/workflows", headers=bearer("reader")) for _ in range(3)]
            other = await client.send("GET", "/api/v1/workflows", headers=bearer("operator"))
            worker = await client.send(
                "POST", "/api/v1/worker/call", body=encode(a_poll(wait=0)), headers={**PACKED, **bearer("worker")}
            )

            assert [reply.status for reply in replies] == [200, 200, 429]
            assert [reply.headers["ratelimit-remaining"] for reply in replies] == ["1", "0", "0"]
            assert replies[2].json()["code"] == "rate_limited"
            assert replies[2].headers["retry-after"] == "2"
            assert (other.status, worker.status) == (200, 200)

    run(work)


def test_a_bucket_fills_at_its_rate_and_never_over_its_brim() -> None:
    admission = Admission(Rate(per_second=10, burst=5))
    for _ in range(5):
        admission.take("default", "ci", now=0)

    headers = dict(admission.take("default", "ci", now=SECOND // 10))
    later = dict(admission.take("default", "ci", now=3600 * SECOND))

    assert headers["ratelimit-remaining"] == "0"
    assert later["ratelimit-remaining"] == "4"


def test_callers_that_come_and_go_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.gateway.admission.BUCKETS_MAX", 3)
    admission = Admission(Rate(per_second=1, burst=1))
    for n in range(10):
        admission.take("default", f"caller-{n}", now=n)

    assert len(admission._buckets) == 3


def test_every_right_of_the_table_is_held_by_some_role() -> None:
    held = frozenset[str]().union(*ROLES.values()) | {Right.NONE}

    assert {str(route.needs) for route in ROUTES} <= held
