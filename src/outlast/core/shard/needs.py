"""Which entities an input needs in memory before it can be applied.

Asked again after each load: what is read first may show what else is needed (a task, then the run it belongs to).
"""

from collections.abc import Callable
from typing import Any, Final

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import limits
from outlast.core.admin import (
    CreateNamespace,
    DeleteNamespace,
    DescribeWorkers,
    DropNamespace,
    Forget,
    UpdateNamespace,
)
from outlast.core.machines.turn import detached_id
from outlast.core.run import Run
from outlast.core.shard import dedup
from outlast.core.shard.admitted import Admitted, LeaseEnded, RunOverLimit, TimerDue
from outlast.core.shard.freshness import is_fresh, rank_of
from outlast.core.shard.runs import MADE_ID, end_of_chain, workflow_id_of
from outlast.core.shard.state import Shard
from outlast.core.shard.turns import tasks_to_cancel
from outlast.core.writes import TimerKind

Key = tuple[str, ...]  # ("workflow", namespace, id) | ("run", id) | ("task", id) | ("dedup", namespace, scope, key)

_RUN_TIMERS = frozenset({TimerKind.RUN_TIMER, TimerKind.RUN_TIMEOUT, TimerKind.RUN_BACKOFF})


# Commands for which nothing must be read, whatever the run.
_SELF_CONTAINED = frozenset({c.ScheduleActivity, c.StartTimer, c.CancelTimer, c.RecordMarker, c.UpsertSearchAttributes})
_ENDING = frozenset({c.CompleteWorkflow, c.FailWorkflow, c.CancelWorkflow})


def are_surely_met(shard: Shard, admitted: Admitted) -> bool:
    """Return whether a quick look shows that nothing must be read for ``admitted``; False says nothing."""
    quick = _QUICK.get(type(admitted.input))
    return quick is not None and quick(shard, admitted.input)


def known(shard: Shard, key: Key) -> bool:
    """Return whether memory has what ``key`` names, or knows that it is nowhere."""
    kind = key[0]
    if kind == "task":
        there = key[1] in shard.tasks or is_fresh(shard, key[1]) or key[1] in shard.damaged
    elif kind == "run":
        there = key[1] in shard.runs or is_fresh(shard, key[1]) or key[1] in shard.damaged
    elif kind == "workflow":
        there = (key[1], key[2]) in shard.latest or is_fresh(shard, key[2].removeprefix(MADE_ID))
        there = there or (key[1], key[2]) in shard.damaged_names
    else:
        there = (key[1], key[2], key[3]) in shard.dedup or is_fresh(shard, key[3])
    return there or key in shard.absent


# --- the ordinary cases, seen at once: nothing needs to be read ------------------------------------------------------


def _start_is_new(shard: Shard, request: i.StartWorkflow) -> bool:
    return not request.workflow_id and is_fresh(shard, request.run_id) and is_fresh(shard, request.request_id)


def _starts_are_new(shard: Shard, request: i.StartWorkflows) -> bool:
    return all(_start_is_new(shard, item) for item in request.items)


def _task_is_new(shard: Shard, request: i.EnqueueTask) -> bool:
    return request.key in {"", request.task_id} and is_fresh(shard, request.task_id)


def _tasks_are_new(shard: Shard, request: i.EnqueueTasks) -> bool:
    return all(_task_is_new(shard, item) for item in request.items)


def _leases_are_here(shard: Shard, request: i.CompleteTasks) -> bool:
    all_tasks, all_runs = shard.tasks, shard.runs
    for item in request.items:
        task = all_tasks.get(item.token.task_id)
        if task is None or (task.run_id and task.run_id not in all_runs):
            return False
    return True


def _turns_are_here(shard: Shard, request: i.CompleteWorkflowTasks) -> bool:
    for item in request.done:
        for command in item.commands:
            kind = type(command)
            if kind in _SELF_CONTAINED:
                continue
            run = shard.runs.get(item.token.run_id)
            if kind not in _ENDING or run is None or run.state.activities:
                return False
    return True


def _run_is_here(shard: Shard, request: i.AwaitWorkflow) -> bool:
    run = shard.runs.get(request.run_id)
    return run is not None and (run.outcome is None or not run.outcome.new_run_id or not request.follow)


