"""Tasks that exist: found, described, waited for, canceled, overdue, and what their end means for the run behind them."""

import msgspec

from outlast.core import events as e
from outlast.core import limits
from outlast.core.errors import Closed, Conflict, InvariantBroken, NotFound, Refusal
from outlast.core.failure import Failure
from outlast.core.inputs import AwaitTask, CancelTask, DescribeTask, RetryTasks
from outlast.core.machines import task as machine
from outlast.core.replies import Accepted, Refused, TaskOutcomeReply, TasksRetried
from outlast.core.shard import dedup, holding, offers, timing, why
from outlast.core.shard.damage import require_whole
from outlast.core.shard.gather import RETRIED
from outlast.core.shard.histories import append, id_of_next
from outlast.core.shard.namespaces import require_active
from outlast.core.shard.readiness import make_ready, set_deadlines, task_timer
from outlast.core.shard.state import Shard, Waiter
from outlast.core.task import CANCELED, ENQUEUED, LEASED, RETRY_WAIT, SUCCEEDED, Task
from outlast.core.units import later
from outlast.core.writes import OpenActivity, TimerKind

# --- from outside ----------------------------------------------------------------------------------------------------


def cancel(shard: Shard, request: CancelTask, *, namespace: str) -> Accepted:
    """Ask a task to stop: at once if no handler runs, else by its next heartbeat. A task that has ended is no error.

    Raises:
        Conflict: it is an activity; its run decides.
        NotFound: there is none, or it or its run cannot be read.
    """
    task = find_moving(shard, request.task_id, namespace)
    if task.run_id:
        raise Conflict(
            "invalid_request",
            f"Task {task.task_id} is an activity of run {task.run_id}.",
            remedy="Cancel the workflow; its code decides what becomes of the activity.",
        )
    if task.closed or task.status.cancel_requested:
        return Accepted(changed=False)
    request_cancel(shard, task, reason=request.reason or "canceled")
    return Accepted()


def retry(shard: Shard, request: RetryTasks, *, namespace: str) -> TasksRetried:
    """Bring tasks back that ended without success; each item is answered on its own.

    Raises:
        Conflict: code "idempotency_key_reused".
    """
    key, printed = request.request_id, request.fingerprint
    known = dedup.find(shard, namespace, dedup.RETRIES, key) if printed else None
    if known is not None:
        dedup.same_or_refuse(known, printed)
    answers: list[Accepted | Refused] = []
    for task_id in request.task_ids:
        try:
            task = find(shard, task_id, namespace)
            answers.append(Accepted(changed=_retry(shard, task, request, repeated=known is not None)))
        except Refusal as refusal:
            answers.append(Refused(code=refusal.code, fact=refusal.fact, remedy=refusal.remedy))
    taken = [n for n, item in enumerate(answers) if isinstance(item, Accepted)]
    if printed and known is None and taken:  # after a refusal of all the key is free
        dedup.keep(shard, namespace, dedup.RETRIES, key, id=request.task_ids[taken[0]], fingerprint=printed)
    return TasksRetried(items=tuple(answers))


def _retry(shard: Shard, task: Task, request: RetryTasks, *, repeated: bool) -> bool:
    """Bring one task back; return False when it has not ended. What the same request has done or left stays so."""
    scope = dedup.retry_scope(task.task_id)
    if dedup.find(shard, task.namespace, scope, request.request_id) is not None:
        return True
    if task.run_id:
        raise Conflict(
            "invalid_request",
            f"Task {task.task_id} is an activity of run {task.run_id}, which knows of its end.",
            remedy="Start the workflow again.",
        )
    if task.state is SUCCEEDED:
        raise Closed(
            "task_closed",
            f"Task {task.task_id} has succeeded.",
            remedy="Enqueue it anew if it is to run once more.",
        )
    if not task.closed or repeated:
        return False
    require_active(shard, task.namespace)
    was = task.state
    machine.bring_back(task, now=shard.now)
    dedup.keep(shard, task.namespace, scope, request.request_id, id=task.task_id, fingerprint="")
    dedup.take_key_back(shard, task)
    row = machine.attempt_row(task, RETRIED, now=shard.now)
    row.identity, row.started_at, row.build = request.identity, shard.now, ""
    row.error_message = request.reason
    shard.gather.attempts.append(row)
    shard.count_task(task, was)
    set_deadlines(shard, task)
    task.in_window = False  # where its old place may still lie, which says nothing any more
    make_ready(shard, task)
    return True


