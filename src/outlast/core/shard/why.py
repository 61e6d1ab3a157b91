"""What a run or a task waits for, in one sentence, and what else is known of it."""

import msgspec

from outlast.core import limits
from outlast.core.admin import DescribeWorkers, WorkerInfo, WorkersInfo
from outlast.core.replies import PendingActivity, PendingTimer, TaskInfo, TaskState, WorkflowInfo
from outlast.core.run import Run
from outlast.core.shard.state import Shard
from outlast.core.task import Task
from outlast.core.waiting import at_activities


def describe_run(shard: Shard, run: Run) -> WorkflowInfo:
    """Return what is known of ``run``. Activities whose tasks are not in memory are left out."""
    state = run.state
    activities = tuple(
        info_of_activity(event_id, open_.activity_id, shard.tasks[open_.task_id])
        for event_id, open_ in list(state.activities.items())[: limits.DESCRIBED_MAX]
        if open_.task_id in shard.tasks
    )
    polled = polled_lately(shard, "w", run.namespace, run.queue, run.type)
    why, at = _why_run(shard, run, activities, _timers(run), polled=polled)
    turn = _turn_state(shard, run)
    return info_of_run(run, turn=turn, activities=activities, why=why, why_at=at, parked=len(run.parked), polled=polled)


def info_of_run(
    run: Run,
    *,
    turn: str,
    activities: tuple[PendingActivity, ...],
    why: str,
    why_at: int,
    parked: int,
    polled: bool = True,
) -> WorkflowInfo:
    """Return what ``run`` itself says, with what only its surroundings do: from memory, or from rows alone."""
    state = run.state
    return WorkflowInfo(
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        first_run_id=run.first_run_id,
        type=run.type,
        queue=run.queue,
        status=run.status,
        build=run.build,
        started_at=run.started_at,
        closed_at=run.closed_at,
        events=run.next_event_id - 1,
        history_bytes=run.history_bytes,
        cancel_requested=state.cancel_requested,
        task_state=turn,
        task_attempt=state.task_attempt,
        task_failure=state.task_failure,
        worker=run.turn.worker if run.turn else state.sticky_worker,
        activities=activities,
        timers=_timers(run),
        places=state.places,
        tags=run.fixed.tags,
        memo=run.fixed.memo,
        search_attributes=state.search_attributes,
        result=run.outcome.result if run.outcome else (),
        failure=run.outcome.failure if run.outcome else None,
        why=why,
        why_at=why_at,
        parked=parked,
        polled=polled,
        warning=history_warning(is_open=run.open, events=run.next_event_id - 1, size=run.history_bytes),
        published=state.published,
    )


def _timers(run: Run) -> tuple[PendingTimer, ...]:
    return tuple(
        PendingTimer(timer_id=timer_id, started_event_id=t.started_event_id, fire_at=t.fire_at, summary=t.summary)
        for timer_id, t in list(run.state.timers.items())[: limits.DESCRIBED_MAX]
    )


def history_warning(*, is_open: bool, events: int, size: int) -> str:
    """Return what to say of a history that comes near its limits, "" while it does not."""
    if not is_open or (events < limits.HISTORY_EVENTS_WARN and size < limits.HISTORY_BYTES_WARN):
        return ""
    return (
        f"Its history has {events:,} events and {size:,} bytes; at {limits.HISTORY_EVENTS_MAX:,} events or "
        f"{limits.HISTORY_BYTES_MAX:,} bytes the run is ended. Have the workflow continue as new."
    )


def polled_lately(shard: Shard, kind: str, namespace: str, queue: str, type: str) -> bool:
    """Return whether a worker that knows ``type`` ("w" workflow, "t" task) has polled ``queue`` in the last minute."""
    return (
        shard.now - shard.types_seen.get((namespace, queue, f"{kind}:{type}"), -limits.POLLED_LATELY)
        < limits.POLLED_LATELY
    )


def _turn_state(shard: Shard, run: Run) -> str:
    if run.turn is not None:
        return "started"
    if run.ready_at == 0:
        return ""
    return "backoff" if run.state.task_retry_at > shard.now else "ready"


