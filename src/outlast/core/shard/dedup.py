"""Request dedup: the same request id gives the same answer, within its window.

A start whose workflow id is made from its key needs no row of its own, nor does an enqueue whose task id is its key: the
entity itself remembers. Rows are for the others, and go by whole periods.
"""

from typing import Final, NamedTuple

from outlast.core.errors import Conflict, NotFound
from outlast.core.inputs import StartWorkflow
from outlast.core.replies import RunStatus
from outlast.core.run import Run
from outlast.core.shard.freshness import note
from outlast.core.shard.state import Shard
from outlast.core.task import Task
from outlast.core.units import FOREVER
from outlast.core.writes import DedupRow

ENQUEUE_SCOPE: Final = "enqueue"
RETURNED: Final = "returned:"  # begins the stored fingerprint of a start that was given a run that was open already


def find(shard: Shard, namespace: str, scope: str, key: str) -> DedupRow | None:
    """Return what ``key`` has made. It has been loaded, or is known to be absent, before an input gets here."""
    row, _ = shard.dedup.get((namespace, scope, key), (None, 0))
    return row if row is not None and row.expires_at > shard.now else None


def keep(
    shard: Shard, namespace: str, scope: str, key: str, *, id: str, fingerprint: str, while_open: bool = False
) -> None:
    """Remember what ``key`` has made, in the commit that makes it: for a window, or until another ``keep`` ends it."""
    window = shard.config.idempotency_window
    expires_at = FOREVER if while_open else shard.now + window
    row = DedupRow(namespace, scope, key, id, fingerprint, expires_at, expires_at // window + 1)
    shard.gather.dedup[namespace, scope, key] = row
    note(shard, key)
    shard.dedup.pop((namespace, scope, key), None)
    shard.dedup[namespace, scope, key] = (row, shard.gather.number)
    shard.absent.pop(("dedup", namespace, scope, key), None)


def keep_task(shard: Shard, task: Task) -> None:
    """Remember a task's key for as long as the task is open and a window beyond, unless the task itself is found by it."""
    key, name = task.spec.key, task.task_id
    if not key or key == name or task.status.key_lost:
        return
    known, _ = shard.dedup.get((task.namespace, ENQUEUE_SCOPE, key), (None, 0))
    if task.closed and known is not None and known.id != name:
        return  # its own row had run out, and the key is another task's now
    fingerprint = task.spec.fingerprint
    keep(shard, task.namespace, ENQUEUE_SCOPE, key, id=name, fingerprint=fingerprint, while_open=not task.closed)


def take_key_back(shard: Shard, task: Task) -> None:
    """Have the key of a task that was brought back stand for it again, unless it made another task meanwhile.

    Then that one keeps it: a key stands for one task at a time, and the younger one was promised last.
    """
    key = task.spec.key
    if key and key != task.task_id:
        known = find(shard, task.namespace, ENQUEUE_SCOPE, key)
        task.status.key_lost = known is not None and known.id != task.task_id
        keep_task(shard, task)


RETRIES: Final = "retry"  # the scope of keys that stand for one request to bring tasks back


def retry_scope(task_id: str) -> str:
    """Return the scope of requests to bring a task back."""
    return f"retry/{task_id}"


def same_or_refuse(known: DedupRow, fingerprint: str) -> None:
    """Refuse a key that was used for another request.

    Raises:
        Conflict: code "idempotency_key_reused".
    """
    if known.fingerprint != fingerprint:
        raise Conflict(
            "idempotency_key_reused",
            f"Key {known.key} {'brought back' if known.scope == RETRIES else 'made'} {known.id} with another request.",
            remedy="Use a new key for a new request.",
            id=known.id,
        )


KEYED_STARTS = "start"  # the scope of keys that stand for one start, whatever its workflow id


def start_scope(workflow_id: str) -> str:
    """Return the scope of starts of one workflow id."""
    return f"start/{workflow_id}"


class Started(NamedTuple):
    """What a start came to before. ``made``: it began the run; else the run was open already and was returned."""

    run_id: str
    fingerprint: str
    made: bool


def find_start(
    shard: Shard, namespace: str, workflow_id: str, request: StartWorkflow, *, known: Run | None
) -> Started | None:
    """Return what this start came to before, if it did. The runs of a chain all remember the start that made the first."""
    if known is not None and known.fixed.start_request_id == request.request_id:
        return Started(known.first_run_id, known.fixed.start_fingerprint, made=True)
    if not request.workflow_id:
        return None  # the id is made from the key: the run itself would be known
    row = find(shard, namespace, start_scope(workflow_id), request.request_id)
    if row is None:
        return None
    return Started(row.id, row.fingerprint.removeprefix(RETURNED), made=not row.fingerprint.startswith(RETURNED))


def run_of_start(shard: Shard, namespace: str, workflow_id: str, request_id: str, *, known: Run | None) -> str:
    """Return the id of the first run of the chain that a start began or found open, "" when no such start is known."""
    if known is not None and known.fixed.start_request_id == request_id:
        return known.first_run_id
    row = find(shard, namespace, start_scope(workflow_id), request_id)
    return "" if row is None else row.id


def require_start(shard: Shard, namespace: str, workflow_id: str, request_id: str, *, known: Run | None) -> str:
    """As ``run_of_start``. Raises NotFound when no such start is known."""
    run_id = run_of_start(shard, namespace, workflow_id, request_id, known=known)
    if not run_id:
        raise NotFound(
            "workflow_not_found",
            f"No start {request_id} of workflow {workflow_id} is known in namespace {namespace}.",
            remedy="Look at the id and the namespace; a start is known for 24 hours after its run has ended.",
            workflow_id=workflow_id,
        )
    return run_id


def keep_start(shard: Shard, namespace: str, workflow_id: str, request: StartWorkflow, started: Started) -> None:
    """Remember what a start came to, unless the run itself does."""
    if request.workflow_id:
        fingerprint = started.fingerprint if started.made else RETURNED + started.fingerprint
        scope = start_scope(workflow_id)
        keep(shard, namespace, scope, request.request_id, id=started.run_id, fingerprint=fingerprint)
    if request.keyed:
        keep(shard, namespace, KEYED_STARTS, request.request_id, id=workflow_id, fingerprint=started.fingerprint)


def check_keyed_start(shard: Shard, namespace: str, request: StartWorkflow, *, fingerprint: str) -> None:
    """Refuse a key that stood for another start, of this workflow id or another one.

    Raises:
        Conflict: code "idempotency_key_reused".
    """
    known = find(shard, namespace, KEYED_STARTS, request.request_id) if request.keyed else None
    if known is not None:
        same_or_refuse(known, fingerprint)


def prolong_start(shard: Shard, run: Run) -> None:
    """Keep the key of a chain that took long: it lives for a window after the last run has closed."""
    key = run.fixed.start_request_id
    if not key or run.status is RunStatus.CONTINUED_AS_NEW:
        return  # the next run remembers it
    if run.fixed.previous_run_id or shard.now - run.started_at > shard.config.idempotency_window // 2:
        scope = start_scope(run.workflow_id)
        keep(shard, run.namespace, scope, key, id=run.first_run_id, fingerprint=run.fixed.start_fingerprint)
