"""Workflow tasks: giving a turn out, taking its commands in, and what happens when it fails or is not heard of again.

The six rules of ARCHITECTURE §6: a turn is transient until it completes; its token is (incarnation, epoch, dispatch
number); it goes out only after every event it shows is committed; parked events are flushed when it closes; a run that needs
one has ``ready_at``; the pair it shows is that worker's alone; from the second attempt on only the count is stored.
"""

from typing import Final, assert_never

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import limits
from outlast.core.errors import Invalid, TooLarge
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    CompleteWorkflowTasks,
    Poll,
    ReturnTasks,
    WorkflowTaskDone,
    WorkflowTaskNotDone,
    WorkflowToken,
)
from outlast.core.machines import turn as machine
from outlast.core.replies import WorkflowTask, WorkflowTaskReply, WorkflowTasksReply
from outlast.core.run import Run, Turn, refused_turn
from outlast.core.shard import offers, runs, tasks, timing
from outlast.core.shard.admitted import RunOverLimit
from outlast.core.shard.enqueue import add_activity, add_detached
from outlast.core.shard.histories import append, flush_parked
from outlast.core.shard.outputs import turn_pair
from outlast.core.shard.readiness import require_queues
from outlast.core.shard.state import Shard
from outlast.core.units import fraction_of, later
from outlast.core.writes import TimerRow

UNSEEN = (e.WorkflowExecutionSignaled, e.WorkflowExecutionCancelRequested)  # what makes a closing command unhandled
_OF_A_QUEUE: Final = (e.ActivityTaskScheduled, e.TaskEnqueued)
GROWS_AFTER = 3  # attempts of a turn with the usual timeout
TIMEOUT_GROWTH = 5 * 1_000_000_000  # start-to-close of attempts from the fourth on
BLOCKED_CAUSES = frozenset({"non_deterministic_error"})  # code must change before another attempt makes sense
BLOCKED_BACKOFF = 60 * 1_000_000_000


# --- out -------------------------------------------------------------------------------------------------------------


def give(shard: Shard, run: Run, poll: Poll) -> WorkflowTask:
    """Put the next turn of ``run`` in the hands of the polling worker and return what it is shown."""
    shard.dispatches += 1
    shard.turns += 1
    attempt = run.state.task_attempt
    timeout = _timeout(shard, run, attempt)
    suggest = runs.should_continue_as_new(shard, run)
    scheduled, started = turn_pair(
        run.queue,
        timeout=timeout,
        attempt=attempt,
        scheduled_event_id=run.next_event_id,
        identity=poll.identity,
        suggest_continue_as_new=suggest,
    )
    run.turn = Turn(
        dispatch=shard.dispatches,
        worker=poll.worker,
        identity=poll.identity,
        started_at=shard.now,
        deadline=later(shard.now, timeout),
        scheduled_event_id=run.next_event_id,
        attempt=attempt,
        poll_id=poll.poll_id,
        suggest_continue_as_new=suggest,
        pair=((shard.now, scheduled), (shard.now, started)),
    )
    shard.expire_at(run.turn.deadline, "turn", run.run_id, run.turn.dispatch)
    return shown(shard, run, timeout=timeout)


def _timeout(shard: Shard, run: Run, attempt: int) -> int:
    timeout = run.fixed.task_timeout or shard.config.workflow_task_timeout
    if attempt > GROWS_AFTER:
        timeout += min(TIMEOUT_GROWTH << min(attempt - GROWS_AFTER - 1, 10), limits.WORKFLOW_TASK_BACKOFF_MAX)
    return min(timeout, limits.WORKFLOW_TASK_TIMEOUT_MAX + limits.WORKFLOW_TASK_BACKOFF_MAX)


def shown(shard: Shard, run: Run, *, timeout: int) -> WorkflowTask:
    """Return what the turn that is out shows: from event 1, or behind what the worker's memory of the run ends with."""
    turn = run.turn
    assert turn is not None
    state, fence, shown_from = run.state, shard.gather.fence, turn.scheduled_event_id
    sticky = bool(state.sticky_worker) and state.sticky_worker == turn.worker and state.last_event_end > 0
    first = state.last_event_end + 1 if sticky else 1
    events: tuple[e.Timed, ...] = ()
    if first == shown_from:
        events = turn.pair
    elif 0 < run.tail_first <= first and run.tail_first + len(run.tail) >= shown_from:
        events = (*run.tail[first - run.tail_first : shown_from - run.tail_first], *turn.pair)
    # else memory does not reach back so far: the shell reads the history
    return WorkflowTask(
        token=WorkflowToken(run.run_id, fence.incarnation, fence.epoch, turn.dispatch),
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        original_run_id=run.original_run_id,
        type=run.type,
        queue=run.queue,
        attempt=turn.attempt,
        first_event_id=first,
        started_event_id=shown_from + 1,
        previous_event_id=state.last_event_end,
        timeout=timeout,
        started_at=turn.started_at,
        identity=turn.identity,
        suggest_continue_as_new=turn.suggest_continue_as_new,
        events=events,
    )


