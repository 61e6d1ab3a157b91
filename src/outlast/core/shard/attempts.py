"""Attempts: leases given out, kept alive, answered, run out or handed back."""

from outlast.core.errors import LeaseLost, NotFound
from outlast.core.inputs import Begin, Completion, Heartbeat, ReturnTasks, TaskOutcome, TaskSucceeded
from outlast.core.machines import task as machine
from outlast.core.replies import Begun, HeartbeatAnswer, HeartbeatReply, Refused
from outlast.core.shard import holding, tasks, timing
from outlast.core.shard.damage import stands_still
from outlast.core.shard.readiness import put_in_window, task_timer
from outlast.core.shard.state import Shard
from outlast.core.task import CANCELED, ENQUEUED, LEASED, Task
from outlast.core.writes import AttemptRow, TimerKind


def lease(shard: Shard, task: Task, *, worker: str, identity: str, build: str, poll_id: str) -> None:
    """Give ``task`` to a worker for a new attempt."""
    if task.spec.start_by:
        timing.drop_timer(shard, task_timer(task, TimerKind.TASK_START_BY, task.start_by))
    machine.lease(
        task,
        worker=worker,
        identity=identity,
        build=build,
        poll_id=poll_id,
        now=shard.now,
        span=shard.config.task_lease,
    )
    shard.count_task(task, ENQUEUED)
    shard.gather.touch_task(task)
    holding.hold(shard, task)


def begin(shard: Shard, request: Begin, *, namespace: str, ticket: object) -> None:
    """Note that handlers are about to run; the answer is committed before it leaves."""
    answers: list[Refused | None] = []
    for token in request.tokens:
        try:
            task = tasks.find_moving(shard, token.task_id, namespace)
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
    shard.worker(namespace, request.worker)
    answers: list[HeartbeatAnswer] = []
    for item in request.items:
        try:
            task = tasks.find_moving(shard, item.token.task_id, namespace)
            machine.check(task, item.token)
        except (LeaseLost, NotFound):
            answers.append(HeartbeatAnswer(action="stop"))
            continue
        if machine.heartbeat(task, item, now=shard.now, span=shard.config.task_lease):
            shard.gather.touch_task(task)
        action = "cancel" if task.status.cancel_requested else "continue"
        answers.append(HeartbeatAnswer(action=action, lease_until=task.lease_until))
    shard.answer(ticket, HeartbeatReply(items=tuple(answers)))


def complete(shard: Shard, item: Completion, *, namespace: str, worker: str, identity: str) -> None:
    """Take the answer to an attempt, which ``worker`` sends.

    Raises:
        LeaseLost: the lease has ended; the word is kept as evidence.
        NotFound: no such task in this namespace, or it or its run cannot be read.
    """
    task = tasks.find_moving(shard, item.token.task_id, namespace)
    if task.lease == item.token.lease and task.state is not LEASED and task.status.completion:
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
        _keep_evidence(shard, task, item, worker=worker, identity=identity)
        raise
    row, holder = machine.attempt_row(task, "", now=shard.now), task.worker
    settled = machine.settle(task, item.outcome, details=item.details, now=shard.now)
    _end_attempt(shard, task, row, holder, settled, outcome=_outcome_name(task, item.outcome, settled))


def _outcome_name(task: Task, outcome: TaskOutcome, settled: machine.Settled) -> str:
    if isinstance(outcome, TaskSucceeded):
        return "succeeded"
    if task.state is CANCELED and settled.retry_state == "cancel_requested":
        return "canceled"
    return "failed"


def _keep_evidence(shard: Shard, task: Task, item: Completion, *, worker: str, identity: str) -> None:
    if item.token.lease > task.lease or item.token.lease < 1:
        return  # a lease that never was
    row = AttemptRow(
        namespace=task.namespace,
        task_id=task.task_id,
        lease=item.token.lease,
        attempt=0,
        late=1,
        outcome=f"late_{type(item.outcome).__name__.removeprefix('Task').lower()}",
        worker=worker,
        identity=identity,
        ended_at=shard.now,
    )
    shard.gather.attempts.append(row)


def expire(shard: Shard, task: Task, *, lease: int) -> None:
    """End a lease that has run out; nothing happens if it was answered or extended meanwhile."""
    if task.state is not LEASED or task.lease != lease:
        return
    end = shard.end_after_stall(task.expiry(), since=task.status.started_at, term=shard.config.task_lease)
    if end > shard.now:
        shard.expire_at(end, "lease", task.task_id, lease)
        return
    if stands_still(shard, task):
        holding.leave(shard, task)
        return
    row, holder = machine.attempt_row(task, "", now=shard.now), task.worker
    which = machine.which_end(task)
    settled = machine.expire(task, now=shard.now)
    if settled is None:
        _back_to_queue(shard, task, row, holder)
        return
    name = "worker_lost" if which is machine.Expired.WORKER_LOST else f"timeout:{which.value}"
    _end_attempt(shard, task, row, holder, settled, outcome=name)


def prolong(shard: Shard, span: int) -> None:
    """Leave the attempts that ran before the clock was set ahead by ``span`` the time they had: none of it has passed."""
    before = shard.now - span
    for task in shard.tasks.values():
        if task.state is LEASED and task.status.started_at <= before:
            machine.prolong(task, span)
            shard.gather.touch_task(task)


def hand_back(shard: Shard, request: ReturnTasks, *, namespace: str) -> None:
    """Take back leases whose handlers never began. Stale tokens are passed over: their leases have ended anyway."""
    for token in request.tokens:
        task = shard.tasks.get(token.task_id)
        if task is None or task.namespace != namespace or task.state is not LEASED:
            continue
        if task.lease != token.lease or task.status.begun or stands_still(shard, task):
            continue
        row, holder = machine.attempt_row(task, "returned", now=shard.now), task.worker
        machine.hand_back(task)
        _back_to_queue(shard, task, row, holder)


def _back_to_queue(shard: Shard, task: Task, row: AttemptRow, holder: str) -> None:
    row.outcome = "returned"
    shard.gather.attempts.append(row)
    holding.unhold(shard, holder, task)
    shard.count_task(task, LEASED)
    shard.gather.touch_task(task)
    if task.status.cancel_requested:
        tasks.end_canceled(shard, task)  # no attempt starts after a cancel that was acknowledged
        return
    if task.spec.start_by and task.attempt == 0:
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_START_BY, task.start_by))
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
    holding.unhold(shard, holder, task)
    shard.count_task(task, LEASED)
    shard.gather.touch_task(task)
    if settled.retry_at:
        timing.set_timer(shard, task_timer(task, TimerKind.TASK_DUE, settled.retry_at))
    else:
        tasks.after_close(
            shard, task, settled, holder_identity=row.identity, build=row.build, started_at=row.started_at
        )
