"""Runs: how they begin, what reaches them from outside, how they end."""

import hashlib
from typing import Final

import msgspec

from outlast.core import events as e
from outlast.core import limits
from outlast.core.errors import Busy, Closed, Conflict, InvariantBroken, NotFound, TooLarge
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    AwaitWorkflow,
    CancelWorkflow,
    DescribeWorkflow,
    IfClosed,
    IfOpen,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
)
from outlast.core.payload import told_apart
from outlast.core.replies import Accepted, RunStatus, WorkflowStarted
from outlast.core.run import STATUS_OF, Closing, Run, outcome_of
from outlast.core.shard import dedup, offers, tasks, timing, why
from outlast.core.shard.admitted import RunOverLimit
from outlast.core.shard.damage import require_whole
from outlast.core.shard.freshness import note
from outlast.core.shard.histories import append, drop_parked, flush_parked
from outlast.core.shard.namespaces import require_active
from outlast.core.shard.state import Shard, Waiter
from outlast.core.writes import RunFixed, TimerKind, TimerRow

_encode: Final = msgspec.msgpack.Encoder().encode

MADE_ID = "w-"  # begins a workflow id that is made from the key of its start
USER_TIMER = "/t:"  # parts the run id from the timer id in a row's id
FAILED_STATUSES = frozenset({RunStatus.FAILED, RunStatus.CANCELED, RunStatus.TERMINATED, RunStatus.TIMED_OUT})


# --- begin -----------------------------------------------------------------------------------------------------------


def workflow_id_of(request: StartWorkflow) -> str:
    """Return the workflow id that a start is for: given, or made from its key."""
    return request.workflow_id or f"{MADE_ID}{request.request_id}"


def start(shard: Shard, request: StartWorkflow, *, namespace: str, principal: str) -> WorkflowStarted:
    """Begin a run, or return the one that the id policies say.

    Raises:
        Conflict: the id is in use or may not be used again, or the key was used for another request.
    """
    workflow_id = workflow_id_of(request)
    fingerprint = request.fingerprint or fingerprint_of(request)
    dedup.check_keyed_start(shard, namespace, request, fingerprint=fingerprint)
    known = latest_run(shard, namespace, workflow_id)
    first = dedup.find_start(shard, namespace, workflow_id, request, known=known)
    if first is not None:
        if first.fingerprint != fingerprint:
            raise Conflict(
                "idempotency_key_reused",
                f"Key {request.request_id} started run {first.run_id} of {workflow_id} with another request.",
                remedy="Use a new key for a new request.",
                run_id=first.run_id,
                workflow_id=workflow_id,
            )
        return WorkflowStarted(workflow_id=workflow_id, run_id=first.run_id, started=first.made, replayed=True)
    require_active(shard, namespace)
    if request.run_id in shard.runs:
        raise Conflict(
            "workflow_already_open", f"Run id {request.run_id} is taken.", remedy="Mint a new run id for each start."
        )
    if known is not None and known.open:
        if request.if_open is IfOpen.RETURN_EXISTING:
            existing = dedup.Started(known.run_id, fingerprint, made=False)
            dedup.keep_start(shard, namespace, workflow_id, request, existing)
            return WorkflowStarted(workflow_id=workflow_id, run_id=known.run_id, started=False)
        if request.if_open is IfOpen.FAIL:
            raise Conflict(
                "workflow_already_open",
                f"Workflow {workflow_id} has an open run, {known.run_id}.",
                remedy='Use another id, or if_open="return_existing" or "terminate".',
                run_id=known.run_id,
                workflow_id=workflow_id,
            )
        terminate_run(shard, known, reason="a start of the same id took its place", identity=request.identity)
    elif known is not None:
        _check_reuse(request, workflow_id, known)
    run = open_run(shard, request, workflow_id, namespace=namespace, principal=principal, fingerprint=fingerprint)
    dedup.keep_start(shard, namespace, workflow_id, request, dedup.Started(run.run_id, fingerprint, made=True))
    polled = why.polled_lately(shard, "w", namespace, run.queue, run.type)
    return WorkflowStarted(workflow_id=workflow_id, run_id=run.run_id, polled=polled)