def _why_run(
    shard: Shard,
    run: Run,
    activities: tuple[PendingActivity, ...],
    timers: tuple[PendingTimer, ...],
    *,
    polled: bool,
) -> tuple[str, int]:
    state = run.state
    if not run.open:
        return f"nothing: it is {run.status.value}", 0
    if run.turn is not None:
        return f"worker {run.turn.worker} to run its code", run.turn.deadline
    if run.ready_at and state.task_retry_at > shard.now:
        failure = state.task_failure
        fact = failure.said if failure else "a failure"
        return f"another try of its code after {state.task_attempt - 1} that failed, the last with {fact}", (
            state.task_retry_at
        )
    if run.ready_at:
        who = (
            "a worker to take its next turn" if polled else f'a worker: none polls queue "{run.queue}" for "{run.type}"'
        )
        return who, 0
    if state.task_retry_at > shard.now:
        return "its start delay to pass", state.task_retry_at
    if activities:
        return at_activities(activities[0], len(state.activities)), activities[0].run_at
    signal = next((key.removeprefix("signal:") for key in state.places or {} if key.startswith("signal:")), "")
    timer = min(timers, key=lambda timer: timer.fire_at, default=None)
    if signal:
        return f'signal "{signal}"', timer.fire_at if timer else 0
    if timer is not None:
        return "a timer" + (f": {timer.summary}" if timer.summary else ""), timer.fire_at
    return "a signal, or a cancel request", 0


def info_of_activity(event_id: int, activity_id: str, task: Task) -> PendingActivity:
    """Return what ``task`` says of the activity that it is."""
    return PendingActivity(
        activity_id=activity_id,
        scheduled_event_id=event_id,
        task_id=task.task_id,
        type=task.type,
        queue=task.queue,
        state=task.state,
        reason=task.reason,
        attempt=task.attempt,
        attempts_max=task.attempts_max,
        run_at=task.run_at,
        worker=task.worker,
        last_failure=task.status.failure,
    )


def describe_task(shard: Shard, task: Task) -> TaskInfo:
    """Return what is known of ``task``."""
    polled = polled_lately(shard, "t", task.namespace, task.queue, task.type)
    seen = shard.workers.get((task.namespace, task.worker))
    return info_of_task(
        task, why=_why_task(task, polled=polled), polled=polled, heard_at=0 if seen is None else seen.seen_at
    )


def info_of_task(task: Task, *, why: str = "", polled: bool = True, heard_at: int = 0) -> TaskInfo:
    """Return what ``task`` itself says, with what only its surroundings do."""
    return TaskInfo(
        namespace=task.namespace,
        task_id=task.task_id,
        type=task.type,
        queue=task.queue,
        state=task.state,
        reason=task.reason,
        attempt=task.attempt,
        attempts_max=task.attempts_max,
        priority=task.spec.priority,
        enqueued_at=task.enqueued_at,
        run_at=task.run_at,
        started_at=task.status.started_at,
        closed_at=task.closed_at,
        lease_until=task.lease_until,
        worker=task.worker,
        workflow_id=task.spec.workflow_id,
        run_id=task.run_id,
        tags=task.spec.tags,
        details=task.status.details,
        result=task.status.result,
        failure=task.status.failure,
        cancel_requested=task.status.cancel_requested,
        why=why,
        polled=polled,
        retries=task.status.retries,
        expires_at=task.expiry() if task.state is TaskState.LEASED else 0,
        heard_at=heard_at if task.state is TaskState.LEASED else 0,
        worker_identity=task.status.worker_identity if task.state is TaskState.LEASED else "",
    )


def _why_task(task: Task, *, polled: bool) -> str:
    if task.closed:
        return f"nothing: it is {task.state.value}" + (f" ({task.reason})" if task.reason else "")
    if task.state is TaskState.LEASED:
        return f"worker {task.status.worker_identity or task.worker}, attempt {task.attempt}"
    if task.state is TaskState.RETRY_WAIT:
        return f"its next attempt, after attempt {task.attempt} ended with {task.reason}"
    if not task.ready:
        return "its delay to pass"
    if not polled:
        return f'a worker: none polls queue "{task.queue}" for "{task.type}"'
    return "a free slot at a worker"


def describe_workers(shard: Shard, request: DescribeWorkers, *, namespace: str) -> WorkersInfo:
    """Return who polls in ``namespace``, as far as this owner has heard."""
    found: list[WorkerInfo] = []
    for (of, worker), seen in reversed(shard.workers.items()):
        told = list(seen.told.values())
        if of != namespace or (request.queue and not any(request.queue in poll.queues for poll in told)):
            continue
        if len(found) == limits.WORKERS_SHOWN_MAX:
            return WorkersInfo(items=tuple(found), more=True)
        info = WorkerInfo(
            worker=worker,
            identity=seen.identity,
            build=seen.build,
            leases=seen.leases,
            polls=seen.polls,
            seen_at=seen.seen_at,
            stopped=seen.stopped,
        )
        if told:
            info = msgspec.structs.replace(
                info,
                identity=told[-1].identity,
                build=told[-1].build,
                queues=tuple(dict.fromkeys(queue for poll in told for queue in poll.queues)),
                task_types=tuple(sorted({name for poll in told for name in poll.task_types})),
                workflow_types=tuple(sorted({name for poll in told for name in poll.workflow_types})),
                slots=sum(poll.slots for poll in told),
                workflow_slots=sum(poll.workflow_slots for poll in told),
            )
        found.append(info)
    return WorkersInfo(items=tuple(found))
