"""Tasks: enqueue, readiness, attempts, and what their end means for the run that waits for them."""

import hashlib

import msgspec

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import limits
from outlast.core.errors import Closed, Conflict, LeaseLost, NotFound, invariant
from outlast.core.failure import Failure
from outlast.core.inputs import (
    Accepted,
    AwaitTask,
    Begin,
    Begun,
    CancelTask,
    Completion,
    DescribeTask,
    EnqueueTask,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatReply,
    Refused,
    ReturnTasks,
    TaskEnqueuedReply,
    TaskOutcome,
    TaskOutcomeReply,
    TaskState,
    TaskSucceeded,
    TaskToken,
)
from outlast.core.machines import task as machine
from outlast.core.retry import RetryPolicy
from outlast.core.run import Run
from outlast.core.shard import dedup, offers, timing, why
from outlast.core.shard.fairness import order_key_of
from outlast.core.shard.histories import EVENT_BEFORE, append
from outlast.core.shard.state import Shard, TaskQueue, Waiter
from outlast.core.shard.window import Window
from outlast.core.task import Task
from outlast.core.units import later, operation_id_of
from outlast.core.writes import AttemptRow, TaskSpec, TaskStatus, TimerKind, TimerRow

CANCEL_GRACE = 30 * 1_000_000_000  # a handler asked to stop has this long (API §2.1a)
KEY_SCOPE = "enqueue"


# --- begin -----------------------------------------------------------------------------------------------------------


def enqueue(shard: Shard, request: EnqueueTask, *, namespace: str, principal: str) -> TaskEnqueuedReply:
    """Make a standalone task, once for its key.

    Raises:
        Conflict: the id is taken, or the key was used for another request.
    """
    fingerprint = request.fingerprint or fingerprint_of(request)
    keyed = bool(request.key) and request.key != request.task_id
    if keyed:
        row = dedup.find(shard, namespace, KEY_SCOPE, request.key)
        if row is not None:
            dedup.same_or_refuse(row, fingerprint)
            return TaskEnqueuedReply(task_id=row.id, replayed=True)
    known = shard.tasks.get(request.task_id)
    if known is not None:
        return _known_task(known, request, namespace, fingerprint)
    task = Task(
        namespace=namespace,
        task_id=request.task_id,
        queue=request.queue,
        type=request.type,
        build=request.build,
        enqueued_at=shard.now,
        principal=principal,
        identity=request.identity,
        status=TaskStatus(),
        spec=_spec_of(shard, request, namespace, fingerprint),
    )
    if keyed:
        dedup.keep(shard, namespace, KEY_SCOPE, request.key, id=task.task_id, fingerprint=fingerprint)
    add(shard, task, delay=request.delay)
    return TaskEnqueuedReply(task_id=task.task_id)


def _known_task(known: Task, request: EnqueueTask, namespace: str, fingerprint: str) -> TaskEnqueuedReply:
    same_key = known.namespace == namespace and known.spec.key == request.key and request.key
    if same_key and known.spec.fingerprint == fingerprint:
        return TaskEnqueuedReply(task_id=known.task_id, replayed=True)
    if same_key:
        raise Conflict(
            "idempotency_key_reused",
            f"Key {request.key} made task {known.task_id} with another request.",
            remedy="Use a new key for a new request.",
            id=known.task_id,
        )
    raise Conflict(
        "task_already_exists",
        f"Task {request.task_id} exists and was made by another request.",
        remedy="Use another id, or none: one is made.",
    )


def _spec_of(shard: Shard, request: EnqueueTask, namespace: str, fingerprint: str) -> TaskSpec:
    due = later(shard.now, request.delay)
    start_to_close = request.start_to_close
    if not start_to_close and not request.schedule_to_close:
        start_to_close = limits.START_TO_CLOSE
    return TaskSpec(
        input=request.input,
        headers=request.headers,
        retry=request.retry or RetryPolicy(),
        start_to_close=start_to_close,
        heartbeat=request.heartbeat,
        start_by=later(due, request.schedule_to_start) if request.schedule_to_start else 0,
        close_by=later(due, request.schedule_to_close) if request.schedule_to_close else 0,
        priority=request.priority,
        fairness_key=request.fairness_key,
        tags=request.tags,
        operation_id=operation_id_of(namespace, request.task_id, "task"),
        key=request.key,
        fingerprint=fingerprint,
    )


def fingerprint_of(request: EnqueueTask) -> str:
    """Return what tells one enqueue from another under the same key: type, queue and input."""
    asked = (request.type, request.queue, request.input, request.delay)
    return hashlib.blake2b(msgspec.msgpack.encode(asked), digest_size=12).hexdigest()