# --- in --------------------------------------------------------------------------------------------------------------


def complete(shard: Shard, request: CompleteWorkflowTasks, *, namespace: str, ticket: object) -> None:
    """Take the answers to turns; each stands or falls alone."""
    shard.worker(namespace, request.worker)
    done: list[WorkflowTaskReply] = []
    for index, item in enumerate(request.done):
        new_run_id = request.new_run_ids[index] if index < len(request.new_run_ids) else ""
        done.append(_complete_one(shard, item, namespace=namespace, new_run_id=new_run_id, worker=request.worker))
    not_done = [_fail_one(shard, item, namespace=namespace) for item in request.not_done]
    shard.answer(ticket, WorkflowTasksReply(done=tuple(done), not_done=tuple(not_done)))


def find_turn(shard: Shard, token: WorkflowToken, namespace: str) -> Run | WorkflowTaskReply:
    """Return the run whose turn ``token`` is, or the answer to one that is no more."""
    run = shard.runs.get(token.run_id)
    fence = shard.gather.fence
    ours = token.epoch == fence.epoch and token.incarnation == fence.incarnation
    if ours and run is not None and run.namespace == namespace:
        if run.turn is not None and run.turn.dispatch == token.dispatch:
            return run
        if run.last_done is not None and run.last_done[0] == token.dispatch:
            return run.last_done[1]  # the reply to the same completion was lost
    return refused_turn(
        "workflow_task_lost",
        f"The workflow task of run {token.run_id} was given to another worker, has timed out, or its run has closed.",
        remedy="Drop the run from memory; it is offered again if it is open.",
    )


def _complete_one(
    shard: Shard, done: WorkflowTaskDone, *, namespace: str, new_run_id: str, worker: str
) -> WorkflowTaskReply:
    found = find_turn(shard, done.token, namespace)
    if isinstance(found, WorkflowTaskReply):
        return found
    run, turn = found, found.turn
    assert turn is not None
    completed_id = turn.scheduled_event_id + 2
    try:
        decided = machine.decide(run, done.commands, completed_id=completed_id, now=shard.now)
        if isinstance(decided.closing, c.ContinueAsNew) and (not new_run_id or new_run_id in shard.runs):
            raise Invalid("bad_command", "A run that continues as new needs a fresh run id.", remedy="Mint one.")
        taken = [task_id for task_id, _ in decided.detached if task_id in shard.tasks] if decided.detached else []
        if taken:
            raise Invalid("bad_command", f"The task {taken[0]} exists already.", remedy="Give each place once.")
        if decided.events:
            require_queues(shard, run.namespace, _queues_of(decided.events))
    except (Invalid, TooLarge) as refusal:
        failure = Failure(kind=FailureKind.SERVER, type="BadCommand", message=refusal.fact)
        _fail(shard, run, cause="bad_command", failure=failure, identity=done.identity, build=done.build)
        return refused_turn(refusal.code, refusal.fact, remedy=refusal.remedy)
    if run.parked and decided.closing is not None and _has_unseen(run, decided.closing):
        # Not a failure of the code: it is shown what it has not seen and may close then.
        _reoffer(shard, run)
        return refused_turn(
            "unhandled_command",
            f"Something arrived for run {run.run_id} that this turn had not seen; the run was not closed.",
            remedy="Take the next turn.",
        )
    reply = _apply(shard, run, done, decided, new_run_id=new_run_id, worker=worker)
    run.last_done = (turn.dispatch, reply)
    if runs.over_limit(shard, run):
        shard.follow_ups.append(RunOverLimit(run.run_id))
    return reply


def _queues_of(events: list[e.Event]) -> set[str]:
    return {event.task_queue for event in events if isinstance(event, _OF_A_QUEUE)}


def _has_unseen(run: Run, closing: machine.ClosingCommand) -> bool:
    kinds = (e.WorkflowExecutionCancelRequested,) if isinstance(closing, c.ContinueAsNew) else UNSEEN
    return any(isinstance(event, kinds) for _, event in run.parked)


