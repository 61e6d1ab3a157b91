"""The worker protocol: the requests of ``core.inputs`` and their replies, and the reads of a Transport."""

import asyncio
from contextlib import suppress
from typing import Final

from outlast.core.admin import CreateNamespace, DeleteNamespace, DescribeWorkers, UpdateNamespace, WorkersInfo
from outlast.core.carriers import payloads_in
from outlast.core.errors import Denied, Invalid, NotFound, TooLarge
from outlast.core.inputs import (
    AnswerQueries,
    AwaitTask,
    AwaitWorkflow,
    Begin,
    CancelTask,
    CancelWorkflow,
    CompleteTasks,
    CompleteWorkflowTasks,
    DescribeTask,
    DescribeWorkflow,
    EnqueueTask,
    EnqueueTasks,
    Heartbeat,
    Poll,
    QueryWorkflow,
    Request,
    RetryTasks,
    ReturnTasks,
    SignalWorkflow,
    StartWorkflow,
    StartWorkflows,
    StopWorker,
    TerminateWorkflow,
)
from outlast.core.replies import Refused, Reply
from outlast.gateway.auth import EVERY, LOCAL
from outlast.gateway.exchange import Answer, Exchange
from outlast.gateway.problems import status_of
from outlast.gateway.reading import UNREADABLE, malformed, read_list, read_query
from outlast.gateway.route import Right
from outlast.gateway.taken import (
    WireAttempts,
    WireFeed,
    WireHistory,
    WireNothing,
    WireQueues,
    wait_of,
)
from outlast.protocol.again import may_wait
from outlast.protocol.transport import RunsAsked, TasksAsked
from outlast.protocol.wire import CALLS_MAX, JSON, MSGPACK, decode_request, decode_requests, encode

_OF_NAMESPACES: Final = (CreateNamespace, UpdateNamespace, DeleteNamespace)
NEEDS: Final[dict[type[Request], Right]] = {
    AnswerQueries: Right.WORK,
    Begin: Right.WORK,
    CompleteTasks: Right.WORK,
    CompleteWorkflowTasks: Right.WORK,
    Heartbeat: Right.WORK,
    Poll: Right.WORK,
    ReturnTasks: Right.WORK,
    StopWorker: Right.WORK,
    AwaitTask: Right.READ,
    AwaitWorkflow: Right.READ,
    DescribeTask: Right.READ,
    DescribeWorkers: Right.READ,
    DescribeWorkflow: Right.READ,
    QueryWorkflow: Right.PAYLOADS,
    CancelTask: Right.OPERATE,
    RetryTasks: Right.OPERATE,
    CancelWorkflow: Right.OPERATE,
    EnqueueTask: Right.OPERATE,
    EnqueueTasks: Right.OPERATE,
    SignalWorkflow: Right.OPERATE,
    StartWorkflow: Right.OPERATE,
    StartWorkflows: Right.OPERATE,
    TerminateWorkflow: Right.OPERATE,
    **dict.fromkeys(_OF_NAMESPACES, Right.ADMINISTER),
}


async def call(exchange: Exchange) -> Answer:
    """One request in the body, its reply in the answer, with the status of the refusal if it is one."""
    json = exchange.is_json()
    try:
        request = decode_request(await exchange.body(), json=json)
    except UNREADABLE as error:
        raise malformed(error) from None
    await _admit(exchange, request)
    if may_wait(request):
        reply = await exchange.while_connected(exchange.submit(request))
    else:
        reply = await exchange.ask(request)
    if not isinstance(reply, Refused):
        return _answer(200, exchange.shown(reply), json=json)
    status = status_of(reply.code)
    return _answer(status, reply, json=json, again=status in {429, 503})


async def calls(exchange: Exchange) -> Answer:
    """Several requests in the body; their replies in order, refusals among them."""
    json = exchange.is_json()
    requests = requests_in(await exchange.body(), json=json)
    for request in requests:
        await _admit(exchange, request)
        if may_wait(request):
            raise Invalid(
                "invalid_request",
                "A request that may be held is among others, which would wait with it.",
                remedy="Send it alone, to worker/call.",
            )
    replies = await asyncio.gather(*(exchange.ask(request) for request in requests))
    return _answer(200, exchange.shown(tuple(replies)), json=json)


def requests_in(body: bytes, *, json: bool) -> tuple[Request, ...]:
    """Return the requests in ``body``. Raises Invalid or TooLarge."""
    try:
        requests = decode_requests(body, json=json)
    except UNREADABLE as error:
        raise malformed(error) from None
    if len(requests) > CALLS_MAX:
        raise TooLarge(
            "limit_exceeded", f"There are {len(requests)} requests; {CALLS_MAX} are allowed.", remedy="Send fewer."
        )
    return requests


async def history(exchange: Exchange) -> Answer:
    """A page of committed events, with ``wait`` held until there is one; for who reads runs and for who runs their code."""
    if "work" not in exchange.caller.rights:
        exchange.caller.require("read", exchange.namespace)
    asked = read_query(exchange.query_string, WireHistory)
    if "read" not in exchange.caller.rights:
        await _require_own_run(exchange, asked.run_id, asked.workflow_id)
    wait = wait_of(asked.wait)
    reading = exchange.engine.read_history(
        exchange.namespace, asked.workflow_id, asked.run_id, first_event_id=asked.first_event_id, wait=wait
    )
    return _read(exchange, await exchange.unless_gone(reading) if wait else await reading)


async def attempts(exchange: Exchange) -> Answer:
    """How the leases of a task ended."""
    asked = read_query(exchange.query_string, WireAttempts)
    return _read(exchange, await exchange.engine.reader.read_attempts(exchange.namespace, asked.task_id))