def _check_reuse(request: StartWorkflow, workflow_id: str, known: Run) -> None:
    allowed = request.if_closed is IfClosed.ALLOW or (
        request.if_closed is IfClosed.ALLOW_IF_FAILED and known.status in FAILED_STATUSES
    )
    if not allowed:
        raise Conflict(
            "workflow_id_reuse_refused",
            f"The last run of {workflow_id}, {known.run_id}, is {known.status.value}; "
            f"the start says if_closed={request.if_closed.value}.",
            remedy='Use another id, or if_closed="allow".',
            run_id=known.run_id,
            workflow_id=workflow_id,
        )


def fingerprint_of(request: StartWorkflow) -> str:
    """Return what tells one start from another under the same key: type, queue, workflow id, input, run timeout and delay."""
    asked = (
        request.type,
        request.queue,
        request.workflow_id,
        told_apart(request.input),
        request.run_timeout,
        request.delay,
    )
    return _fingerprint_of(asked)


def _fingerprint_of(asked: tuple[object, ...]) -> str:
    return hashlib.blake2b(_encode(asked), digest_size=12).hexdigest()


def open_run(
    shard: Shard, request: StartWorkflow, workflow_id: str, *, namespace: str, principal: str, fingerprint: str
) -> Run:
    """Begin the first run of a chain."""
    event = e.WorkflowExecutionStarted(
        workflow_type=request.type,
        task_queue=request.queue,
        input=request.input,
        headers=request.headers,
        run_id=request.run_id,
        original_run_id=request.run_id,
        first_run_id=request.run_id,
        run_timeout=request.run_timeout,
        task_timeout=request.task_timeout,
        first_task_backoff=request.delay,
        memo=request.memo,
        search_attributes=request.search_attributes,
        tags=request.tags,
        identity=request.identity,
        principal=principal,
        build=request.build,
        request_id=request.request_id,
    )
    fixed = RunFixed(
        run_timeout=request.run_timeout,
        task_timeout=request.task_timeout,
        memo=request.memo,
        tags=request.tags,
        headers=request.headers,
        start_request_id=request.request_id,
        start_fingerprint=fingerprint,
    )
    return _open(shard, event, fixed, namespace=namespace, workflow_id=workflow_id)


def _open(shard: Shard, event: e.WorkflowExecutionStarted, fixed: RunFixed, *, namespace: str, workflow_id: str) -> Run:
    gather = shard.gather
    gather.opened += 1
    run = Run(
        namespace=namespace,
        workflow_id=workflow_id,
        run_id=event.run_id,
        opened_no=(gather.number << 20) + gather.opened,
        original_run_id=event.original_run_id,
        first_run_id=event.first_run_id,
        type=event.workflow_type,
        queue=event.task_queue,
        build=event.build,
        principal=event.principal,
        identity=event.identity,
        started_at=shard.now,
        fixed=fixed,
    )
    shard.runs[run.run_id] = run
    shard.latest[namespace, workflow_id] = run.run_id
    if shard.absent:
        shard.absent.pop(("workflow", namespace, workflow_id), None)
        shard.absent.pop(("run", run.run_id), None)
    shard.count_run(run, None)
    note(shard, run.run_id)
    note(shard, workflow_id.removeprefix(MADE_ID))
    run.record(shard.now, event)
    gather.touch_run(run)
    if fixed.run_timeout:
        timing.set_timer(shard, run_timer(run, TimerKind.RUN_TIMEOUT, shard.now + fixed.run_timeout))
    if event.first_task_backoff:
        run.state.task_retry_at = shard.now + event.first_task_backoff
        timing.set_timer(shard, run_timer(run, TimerKind.RUN_BACKOFF, run.state.task_retry_at))
    else:
        offers.need(shard, run)
    return run


def run_timer(run: Run, kind: TimerKind, fire_at: int) -> TimerRow:
    """Return the row of one of the timers that a run has at most one of."""
    return TimerRow(fire_at, f"{run.run_id}/{kind.value}", kind.value, run.run_id)