def request_cancel(shard: Shard, task: Task, *, reason: str) -> None:
    """Ask ``task`` to stop. One that no worker holds ends now."""
    task.status.cancel_requested = True
    task.status.cancel_reason = reason
    shard.gather.touch_task(task)
    if task.state is LEASED:
        status = task.status
        grace = later(shard.now, limits.CANCEL_GRACE)
        status.attempt_deadline = min(status.attempt_deadline or grace, grace)
        shard.expire_at(task.expiry(), "lease", task.task_id, task.lease)
        return
    drop_due(shard, task)
    end_canceled(shard, task)


def end_canceled(shard: Shard, task: Task) -> None:
    """Close a task that was asked to stop and that no worker holds."""
    was = task.state
    machine.close(task, CANCELED, task.status.cancel_reason, now=shard.now)
    shard.count_task(task, was)
    failure = machine.canceled(task)
    task.status.failure = failure
    settled = machine.Settled(failure=failure, retry_state="cancel_requested")
    after_close(shard, task, settled, holder_identity="", build="", started_at=0)


def abandon(shard: Shard, task: Task, *, reason: str) -> None:
    """End the task of an activity whose run has closed: whoever holds it is told to stop."""
    if task.closed:
        return
    was, holder = task.state, task.worker
    if was is LEASED:
        shard.gather.attempts.append(machine.attempt_row(task, "canceled", now=shard.now))
        holding.unhold(shard, holder, task)
    drop_due(shard, task)
    task.status.cancel_requested = True
    machine.close(task, CANCELED, reason, now=shard.now)
    shard.count_task(task, was)
    shard.gather.touch_task(task)
    _drop_deadlines(shard, task)
    _answer_waiters(shard, task)


def due(shard: Shard, task: Task, *, fire_at: int) -> None:
    """Make a task ready whose delay or backoff is over."""
    waiting = task.state is RETRY_WAIT or (task.state is ENQUEUED and not task.ready)
    if waiting and task.run_at == fire_at:
        make_ready(shard, task)


def overdue(shard: Shard, task: Task, kind: TimerKind, *, fire_at: int) -> None:
    """End a task at its schedule-to-start or schedule-to-close instant, if that still stands."""
    starting = kind is TimerKind.TASK_START_BY
    if task.closed or (starting and (task.attempt > 0 or task.state is LEASED)):
        return
    if fire_at != (task.start_by if starting else task.close_by):
        return  # of the time before it was brought back
    was, holder = task.state, task.worker
    row = machine.attempt_row(task, "timeout:schedule_to_close", now=shard.now)
    drop_due(shard, task)
    settled = machine.overdue(task, "schedule_to_start" if starting else "schedule_to_close", now=shard.now)
    if was is LEASED:
        shard.gather.attempts.append(row)
        holding.unhold(shard, holder, task)
    shard.count_task(task, was)
    shard.gather.touch_task(task)
    after_close(shard, task, settled, holder_identity=row.identity, build=row.build, started_at=row.started_at)


def drop_due(shard: Shard, task: Task) -> None:
    """Drop the timer of a delay or backoff, if the task waits for one."""
    if task.state is RETRY_WAIT or (task.state is ENQUEUED and not task.ready):
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_DUE, task.run_at))


def find(shard: Shard, task_id: str, namespace: str) -> Task:
    """Return a task of this namespace.

    Raises:
        NotFound: there is none.
    """
    task = shard.tasks.get(task_id)
    if task is None:
        require_whole(shard, task_id, what="task")
    if task is None or task.namespace != namespace:
        raise NotFound(
            "task_not_found",
            f"There is no task {task_id} in namespace {namespace}.",
            remedy="Look at the id and the namespace; closed tasks are kept for the retention time only.",
        )
    return task


def find_moving(shard: Shard, task_id: str, namespace: str) -> Task:
    """Return a task of this namespace that may change: not an activity of a run that cannot be read.

    Raises:
        NotFound: there is none; or code "store_damaged", for it or for its run.
    """
    task = find(shard, task_id, namespace)
    if task.run_id:
        require_whole(shard, task.run_id, what="run")
    return task


