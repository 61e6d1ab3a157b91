"""A task and its attempts: lease, begin, heartbeat, outcome, expiry, cancel.

Functions here move one Task in place after everything that can refuse has been asked. What else must happen (a run told,
a timer set) is said in the returned ``Settled`` and done by the shard.

    ENQUEUED ── lease ──> LEASED ── succeeded ──> SUCCEEDED
       ^  ^                 │ ├──── failed, final or exhausted ──> FAILED
       │  └── handed back ──┤ ├──── schedule-to-close ──> EXPIRED
       │                    │ └──── canceled after a request ──> CANCELED
       ├── due ── RETRY_WAIT <── failed, lost or timed out
       └── brought back ── FAILED, EXPIRED, CANCELED

An expired lease never completes: its word is kept as evidence, because for an effect it would turn a guess into a fact.
"""

import hashlib
from enum import StrEnum
from typing import Final

import msgspec

from outlast.core import limits, retry
from outlast.core.errors import InvariantBroken, LeaseLost
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import HeartbeatItem, TaskCanceled, TaskFailed, TaskOutcome, TaskSucceeded, TaskToken
from outlast.core.payload import Payload, Payloads
from outlast.core.replies import TaskState
from outlast.core.task import CANCELED, ENQUEUED, EXPIRED, FAILED, LEASED, LETTERS, RETRY_WAIT, SUCCEEDED, Task
from outlast.core.units import FOREVER, later
from outlast.core.writes import AttemptRow

_encode: Final = msgspec.msgpack.Encoder().encode


class Expired(StrEnum):
    """Which end of a lease came."""

    WORKER_LOST = "worker_lost"
    START_TO_CLOSE = "start_to_close"
    HEARTBEAT = "heartbeat"


class Settled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one attempt's end came to. Exactly one of ``retry_at`` (> 0) and a terminal state of the task holds."""

    retry_at: int = 0
    result: Payloads = ()
    failure: Failure | None = None
    retry_state: str = ""
    timeout_type: str = ""


def lease(task: Task, *, worker: str, identity: str, build: str, poll_id: str, now: int, span: int) -> None:
    """Give ``task`` to ``worker`` for a new attempt."""
    if task.state is not ENQUEUED or not task.ready:
        raise InvariantBroken("lease_of_unready_task", task=task.task_id)
    status = task.status
    status.suspect = suspect(task)
    task.state = LEASED
    task.ready = False
    task.reason = ""
    task.attempt += 1
    task.lease += 1
    task.worker = worker
    status.started_at = now
    status.begun = False
    status.build = build
    status.worker_identity = identity
    status.poll_id = poll_id
    status.completion = b""  # of an earlier lease: a late word under this one must not be taken for its repeat
    status.attempt_deadline = later(now, task.spec.start_to_close) if task.spec.start_to_close else 0
    status.heartbeat_deadline = later(now, task.spec.heartbeat) if task.spec.heartbeat else 0
    until = later(now, span)
    if 0 < status.attempt_deadline < until:
        until = status.attempt_deadline
    task.lease_until = status.lease_written = until


def suspect(task: Task) -> bool:
    """Return whether the next attempt is run alone: its worker was lost too often, or it was lost and has one attempt left.

    So no task fails because a neighbour took its worker along, whatever the order in which they die.
    """
    lost = task.status.lost_in_a_row
    return lost >= limits.SUSPECT_AFTER or (lost > 0 and task.attempt + 1 == task.attempts_max)


def check(task: Task, token: TaskToken) -> None:
    """Refuse a token that is not the one of the running lease.

    Raises:
        LeaseLost: it never becomes good again.
    """
    if task.state is LEASED and task.lease == token.lease:
        return
    if task.lease == token.lease:
        raise LeaseLost(
            "lease_lost",
            f"Lease {token.lease} of task {task.task_id} has ended; the task is {task.state.value}.",
            remedy="Stop the handler and drop its result.",
        )
    raise LeaseLost(
        "lease_lost",
        f"The token is of lease {token.lease} of task {task.task_id}; the task is at lease {task.lease}.",
        remedy="Stop the handler and drop its result.",
    )


def begin(task: Task) -> bool:
    """Note that the handler is about to run; return whether that is new."""
    if task.status.begun:
        return False
    task.status.begun = True
    return True