def add_activity(shard: Shard, run: Run, event_id: int, event: e.ActivityTaskScheduled) -> None:
    """Make the task of an activity, in the commit of the event that schedules it."""
    now = shard.now
    spec = TaskSpec(
        input=event.input,
        headers=event.headers,
        retry=event.retry,
        start_to_close=event.start_to_close,
        heartbeat=event.heartbeat,
        start_by=later(now, event.schedule_to_start) if event.schedule_to_start else 0,
        close_by=later(now, event.schedule_to_close) if event.schedule_to_close else 0,
        priority=event.priority,
        workflow_id=run.workflow_id,
        activity_id=event.activity_id,
        operation_id=event.operation_id,
        summary=event.summary,
    )
    task = Task(
        namespace=run.namespace,
        task_id=event.task_id,
        queue=event.task_queue,
        type=event.activity_type,
        enqueued_at=now,
        run_id=run.run_id,
        scheduled_event_id=event_id,
        principal=run.principal,
        identity=run.identity,
        status=TaskStatus(),
        spec=spec,
    )
    add(shard, task, delay=0)


def add_detached(shard: Shard, run: Run, task_id: str, command: c.EnqueueDetached) -> None:
    """Make the standalone task that workflow code enqueued."""
    request = EnqueueTask(
        task_id=task_id,
        type=command.task_type,
        queue=command.task_queue,
        key=task_id,
        input=command.input,
        headers=command.headers,
        retry=command.retry,
        delay=command.delay,
        start_to_close=command.start_to_close,
        schedule_to_start=command.schedule_to_start,
        schedule_to_close=command.schedule_to_close,
        heartbeat=command.heartbeat,
        priority=command.priority,
    )
    enqueue(shard, request, namespace=run.namespace, principal=run.principal)


def add(shard: Shard, task: Task, *, delay: int) -> None:
    """Take a new task in; it becomes ready now or after ``delay``."""
    shard.tasks[task.task_id] = task
    shard.absent.pop(("task", task.task_id), None)
    shard.count_task(task, None)
    for kind, at in ((TimerKind.TASK_START_BY, task.spec.start_by), (TimerKind.TASK_CLOSE_BY, task.spec.close_by)):
        if at:
            timing.set_timer(shard, task_timer(task, kind, at))
    task.run_at = later(shard.now, delay)
    if delay:
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_DUE, task.run_at))
        shard.gather.touch_task(task)
    else:
        make_ready(shard, task)


def task_timer(task: Task, kind: TimerKind, at: int) -> TimerRow:
    """Return the row of one of a task's timers; it has at most one of each kind."""
    return TimerRow(at, f"{task.task_id}/{kind.value}", kind.value, task.task_id)


def make_ready(shard: Shard, task: Task) -> None:
    """Let ``task`` be given to a worker from now on."""
    was = task.state
    task.state = TaskState.ENQUEUED
    task.ready = True
    if task.order_key == 0:
        task.order_key = order_key_of(shard, task)
    shard.count_task(task, was)
    shard.gather.touch_task(task)
    put_in_window(shard, task)


def put_in_window(shard: Shard, task: Task) -> None:
    """Put a ready task where pollers find it, or leave it to its row if the window does not reach so far."""
    window = window_of(shard, (task.namespace, task.queue, task.type))
    if task.in_window or not window.put((task.order_key, task.task_id), task.task_id, number=shard.gather.number):
        return
    task.in_window = True
    shard.hot[task.namespace, task.queue] = None
    for task_id in window.evict():
        if (dropped := shard.tasks.get(task_id)) is not None:
            dropped.in_window = False


def window_of(shard: Shard, name: TaskQueue) -> Window[str]:
    """Return the window on the ready tasks of one (namespace, queue, type)."""
    window = shard.ready.get(name)
    if window is None:
        window = shard.ready[name] = Window(shard.config.window_max, shard.config.window_low)
        shard.short.append(name)
    return window


# --- attempts --------------------------------------------------------------------------------------------------------


def lease(shard: Shard, task: Task, *, worker: str, identity: str, build: str, poll_id: str) -> None:
    """Give ``task`` to a worker for a new attempt."""
    if task.spec.start_by:
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_START_BY, task.spec.start_by))
    machine.lease(
        task,
        worker=worker,
        identity=identity,
        build=build,
        poll_id=poll_id,
        now=shard.now,
        span=shard.config.task_lease,
    )
    shard.count_task(task, TaskState.ENQUEUED)
    shard.gather.touch_task(task)
    hold_lease(shard, task)


