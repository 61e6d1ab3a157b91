"""The worker protocol: requests and replies as MessagePack or JSON, alone or several, and whatever else may be sent."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    AwaitTask,
    CompleteTasks,
    Completion,
    DescribeTask,
    EnqueueTask,
    StopWorker,
    TaskFailed,
    TaskToken,
)
from outlast.core.limits import FAILURE_DEPTH_MAX, FAILURE_TEXT_BYTES_MAX, NAME_BYTES_MAX
from outlast.core.payload import Payload
from outlast.core.replies import Refused, TaskEnqueuedReply, Work
from outlast.protocol.wire import MSGPACK, decode_replies, decode_reply, decode_requests, encode
from tests.engine.doubles import a_poll, a_start, a_task, run
from tests.gateway.asgi import AsgiClient
from tests.gateway.test_rest import served

PACKED = {"content-type": MSGPACK}


async def _call(client: AsgiClient, request: Any, **settings: Any) -> tuple[int, Any]:
    reply = await client.send("POST", "/api/v1/worker/call", body=encode(request), headers=PACKED, **settings)
    return reply.status, decode_reply(reply.body)


def test_one_request_gets_its_reply_and_a_refusal_its_status() -> None:
    async def work() -> None:
        async with served() as (client, _):
            made = await _call(client, a_task(task_id="t-1"))
            missing = await _call(client, DescribeTask(task_id="nope"))

            assert made == (200, TaskEnqueuedReply(task_id="t-1", polled=False))
            assert missing[0] == 404
            assert isinstance(missing[1], Refused)
            assert missing[1].code == "task_not_found"

    run(work)


def test_several_requests_get_their_replies_in_order() -> None:
    async def work() -> None:
        async with served() as (client, _):
            requests = (a_task(task_id="t-1"), DescribeTask(task_id="nope"), a_task(task_id="t-2"))
            reply = await client.send("POST", "/api/v1/worker/calls", body=encode(requests), headers=PACKED)

            first, refused, second = decode_replies(reply.body)
            assert (reply.status, first, second) == (
                200, TaskEnqueuedReply(task_id="t-1", polled=False), TaskEnqueuedReply(task_id="t-2", polled=False),
            )  # fmt: skip
            assert isinstance(refused, Refused)

    run(work)


def test_a_request_that_may_be_held_is_not_taken_among_others() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            requests = (a_task(), AwaitTask(task_id="t-1"))
            reply = await client.send("POST", "/api/v1/worker/calls", body=encode(requests), headers=PACKED)

            assert reply.status == 400
            assert (await transport.list_tasks()).tasks == ()

    run(work)


def test_json_serves_as_well_as_msgpack() -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("POST", "/api/v1/worker/call", json=["stop_worker", "w1"])

            assert (reply.status, reply.json()) == (200, ["accepted", True])

    run(work)


def test_a_poll_that_hangs_up_gives_its_leases_to_the_next() -> None:
    async def work() -> None:
        async with served() as (client, _):
            hang_up = asyncio.Event()
            poll = asyncio.create_task(_call_raw(client, a_poll(worker="gone"), hang_up))
            for _ in range(50):
                await asyncio.sleep(0)
            hang_up.set()
            await poll
            await _call(client, a_task(task_id="t-1"))
            _, polled = await _call(client, a_poll(worker="w2"))

            assert isinstance(polled, Work)
            assert [(lease.token.task_id, lease.attempt) for lease in polled.tasks] == [("t-1", 1)]

    run(work)


async def _call_raw(client: AsgiClient, request: Any, hang_up: asyncio.Event) -> int:
    reply = await client.send("POST", "/api/v1/worker/call", body=encode(request), headers=PACKED, hang_up=hang_up)
    return reply.status


def test_reads_give_msgpack_to_those_who_ask_for_it() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await _call(client, a_task(task_id="t-1"))
            packed = await client.send("GET", "/api/v1/worker/tasks?limit=5", headers={"accept": MSGPACK})
            plain = await client.send("GET", "/api/v1/worker/attempts?task_id=t-1")

            assert packed.headers["content-type"] == MSGPACK
            assert plain.json() == []

    run(work)


def test_stored_data_cannot_be_named_from_outside() -> None:
    async def work() -> None:
        async with served() as (client, _):
            stolen = Payload("json/plain", b"", None, "ab" * 32, 10)
            status, reply = await _call(client, a_task(input=(stolen,)))

            assert (status, reply.code) == (400, "invalid_request")

    run(work)


def test_data_that_only_claims_to_be_json_does_not_change_an_answer() -> None:
    async def work() -> None:
        async with served() as (client, _):
            forged = Payload("json/plain", b'1],"run_id":"other","x":[2')
            broken = Payload("json/plain", b"}{")
            await _call(client, a_start("o-1", input=(forged, broken), memo={"m": broken}))
            reply = await client.send("GET", "/api/v1/workflows/o-1/history")

            started = reply.json()["events"][0]["fields"]
            assert [base64.b64decode(item["data"]) for item in started["input"]] == [forged.data, broken.data]
            assert started["memo"]["m"]["encoding"] == "json/plain"

    run(work)


def test_another_protocol_is_refused_with_both_numbers() -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(
                "POST", "/api/v1/worker/call", body=encode(StopWorker(worker="w")),
                headers={**PACKED, "outlast-protocol": "99"},
            )  # fmt: skip

            refused = decode_reply(reply.body)
            assert isinstance(refused, Refused)
            assert "99" in refused.fact

    run(work)


def test_the_namespace_comes_from_the_path() -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send(
                "POST", "/api/v1/namespaces/other/worker/call", body=encode(a_task()), headers=PACKED
            )

            refused = decode_reply(reply.body)
            assert isinstance(refused, Refused)
            assert (reply.status, refused.code) == (404, "namespace_not_found")

    run(work)


def test_a_stale_token_changes_nothing() -> None:
    async def work() -> None:
        async with served() as (client, transport):
            await _call(client, a_task(task_id="t-1"))
            await _call(client, a_poll())
            failure = Failure(kind=FailureKind.APPLICATION, type="X", message="y", final=True)
            stale = Completion(token=TaskToken("t-1", 99), outcome=TaskFailed(failure=failure))
            _, reply = await _call(client, CompleteTasks(worker="w1", items=(stale,)))

            assert reply.items[0].code == "lease_lost"
            assert (await transport.list_tasks()).tasks[0].state == "leased"

    run(work)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x93",
        b"\xdd\xff\xff\xff\xff",
        encode(["enqueue_task"]),
        encode(["enqueue_task", 1, 2, 3]),
        encode(["no_such_kind", 1]),
        encode({}),
        encode(None),
        encode([[[[[1]]]]]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", ["call", "calls"], ids=str)
def test_a_body_that_is_no_request_is_malformed(path: str, body: bytes) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("POST", f"/api/v1/worker/{path}", body=body, headers=PACKED)

            refused = decode_reply(reply.body)
            assert isinstance(refused, Refused)
            assert (reply.status, refused.code) == (400, "malformed_body")

    run(work)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=50),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
_kinds = st.sampled_from(
    ["enqueue_task", "start_workflow", "poll", "heartbeat", "complete_tasks", "signal_workflow", "begin"]
)


@given(
    st.lists(
        st.one_of(st.binary(max_size=100), st.tuples(_kinds, st.lists(_values, max_size=12))), min_size=1, max_size=8
    )
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_sent_gets_an_answer_that_is_no_fault_of_ours(bodies: list[Any]) -> None:
    async def work() -> None:
        async with served() as (client, _):
            for body in bodies:
                raw = body if isinstance(body, bytes) else msgspec.msgpack.encode([body[0], *body[1]])
                reply = await client.send("POST", "/api/v1/worker/call", body=raw, headers=PACKED)

                assert reply.status < 500, reply.body

    run(work)


@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS"]),
    st.text(alphabet="abw/%:{}.~0?&=-", max_size=30),
    st.binary(max_size=40),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_address_is_called_gets_an_answer_that_is_no_fault_of_ours(
    method: str, path: str, body: bytes
) -> None:
    async def work() -> None:
        async with served() as (client, _):
            headers = {"content-type": "application/json"}
            reply = await client.send(method, f"/api/v1/workflows/{path}", body=body, headers=headers)

            assert reply.status < 500, reply.body

    run(work)


def test_requests_survive_the_wire_as_they_are() -> None:
    requests = (a_task(), a_poll(), StopWorker(worker="w"))

    assert decode_requests(encode(requests)) == requests
    assert isinstance(decode_requests(encode(requests))[0], EnqueueTask)


def _huge(depth: int) -> Failure:
    failure: Failure | None = None
    for _ in range(depth):
        failure = Failure(
            kind=FailureKind.APPLICATION,
            type="T" * 9_000,
            message="é" * 50_000,
            trace="at line 7\n" * 9_000,
            info={f"fact {n}": "x" * 1_000 for n in range(50)},
            cause=failure,
        )
    assert failure is not None
    return failure


def test_a_failure_of_any_size_is_taken_and_kept_cut_with_a_mark() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await _call(client, a_task(task_id="t-1"))
            _, given = await _call(client, a_poll())
            item = Completion(token=given.tasks[0].token, outcome=TaskFailed(failure=_huge(12)))

            first = await _call(client, CompleteTasks(items=(item,), worker="w"))
            again = await _call(client, CompleteTasks(items=(item,), worker="w"))
            _, task = await _call(client, DescribeTask(task_id="t-1"))

            assert [answer[1].items for answer in (first, again)] == [(None,), (None,)]
            chain = [task.failure]
            while chain[-1].cause is not None:
                chain.append(chain[-1].cause)
            assert len(chain) == FAILURE_DEPTH_MAX
            for each in chain:
                assert max(len(each.message.encode()), len(each.trace.encode())) <= FAILURE_TEXT_BYTES_MAX
                assert each.message.endswith("[cut, 50000 characters in all]")
                assert len(each.type.encode()) <= NAME_BYTES_MAX
                assert 0 < len(each.info) < 50

    run(work)


def test_a_worker_that_gives_itself_an_endless_name_is_refused() -> None:
    async def work() -> None:
        async with served() as (client, _):
            status, refused = await _call(client, a_poll(identity="i" * 1_001))

            assert (status, refused.code) == (413, "limit_exceeded")
            assert "identity has 1001 bytes" in refused.fact

    run(work)