_QUICK: Final[dict[type, Callable[[Shard, Any], bool]]] = {
    i.AwaitWorkflow: _run_is_here,
    i.StartWorkflow: _start_is_new,
    i.StartWorkflows: _starts_are_new,
    i.EnqueueTask: _task_is_new,
    i.EnqueueTasks: _tasks_are_new,
    i.CompleteTasks: _leases_are_here,
    i.CompleteWorkflowTasks: _turns_are_here,
    i.AwaitTask: lambda shard, request: request.task_id in shard.tasks,
}


# --- all cases -------------------------------------------------------------------------------------------------------


def of(shard: Shard, admitted: Admitted) -> list[Key]:
    """Return the keys of what ``admitted`` needs, as far as that can be said now."""
    namespace = admitted.namespace
    match admitted.input:
        case i.AwaitWorkflow() as request:  # first, as it comes most often
            return _of_await(shard, namespace, request)
        case i.StartWorkflow() as request:
            return _of_start(shard, namespace, request)
        case i.StartWorkflows() as request:
            return [key for item in request.items for key in _of_start(shard, namespace, item)]
        case i.EnqueueTask() as request:
            return _of_enqueue(namespace, request)
        case i.EnqueueTasks() as request:
            return [key for item in request.items for key in _of_enqueue(namespace, item)]
        case i.SignalWorkflow() as request:
            scope = f"signal/{request.workflow_id}"
            return [_run_key(namespace, request), ("dedup", namespace, scope, request.request_id)]
        case i.CancelWorkflow() | i.QueryWorkflow() as request:
            return [_run_key(namespace, request)]
        case i.DescribeWorkflow() as request if request.start_request_id and not request.run_id:
            return _of_start_asked_for(shard, namespace, request)
        case i.TerminateWorkflow() | i.DescribeWorkflow() as request:
            key = _run_key(namespace, request)
            run = _named(shard, namespace, request)
            most = None if isinstance(request, i.TerminateWorkflow) else limits.DESCRIBED_MAX
            return [key, *(_open_tasks(run, most) if run is not None else ())]
        case i.CancelTask() | i.DescribeTask() | i.AwaitTask() as request:
            return [("task", request.task_id)]
        case i.RetryTasks() as request:
            return _of_retry(shard, namespace, request)
        case i.Begin() as request:
            return [("task", token.task_id) for token in request.tokens]
        case i.ReturnTasks() as request:
            return [key for token in request.tokens for key in _task_and_run(shard, token.task_id)]
        case i.Heartbeat() as request:
            return [("task", item.token.task_id) for item in request.items]
        case i.CompleteTasks() as request:
            return [key for item in request.items for key in _task_and_run(shard, item.token.task_id)]
        case i.CompleteWorkflowTasks() as request:
            return _of_turns(shard, request)
        case i.Poll() | i.StopWorker() | i.AnswerQueries():
            return []
        case Forget() as found:
            return [*(("run", id_) for id_ in found.runs), *(("task", id_) for id_ in found.tasks)]
        case CreateNamespace() | UpdateNamespace() | DeleteNamespace() | DropNamespace() | DescribeWorkers():
            return []
        case LeaseEnded() as ended:
            return _task_and_run(shard, ended.task_id)
        case RunOverLimit() as over:
            run = shard.runs.get(over.run_id)
            return [("run", over.run_id), *(_open_tasks(run, None) if run is not None else ())]
        case TimerDue() as due:
            return _of_timer(shard, due)


def _of_start(shard: Shard, namespace: str, request: i.StartWorkflow) -> list[Key]:
    workflow_id = workflow_id_of(request)
    keys: list[Key] = [("workflow", namespace, workflow_id), ("run", request.run_id)]
    if request.workflow_id:
        keys.append(("dedup", namespace, dedup.start_scope(workflow_id), request.request_id))
    if request.keyed:
        keys.append(("dedup", namespace, dedup.KEYED_STARTS, request.request_id))
    if request.if_open is i.IfOpen.TERMINATE:
        known = shard.latest.get((namespace, workflow_id))
        if known is not None:
            keys += _open_tasks(shard.runs[known], None)
    return keys


