"""Tasks over REST."""

import msgspec

from outlast.core import limits
from outlast.core.errors import Conflict, Invalid, Refusal, TooLarge
from outlast.core.inputs import AwaitTask, CancelTask, DescribeTask, EnqueueTask, EnqueueTasks, RetryTasks
from outlast.core.replies import (
    Accepted,
    Refused,
    TaskEnqueuedReply,
    TaskInfo,
    TaskOutcomeReply,
    TasksEnqueued,
    TasksRetried,
)
from outlast.core.task import LETTERS
from outlast.core.validation import faults_of
from outlast.gateway.conditional import with_etag
from outlast.gateway.exchange import Answer, Exchange, answer
from outlast.gateway.given import (
    AcceptedOut,
    AttemptsOut,
    BatchOut,
    EnqueuedOut,
    ItemOut,
    OpenOut,
    RetriedItemOut,
    RetriedOut,
)
from outlast.gateway.giving import attempt_out, count_out, task_out, task_outcome_out, task_page
from outlast.gateway.keys import fingerprint
from outlast.gateway.pages import with_link
from outlast.gateway.problems import status_of
from outlast.gateway.reading import read_body
from outlast.gateway.taken import (
    CancelTaskIn,
    EnqueueBatchIn,
    EnqueueIn,
    RetryTaskIn,
    RetryTasksIn,
    TaskResultQuery,
    TasksCountQuery,
    TasksQuery,
    retry_policy,
    wait_of,
)
from outlast.gateway.values import payloads, span
from outlast.protocol.errors import exception_of, refused
from outlast.protocol.finding import found_tasks
from outlast.protocol.transport import TasksAsked


async def enqueue(exchange: Exchange) -> Answer:
    """201 for enqueued, 200 when the same key had done it before."""
    request = _task(exchange, exchange.body_as(EnqueueIn))
    if key := exchange.idempotency_key():
        if request.key:
            raise Invalid(
                "invalid_request",
                "There is a key in the body and an Idempotency-Key.",
                remedy="Give one of them.",
                pointer="/key",
            )
        request = msgspec.structs.replace(request, key=key, fingerprint=fingerprint(exchange.raw))
    reply = await exchange.expect(request, TaskEnqueuedReply)
    return answer(EnqueuedOut(id=reply.task_id), status=200 if reply.replayed else 201, replayed=reply.replayed)


async def enqueue_batch(exchange: Exchange) -> Answer:
    """Enqueue several; each item has an answer of its own, in order.

    With an Idempotency-Key an item without a key of its own gets one made from it and its place. The key stands for the
    whole body: the first good item goes alone, and when another body had the key, nothing is enqueued.
    """
    items = exchange.body_as(EnqueueBatchIn).items
    if len(items) > limits.BATCH_ITEMS_MAX:
        raise TooLarge(
            "limit_exceeded",
            f"There are {len(items):,} items; {limits.BATCH_ITEMS_MAX:,} are allowed.",
            remedy="Split the batch.",
            pointer="/items",
        )
    key = exchange.idempotency_key()
    answers: dict[int, ItemOut] = {}
    requests: dict[int, EnqueueTask] = {}
    for n, item in enumerate(items):
        try:
            requests[n] = _task(exchange, read_body(bytes(item), EnqueueIn, under=f"/items/{n}"))
        except Refusal as refusal:
            answers[n] = _item_out(refused(refusal))
    if key:
        answers.update(_faults(requests))
        first = _under(key, fingerprint(exchange.raw), requests)
        answers.update(await _enqueue(exchange, first))
        if any(answers[n].code == "idempotency_key_reused" for n in first):
            raise Conflict(
                "idempotency_key_reused", f"Key {key} came with another batch.", remedy="Use a new key for a new batch."
            )
    answers.update(await _enqueue(exchange, requests))
    return answer(BatchOut(items=tuple(answers[n] for n in range(len(items)))))


