"""Workflows over REST."""

from outlast.core.errors import Conflict
from outlast.core.inputs import (
    AwaitWorkflow,
    CancelWorkflow,
    DescribeWorkflow,
    QueryWorkflow,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
)
from outlast.core.replies import Accepted, QueryAnswered, RunStatus, WorkflowInfo, WorkflowOutcome, WorkflowStarted
from outlast.core.units import SECOND
from outlast.gateway.conditional import with_etag
from outlast.gateway.exchange import Answer, Exchange, StreamAnswer, answer, checked
from outlast.gateway.given import AcceptedOut, AnsweredOut, HistoryOut, OpenOut, StartedOut
from outlast.gateway.giving import count_out, events_out, workflow_out, workflow_outcome_out, workflow_page
from outlast.gateway.keys import fingerprint
from outlast.gateway.pages import with_link
from outlast.gateway.taken import (
    EventsQuery,
    HistoryQuery,
    QueryIn,
    ResultQuery,
    RunQuery,
    SignalIn,
    StartIn,
    StopIn,
    WorkflowsCountQuery,
    WorkflowsQuery,
    wait_of,
)
from outlast.gateway.values import attributes_of, payloads, span, values_of
from outlast.gateway.watching import event_stream, history_after
from outlast.protocol.transport import RunsAsked


async def start(exchange: Exchange) -> Answer:
    """201 for started, 200 for one that was there."""
    wanted = exchange.body_as(StartIn)
    new_id = exchange.engine.entropy.new_id
    key = exchange.idempotency_key()
    reply = await exchange.expect(
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
            search_attributes=attributes_of(wanted.attributes),
            identity=exchange.principal,
            fingerprint=fingerprint(exchange.raw) if key else "",
            keyed=bool(key),
        ),
        WorkflowStarted,
    )
    body = StartedOut(id=reply.workflow_id, run_id=reply.run_id, started=reply.started)
    made = reply.started and not reply.replayed
    return answer(body, status=201 if made else 200, replayed=reply.replayed)


async def get(exchange: Exchange) -> Answer:
    """What is known of a workflow's latest run, or of the one named."""
    request = DescribeWorkflow(workflow_id=exchange.params["id"], run_id=exchange.asked(RunQuery).run_id)
    return with_etag(exchange, answer(workflow_out(await exchange.expect(request, WorkflowInfo))))


async def list_(exchange: Exchange) -> Answer:
    """A page of runs."""
    asked = exchange.asked(WorkflowsQuery)
    now = exchange.engine.clock.now()
    page = await exchange.engine.reader.list_runs(
        exchange.namespace, _which(asked), cursor=asked.cursor, limit=asked.limit, now=now
    )
    return with_link(exchange, answer(workflow_page(exchange.opener.open_texts(page))), cursor=page.next)


async def count(exchange: Exchange) -> Answer:
    """How many runs match."""
    which = _which(exchange.asked(WorkflowsCountQuery))
    found = await exchange.engine.reader.count_runs(exchange.namespace, which, now=exchange.engine.clock.now())
    return answer(count_out(found))


def _which(asked: WorkflowsQuery | WorkflowsCountQuery) -> RunsAsked:
    """Return which runs are asked for, by the reader's names."""
    return RunsAsked(type=asked.type, status=asked.status or "", workflow_id=asked.id, query=asked.query)


async def history(exchange: Exchange) -> Answer:
    """A page of committed events; with ``wait`` held until there is one."""
    asked = exchange.asked(HistoryQuery)
    page, closed = await history_after(
        exchange,
        exchange.params["id"],
        asked.run_id,
        after=asked.after,
        limit=asked.limit,
        wait=wait_of(asked.wait),
    )
    last = page.first_event_id + len(page.events) - 1
    body = HistoryOut(
        id=page.workflow_id,
        run_id=page.run_id,
        events=events_out(page),
        last=last,
        more=bool(page.next_event_id),
        closed=closed,
    )
    return with_link(exchange, answer(body), after=str(last) if body.more else "")


async def events(exchange: Exchange) -> Answer | StreamAnswer:
    """The events as they come."""
    asked = exchange.asked(EventsQuery)
    return await event_stream(exchange, exchange.params["id"], asked.run_id, after=asked.after)


async def result(exchange: Exchange) -> Answer:
    """200 with the outcome; 202 when the run is still open after ``wait``."""
    asked = exchange.asked(ResultQuery)
    request = AwaitWorkflow(workflow_id=exchange.params["id"], run_id=asked.run_id)
    probe = DescribeWorkflow(workflow_id=request.workflow_id, run_id=request.run_id)
    outcome = await exchange.within(request, probe, WorkflowOutcome, wait_of(asked.wait))
    if outcome is None:
        return answer(OpenOut(id=exchange.params["id"], state="open", status=RunStatus.RUNNING), status=202)
    return answer(workflow_outcome_out(outcome))


async def signal(exchange: Exchange) -> Answer:
    """Send a signal."""
    wanted = exchange.body_as(SignalIn)
    request = SignalWorkflow(
        workflow_id=exchange.params["id"],
        name=wanted.name,
        request_id=exchange.idempotency_key() or exchange.engine.entropy.new_id(),
        run_id=wanted.run_id,
        input=payloads(wanted.input),
        identity=exchange.principal,
    )
    reply = await exchange.expect(request, Accepted)
    return _accepted(reply, replayed=not reply.changed)  # a signal changes something, unless its key has


async def query(exchange: Exchange) -> Answer:
    """Have a worker ask the run's code."""
    wanted = exchange.body_as(QueryIn)
    request = QueryWorkflow(
        workflow_id=exchange.params["id"],
        name=wanted.name,
        run_id=wanted.run_id,
        input=payloads(wanted.input),
        identity=exchange.principal,
        wait=round(wait_of(wanted.wait) * SECOND),
    )
    reply = await exchange.while_connected(exchange.submit(request))
    assert reply is not None  # without a time of ours to wait, the engine's own ends it
    said = checked(exchange.opener.open(reply), QueryAnswered)
    if said.failure is not None:
        failure = said.failure
        raise Conflict(
            "query_failed",
            f'The query "{wanted.name}" failed: {failure.type}: {failure.message[:500]}',
            remedy="Look at the name and the input, then at the code of the workflow's query methods.",
        )
    return answer(AnsweredOut(id=exchange.params["id"], result=values_of(said.result)))


async def cancel(exchange: Exchange) -> Answer:
    """Ask the run to stop in good order."""
    return await _stop(exchange, CancelWorkflow)


async def terminate(exchange: Exchange) -> Answer:
    """End the run at once."""
    return await _stop(exchange, TerminateWorkflow)


async def _stop(exchange: Exchange, kind: type[CancelWorkflow] | type[TerminateWorkflow]) -> Answer:
    wanted = exchange.body_as(StopIn)
    request = kind(
        workflow_id=exchange.params["id"],
        request_id=exchange.idempotency_key() or exchange.engine.entropy.new_id(),
        run_id=wanted.run_id,
        reason=wanted.reason,
        identity=exchange.principal,
    )
    return _accepted(await exchange.expect(request, Accepted))


def _accepted(reply: Accepted, *, replayed: bool = False) -> Answer:
    return answer(AcceptedOut(changed=reply.changed), status=202 if reply.changed else 200, replayed=replayed)