def continue_run(shard: Shard, old: Run, closed: e.WorkflowExecutionContinuedAsNew, carried: list[e.Event]) -> Run:
    """Begin the next run of the chain, in the commit that closes the one before it."""
    signals = tuple(event for event in carried if isinstance(event, e.WorkflowExecutionSignaled))
    event = e.WorkflowExecutionStarted(
        workflow_type=closed.workflow_type,
        task_queue=closed.task_queue,
        input=closed.input,
        headers=closed.headers,
        run_id=closed.new_run_id,
        original_run_id=closed.new_run_id,
        first_run_id=old.first_run_id,
        continued_run_id=old.run_id,
        initiator="continue_as_new",
        run_timeout=closed.run_timeout,
        task_timeout=closed.task_timeout,
        memo=closed.memo,
        search_attributes=closed.search_attributes,
        tags=old.fixed.tags,
        identity=old.identity,
        principal=old.principal,
        build=old.build,
        carried_signals=signals,
    )
    fixed = RunFixed(
        run_timeout=closed.run_timeout,
        task_timeout=closed.task_timeout,
        memo=closed.memo,
        tags=old.fixed.tags,
        headers=closed.headers,
        start_request_id=old.fixed.start_request_id,
        start_fingerprint=old.fixed.start_fingerprint,
        previous_run_id=old.run_id,
    )
    return _open(shard, event, fixed, namespace=old.namespace, workflow_id=old.workflow_id)


# --- find ------------------------------------------------------------------------------------------------------------


def latest_run(shard: Shard, namespace: str, workflow_id: str) -> Run | None:
    """Return the latest run of a workflow id. It has been loaded, or is known to be absent, before an input gets here."""
    run_id = shard.latest.get((namespace, workflow_id))
    if run_id is None and shard.damaged_names and (lost := shard.damaged_names.get((namespace, workflow_id))):
        require_whole(shard, lost, what="run")
    return shard.runs[run_id] if run_id is not None else None


def find_run(shard: Shard, namespace: str, workflow_id: str, run_id: str) -> Run:
    """Return the run that a request names; an empty ``run_id`` means the latest.

    Raises:
        NotFound: no such run in this namespace.
    """
    run = shard.runs.get(run_id) if run_id else latest_run(shard, namespace, workflow_id)
    if run is None and run_id:
        require_whole(shard, run_id, what="run")
    if run is None or run.namespace != namespace or run.workflow_id != workflow_id:
        raise not_found(namespace, workflow_id, run_id)
    return run


def not_found(namespace: str, workflow_id: str, run_id: str) -> NotFound:
    """Return the refusal for a run that is not there; an empty ``run_id`` means the latest."""
    which = f"run {run_id} of workflow {workflow_id}" if run_id else f"workflow {workflow_id}"
    return NotFound(
        "workflow_not_found",
        f"There is no {which} in namespace {namespace}.",
        remedy="Look at the id and the namespace; closed runs are kept for the retention time only.",
        workflow_id=workflow_id,
    )


# --- reach -----------------------------------------------------------------------------------------------------------


def signal(shard: Shard, request: SignalWorkflow, *, namespace: str, principal: str) -> Accepted:
    """Record a signal, once for its request id.

    Raises:
        NotFound, Closed: no such run, or it has ended.
        Busy, TooLarge: the run has as many signals as it may.
    """
    run = find_run(shard, namespace, request.workflow_id, request.run_id)
    scope = f"signal/{run.workflow_id}"
    fingerprint = _fingerprint_of((request.name, request.input))
    known = dedup.find(shard, namespace, scope, request.request_id)
    if known is not None:
        dedup.same_or_refuse(known, fingerprint)
        return Accepted(changed=False)
    refuse_closed(run)
    if run.state.signals + len(run.parked) >= shard.config.signals_max:
        raise TooLarge(
            "limit_exceeded",
            f"Run {run.run_id} has taken {shard.config.signals_max} signals, which is all it may.",
            remedy="Have the workflow continue as new before so many have come.",
        )
    if run.state.parked_bytes > shard.config.parked_bytes_max:
        raise Busy(
            "busy",
            f"{run.state.parked_bytes} bytes of events wait for a workflow task of run {run.run_id} to end.",
            remedy="Send the signal again a little later.",
        )
    event = e.WorkflowExecutionSignaled(
        signal_name=request.name,
        input=request.input,
        headers=request.headers,
        identity=request.identity,
        request_id=request.request_id,
        sent_by=principal,
    )
    dedup.keep(shard, namespace, scope, request.request_id, id=run.run_id, fingerprint=fingerprint)
    append(shard, run, event)
    if not delayed(run):
        offers.need(shard, run)
    if over_limit(shard, run):
        shard.follow_ups.append(RunOverLimit(run.run_id))
    return Accepted()


