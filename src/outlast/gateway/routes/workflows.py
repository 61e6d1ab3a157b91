"""Workflows over REST."""

from typing import Final

import msgspec

from outlast.core.inputs import (
    AwaitWorkflow,
    CancelWorkflow,
    DescribeWorkflow,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
)
from outlast.core.replies import Accepted, WorkflowInfo, WorkflowOutcome, WorkflowStarted
from outlast.gateway.exchange import Answer, Exchange, whole_number
from outlast.gateway.rest import answer, expect, idempotency_key, parsed, wait_of, within
from outlast.gateway.shapes import (
    SignalIn,
    StartIn,
    StopIn,
    history_out,
    outcome_out,
    payloads,
    span,
    workflow_out,
)

_RUN: Final = frozenset({"run_id"})
_RESULT: Final = frozenset({"run_id", "wait"})
_HISTORY: Final = frozenset({"run_id", "first_event_id"})
_LIST: Final = frozenset({"type", "status", "id", "cursor", "limit", "query"})


async def start(exchange: Exchange) -> Answer:
    """201 for started, 200 for one that was there."""
    wanted = await parsed(exchange, StartIn)
    new_id = exchange.engine.entropy.new_id
    key = idempotency_key(exchange)
    reply = await expect(
        exchange,
        StartWorkflow(
            type=wanted.type,
            queue=wanted.queue,
            run_id=new_id(),
            request_id=key or new_id(),
            workflow_id=wanted.id,
            input=payloads(wanted.input),
            if_open=wanted.if_open,
            if_closed=wanted.if_closed,
            run_timeout=span(wanted.run_timeout, "run_timeout"),
            delay=span(wanted.delay, "delay"),
            tags=wanted.tags,
            identity=exchange.principal,
        ),
        WorkflowStarted,
    )
    body = {"id": reply.workflow_id, "run_id": reply.run_id, "started": reply.started}
    return answer(body, status=201 if reply.started and not reply.replayed else 200, replayed=reply.replayed)


async def get(exchange: Exchange) -> Answer:
    """What is known of a workflow's latest run, or of the one named."""
    fields = exchange.query(_RUN)
    request = DescribeWorkflow(workflow_id=exchange.params["id"], run_id=fields.get("run_id", ""))
    return answer(workflow_out(await expect(exchange, request, WorkflowInfo)))


async def list_(exchange: Exchange) -> Answer:
    """A page of runs."""
    fields = exchange.query(_LIST)
    page = await exchange.engine.reader.list_runs(
        exchange.namespace,
        type=fields.get("type", ""),
        status=fields.get("status", ""),
        workflow_id=fields.get("id", ""),
        cursor=fields.get("cursor", ""),
        limit=whole_number(fields, "limit", 50),
        query=fields.get("query", ""),
        now=exchange.engine.clock.now(),
    )
    return answer({"items": [workflow_out(info) for info in page.runs], "next": page.next})


async def history(exchange: Exchange) -> Answer:
    """A page of committed events."""
    fields = exchange.query(_HISTORY)
    page = await exchange.engine.reader.read_history(
        exchange.namespace,
        exchange.params["id"],
        fields.get("run_id", ""),
        first_event_id=whole_number(fields, "first_event_id", 1),
    )
    return answer(history_out(page))


async def result(exchange: Exchange) -> Answer:
    """200 with the outcome; 202 when the run is still open after ``wait``."""
    fields = exchange.query(_RESULT)
    request = AwaitWorkflow(workflow_id=exchange.params["id"], run_id=fields.get("run_id", ""))
    probe = DescribeWorkflow(workflow_id=request.workflow_id, run_id=request.run_id)
    outcome = await within(exchange, request, probe, WorkflowOutcome, wait_of(fields))
    if outcome is None:
        return answer({"id": exchange.params["id"], "status": "running"}, status=202)
    return answer(outcome_out(outcome))


async def signal(exchange: Exchange) -> Answer:
    """Send a signal."""
    wanted = await parsed(exchange, SignalIn)
    request = SignalWorkflow(
        workflow_id=exchange.params["id"],
        name=wanted.name,
        request_id=idempotency_key(exchange) or exchange.engine.entropy.new_id(),
        run_id=wanted.run_id,
        input=payloads(wanted.input),
        identity=exchange.principal,
    )
    return _accepted(await expect(exchange, request, Accepted))


async def cancel(exchange: Exchange) -> Answer:
    """Ask the run to stop in good order."""
    wanted = await parsed(exchange, StopIn, or_nothing=True)
    request = CancelWorkflow(
        workflow_id=exchange.params["id"],
        request_id=idempotency_key(exchange) or exchange.engine.entropy.new_id(),
        run_id=wanted.run_id,
        reason=wanted.reason,
        identity=exchange.principal,
    )
    return _accepted(await expect(exchange, request, Accepted))


async def terminate(exchange: Exchange) -> Answer:
    """End the run at once."""
    wanted = await parsed(exchange, StopIn, or_nothing=True)
    request = TerminateWorkflow(
        workflow_id=exchange.params["id"],
        request_id=idempotency_key(exchange) or exchange.engine.entropy.new_id(),
        run_id=wanted.run_id,
        reason=wanted.reason,
        identity=exchange.principal,
    )
    return _accepted(await expect(exchange, request, Accepted))


def _accepted(reply: Accepted) -> Answer:
    return answer(msgspec.structs.asdict(reply), status=202 if reply.changed else 200)