def hold_lease(shard: Shard, task: Task) -> None:
    """Keep the running lease of ``task`` in memory: when it ends, and who has how many."""
    shard.leased += 1
    seen = shard.workers.get(task.worker)
    if seen is None:
        seen = shard.worker(task.worker)
        seen.seen_at = 0  # only known from its lease
    seen.leases += 1
    if task.status.suspect:
        seen.suspect = task.task_id
    shard.expire_at(task.expiry(), "lease", task.task_id, task.lease)


def _unhold(shard: Shard, worker: str, task: Task) -> None:
    shard.leased -= 1
    seen = shard.workers.get(worker)
    if seen is None:
        return
    seen.leases = max(0, seen.leases - 1)
    if seen.suspect == task.task_id:
        seen.suspect = ""


def begin(shard: Shard, request: Begin, *, namespace: str, ticket: object) -> None:
    """Note that handlers are about to run; the answer is committed before it leaves."""
    answers: list[Refused | None] = []
    for token in request.tokens:
        try:
            task = _task_of(shard, token, namespace)
            machine.check(task, token)
        except (LeaseLost, NotFound) as refusal:
            answers.append(Refused(code=refusal.code, fact=refusal.fact, remedy=refusal.remedy))
            continue
        if machine.begin(task):
            shard.gather.touch_task(task)
        answers.append(None)
    shard.answer(ticket, Begun(items=tuple(answers)))


def heartbeat(shard: Shard, request: Heartbeat, *, namespace: str, ticket: object) -> None:
    """Extend leases and keep details."""
    shard.worker(request.worker)
    answers: list[HeartbeatAnswer] = []
    for item in request.items:
        try:
            task = _task_of(shard, item.token, namespace)
            machine.check(task, item.token)
        except (LeaseLost, NotFound):
            answers.append(HeartbeatAnswer(action="stop"))
            continue
        if machine.heartbeat(task, item, now=shard.now, span=shard.config.task_lease):
            shard.gather.touch_task(task)
        action = "cancel" if task.status.cancel_requested else "continue"
        answers.append(HeartbeatAnswer(action=action, lease_until=task.lease_until))
    shard.answer(ticket, HeartbeatReply(items=tuple(answers)))


def complete(shard: Shard, item: Completion, *, namespace: str) -> None:
    """Take the answer to an attempt.

    Raises:
        LeaseLost: the lease has ended; the word is kept as evidence.
        NotFound: no such task in this namespace.
    """
    task = _task_of(shard, item.token, namespace)
    if task.lease == item.token.lease and task.state is not TaskState.LEASED and task.status.completion:
        if task.status.completion == machine.digest_of(item.outcome):
            return  # the reply to the same word was lost
        raise LeaseLost(
            "already_completed",
            f"Lease {item.token.lease} of task {task.task_id} was answered already, with another outcome.",
            remedy="Keep the first answer.",
        )
    try:
        machine.check(task, item.token)
    except LeaseLost:
        _keep_evidence(shard, task, item)
        raise
    row, holder = machine.attempt_row(task, "", failure=None, now=shard.now), task.worker
    settled = machine.settle(task, item.outcome, details=item.details, now=shard.now)
    _end_attempt(shard, task, row, holder, settled, outcome=_outcome_name(task, item.outcome, settled))


def _outcome_name(task: Task, outcome: TaskOutcome, settled: machine.Settled) -> str:
    if isinstance(outcome, TaskSucceeded):
        return "succeeded"
    if task.state is TaskState.CANCELED and settled.retry_state == "cancel_requested":
        return "canceled"
    return "failed"


def _keep_evidence(shard: Shard, task: Task, item: Completion) -> None:
    if item.token.lease > task.lease or item.token.lease < 1:
        return  # a lease that never was
    row = AttemptRow(
        namespace=task.namespace,
        task_id=task.task_id,
        lease=item.token.lease,
        attempt=0,
        late=1,
        outcome=f"late_{type(item.outcome).__name__.removeprefix('Task').lower()}",
        ended_at=shard.now,
    )
    shard.gather.attempts.append(row)


def expire(shard: Shard, task: Task, *, lease: int) -> None:
    """End a lease that has run out; nothing happens if it was answered or extended meanwhile."""
    if task.state is not TaskState.LEASED or task.lease != lease:
        return
    end = max(task.expiry(), shard.grace_until)
    if end > shard.now:
        shard.expire_at(end, "lease", task.task_id, lease)
        return
    row, holder = machine.attempt_row(task, "", failure=None, now=shard.now), task.worker
    which = machine.which_end(task)
    settled = machine.expire(task, now=shard.now)
    if settled is None:
        _back_to_queue(shard, task, row, holder)
        return
    name = "worker_lost" if which is machine.Expired.WORKER_LOST else f"timeout:{which.value}"
    _end_attempt(shard, task, row, holder, settled, outcome=name)