def delayed(run: Run) -> bool:
    """Return whether the run's first turn waits for its start delay; a signal does not bring it forward."""
    return run.state.task_retry_at > 0 and run.ready_at == 0


def cancel(shard: Shard, request: CancelWorkflow, *, namespace: str) -> Accepted:
    """Ask a run to stop. A repeat, or a run that has ended, changes nothing and is no error."""
    run = find_run(shard, namespace, request.workflow_id, request.run_id)
    asked = run.state.cancel_requested or any(
        isinstance(event, e.WorkflowExecutionCancelRequested) for _, event in run.parked
    )
    if not run.open or asked:
        return Accepted(changed=False)
    event = e.WorkflowExecutionCancelRequested(
        reason=request.reason, identity=request.identity, request_id=request.request_id
    )
    if delayed(run):
        timing.drop_timer(shard, run_timer(run, TimerKind.RUN_BACKOFF, run.state.task_retry_at))
    run.state.task_retry_at = 0
    append(shard, run, event)
    offers.need(shard, run)
    return Accepted()


def terminate(shard: Shard, request: TerminateWorkflow, *, namespace: str) -> Accepted:
    """End a run now, whatever is in flight. A run that has ended changes nothing."""
    run = find_run(shard, namespace, request.workflow_id, request.run_id)
    if not run.open:
        return Accepted(changed=False)
    terminate_run(shard, run, reason=request.reason, identity=request.identity)
    return Accepted()


def terminate_run(shard: Shard, run: Run, *, reason: str, identity: str) -> None:
    """End ``run`` from outside."""
    force_close(shard, run, e.WorkflowExecutionTerminated(reason=reason, identity=identity))


def refuse_closed(run: Run) -> None:
    """Refuse what only an open run can take."""
    if not run.open:
        raise Closed(
            "workflow_closed",
            f"Run {run.run_id} of {run.workflow_id} is {run.status.value}.",
            remedy="Start a new run, or leave it.",
            run_id=run.run_id,
        )


def describe(shard: Shard, request: DescribeWorkflow, *, namespace: str, ticket: object) -> None:
    """Answer with what is known of a run."""
    run_id = request.run_id
    if not run_id and request.start_request_id:
        known = latest_run(shard, namespace, request.workflow_id)
        run_id = dedup.require_start(shard, namespace, request.workflow_id, request.start_request_id, known=known)
    run = find_run(shard, namespace, request.workflow_id, run_id)
    shard.answer(ticket, why.describe_run(shard, run))


def await_close(shard: Shard, request: AwaitWorkflow, *, namespace: str, ticket: object) -> None:
    """Answer when the run has closed, at once if it has."""
    run = find_run(shard, namespace, request.workflow_id, request.run_id)
    if request.follow:
        run = end_of_chain(shard, run)
    if run.outcome is not None:
        shard.answer(ticket, run.outcome)
        return
    shard.add_waiter(run.run_id, Waiter(ticket, namespace, request.follow))


def end_of_chain(shard: Shard, run: Run) -> Run:
    """Return the last run of the chain of ``run``, as far as memory has it: the ids that are missing are loaded before."""
    while run.outcome is not None and run.outcome.new_run_id:
        latest = latest_run(shard, run.namespace, run.workflow_id)
        if latest is not None and latest.first_run_id == run.first_run_id and latest is not run:
            return latest
        following = shard.runs.get(run.outcome.new_run_id)
        if following is None:
            break
        run = following
    return run


# --- end -------------------------------------------------------------------------------------------------------------


