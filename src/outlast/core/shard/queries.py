"""Queries: asking the code of a run something, which changes nothing and is in no history.

A query is given to a worker once the run has nothing to show to its code: the answer then tells of all that was recorded
when it was asked. It goes to the worker that has the run in memory while that one polls, else to any that knows the type.
Only memory has it: an owner that goes down answers the caller, who asks again.
"""

from outlast.core.errors import Busy, Conflict
from outlast.core.inputs import AnswerQueries, QueryToken, QueryWorkflow
from outlast.core.limits import QUERIES_OF_POLL_MAX, QUERY_AGAIN, QUERY_WAIT
from outlast.core.replies import QueryAnswered, QueryTask, Refused
from outlast.core.run import Run
from outlast.core.shard import runs
from outlast.core.shard.offers import comes_back
from outlast.core.shard.state import OpenQuery, Shard, WaitingPoll
from outlast.core.shard.why import polled_lately


def ask(shard: Shard, request: QueryWorkflow, *, namespace: str, ticket: object) -> None:
    """Hold a query until a worker has answered it.

    Raises:
        NotFound: there is no such run.
        Conflict: its code fails at each try.
        Busy: as many queries wait as may.
    """
    run = runs.find_run(shard, namespace, request.workflow_id, request.run_id)
    _refuse_held(shard, run)
    if len(shard.queries) >= shard.config.queries_max:
        raise Busy("busy", f"{shard.config.queries_max} queries wait for workers.", remedy="Ask again later.")
    shard.queries_asked += 1
    number = shard.queries_asked
    until = shard.now + (request.wait or QUERY_WAIT)
    shard.queries[number] = OpenQuery(number, ticket, namespace, run.run_id, request, until, asked_at=shard.now)
    _look_later(shard, shard.queries[number])


def _refuse_held(shard: Shard, run: Run) -> None:
    if run.open and run.state.task_failure is not None and run.state.task_retry_at > shard.now:
        raise Conflict(
            "workflow_held",
            f"The code of run {run.run_id} of {run.workflow_id} fails: {run.state.task_failure.said[:200]}",
            remedy="Start a worker with code that does not, or look at what it has published.",
            run_id=run.run_id,
        )


def forget(shard: Shard, ticket: object) -> bool:
    """Drop the query of a caller who has gone; say whether there was one."""
    number = next((query.number for query in shard.queries.values() if query.ticket == ticket), 0)
    return shard.queries.pop(number, None) is not None


def is_with_worker(shard: Shard, run_id: str) -> bool:
    """Say whether a worker has a query to the run in its hands."""
    return any(query.given and query.run_id == run_id for query in shard.queries.values())


def wake(shard: Shard) -> None:
    """Have matching look where a query can be given out, and have runs read that left memory meanwhile."""
    for query in [query for query in shard.queries.values() if not query.given]:
        run = shard.runs.get(query.run_id)
        if run is not None:
            if _ready(shard, query) is not None:
                shard.hot[run.namespace, run.queue] = None
        elif query.run_id in shard.forgotten or ("run", query.run_id) in shard.absent:
            gone = runs.not_found(query.namespace, query.request.workflow_id, query.run_id)
            _refuse(shard, query, gone.code, gone.fact, gone.remedy)
        else:
            shard.recalled[query.run_id] = None


def _ready(shard: Shard, query: OpenQuery) -> Run | None:
    """Return the run that is asked if it is in memory and its code has seen all that there is."""
    run = shard.runs.get(query.run_id)
    if run is None:
        return None
    settled = run.turn is None and run.ready_at == 0 and not run.parked and run.state.last_task_completed_id > 0
    return run if settled or not run.open else None


def give(shard: Shard, waiting: WaitingPoll) -> tuple[QueryTask, ...]:
    """Return the queries that the worker behind a poll is to answer."""
    poll, given = waiting.poll, list[QueryTask]()
    for query in shard.queries.values():
        if query.given or query.namespace != waiting.namespace or len(given) >= QUERIES_OF_POLL_MAX:
            continue
        run = _ready(shard, query)
        if run is None or run.queue not in poll.queues or run.type not in poll.workflow_types:
            continue
        host = run.state.sticky_worker
        if host not in {"", poll.worker} and _waits_for_host(shard, query, run):
            continue
        query.given = True
        query.asked_at = shard.now
        given.append(_task_of(shard, query, run))
    return tuple(given)


def _waits_for_host(shard: Shard, query: OpenQuery, run: Run) -> bool:
    return shard.now - query.asked_at < QUERY_AGAIN and comes_back(shard, run.namespace, run.state.sticky_worker)


def _task_of(shard: Shard, query: OpenQuery, run: Run) -> QueryTask:
    fence = shard.gather.fence
    return QueryTask(
        token=QueryToken(run.run_id, fence.incarnation, fence.epoch, query.number),
        workflow_id=run.workflow_id,
        type=run.type,
        queue=run.queue,
        last_event_id=run.next_event_id - 1,
        name=query.request.name,
        input=query.request.input,
        headers=query.request.headers,
    )


def answer(shard: Shard, request: AnswerQueries, *, namespace: str) -> None:
    """Hand on what a worker says. What nobody asks any more, or another owner asked, is dropped."""
    fence = shard.gather.fence
    for item in request.items:
        query = shard.queries.get(item.token.number)
        if query is None or query.namespace != namespace or query.run_id != item.token.run_id:
            continue
        if (item.token.incarnation, item.token.epoch) != (fence.incarnation, fence.epoch):
            continue
        del shard.queries[query.number]
        shard.answer(query.ticket, QueryAnswered(result=item.result, failure=item.failure))


def look(shard: Shard, number: int) -> None:
    """Give a query out again whose worker says nothing, or refuse it when its time is over."""
    query = shard.queries.get(number)
    if query is None:
        return
    run = shard.runs.get(query.run_id)
    try:
        if run is not None and not query.given:
            _refuse_held(shard, run)
    except Conflict as held:
        _refuse(shard, query, held.code, held.fact, held.remedy)
        return
    if shard.now >= query.until:
        _refuse_late(shard, query, run)
        return
    if query.given:
        query.given = False
        query.asked_at = shard.now - QUERY_AGAIN  # whoever polls first may have it
    _look_later(shard, query)
    if run is not None:
        shard.hot[run.namespace, run.queue] = None


def _look_later(shard: Shard, query: OpenQuery) -> None:
    shard.expire_at(min(query.until, shard.now + QUERY_AGAIN), "query", query.run_id, query.number)


def _refuse_late(shard: Shard, query: OpenQuery, run: Run | None) -> None:
    remedy = "Ask again, and look at the workers' logs."
    if run is not None and not polled_lately(shard, "w", run.namespace, run.queue, run.type):
        remedy = f'No worker polls queue "{run.queue}" for "{run.type}": start one.'
    fact = f"No worker has answered the query {query.request.name} to {query.request.workflow_id} in time."
    _refuse(shard, query, "query_unanswered", fact, remedy)


def _refuse(shard: Shard, query: OpenQuery, code: str, fact: str, remedy: str) -> None:
    del shard.queries[query.number]
    retryable = code == "query_unanswered"
    shard.answer(query.ticket, Refused(code=code, fact=fact, remedy=remedy, retryable=retryable))