def _apply(
    shard: Shard, run: Run, done: WorkflowTaskDone, decided: machine.Decided, *, new_run_id: str, worker: str
) -> WorkflowTaskReply:
    turn, state, now = run.turn, run.state, shard.now
    assert turn is not None
    offers.withdraw(shard, run)
    shard.gather.touch_run(run)
    completed_id = run.record_turn(
        turn,
        now,
        e.WorkflowTaskCompleted(
            scheduled_event_id=turn.scheduled_event_id,
            started_event_id=turn.scheduled_event_id + 1,
            identity=done.identity,
            build=done.build,
            sdk=done.sdk,
            sdk_flags=done.sdk_flags,
        ),
    )
    state.task_attempt = 1
    state.task_failure = None
    state.task_retry_at = 0
    state.places = done.places
    for event in decided.events:
        _carry_out(shard, run, event)
    for task_id, command in decided.detached:
        add_detached(shard, run, task_id, command)
    last_event_id = run.next_event_id - 1
    state.last_event_end = last_event_id
    run.begin_tail()
    run.ready_at = 0
    if decided.closing is not None:
        _close(shard, run, decided.closing, completed_id=completed_id, new_run_id=new_run_id)
        return WorkflowTaskReply(last_event_id=run.next_event_id - 1)
    state.sticky_worker = worker if done.cached else ""
    flushed = flush_parked(shard, run, without_timers=decided.unfire) if run.parked else []
    for scheduled_event_id in decided.cancel:
        _cancel_activity(shard, run, scheduled_event_id)
    if flushed or done.force_new or run.ready_at:
        offers.need(shard, run)
    return WorkflowTaskReply(last_event_id=last_event_id)


def _carry_out(shard: Shard, run: Run, event: e.Event) -> None:
    """Record a command's event and do what must be in the same commit."""
    if isinstance(event, e.ActivityTaskScheduled):
        add_activity(shard, run, run.record(shard.now, event), event)
        return
    if isinstance(event, e.TimerCanceled):
        timer = run.state.timers[event.timer_id]
        timing.drop_timer(shard, runs.user_timer(run, event.timer_id, timer.fire_at))
    run.record(shard.now, event)
    if isinstance(event, e.TimerStarted):
        timing.set_timer(shard, runs.user_timer(run, event.timer_id, event.fire_at))


def _cancel_activity(shard: Shard, run: Run, scheduled_event_id: int) -> None:
    activity = run.state.activities.get(scheduled_event_id)
    if activity is None or activity.task_id in shard.damaged:
        return  # its end was parked and has just been recorded; or nobody can be told
    task = shard.tasks[activity.task_id]
    if not task.closed and not task.status.cancel_requested:
        tasks.request_cancel(shard, task, reason="canceled by its workflow")


def _close(shard: Shard, run: Run, closing: machine.ClosingCommand, *, completed_id: int, new_run_id: str) -> None:
    match closing:
        case c.CompleteWorkflow():
            runs.close(
                shard,
                run,
                e.WorkflowExecutionCompleted(result=closing.result, workflow_task_completed_event_id=completed_id),
            )
        case c.FailWorkflow():
            runs.close(
                shard,
                run,
                e.WorkflowExecutionFailed(failure=closing.failure, workflow_task_completed_event_id=completed_id),
            )
        case c.CancelWorkflow():
            runs.close(
                shard,
                run,
                e.WorkflowExecutionCanceled(details=closing.details, workflow_task_completed_event_id=completed_id),
            )
        case c.ContinueAsNew():
            _continue(shard, run, closing, completed_id=completed_id, new_run_id=new_run_id)
        case _:
            assert_never(closing)


def _continue(shard: Shard, run: Run, closing: c.ContinueAsNew, *, completed_id: int, new_run_id: str) -> None:
    carried: list[e.Event] = [*closing.signals]
    carried += [event for _, event in run.parked if isinstance(event, e.WorkflowExecutionSignaled)]
    event = e.WorkflowExecutionContinuedAsNew(
        new_run_id=new_run_id,
        workflow_type=closing.workflow_type or run.type,
        task_queue=closing.task_queue or run.queue,
        input=closing.input,
        headers=closing.headers if closing.headers is not None else run.fixed.headers,
        run_timeout=closing.run_timeout or run.fixed.run_timeout,
        task_timeout=run.fixed.task_timeout,
        memo=closing.memo if closing.memo is not None else run.fixed.memo,
        search_attributes=(
            closing.search_attributes if closing.search_attributes is not None else run.state.search_attributes
        ),
        workflow_task_completed_event_id=completed_id,
    )
    runs.close(shard, run, event)
    runs.continue_run(shard, run, event, carried)


# --- not done --------------------------------------------------------------------------------------------------------