def hand_back(shard: Shard, request: ReturnTasks, *, namespace: str) -> None:
    """Take back leases whose handlers never began. Stale tokens are passed over: their leases have ended anyway."""
    for token in request.tokens:
        task = shard.tasks.get(token.task_id)
        if task is None or task.namespace != namespace or task.state is not TaskState.LEASED:
            continue
        if task.lease != token.lease or task.status.begun:
            continue
        row, holder = machine.attempt_row(task, "returned", failure=None, now=shard.now), task.worker
        machine.hand_back(task)
        _back_to_queue(shard, task, row, holder)


def _back_to_queue(shard: Shard, task: Task, row: AttemptRow, holder: str) -> None:
    row.outcome = "returned"
    shard.gather.attempts.append(row)
    _unhold(shard, holder, task)
    shard.count_task(task, TaskState.LEASED)
    shard.gather.touch_task(task)
    if task.spec.start_by and task.attempt == 0:
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_START_BY, task.spec.start_by))
    task.in_window = False
    put_in_window(shard, task)


def _end_attempt(
    shard: Shard, task: Task, row: AttemptRow, holder: str, settled: machine.Settled, *, outcome: str
) -> None:
    row.outcome = outcome
    if settled.failure is not None:
        row.error_type, row.error_message = settled.failure.type, settled.failure.message
        row.error_trace = settled.failure.trace
    shard.gather.attempts.append(row)
    _unhold(shard, holder, task)
    shard.count_task(task, TaskState.LEASED)
    shard.gather.touch_task(task)
    if settled.retry_at:
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_DUE, settled.retry_at))
    else:
        _after_close(shard, task, settled, holder_identity=row.identity, build=row.build, started_at=row.started_at)


# --- from outside ----------------------------------------------------------------------------------------------------


def cancel(shard: Shard, request: CancelTask, *, namespace: str) -> Accepted:
    """Ask a task to stop: at once if no handler runs, else by its next heartbeat. A task that has ended is no error.

    Raises:
        Conflict: it is an activity; its run decides.
    """
    task = find(shard, request.task_id, namespace)
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


def request_cancel(shard: Shard, task: Task, *, reason: str) -> None:
    """Ask ``task`` to stop. One that no worker holds ends now."""
    task.status.cancel_requested = True
    task.status.cancel_reason = reason
    shard.gather.touch_task(task)
    if task.state is TaskState.LEASED:
        status = task.status
        grace = later(shard.now, CANCEL_GRACE)
        status.attempt_deadline = min(status.attempt_deadline or grace, grace)
        shard.expire_at(task.expiry(), "lease", task.task_id, task.lease)
        return
    was = task.state
    drop_due(shard, task)
    machine.close(task, TaskState.CANCELED, reason, now=shard.now)
    shard.count_task(task, was)
    failure = machine.canceled(task)
    task.status.failure = failure
    settled = machine.Settled(failure=failure, retry_state="cancel_requested")
    _after_close(shard, task, settled, holder_identity="", build="", started_at=0)


def abandon(shard: Shard, task: Task, *, reason: str) -> None:
    """End the task of an activity whose run has closed: whoever holds it is told to stop."""
    if task.closed:
        return
    was, holder = task.state, task.worker
    if was is TaskState.LEASED:
        shard.gather.attempts.append(machine.attempt_row(task, "canceled", failure=None, now=shard.now))
        _unhold(shard, holder, task)
    drop_due(shard, task)
    task.status.cancel_requested = True
    machine.close(task, TaskState.CANCELED, reason, now=shard.now)
    shard.count_task(task, was)
    shard.gather.touch_task(task)
    _drop_deadlines(shard, task)
    _answer_waiters(shard, task)


def due(shard: Shard, task: Task, *, fire_at: int) -> None:
    """Make a task ready whose delay or backoff is over."""
    waiting = task.state is TaskState.RETRY_WAIT or (task.state is TaskState.ENQUEUED and not task.ready)
    if waiting and task.run_at == fire_at:
        make_ready(shard, task)