def _faults(requests: dict[int, EnqueueTask]) -> dict[int, ItemOut]:
    """Take out of ``requests`` those that the engine's door would refuse, and return their answers."""
    places = list(requests)
    faults = {places[n]: fault for n, fault in faults_of(tuple(requests.values())).items()}
    for n in faults:
        del requests[n]
    return {n: _item_out(refused(fault)) for n, fault in faults.items()}


def _under(key: str, printed: str, requests: dict[int, EnqueueTask]) -> dict[int, EnqueueTask]:
    """Give ``requests`` keys made from that of the batch; take out the first of them, which speaks for all, and return it."""
    first: dict[int, EnqueueTask] = {}
    for n, request in list(requests.items()):
        if request.key:
            continue
        place = str(n) if first else "first"
        keyed = msgspec.structs.replace(request, key=f"{key}/{place}", fingerprint=printed)
        if first:
            requests[n] = keyed
        else:
            first[n] = keyed
            del requests[n]
    return first


async def _enqueue(exchange: Exchange, requests: dict[int, EnqueueTask]) -> dict[int, ItemOut]:
    if not requests:
        return {}
    reply = await exchange.expect(EnqueueTasks(items=tuple(requests.values())), TasksEnqueued)
    return {n: _item_out(item) for n, item in zip(requests, reply.items, strict=True)}


async def get(exchange: Exchange) -> Answer:
    """What is known of a task."""
    request = DescribeTask(task_id=exchange.params["id"])
    return with_etag(exchange, answer(task_out(await exchange.expect(request, TaskInfo))))


async def list_(exchange: Exchange) -> Answer:
    """A page of tasks that stand alone, or of one run's with ``run_id``."""
    asked = exchange.asked(TasksQuery)
    now = exchange.engine.clock.now()
    page = await exchange.engine.reader.list_tasks(
        exchange.namespace, _which(asked), cursor=asked.cursor, limit=asked.limit, now=now
    )
    return with_link(exchange, answer(task_page(exchange.opener.open_texts(page))), cursor=page.next)


async def count(exchange: Exchange) -> Answer:
    """How many tasks match."""
    which = _which(exchange.asked(TasksCountQuery))
    found = await exchange.engine.reader.count_tasks(exchange.namespace, which, now=exchange.engine.clock.now())
    return answer(count_out(found))


def _which(asked: TasksQuery | TasksCountQuery) -> TasksAsked:
    """Return which tasks are asked for, by the reader's names."""
    return TasksAsked(
        type=asked.type,
        state=asked.state or "",
        queue=asked.queue,
        run_id=asked.run_id,
        standalone=not asked.run_id,
        query=asked.query,
    )


async def attempts(exchange: Exchange) -> Answer:
    """How the leases of a task ended."""
    found = exchange.opener.open_texts(
        await exchange.engine.reader.read_attempts(exchange.namespace, exchange.params["id"])
    )
    return answer(AttemptsOut(items=tuple(attempt_out(attempt) for attempt in found)))


async def result(exchange: Exchange) -> Answer:
    """200 with the outcome; 202 when the task is still open after ``wait``."""
    request = AwaitTask(task_id=exchange.params["id"])
    probe = DescribeTask(task_id=request.task_id)
    outcome = await exchange.within(request, probe, TaskOutcomeReply, wait_of(exchange.asked(TaskResultQuery).wait))
    if outcome is None:
        return answer(OpenOut(id=exchange.params["id"], state="open"), status=202)
    return answer(task_outcome_out(outcome))


async def cancel(exchange: Exchange) -> Answer:
    """Ask a task to stop."""
    wanted = exchange.body_as(CancelTaskIn)
    request = CancelTask(task_id=exchange.params["id"], reason=wanted.reason, identity=exchange.principal)
    reply = await exchange.expect(request, Accepted)
    return answer(AcceptedOut(changed=reply.changed), status=202 if reply.changed else 200)


async def retry(exchange: Exchange) -> Answer:
    """Bring a task back that ended without success."""
    wanted = exchange.body_as(RetryTaskIn)
    (item,) = await _retried(exchange, (exchange.params["id"],), wanted.reason)
    if isinstance(item, Refused):
        raise exception_of(item)
    return answer(AcceptedOut(changed=item.changed), status=202 if item.changed else 200)