def heartbeat(task: Task, item: HeartbeatItem, *, now: int, span: int) -> bool:
    """Extend the lease and keep the details; return whether it must be written before it is acknowledged.

    A lease is never shortened, and never goes past start-to-close. A plain sign of life is written at most every half lease;
    a crash in between costs nothing, since a new owner grants a fresh term.
    """
    status = task.status
    end = min(later(now, span), status.attempt_deadline or FOREVER)
    task.lease_until = max(task.lease_until, end)
    if item.details is not None:
        status.details = item.details
    if (item.progress or item.details is not None) and task.spec.heartbeat:
        status.heartbeat_deadline = max(status.heartbeat_deadline, later(now, task.spec.heartbeat))
    said = item.details is not None or item.progress
    if said and task.begin_needed:
        status.begun = True  # only a handler that runs has something to say: this was its one attempt
    if said or task.lease_until - status.lease_written >= span // 2:
        status.lease_written = task.lease_until
        return True
    return False


def prolong(task: Task, span: int) -> None:
    """Move the ends of the running attempt that are spans of time by ``span``; its lease is renewed as ever."""
    status = task.status
    if status.attempt_deadline:
        status.attempt_deadline = later(status.attempt_deadline, span)
    if status.heartbeat_deadline:
        status.heartbeat_deadline = later(status.heartbeat_deadline, span)


def settle(task: Task, outcome: TaskOutcome, *, details: Payload | None, now: int) -> Settled:
    """Take the answer to the running attempt."""
    status = task.status
    if details is not None:
        status.details = details
    status.completion = digest_of(outcome)
    status.lost_in_a_row = 0
    match outcome:
        case TaskSucceeded():
            status.result = outcome.result
            status.last_failure, status.failure = status.failure, None
            close(task, SUCCEEDED, "", now=now)
            return Settled(result=outcome.result)
        case TaskCanceled() if status.cancel_requested:
            close(task, CANCELED, status.cancel_reason or "canceled", now=now)
            return Settled(result=outcome.details, failure=canceled(task), retry_state="cancel_requested")
        case TaskCanceled():
            failure = Failure(
                kind=FailureKind.APPLICATION, type="Canceled", message="The handler stopped without being asked to."
            )
            return after_failure(task, failure, now=now)
        case TaskFailed():
            return after_failure(task, outcome.failure, now=now)


def expire(task: Task, *, now: int) -> Settled | None:
    """End the running lease, whose time has come. None: the handler surely never began, so the attempt does not count."""
    if task.begin_needed and not task.status.begun:
        hand_back(task)
        return None
    which = which_end(task)
    if which is Expired.WORKER_LOST:
        task.status.lost_in_a_row += 1
        text = f"Worker {task.worker} was not heard of; the lease ended."
        failure = Failure(kind=FailureKind.WORKER_LOST, type="WorkerLost", message=text, info={"worker": task.worker})
    else:
        task.status.lost_in_a_row = 0
        failure = Failure(
            kind=FailureKind.TIMEOUT,
            type="StartToClose" if which is Expired.START_TO_CLOSE else "Heartbeat",
            message=f"Attempt {task.attempt} did not {_due(which)} in time.",
        )
    settled = after_failure(task, failure, now=now)
    return settled if settled.timeout_type else msgspec.structs.replace(settled, timeout_type=which.value)


def _due(which: Expired) -> str:
    return "end" if which is Expired.START_TO_CLOSE else "give a sign of progress"


def which_end(task: Task) -> Expired:
    """Return which of the three ends of a lease comes first."""
    end = task.expiry()
    if end == (task.status.attempt_deadline or FOREVER):
        return Expired.START_TO_CLOSE
    if end == (task.status.heartbeat_deadline or FOREVER):
        return Expired.HEARTBEAT
    return Expired.WORKER_LOST