async def runs(exchange: Exchange) -> Answer:
    """A page of runs."""
    asked, page = read_list(exchange.query_string, RunsAsked)
    reader, now = exchange.engine.reader, exchange.engine.clock.now()
    return _read(
        exchange,
        await reader.list_runs(exchange.namespace, asked, cursor=page.cursor, limit=page.limit, now=now),
    )


async def count_runs(exchange: Exchange) -> Answer:
    """How many runs match."""
    asked = read_query(exchange.query_string, RunsAsked)
    reader, now = exchange.engine.reader, exchange.engine.clock.now()
    return _read(exchange, await reader.count_runs(exchange.namespace, asked, now=now))


async def tasks(exchange: Exchange) -> Answer:
    """A page of tasks."""
    asked, page = read_list(exchange.query_string, TasksAsked)
    reader, now = exchange.engine.reader, exchange.engine.clock.now()
    return _read(
        exchange,
        await reader.list_tasks(exchange.namespace, asked, cursor=page.cursor, limit=page.limit, now=now),
    )


async def count_tasks(exchange: Exchange) -> Answer:
    """How many tasks match."""
    asked = read_query(exchange.query_string, TasksAsked)
    reader, now = exchange.engine.reader, exchange.engine.clock.now()
    return _read(exchange, await reader.count_tasks(exchange.namespace, asked, now=now))


async def queues(exchange: Exchange) -> Answer:
    """The queues with open work."""
    asked = read_query(exchange.query_string, WireQueues)
    return _read(exchange, await exchange.engine.reader.list_queues(exchange.namespace, queue=asked.queue))


async def feed(exchange: Exchange) -> Answer:
    """Committed events behind a cursor, held until there are some."""
    asked = read_query(exchange.query_string, WireFeed)
    feeds = exchange.engine.feeds
    return _read(
        exchange,
        await exchange.unless_gone(
            feeds.wait(exchange.namespace, after=asked.after, limit=asked.limit, wait=wait_of(asked.wait))
        ),
    )


async def namespaces(exchange: Exchange) -> Answer:
    """The namespaces that the caller reaches."""
    read_query(exchange.query_string, WireNothing)
    there = exchange.engine.namespaces.all()
    return _read(exchange, tuple(info for info in there if exchange.caller.reaches(info.name)))


async def _admit(exchange: Exchange, request: Request) -> None:
    """Raise Denied for what the caller may not do, Invalid for a reference to stored data.

    Such a reference is the engine's to make: taken from outside it would read what others stored.
    """
    caller = exchange.caller
    if caller is not LOCAL:
        caller.require(NEEDS[type(request)], "" if isinstance(request, _OF_NAMESPACES) else exchange.namespace)
        if isinstance(request, Poll):
            caller.require_queues(request.queues)
        elif EVERY not in caller.queues:
            await _require_own(exchange, request)
    if any(payload.blob for payload in payloads_in(request)):
        raise Invalid("invalid_request", "A payload refers to stored data.", remedy="Send the data itself.")


async def _require_own(exchange: Exchange, request: Request) -> None:
    """Raise Denied when a worker that is bound to queues speaks of a task or a run of another queue."""
    tasks: set[str] = set()
    runs: set[str] = set()
    match request:
        case Begin():
            tasks = {token.task_id for token in request.tokens}
        case Heartbeat() | CompleteTasks():
            tasks = {item.token.task_id for item in request.items}
        case ReturnTasks():
            tasks = {token.task_id for token in request.tokens}
            runs = {token.run_id for token in request.workflow_tokens}
        case CompleteWorkflowTasks():
            done = {item.token.run_id for item in request.done}
            runs = done | {item.token.run_id for item in request.not_done}
        case AnswerQueries():
            runs = {item.token.run_id for item in request.items}
        case StopWorker():
            await _require_own_worker(exchange, request.worker)
            return
        case _:
            return
    reader = exchange.engine.reader
    for id_ in tasks:
        with suppress(NotFound):
            exchange.caller.require_queues((await reader.queue_of_task(exchange.namespace, id_),))
    for id_ in runs:
        await _require_own_run(exchange, id_)


async def _require_own_worker(exchange: Exchange, worker: str) -> None:
    """Raise Denied unless the worker is known to poll, and the caller's queues alone."""
    told = await exchange.ask(DescribeWorkers())
    known = [one for one in told.items if one.worker == worker] if isinstance(told, WorkersInfo) else []
    if not known:
        raise Denied(
            "denied",
            f"{exchange.caller.name} may stop workers of its own queues alone, and {worker} is not known to poll one.",
            remedy="A worker that gets nothing more ends by itself.",
        )
    exchange.caller.require_queues(known[0].queues)


async def _require_own_run(exchange: Exchange, run_id: str, workflow_id: str = "") -> None:
    """Raise Denied unless the run's queue is one of the caller's; one that is not there is anybody's."""
    if EVERY in exchange.caller.queues:
        return
    with suppress(NotFound):
        queue = await exchange.engine.reader.queue_of_run(exchange.namespace, workflow_id, run_id)
        exchange.caller.require_queues((queue,))


def _read(exchange: Exchange, value: object) -> Answer:
    return _answer(200, exchange.shown(value), json=not exchange.wants_msgpack())


def _answer(status: int, value: "Reply | object", *, json: bool, again: bool = False) -> Answer:
    headers = (("retry-after", "1"),) if again else ()
    return Answer(status, encode(value, json=json), JSON if json else MSGPACK, headers)
