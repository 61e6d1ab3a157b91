"""Tasks over REST."""

from typing import Any, Final

import msgspec

from outlast.core.inputs import AwaitTask, CancelTask, DescribeTask, EnqueueTask, EnqueueTasks
from outlast.core.replies import Accepted, Refused, TaskEnqueuedReply, TaskInfo, TaskOutcomeReply, TasksEnqueued
from outlast.gateway.exchange import Answer, Exchange, whole_number
from outlast.gateway.problems import status_of
from outlast.gateway.rest import answer, expect, idempotency_key, parsed, wait_of, within
from outlast.gateway.shapes import (
    EnqueueBatchIn,
    EnqueueIn,
    StopIn,
    attempt_out,
    outcome_out,
    payloads,
    retry_policy,
    span,
    task_out,
)

_LIST: Final = frozenset({"type", "state", "queue", "run_id", "cursor", "limit", "query"})
_RESULT: Final = frozenset({"wait"})
_NONE: Final[frozenset[str]] = frozenset()


async def enqueue(exchange: Exchange) -> Answer:
    """201 for enqueued, 200 when the same key had done it before."""
    wanted = await parsed(exchange, EnqueueIn)
    reply = await expect(exchange, _task(exchange, wanted, idempotency_key(exchange)), TaskEnqueuedReply)
    return answer({"id": reply.task_id}, status=200 if reply.replayed else 201, replayed=reply.replayed)


async def enqueue_batch(exchange: Exchange) -> Answer:
    """Enqueue several; each item has an answer of its own, in order. Keys stand in the items."""
    wanted = await parsed(exchange, EnqueueBatchIn)
    request = EnqueueTasks(items=tuple(_task(exchange, item, "") for item in wanted.items))
    reply = await expect(exchange, request, TasksEnqueued)
    return answer({"items": [_item_out(item) for item in reply.items]})


async def get(exchange: Exchange) -> Answer:
    """What is known of a task."""
    exchange.query(_NONE)
    return answer(task_out(await expect(exchange, DescribeTask(task_id=exchange.params["id"]), TaskInfo)))


async def list_(exchange: Exchange) -> Answer:
    """A page of tasks that stand alone, or of one run's with ``run_id``."""
    fields = exchange.query(_LIST)
    page = await exchange.engine.reader.list_tasks(
        exchange.namespace,
        type=fields.get("type", ""),
        state=fields.get("state", ""),
        queue=fields.get("queue", ""),
        run_id=fields.get("run_id", ""),
        standalone="run_id" not in fields,
        cursor=fields.get("cursor", ""),
        limit=whole_number(fields, "limit", 50),
        query=fields.get("query", ""),
        now=exchange.engine.clock.now(),
    )
    return answer({"items": [task_out(info) for info in page.tasks], "next": page.next})


async def attempts(exchange: Exchange) -> Answer:
    """How the leases of a task ended."""
    exchange.query(_NONE)
    found = await exchange.engine.reader.read_attempts(exchange.namespace, exchange.params["id"])
    return answer({"items": [attempt_out(attempt) for attempt in found]})


async def result(exchange: Exchange) -> Answer:
    """200 with the outcome; 202 when the task is still open after ``wait``."""
    fields = exchange.query(_RESULT)
    request = AwaitTask(task_id=exchange.params["id"])
    probe = DescribeTask(task_id=request.task_id)
    outcome = await within(exchange, request, probe, TaskOutcomeReply, wait_of(fields))
    if outcome is None:
        return answer({"id": exchange.params["id"], "state": "open"}, status=202)
    return answer(outcome_out(outcome))


async def cancel(exchange: Exchange) -> Answer:
    """Ask a task to stop."""
    wanted = await parsed(exchange, StopIn, or_nothing=True)
    request = CancelTask(task_id=exchange.params["id"], reason=wanted.reason, identity=exchange.principal)
    reply = await expect(exchange, request, Accepted)
    return answer(msgspec.structs.asdict(reply), status=202 if reply.changed else 200)


def _task(exchange: Exchange, wanted: EnqueueIn, key: str) -> EnqueueTask:
    return EnqueueTask(
        task_id=exchange.engine.entropy.new_id(),
        type=wanted.type,
        queue=wanted.queue,
        key=wanted.key or key,
        input=payloads(wanted.input),
        retry=retry_policy(wanted.retry),
        delay=span(wanted.delay, "delay"),
        start_to_close=span(wanted.timeout, "timeout"),
        schedule_to_start=span(wanted.schedule_to_start, "schedule_to_start"),
        schedule_to_close=span(wanted.schedule_to_close, "schedule_to_close"),
        heartbeat=span(wanted.heartbeat, "heartbeat"),
        priority=wanted.priority,
        tags=wanted.tags,
        identity=exchange.principal,
    )


def _item_out(item: TaskEnqueuedReply | Refused) -> dict[str, Any]:
    if isinstance(item, Refused):
        return {
            "status": status_of(item.code),
            "code": item.code,
            "detail": item.fact,
            "remedy": item.remedy,
            "retryable": item.retryable,
        }
    return {"status": 200 if item.replayed else 201, "id": item.task_id}