async def retry_many(exchange: Exchange) -> Answer:
    """Bring back what is named, or up to ``limit`` tasks that a filter finds, newest first; each is answered on its own.

    An Idempotency-Key stands for ids and reason. A filter takes none: what it finds changes.
    """
    wanted = exchange.body_as(RetryTasksIn)
    filtered = bool(wanted.type or wanted.queue or wanted.state or wanted.query)
    if bool(wanted.ids) is filtered:
        raise Invalid(
            "invalid_request",
            "There are ids and a filter." if filtered else "There are neither ids nor a filter.",
            remedy="Give ids, or what the tasks have in common: type, queue, state, query.",
            pointer="/ids",
        )
    if filtered and exchange.idempotency_key():
        raise Invalid(
            "invalid_request",
            "There are an Idempotency-Key and a filter, which finds other tasks when it is sent again.",
            remedy="Ask with dry_run and without the key, then send the ids that it gives with the key.",
        )
    ids, more = (wanted.ids, False) if wanted.ids else await _dead_letters(exchange, wanted)
    if wanted.dry_run:
        items = tuple([await _would(exchange, id_) for id_ in ids])
    else:
        replies = await _retried(exchange, ids, wanted.reason) if ids else ()
        items = tuple(_retried_out(id_, item) for id_, item in zip(ids, replies, strict=True))
    return answer(RetriedOut(items=items, more=more, dry_run=wanted.dry_run))


async def _dead_letters(exchange: Exchange, wanted: RetryTasksIn) -> tuple[tuple[str, ...], bool]:
    """Return the ids of what the filter finds, and whether there is more."""
    asked = TasksAsked(
        type=wanted.type, queue=wanted.queue, state=wanted.state or "", query=wanted.query, dead_letters=True
    )
    reader, now = exchange.engine.reader, exchange.engine.clock.now()
    return await found_tasks(
        lambda cursor, limit: reader.list_tasks(exchange.namespace, asked, cursor=cursor, limit=limit, now=now),
        wanted.limit,
    )


async def _retried(exchange: Exchange, ids: tuple[str, ...], reason: str) -> tuple[Accepted | Refused, ...]:
    key = exchange.idempotency_key()
    request = RetryTasks(
        task_ids=ids,
        request_id=key or exchange.engine.entropy.new_id(),
        reason=reason,
        identity=exchange.principal,
        fingerprint=fingerprint(msgspec.json.encode((ids, reason))) if key else "",
    )
    return (await exchange.expect(request, TasksRetried)).items


async def _would(exchange: Exchange, id_: str) -> RetriedItemOut:
    reply = await exchange.ask(DescribeTask(task_id=id_))
    if isinstance(reply, Refused):
        return _retried_out(id_, reply)
    assert isinstance(reply, TaskInfo)
    return RetriedItemOut(id=id_, changed=reply.state in LETTERS and not reply.run_id)


def _retried_out(id_: str, item: Accepted | Refused) -> RetriedItemOut:
    if isinstance(item, Refused):
        return RetriedItemOut(id=id_, changed=False, code=item.code, detail=item.fact, remedy=item.remedy)
    return RetriedItemOut(id=id_, changed=item.changed)


def _task(exchange: Exchange, wanted: EnqueueIn) -> EnqueueTask:
    return EnqueueTask(
        task_id=exchange.engine.entropy.new_id(),
        type=wanted.type,
        queue=wanted.queue,
        key=wanted.key,
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


def _item_out(item: TaskEnqueuedReply | Refused) -> ItemOut:
    if isinstance(item, Refused):
        return ItemOut(
            status=status_of(item.code),
            code=item.code,
            detail=item.fact,
            remedy=item.remedy,
            retryable=item.retryable,
            pointer=item.facts.get("pointer", ""),
        )
    return ItemOut(status=200 if item.replayed else 201, id=item.task_id)