def _of_start_asked_for(shard: Shard, namespace: str, request: i.DescribeWorkflow) -> list[Key]:
    workflow_id, key = request.workflow_id, request.start_request_id
    keys: list[Key] = [("workflow", namespace, workflow_id), ("dedup", namespace, dedup.start_scope(workflow_id), key)]
    latest = shard.runs.get(shard.latest.get((namespace, workflow_id), ""))
    run_id = dedup.run_of_start(shard, namespace, workflow_id, key, known=latest)
    if run_id:
        keys.append(("run", run_id))
        run = shard.runs.get(run_id)
        keys += _open_tasks(run, limits.DESCRIBED_MAX) if run is not None else ()
    return keys


def _of_enqueue(namespace: str, request: i.EnqueueTask) -> list[Key]:
    key, name = request.key, request.task_id
    if not key or (key == name and rank_of(key)):  # an id that was minted is nobody else's key
        return [("task", name)]
    row: Key = ("dedup", namespace, dedup.ENQUEUE_SCOPE, key)
    return [("task", name), row] if key == name else [("task", name), ("task", key), row]


def _of_retry(shard: Shard, namespace: str, request: i.RetryTasks) -> list[Key]:
    keys: list[Key] = [("dedup", namespace, dedup.RETRIES, request.request_id)] if request.fingerprint else []
    for task_id in request.task_ids:
        keys += [("task", task_id), ("dedup", namespace, dedup.retry_scope(task_id), request.request_id)]
        task = shard.tasks.get(task_id)
        if task is not None and task.spec.key and task.spec.key != task_id:
            keys.append(("dedup", namespace, dedup.ENQUEUE_SCOPE, task.spec.key))
    return keys


def _run_key(
    namespace: str,
    request: i.SignalWorkflow
    | i.CancelWorkflow
    | i.TerminateWorkflow
    | i.DescribeWorkflow
    | i.AwaitWorkflow
    | i.QueryWorkflow,
) -> Key:
    return ("run", request.run_id) if request.run_id else ("workflow", namespace, request.workflow_id)


def _named(
    shard: Shard, namespace: str, request: i.TerminateWorkflow | i.DescribeWorkflow | i.AwaitWorkflow
) -> Run | None:
    run_id = request.run_id or shard.latest.get((namespace, request.workflow_id), "")
    return shard.runs.get(run_id)


def _of_await(shard: Shard, namespace: str, request: i.AwaitWorkflow) -> list[Key]:
    keys = [_run_key(namespace, request)]
    run = _named(shard, namespace, request)
    if run is not None and request.follow and run.outcome is not None and run.outcome.new_run_id:
        keys.append(("workflow", namespace, run.workflow_id))
        last = end_of_chain(shard, run)
        if last.outcome is not None and last.outcome.new_run_id:
            keys.append(("run", last.outcome.new_run_id))
    return keys


def _open_tasks(run: Run, most: int | None) -> list[Key]:
    if not run.open:
        return []
    return [("task", open_.task_id) for open_ in list(run.state.activities.values())[:most]]


def _task_and_run(shard: Shard, task_id: str) -> list[Key]:
    task = shard.tasks.get(task_id)
    if task is None or not task.run_id:
        return [("task", task_id)]
    return [("task", task_id), ("run", task.run_id)]


def _of_turns(shard: Shard, request: i.CompleteWorkflowTasks) -> list[Key]:
    keys: list[Key] = []
    for item in request.done:
        run = shard.runs.get(item.token.run_id)
        if run is not None and run.turn is not None:
            keys += [("task", task_id) for task_id in tasks_to_cancel(run, item.commands)]
            keys += [
                ("task", detached_id(run, command.place))
                for command in item.commands
                if isinstance(command, c.EnqueueDetached)
            ]
    if any(isinstance(command, c.ContinueAsNew) for item in request.done for command in item.commands):
        keys += [("run", run_id) for run_id in request.new_run_ids if run_id]
    return keys


def _of_timer(shard: Shard, due: TimerDue) -> list[Key]:
    if due.kind not in _RUN_TIMERS:
        return _task_and_run(shard, due.target)
    run = shard.runs.get(due.target)
    if run is not None and due.kind == TimerKind.RUN_TIMEOUT:
        return [("run", due.target), *_open_tasks(run, None)]
    return [("run", due.target)]
