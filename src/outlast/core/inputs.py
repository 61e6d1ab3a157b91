"""The catalogue of inputs: requests of clients and workers. The replies to them are in ``outlast.core.replies``.

They are what crosses the wire as well (``outlast.protocol`` adds the envelope and the error table), so a field is only
ever appended, with a default. Spans and instants are integer nanoseconds. The namespace and the principal are never in
here: they come from the authenticated context, beside the input.
"""

from enum import StrEnum

import msgspec

from outlast.core.admin import AdminRequest, Housekeeping
from outlast.core.commands import Command
from outlast.core.events import Headers
from outlast.core.failure import Failure
from outlast.core.payload import Payload, Payloads
from outlast.core.retry import RetryPolicy


class IfOpen(StrEnum):
    """What a start does when a run with its workflow id is open."""

    FAIL = "fail"
    RETURN_EXISTING = "return_existing"
    TERMINATE = "terminate"


class IfClosed(StrEnum):
    """What a start does when the last run with its workflow id has closed."""

    ALLOW = "allow"
    ALLOW_IF_FAILED = "allow_if_failed"
    REJECT = "reject"


# --- requests of clients -------------------------------------------------------------------------------------------


class StartWorkflow(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="start_workflow", tag_field="kind", kw_only=True
):
    """``run_id`` is minted outside (UUIDv7); an empty ``workflow_id`` means: made from ``request_id``."""

    type: str
    queue: str
    run_id: str
    request_id: str
    workflow_id: str = ""
    input: Payloads = ()
    headers: Headers | None = None
    if_open: IfOpen = IfOpen.FAIL
    if_closed: IfClosed = IfClosed.ALLOW
    run_timeout: int = 0
    task_timeout: int = 0
    delay: int = 0
    memo: dict[str, Payload] | None = None
    search_attributes: dict[str, Payload] | None = None
    tags: dict[str, str] | None = None
    identity: str = ""
    build: str = ""
    fingerprint: str = ""  # of what was asked for; made by the core when empty
    keyed: bool = False  # request_id is the caller's key: it stands for one request, whatever workflow id that names


class StartWorkflows(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="start_workflows", tag_field="kind", kw_only=True
):
    """Up to BATCH_ITEMS_MAX starts; each has its own outcome."""

    items: tuple[StartWorkflow, ...]


class SignalWorkflow(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="signal_workflow", tag_field="kind", kw_only=True
):
    workflow_id: str
    name: str
    request_id: str
    run_id: str = ""
    input: Payloads = ()
    headers: Headers | None = None
    identity: str = ""


class CancelWorkflow(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel_workflow", tag_field="kind", kw_only=True
):
    workflow_id: str
    request_id: str
    run_id: str = ""
    reason: str = ""
    identity: str = ""


class TerminateWorkflow(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="terminate_workflow", tag_field="kind", kw_only=True
):
    workflow_id: str
    request_id: str
    run_id: str = ""
    reason: str = ""
    identity: str = ""


class DescribeWorkflow(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="describe_workflow", tag_field="kind", kw_only=True
):
    """Without ``run_id``: the run that the start with ``start_request_id`` began or found open; without both the latest."""

    workflow_id: str
    run_id: str = ""
    start_request_id: str = ""


class AwaitWorkflow(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="await_workflow", tag_field="kind", kw_only=True
):
    """Answered when the run has closed. With ``follow``, a run that continued as new hands the caller on to the next."""

    workflow_id: str
    run_id: str = ""
    follow: bool = True


class QueryWorkflow(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="query_workflow", tag_field="kind", kw_only=True
):
    """Ask the code of a run; it changes nothing and is in no history. ``wait`` bounds how long it is held, 0: QUERY_WAIT."""

    workflow_id: str
    name: str
    run_id: str = ""
    input: Payloads = ()
    headers: Headers | None = None
    identity: str = ""
    wait: int = 0


class EnqueueTask(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="enqueue_task", tag_field="kind", kw_only=True
):
    """``task_id`` is minted outside (UUIDv7); ``key`` is the idempotency key, which the SDK always mints."""

    task_id: str
    type: str
    queue: str
    key: str = ""
    input: Payloads = ()
    headers: Headers | None = None
    retry: RetryPolicy | None = None
    delay: int = 0
    start_to_close: int = 0
    schedule_to_start: int = 0
    schedule_to_close: int = 0
    heartbeat: int = 0
    priority: int = 3
    fairness_key: str = ""
    tags: dict[str, str] | None = None
    identity: str = ""
    build: str = ""
    fingerprint: str = ""


class EnqueueTasks(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="enqueue_tasks", tag_field="kind", kw_only=True
):
    items: tuple[EnqueueTask, ...]


class CancelTask(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel_task", tag_field="kind", kw_only=True
):
    task_id: str
    reason: str = ""
    identity: str = ""


class RetryTasks(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="retry_tasks", tag_field="kind", kw_only=True
):
    """Bring up to BATCH_ITEMS_MAX tasks back that ended without success; each has its own outcome.

    The same ``request_id`` brings a task back once, whatever becomes of it meanwhile. With a ``fingerprint`` it stands for
    this request alone: with another one it is refused as a whole, and a repeat brings back nothing that the first left.
    """

    task_ids: tuple[str, ...]
    request_id: str
    reason: str = ""
    identity: str = ""
    fingerprint: str = ""  # of what was asked for; none where parts of one request share its id


