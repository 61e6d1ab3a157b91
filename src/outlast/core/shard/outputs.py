"""What a shard core asks of the shell around it."""

import msgspec

from outlast.core.events import Timed, WorkflowTaskScheduled, WorkflowTaskStarted
from outlast.core.replies import Reply, WorkflowTask
from outlast.core.writes import Load


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Give ``reply`` to the caller behind ``ticket``, now: what it tells of is committed."""

    ticket: object
    reply: Reply


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Read ``load`` from the store and hand the page to ``loaded`` with this id."""

    load_id: int
    load: Load


class StepDown(msgspec.Struct, frozen=True, gc=False):
    """Drop this core: it must not go on. Claim the shard again and make a new one."""

    reason: str


Output = Answer | Ask | StepDown


def turn_pair(
    queue: str, *, timeout: int, attempt: int, scheduled_event_id: int, identity: str, suggest_continue_as_new: bool
) -> tuple[WorkflowTaskScheduled, WorkflowTaskStarted]:
    """Return the two events that begin a turn: what its worker is shown, and what is recorded when it ends."""
    scheduled = WorkflowTaskScheduled(task_queue=queue, start_to_close_timeout=timeout, attempt=attempt)
    started = WorkflowTaskStarted(
        scheduled_event_id=scheduled_event_id, identity=identity, suggest_continue_as_new=suggest_continue_as_new
    )
    return scheduled, started


def shown_pair(task: WorkflowTask) -> tuple[Timed, Timed]:
    """Return the pair that ends what a worker is shown. It is in no history until the turn completes."""
    scheduled, started = turn_pair(
        task.queue,
        timeout=task.timeout,
        attempt=task.attempt,
        scheduled_event_id=task.started_event_id - 1,
        identity=task.identity,
        suggest_continue_as_new=task.suggest_continue_as_new,
    )
    return (task.started_at, scheduled), (task.started_at, started)


def with_events(task: WorkflowTask, history: tuple[Timed, ...], *, next_event_id_to_read: int = 0) -> WorkflowTask:
    """Return ``task`` with ``history`` (from its first event on) and the shown pair.

    The pair comes with a first page too: it is in no page that is read later.
    """
    events = (*history, *shown_pair(task))
    return msgspec.structs.replace(task, events=events, next_event_id_to_read=next_event_id_to_read)