def overdue(shard: Shard, task: Task, kind: TimerKind) -> None:
    """End a task at its schedule-to-start or schedule-to-close instant, if that still stands."""
    starting = kind is TimerKind.TASK_START_BY
    if task.closed or (starting and (task.attempt > 0 or task.state is TaskState.LEASED)):
        return
    was, holder = task.state, task.worker
    row = machine.attempt_row(task, "timeout:schedule_to_close", failure=None, now=shard.now)
    drop_due(shard, task)
    settled = machine.overdue(task, "schedule_to_start" if starting else "schedule_to_close", now=shard.now)
    if was is TaskState.LEASED:
        shard.gather.attempts.append(row)
        _unhold(shard, holder, task)
    shard.count_task(task, was)
    shard.gather.touch_task(task)
    _after_close(shard, task, settled, holder_identity=row.identity, build=row.build, started_at=row.started_at)


def drop_due(shard: Shard, task: Task) -> None:
    """Drop the timer of a delay or backoff, if the task waits for one."""
    if task.state is TaskState.RETRY_WAIT or (task.state is TaskState.ENQUEUED and not task.ready):
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_DUE, task.run_at))


def find(shard: Shard, task_id: str, namespace: str) -> Task:
    """Return a task of this namespace.

    Raises:
        NotFound: there is none.
    """
    task = shard.tasks.get(task_id)
    if task is None or task.namespace != namespace:
        raise NotFound(
            "task_not_found",
            f"There is no task {task_id} in namespace {namespace}.",
            remedy="Look at the id and the namespace; closed tasks are kept for the retention time only.",
        )
    return task


def _task_of(shard: Shard, token: TaskToken, namespace: str) -> Task:
    return find(shard, token.task_id, namespace)


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


def _after_close(
    shard: Shard, task: Task, settled: machine.Settled, *, holder_identity: str, build: str, started_at: int
) -> None:
    invariant(task.closed, "after_close_of_open_task", task=task.task_id)
    _drop_deadlines(shard, task)
    _answer_waiters(shard, task)
    if not task.run_id:
        return
    run = shard.runs[task.run_id]
    activity = run.state.activities.get(task.scheduled_event_id)
    if not run.open or activity is None:
        return
    started = e.ActivityTaskStarted(
        scheduled_event_id=task.scheduled_event_id,
        identity=holder_identity,
        attempt=task.attempt,
        started_at=started_at,
        last_failure=None if task.state is TaskState.FAILED else task.status.failure,
        build=build,
    )
    closing = _closing_event(task, settled, holder_identity, cancel_event_id=activity.cancel_event_id)
    if task.attempt == 0:
        closing = msgspec.structs.replace(closing, started_event_id=0)
        append(shard, run, closing)
    else:
        append(shard, run, started, closing)
    offers.need(shard, run)


def _closing_event(task: Task, settled: machine.Settled, identity: str, *, cancel_event_id: int) -> e.Event:
    scheduled = task.scheduled_event_id
    failure = settled.failure
    if task.state is TaskState.SUCCEEDED:
        return e.ActivityTaskCompleted(
            scheduled_event_id=scheduled, started_event_id=EVENT_BEFORE, result=settled.result, identity=identity
        )
    if task.state is TaskState.CANCELED:
        return e.ActivityTaskCanceled(
            scheduled_event_id=scheduled,
            started_event_id=EVENT_BEFORE,
            details=settled.result,
            latest_cancel_requested_event_id=cancel_event_id,
            identity=identity,
        )
    invariant(failure is not None, "failed_without_failure", task=task.task_id)
    assert failure is not None
    if settled.timeout_type in {"start_to_close", "heartbeat", "schedule_to_start", "schedule_to_close"}:
        return e.ActivityTaskTimedOut(
            scheduled_event_id=scheduled,
            started_event_id=EVENT_BEFORE,
            timeout_type=settled.timeout_type,
            failure=_with_details(failure, task),
            retry_state=settled.retry_state,
        )
    return e.ActivityTaskFailed(
        scheduled_event_id=scheduled,
        started_event_id=EVENT_BEFORE,
        failure=failure,
        retry_state=settled.retry_state,
        identity=identity,
    )


def _with_details(failure: Failure, task: Task) -> Failure:
    details = task.status.details
    return msgspec.structs.replace(failure, details=(details,)) if details is not None else failure


def _drop_deadlines(shard: Shard, task: Task) -> None:
    if task.spec.start_by and task.attempt == 0:
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_START_BY, task.spec.start_by))
    if task.spec.close_by:
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_CLOSE_BY, task.spec.close_by))


def _answer_waiters(shard: Shard, task: Task) -> None:
    for waiter in shard.waiters_of(task.task_id):
        shard.answer(waiter.ticket, outcome_of(task))


def refuse_closed(task: Task) -> None:
    """Refuse what only an open task can take.

    Raises:
        Closed: it has ended.
    """
    if task.closed:
        raise Closed("task_closed", f"Task {task.task_id} is {task.state.value}.", remedy="Enqueue a new one.")