class DescribeTask(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="describe_task", tag_field="kind", kw_only=True
):
    task_id: str


class AwaitTask(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="await_task", tag_field="kind", kw_only=True
):
    task_id: str


# --- requests of workers -------------------------------------------------------------------------------------------


class Poll(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="poll", tag_field="kind", kw_only=True):
    """Ask for work. Asking again with the same ``poll_id`` gives the same leases (ARCHITECTURE §8).

    ``slots`` and ``workflow_slots`` say how much fits; ``wait`` is how long the request may be held when there is nothing.
    """

    poll_id: str
    worker: str  # one process of a worker, unique
    queues: tuple[str, ...]
    task_types: tuple[str, ...] = ()
    workflow_types: tuple[str, ...] = ()
    slots: int = 0
    workflow_slots: int = 0
    wait: int = 0
    identity: str = ""
    build: str = ""


class Begin(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="begin", tag_field="kind", kw_only=True):
    """Say that handlers are about to run. Needed, and acknowledged first, where ``TaskLease.begin_needed``."""

    tokens: "tuple[TaskToken, ...]"
    worker: str


class HeartbeatItem(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """``details`` is what the next attempt sees; ``progress`` says that user code, not just the runner, gave a sign."""

    token: "TaskToken"
    details: Payload | None = None
    progress: bool = False


class Heartbeat(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="heartbeat", tag_field="kind", kw_only=True
):
    items: tuple[HeartbeatItem, ...]
    worker: str


class TaskSucceeded(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="succeeded", tag_field="kind", kw_only=True
):
    result: Payloads = ()


class TaskFailed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="failed", tag_field="kind", kw_only=True):
    failure: Failure


class TaskCanceled(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="canceled", tag_field="kind", kw_only=True
):
    """The handler stopped because it was asked to. Without a cancel request it counts as a failure."""

    details: Payloads = ()


TaskOutcome = TaskSucceeded | TaskFailed | TaskCanceled


class Completion(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    token: "TaskToken"
    outcome: TaskOutcome
    details: Payload | None = None  # last heartbeat details, stored before the outcome is looked at


class CompleteTasks(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="complete_tasks", tag_field="kind", kw_only=True
):
    items: tuple[Completion, ...]
    worker: str
    identity: str = ""


class ReturnTasks(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="return_tasks", tag_field="kind", kw_only=True
):
    """Hand back leases whose handlers never started: the attempts do not count."""

    tokens: "tuple[TaskToken, ...]"
    workflow_tokens: "tuple[WorkflowToken, ...]" = ()
    worker: str


class WorkflowTaskDone(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """``cached``: the worker keeps the run in memory and wants its next turn (sticky)."""

    token: "WorkflowToken"
    commands: tuple[Command, ...] = ()
    cached: bool = False
    identity: str = ""
    build: str = ""
    sdk: str = ""
    sdk_flags: tuple[int, ...] = ()
    places: dict[str, str] | None = None
    force_new: bool = False  # another turn at once (local work goes on)


class WorkflowTaskNotDone(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    token: "WorkflowToken"
    cause: str
    failure: Failure
    identity: str = ""
    build: str = ""


class CompleteWorkflowTasks(
    msgspec.Struct,
    frozen=True,
    array_like=True,
    gc=False,
    tag="complete_workflow_tasks",
    tag_field="kind",
    kw_only=True,
):
    """``new_run_ids``: one fresh id per item of ``done``, minted outside, used if it continues as new."""

    worker: str
    done: tuple[WorkflowTaskDone, ...] = ()
    not_done: tuple[WorkflowTaskNotDone, ...] = ()
    new_run_ids: tuple[str, ...] = ()


class QueryAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """What the code said, or why it could not: ``failure``."""

    token: "QueryToken"
    result: Payloads = ()
    failure: Failure | None = None


class AnswerQueries(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answer_queries", tag_field="kind", kw_only=True
):
    worker: str
    items: tuple[QueryAnswer, ...]


class StopWorker(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="stop_worker", tag_field="kind", kw_only=True
):
    """The worker takes nothing more: its waiting polls are answered empty, its runs are no longer sticky."""

    worker: str


Request = (
    StartWorkflow
    | StartWorkflows
    | SignalWorkflow
    | CancelWorkflow
    | TerminateWorkflow
    | DescribeWorkflow
    | AwaitWorkflow
    | EnqueueTask
    | EnqueueTasks
    | CancelTask
    | DescribeTask
    | AwaitTask
    | Poll
    | Begin
    | Heartbeat
    | CompleteTasks
    | ReturnTasks
    | CompleteWorkflowTasks
    | StopWorker
    | QueryWorkflow
    | AnswerQueries
    | AdminRequest
    | RetryTasks
)
ShardRequest = Request | Housekeeping  # what a shard takes: requests, and what the engine itself asks of it


# --- tokens --------------------------------------------------------------------------------------------------------


class TaskToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Proof of a task lease. ``lease`` grows with every lease of the task, counted attempt or not."""

    task_id: str
    lease: int


class WorkflowToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Proof of a workflow task: (incarnation, epoch, dispatch number) of the owner that gave it out (ARCHITECTURE §6)."""

    run_id: str
    incarnation: int
    epoch: int
    dispatch: int


class QueryToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which open query is meant: ``number`` counts the queries of one owner."""

    run_id: str
    incarnation: int
    epoch: int
    number: int