def describe(shard: Shard, request: DescribeTask, *, namespace: str, ticket: object) -> None:
    """Answer with what is known of a task."""
    shard.answer(ticket, why.describe_task(shard, find(shard, request.task_id, namespace)))


def await_close(shard: Shard, request: AwaitTask, *, namespace: str, ticket: object) -> None:
    """Answer when the task has ended, at once if it has."""
    task = find(shard, request.task_id, namespace)
    if task.closed:
        shard.answer(ticket, outcome_of(task))
    else:
        shard.add_waiter(task.task_id, Waiter(ticket, namespace))


def outcome_of(task: Task) -> TaskOutcomeReply:
    """Return what callers who wait for ``task`` are told."""
    return TaskOutcomeReply(
        task_id=task.task_id,
        state=task.state,
        reason=task.reason,
        attempt=task.attempt,
        result=task.status.result,
        failure=task.status.failure,
    )


# --- end -------------------------------------------------------------------------------------------------------------


def after_close(
    shard: Shard, task: Task, settled: machine.Settled, *, holder_identity: str, build: str, started_at: int
) -> None:
    """Settle what hung on a task that has just closed: its timers, who waits for it, and the run whose activity it is."""
    if not task.closed:
        raise InvariantBroken("after_close_of_open_task", task=task.task_id)
    _drop_deadlines(shard, task)
    _answer_waiters(shard, task)
    dedup.keep_task(shard, task)
    if not task.run_id:
        shard.gather.close_task(task)
        return
    run = shard.runs[task.run_id]
    activity = run.state.activities.get(task.scheduled_event_id)
    if not run.open or activity is None:
        return
    if task.attempt == 0:
        append(shard, run, _closing_event(task, settled, holder_identity, activity, started_event_id=0))
    else:
        started = e.ActivityTaskStarted(
            scheduled_event_id=task.scheduled_event_id,
            identity=holder_identity,
            attempt=task.attempt,
            started_at=started_at,
            last_failure=task.status.last_failure,
            build=build,
        )
        closing = _closing_event(task, settled, holder_identity, activity, started_event_id=id_of_next(run))
        append(shard, run, started, closing)
    offers.need(shard, run)


def _closing_event(
    task: Task, settled: machine.Settled, identity: str, activity: OpenActivity, *, started_event_id: int
) -> e.Event:
    scheduled = task.scheduled_event_id
    if task.state is SUCCEEDED:
        return e.ActivityTaskCompleted(
            scheduled_event_id=scheduled, started_event_id=started_event_id, result=settled.result, identity=identity
        )
    if task.state is CANCELED:
        return e.ActivityTaskCanceled(
            scheduled_event_id=scheduled,
            started_event_id=started_event_id,
            details=settled.result,
            latest_cancel_requested_event_id=activity.cancel_event_id,
            identity=identity,
        )
    failure = settled.failure
    if failure is None:
        raise InvariantBroken("failed_without_failure", task=task.task_id)
    if settled.timeout_type in {"start_to_close", "heartbeat", "schedule_to_start", "schedule_to_close"}:
        return e.ActivityTaskTimedOut(
            scheduled_event_id=scheduled,
            started_event_id=started_event_id,
            timeout_type=settled.timeout_type,
            failure=_with_details(failure, task),
            retry_state=settled.retry_state,
        )
    return e.ActivityTaskFailed(
        scheduled_event_id=scheduled,
        started_event_id=started_event_id,
        failure=failure,
        retry_state=settled.retry_state,
        identity=identity,
    )


def _with_details(failure: Failure, task: Task) -> Failure:
    details = task.status.details
    return msgspec.structs.replace(failure, details=(details,)) if details is not None else failure


def _drop_deadlines(shard: Shard, task: Task) -> None:
    if task.spec.start_by and task.attempt == 0:
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_START_BY, task.start_by))
    if task.spec.close_by:
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_CLOSE_BY, task.close_by))


def _answer_waiters(shard: Shard, task: Task) -> None:
    for waiter in shard.waiters_of(task.task_id):
        shard.answer(waiter.ticket, outcome_of(task))
