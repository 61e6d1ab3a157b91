"""Making tasks: standalone ones for clients and workflow code, and the ones of activities."""

import hashlib
from typing import Final

import msgspec

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import limits
from outlast.core.errors import Conflict
from outlast.core.inputs import EnqueueTask
from outlast.core.payload import told_apart
from outlast.core.replies import TaskEnqueuedReply
from outlast.core.retry import DEFAULT_POLICY
from outlast.core.run import Run
from outlast.core.shard import dedup
from outlast.core.shard.damage import require_whole
from outlast.core.shard.namespaces import require_active
from outlast.core.shard.readiness import add, require_queues
from outlast.core.shard.state import Shard
from outlast.core.shard.why import polled_lately
from outlast.core.task import Task
from outlast.core.units import later, operation_id_of
from outlast.core.writes import TaskSpec, TaskStatus

_encode: Final = msgspec.msgpack.Encoder().encode


def enqueue(shard: Shard, request: EnqueueTask, *, namespace: str, principal: str) -> TaskEnqueuedReply:
    """Make a standalone task, once for its key.

    Raises:
        Conflict: the id is taken, or the key was used for another request.
        NotFound: the namespace is being deleted.
        TooLarge: the namespace has as many queues as it may have.
    """
    fingerprint = request.fingerprint or fingerprint_of(request)
    if request.key:
        row = dedup.find(shard, namespace, dedup.ENQUEUE_SCOPE, request.key)
        if row is not None:
            dedup.same_or_refuse(row, fingerprint)
            return TaskEnqueuedReply(task_id=row.id, replayed=True)
    for known_id in (request.task_id,) if request.key in {"", request.task_id} else (request.key, request.task_id):
        # A task whose id is its key keeps no row for the key: it is looked up by it.
        known = shard.tasks.get(known_id)
        if known is None and shard.damaged:
            require_whole(shard, known_id, what="task")
        if known is not None and (
            known_id == request.task_id or (known.spec.key, known.namespace) == (request.key, namespace)
        ):
            return _known_task(known, request, namespace, fingerprint)
    require_active(shard, namespace)
    require_queues(shard, namespace, {request.queue})
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
    dedup.keep_task(shard, task)
    add(shard, task, delay=request.delay)
    polled = polled_lately(shard, "t", namespace, task.queue, task.type)
    return TaskEnqueuedReply(task_id=task.task_id, polled=polled)


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
    if known.namespace != namespace:
        raise Conflict(
            "task_already_exists",
            f"The id {request.task_id} cannot be had: the ids of tasks are one for all namespaces of a store.",
            remedy="Begin ids with something of your own, such as the namespace's name, or give none: one is made.",
        )
    raise Conflict(
        "task_already_exists",
        f"Task {request.task_id} exists and was made by another request.",
        remedy="Use another id, or none: one is made.",
    )


def _spec_of(shard: Shard, request: EnqueueTask, namespace: str, fingerprint: str) -> TaskSpec:
    due = later(shard.now, request.delay) if request.delay else shard.now
    start_to_close = request.start_to_close
    if not start_to_close and not request.schedule_to_close:
        start_to_close = limits.START_TO_CLOSE
    return TaskSpec(
        input=request.input,
        headers=request.headers,
        retry=request.retry or DEFAULT_POLICY,
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
        delay=request.delay,
    )


def fingerprint_of(request: EnqueueTask) -> str:
    """Return what tells one enqueue from another under the same key: type, queue, input and delay."""
    asked = (request.type, request.queue, told_apart(request.input), request.delay)
    return hashlib.blake2b(_encode(asked), digest_size=12).hexdigest()


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