def _fail_one(shard: Shard, item: WorkflowTaskNotDone, *, namespace: str) -> WorkflowTaskReply:
    found = find_turn(shard, item.token, namespace)
    if isinstance(found, WorkflowTaskReply):
        return found
    turn = found.turn
    assert turn is not None
    _fail(shard, found, cause=item.cause, failure=item.failure, identity=item.identity, build=item.build)
    reply = WorkflowTaskReply(last_event_id=found.next_event_id - 1)
    found.last_done = (turn.dispatch, reply)
    return reply


def _fail(shard: Shard, run: Run, *, cause: str, failure: Failure, identity: str, build: str) -> None:
    """End the turn that is out as failed. Only the first failure in a row is in the history."""
    turn = run.turn
    assert turn is not None
    scheduled = turn.scheduled_event_id
    event = e.WorkflowTaskFailed(
        scheduled_event_id=scheduled,
        started_event_id=scheduled + 1,
        cause=cause,
        failure=failure,
        identity=identity,
        build=build,
    )
    _end_unfinished(shard, run, event, failure)
    backoff = min(shard.config.backoff_first << min(turn.attempt - 1, 20), shard.config.backoff_max)
    backoff = int(backoff * (1.0 - 0.1 * fraction_of("turn", run.run_id, turn.attempt)))
    if cause in BLOCKED_CAUSES:
        backoff = max(backoff, BLOCKED_BACKOFF)
    run.state.task_retry_at = later(shard.now, backoff)
    run.ready_at = run.ready_at or shard.now
    offers.offer(shard, run)


def time_out(shard: Shard, run: Run, *, dispatch: int) -> None:
    """End a turn whose worker was not heard of in time; nothing happens if it was answered."""
    turn = run.turn
    if turn is None or turn.dispatch != dispatch:
        return
    term = turn.deadline - turn.started_at
    end = shard.end_after_stall(turn.deadline, since=turn.started_at, term=term)
    if end > shard.now:
        shard.expire_at(end, "turn", run.run_id, dispatch)
        return
    scheduled = turn.scheduled_event_id
    failure = Failure(
        kind=FailureKind.TIMEOUT,
        type="WorkflowTaskTimeout",
        message=f"Worker {turn.worker} did not answer attempt {turn.attempt} in time.",
    )
    event = e.WorkflowTaskTimedOut(scheduled_event_id=scheduled, started_event_id=scheduled + 1)
    _end_unfinished(shard, run, event, failure)
    run.ready_at = run.ready_at or shard.now
    offers.offer(shard, run)


def _end_unfinished(shard: Shard, run: Run, event: e.Event, failure: Failure) -> None:
    turn = run.turn
    assert turn is not None
    offers.withdraw(shard, run)
    shard.gather.touch_run(run)
    if turn.attempt == 1:
        for at, shown_event in turn.pair:
            run.record(at, shown_event)
        run.record(shard.now, event)
    flush_parked(shard, run)
    run.state.sticky_worker = ""
    run.state.task_attempt = turn.attempt + 1
    run.state.task_failure = failure


def _reoffer(shard: Shard, run: Run) -> None:
    """Take the turn back without counting it, so that the next shows what is parked."""
    offers.withdraw(shard, run)
    flush_parked(shard, run)
    run.ready_at = run.ready_at or shard.now
    run.state.sticky_worker = ""
    offers.offer(shard, run)


def hand_back(shard: Shard, request: ReturnTasks, *, namespace: str) -> None:
    """Take back turns that no worker has begun."""
    for token in request.workflow_tokens:
        found = find_turn(shard, token, namespace)
        if isinstance(found, Run) and found.turn is not None and found.turn.dispatch == token.dispatch:
            _reoffer(shard, found)


def fire(shard: Shard, run: Run, row: TimerRow) -> None:
    """Fire a timer of workflow code, if it still stands."""
    timer_id = row.timer_id.split(runs.USER_TIMER, 1)[1]
    timer = run.state.timers.get(timer_id)
    if not run.open or timer is None or timer.fire_at != row.fire_at:
        return
    if any(isinstance(event, e.TimerFired) and event.timer_id == timer_id for _, event in run.parked):
        return
    append(shard, run, e.TimerFired(timer_id=timer_id, started_event_id=timer.started_event_id))
    offers.need(shard, run)


def tasks_to_cancel(run: Run, commands: tuple[c.Command, ...]) -> list[str]:
    """Return the ids of the tasks that must be in memory before ``commands`` are carried out."""
    closing = any(isinstance(command, c.CLOSING) for command in commands)
    wanted = {command.activity_id for command in commands if isinstance(command, c.RequestCancelActivity)}
    if not closing and not wanted:
        return []
    return [open_.task_id for open_ in run.state.activities.values() if closing or open_.activity_id in wanted]
