"""The worker protocol: the requests of ``core.inputs`` and their replies, and the reads of a Transport."""

import asyncio
from typing import Final

import msgspec

from outlast.core.carriers import payloads_in
from outlast.core.errors import Invalid, TooLarge
from outlast.core.inputs import Request
from outlast.core.replies import Refused, Reply
from outlast.gateway.exchange import Answer, Exchange, malformed, whole_number
from outlast.gateway.problems import status_of
from outlast.protocol.again import may_wait
from outlast.protocol.wire import CALLS_MAX, JSON, MSGPACK, decode_request, decode_requests, encode

_HISTORY: Final = frozenset({"workflow_id", "run_id", "first_event_id"})
_ATTEMPTS: Final = frozenset({"task_id"})
_RUN_FIELDS: Final = frozenset({"type", "status", "workflow_id", "query"})
_TASK_FIELDS: Final = frozenset({"type", "state", "queue", "run_id", "query"})
_RUNS: Final = _RUN_FIELDS | {"cursor", "limit"}
_TASKS: Final = _TASK_FIELDS | {"cursor", "limit"}


async def call(exchange: Exchange) -> Answer:
    """One request in the body, its reply in the answer, with the status of the refusal if it is one."""
    json = exchange.is_json()
    try:
        request = decode_request(await exchange.body(), json=json)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise malformed(error) from None
    _require_own_data(request)
    if may_wait(request):
        reply = await exchange.while_connected(exchange.submit(request))
    else:
        reply = await exchange.ask(request)
    if not isinstance(reply, Refused):
        return _answer(200, reply, json=json)
    status = status_of(reply.code)
    return _answer(status, reply, json=json, again=status in {429, 503})


async def calls(exchange: Exchange) -> Answer:
    """Several requests in the body; their replies in order, refusals among them."""
    json = exchange.is_json()
    try:
        requests = decode_requests(await exchange.body(), json=json)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise malformed(error) from None
    if len(requests) > CALLS_MAX:
        raise TooLarge(
            "limit_exceeded", f"There are {len(requests)} requests; {CALLS_MAX} are allowed.", remedy="Send fewer."
        )
    for request in requests:
        _require_own_data(request)
        if may_wait(request):
            raise Invalid(
                "invalid_request",
                "A request that may be held is among others, which would wait with it.",
                remedy="Send it alone, to worker/call.",
            )
    replies = await asyncio.gather(*(exchange.ask(request) for request in requests))
    return _answer(200, tuple(replies), json=json)


async def history(exchange: Exchange) -> Answer:
    """A page of committed events."""
    fields = exchange.query(_HISTORY)
    page = await exchange.engine.reader.read_history(
        exchange.namespace,
        fields.get("workflow_id", ""),
        fields.get("run_id", ""),
        first_event_id=whole_number(fields, "first_event_id", 1),
    )
    return _read(exchange, page)


async def attempts(exchange: Exchange) -> Answer:
    """How the leases of a task ended."""
    fields = exchange.query(_ATTEMPTS)
    return _read(exchange, await exchange.engine.reader.read_attempts(exchange.namespace, fields.get("task_id", "")))


async def runs(exchange: Exchange) -> Answer:
    """A page of runs."""
    fields = exchange.query(_RUNS)
    page = await exchange.engine.reader.list_runs(
        exchange.namespace,
        type=fields.get("type", ""),
        status=fields.get("status", ""),
        workflow_id=fields.get("workflow_id", ""),
        query=fields.get("query", ""),
        cursor=fields.get("cursor", ""),
        limit=whole_number(fields, "limit", 50),
        now=exchange.engine.clock.now(),
    )
    return _read(exchange, page)


async def count_runs(exchange: Exchange) -> Answer:
    """How many runs match."""
    fields = exchange.query(_RUN_FIELDS)
    count = await exchange.engine.reader.count_runs(
        exchange.namespace,
        type=fields.get("type", ""),
        status=fields.get("status", ""),
        workflow_id=fields.get("workflow_id", ""),
        query=fields.get("query", ""),
        now=exchange.engine.clock.now(),
    )
    return _read(exchange, count)


async def tasks(exchange: Exchange) -> Answer:
    """A page of tasks."""
    fields = exchange.query(_TASKS)
    page = await exchange.engine.reader.list_tasks(
        exchange.namespace,
        type=fields.get("type", ""),
        state=fields.get("state", ""),
        queue=fields.get("queue", ""),
        run_id=fields.get("run_id", ""),
        query=fields.get("query", ""),
        cursor=fields.get("cursor", ""),
        limit=whole_number(fields, "limit", 50),
        now=exchange.engine.clock.now(),
    )
    return _read(exchange, page)


async def count_tasks(exchange: Exchange) -> Answer:
    """How many tasks match."""
    fields = exchange.query(_TASK_FIELDS)
    count = await exchange.engine.reader.count_tasks(
        exchange.namespace,
        type=fields.get("type", ""),
        state=fields.get("state", ""),
        queue=fields.get("queue", ""),
        run_id=fields.get("run_id", ""),
        query=fields.get("query", ""),
        now=exchange.engine.clock.now(),
    )
    return _read(exchange, count)


def _require_own_data(request: Request) -> None:
    """A reference to stored data is the engine's to make: taken from outside it would read what others stored."""
    if any(payload.blob for payload in payloads_in(request)):
        raise Invalid("invalid_request", "A payload refers to stored data.", remedy="Send the data itself.")


def _read(exchange: Exchange, value: object) -> Answer:
    return _answer(200, value, json=not exchange.wants_msgpack())


def _answer(status: int, value: "Reply | object", *, json: bool, again: bool = False) -> Answer:
    headers = (("retry-after", "1"),) if again else ()
    return Answer(status, encode(value, json=json), JSON if json else MSGPACK, headers)