def force_close(shard: Shard, run: Run, event: Closing) -> None:
    """Close ``run`` from outside: what is parked is recorded first, the turn in a worker's hands is void."""
    offers.withdraw(shard, run)
    flush_parked(shard, run)
    close(shard, run, event)


def close(shard: Shard, run: Run, event: Closing) -> None:
    """Record the closing event and settle everything that hung on the run, in the same commit."""
    if not run.open or run.turn is not None:
        raise InvariantBroken("closed_with_turn" if run.open else "closed_twice", run=run.run_id)
    _drop_timers(shard, run)
    open_activities = list(run.state.activities.values())
    run.record(shard.now, event)
    was, run.status = run.status, STATUS_OF[type(event)]
    run.closed_at = shard.now
    run.ready_at = 0
    run.offered = False
    run.outcome = outcome_of(run, event)
    run.state.sticky_worker = ""
    run.state.places = None
    drop_parked(shard, run)
    run.begin_tail()
    for activity in open_activities:
        if activity.task_id not in shard.damaged:
            tasks.abandon(shard, shard.tasks[activity.task_id], reason="run_closed")
    shard.count_run(run, was)
    dedup.prolong_start(shard, run)
    for waiter in shard.waiters_of(run.run_id):
        if waiter.follow and run.outcome.new_run_id:
            shard.add_waiter(run.outcome.new_run_id, waiter)
        else:
            shard.answer(waiter.ticket, run.outcome)


def _drop_timers(shard: Shard, run: Run) -> None:
    for timer_id, timer in run.state.timers.items():
        timing.drop_timer(shard, user_timer(run, timer_id, timer.fire_at))
    if run.fixed.run_timeout:
        timing.drop_timer(shard, run_timer(run, TimerKind.RUN_TIMEOUT, run.started_at + run.fixed.run_timeout))
    if delayed(run):
        timing.drop_timer(shard, run_timer(run, TimerKind.RUN_BACKOFF, run.state.task_retry_at))


def user_timer(run: Run, timer_id: str, fire_at: int) -> TimerRow:
    """Return the row of a timer that workflow code started."""
    return TimerRow(fire_at, f"{run.run_id}{USER_TIMER}{timer_id}", TimerKind.RUN_TIMER.value, run.run_id)


def should_continue_as_new(shard: Shard, run: Run) -> bool:
    """Return whether the history is so long that the code should go on in a new run."""
    events = run.next_event_id - 1
    return events >= shard.config.continue_as_new_events or run.history_bytes >= limits.CONTINUE_AS_NEW_BYTES


def over_limit(shard: Shard, run: Run) -> bool:
    """Return whether an open run has more history than a run may have."""
    events = run.next_event_id - 1
    return run.open and (events > shard.config.history_events_max or run.history_bytes > limits.HISTORY_BYTES_MAX)


def end_over_limit(shard: Shard, run: Run) -> None:
    """End a run whose history is over the limit, with the reason (ARCHITECTURE §6)."""
    if not over_limit(shard, run):
        return
    failure = Failure(
        kind=FailureKind.SERVER,
        type="HistoryLimit",
        message=f"The history has {run.next_event_id - 1:,} events and {run.history_bytes:,} bytes; "
        f"{shard.config.history_events_max:,} events and {limits.HISTORY_BYTES_MAX:,} bytes are allowed. "
        "Have the workflow continue as new when workflow.should_continue_as_new says so.",
        final=True,
    )
    force_close(shard, run, e.WorkflowExecutionFailed(failure=failure, retry_state="non_retryable_failure"))


def time_out(shard: Shard, run: Run, *, fire_at: int) -> None:
    """End a run at its run timeout, if that still stands."""
    if run.open and run.started_at + run.fixed.run_timeout == fire_at:
        force_close(shard, run, e.WorkflowExecutionTimedOut())


def end_backoff(shard: Shard, run: Run, *, fire_at: int) -> None:
    """Let a delayed run take its first turn."""
    if run.open and delayed(run) and run.state.task_retry_at == fire_at:
        run.state.task_retry_at = 0
        offers.need(shard, run)