def after_failure(task: Task, failure: Failure, *, now: int) -> Settled:
    """Close the task or let it wait for its next attempt."""
    policy, status = task.spec.retry, task.status
    asked = failure.next_delay
    pause = (
        min(max(asked, 0), limits.SPAN_MAX)
        if asked is not None
        else retry.backoff(policy, attempt=max(task.attempt, 1), key=task.task_id)
    )
    what = retry.verdict(
        policy,
        failure,
        attempt=task.attempt,
        lost_in_a_row=status.lost_in_a_row if status.suspect else 0,
        pause=pause,
        now=now,
        close_by=task.close_by or FOREVER,
        cancel_requested=status.cancel_requested,
    )
    status.last_failure, status.failure = status.failure, failure
    if what is retry.Verdict.AGAIN:
        task.state = RETRY_WAIT
        task.reason = failure.type
        task.run_at = later(now, pause)
        release(task)
        return Settled(retry_at=task.run_at, failure=failure)
    if what is retry.Verdict.CANCELED:
        close(task, CANCELED, status.cancel_reason or "canceled", now=now)
    elif what is retry.Verdict.OUT_OF_TIME:
        return overdue(task, "schedule_to_close", now=now)
    else:
        close(task, FAILED, what.value, now=now)
    return Settled(failure=failure, retry_state=what.value)


def hand_back(task: Task) -> None:
    """Undo a lease whose handler never began: the attempt does not count, the lease number stays used."""
    task.attempt -= 1
    task.state = ENQUEUED
    task.ready = True
    release(task)


def release(task: Task) -> None:
    """Forget who held the task."""
    status = task.status
    task.worker = ""
    task.lease_until = 0
    status.attempt_deadline = 0
    status.heartbeat_deadline = 0
    status.begun = False
    status.poll_id = ""


def close(task: Task, state: TaskState, reason: str, *, now: int) -> None:
    """Bring the task to a terminal state. Only ``bring_back`` leads out of it."""
    if task.closed:
        raise InvariantBroken("terminal_state_changed", task=task.task_id, was=task.state.value, to=state.value)
    task.state = state
    task.reason = reason
    task.ready = False
    task.closed_at = now
    release(task)


def bring_back(task: Task, *, now: int) -> None:
    """Have a task that ended without success begin anew: its attempts count from 1, the ends given for it from ``now``.

    It keeps its id, what its handler saved, and the number of its leases: a word under an old one stays late.
    """
    if task.state not in LETTERS:
        raise InvariantBroken("brought_back_without_cause", task=task.task_id, state=task.state.value)
    spec, status = task.spec, task.status
    status.retries += 1
    first = later(task.enqueued_at, spec.delay)  # the delay is not waited for again, nor added to its ends
    status.start_by = later(now, spec.start_by - first) if spec.start_by else 0
    status.close_by = later(now, spec.close_by - first) if spec.close_by else 0
    status.cancel_requested, status.cancel_reason = False, ""
    status.lost_in_a_row, status.suspect = 0, False
    status.completion = b""
    status.result = ()
    task.state, task.reason = ENQUEUED, ""
    task.attempt = 0
    task.lease += 1
    task.run_at, task.closed_at = now, 0
    task.order_key = 0  # it stands where one would that is made now


def canceled(task: Task) -> Failure:
    """Return the failure that a canceled task ends with."""
    return Failure(
        kind=FailureKind.CANCELED, type="Canceled", message=task.status.cancel_reason or "Canceled.", final=True
    )


def overdue(task: Task, kind: str, *, now: int) -> Settled:
    """Close a task at its schedule-to-start or schedule-to-close instant, whatever it is doing."""
    cause = task.status.failure
    task.status.last_failure = cause
    failure = Failure(
        kind=FailureKind.TIMEOUT,
        type="ScheduleToStart" if kind == "schedule_to_start" else "ScheduleToClose",
        message=f"It did not {'start' if kind == 'schedule_to_start' else 'end'} by the instant given for it.",
        final=True,
        cause=cause,
    )
    task.status.failure = failure
    close(task, EXPIRED, kind, now=now)
    return Settled(failure=failure, retry_state="timeout", timeout_type=kind)


def digest_of(outcome: TaskOutcome) -> bytes:
    """Return what tells one answer from another, so that a repeat of the winning one gets the winning reply."""
    return hashlib.blake2b(_encode(outcome), digest_size=12).digest()


def attempt_row(task: Task, outcome: str, *, now: int) -> AttemptRow:
    """Return the record of the lease that ends now. Called while the task still says who holds it."""
    return AttemptRow(
        namespace=task.namespace,
        task_id=task.task_id,
        lease=task.lease,
        attempt=task.attempt,
        outcome=outcome,
        worker=task.worker,
        identity=task.status.worker_identity,
        build=task.status.build,
        started_at=task.status.started_at,
        ended_at=now,
    )
