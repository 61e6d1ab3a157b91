"""What REST gives: the shapes of answers. Fields are only ever added; enums may grow."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from outlast.core.admin import NamespaceState
from outlast.core.replies import RunStatus, TaskState

When = Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None
Results = Annotated[
    tuple[Any, ...],
    Meta(
        description=(
            "JSON values. One that is no JSON stands as its encoding and its data in base64; one that is coded, as for a "
            "server without the key, also with codecs, key and why; one that is kept apart with size and blob, its hash."
        )
    ),
]
Schemas = Annotated[
    dict[str, str], Meta(description="Hashes of the schemas that values were written with, by place, such as input[0].")
]
Short = Annotated[bool, Meta(description="The page ended before it was full for what it costs; `next` goes on.")]
Next = Annotated[str, Meta(description="The cursor of the next page; empty at the end.")]


class FailureOut(msgspec.Struct, kw_only=True, frozen=True):
    kind: str
    type: str
    message: str
    trace: str
    final: bool
    remedy: Annotated[str, Meta(description="What to do about it, where the SDK that raised it says so.")]
    cause: "FailureOut | None"


class ActivityOut(msgspec.Struct, kw_only=True, frozen=True):
    """An open activity of a run."""

    activity_id: str
    task_id: str
    type: str
    queue: str
    state: TaskState
    reason: str
    attempt: int
    attempts_max: int
    run_at: When
    worker: str
    last_failure: FailureOut | None


class TimerOut(msgspec.Struct, kw_only=True, frozen=True):
    timer_id: str
    fire_at: When
    summary: str


class TurnOut(msgspec.Struct, kw_only=True, frozen=True):
    """The workflow task: "" for none is needed, "ready", "started", or "backoff" after one that failed."""

    state: str
    attempt: int
    failure: FailureOut | None


class WorkflowRow(msgspec.Struct, kw_only=True, frozen=True):
    """A run in a list: without what may be large."""

    id: str
    run_id: str
    first_run_id: str
    type: str
    queue: str
    status: RunStatus
    build: str
    started_at: When
    closed_at: When
    events: int
    tags: dict[str, str]
    error: Annotated[str, Meta(description="The first line of what it failed with.")]


class WorkflowOut(msgspec.Struct, kw_only=True, frozen=True):
    """A run, and what it waits for. ``warning`` says what will go wrong with it unless something is done, "" for nothing."""

    id: str
    run_id: str
    first_run_id: str
    namespace: str
    type: str
    queue: str
    status: RunStatus
    build: str
    started_at: When
    closed_at: When
    events: int
    history_bytes: int
    cancel_requested: bool
    why: str
    why_at: When
    activities: tuple[ActivityOut, ...]
    timers: tuple[TimerOut, ...]
    tags: dict[str, str]
    result: Results
    failure: FailureOut | None
    workflow_task: TurnOut
    published: dict[str, Any]
    warning: str
    schemas: Schemas


class WorkflowPage(msgspec.Struct, kw_only=True, frozen=True):
    items: tuple[WorkflowRow, ...]
    next: Next
    short: Short


class StartedOut(msgspec.Struct, kw_only=True, frozen=True):
    """``started`` is false when an open run with this id was there and is returned."""

    id: str
    run_id: str
    started: bool


class AcceptedOut(msgspec.Struct, kw_only=True, frozen=True):
    """It is recorded. ``changed`` is false when there was nothing to do."""

    changed: bool


class OutcomeOut(msgspec.Struct, kw_only=True, frozen=True):
    """How a run ended; ``new_run_id`` when another run of the chain follows."""

    id: str
    run_id: str
    status: RunStatus
    result: Results
    failure: FailureOut | None
    new_run_id: str


class AnsweredOut(msgspec.Struct, kw_only=True, frozen=True):
    """What the run's code said."""

    id: str
    result: Results


class OpenOut(msgspec.Struct, kw_only=True, frozen=True):
    """It has not ended yet: ask again."""

    id: str
    state: Annotated[str, Meta(examples=["open"])]
    status: Annotated[
        RunStatus | msgspec.UnsetType,
        Meta(description="Of a workflow, as all answers about workflows have it.", examples=["running"]),
    ] = msgspec.UNSET


class EventOut(msgspec.Struct, kw_only=True, frozen=True):
    """A fact of a run. What the fields are depends on the kind; the reference of events lists them."""

    event_id: int
    at: When
    kind: str
    fields: dict[str, Any]
    schemas: Schemas


class HistoryOut(msgspec.Struct, kw_only=True, frozen=True):
    """Events in order. ``last`` is what to ask for as ``after`` next; ``more``: there are further ones already."""

    id: str
    run_id: str
    events: tuple[EventOut, ...]
    last: int
    more: bool
    closed: bool


class FeedEventOut(msgspec.Struct, kw_only=True, frozen=True):
    """One committed event: of a history, with the fields that it has there, or of a task.

    ``commit`` grows with each commit; ``gone``: its run or task has been forgotten, and nothing but its ids is left.
    """

    cursor: Annotated[str, Meta(description="Ask with it as `after` for what follows.")]
    commit: int
    at: When
    kind: Annotated[
        str,
        Meta(description="As in the history, or TaskEnqueued, TaskAttemptEnded, TaskClosed, TaskRetried, Forgotten."),
    ]
    type: Annotated[str, Meta(description="Of the workflow or task.")]
    workflow_id: str
    run_id: str
    event_id: Annotated[int, Meta(description="Its place in the history; 0 for an event of a task.")]
    task_id: str
    queue: str
    fields: dict[str, Any]
    gone: bool
    schemas: Schemas


class FeedOut(msgspec.Struct, kw_only=True, frozen=True):
    """Events in the order of their commits. ``next`` is what to ask for as ``after``, also when there are none."""

    items: tuple[FeedEventOut, ...]
    next: str
    more: Annotated[bool, Meta(description="There are further ones already.")]


class ClosedOut(msgspec.Struct, kw_only=True, frozen=True):
    """The end of a stream: the run has closed with event ``last``."""

    run_id: str
    last: int


class TaskRow(msgspec.Struct, kw_only=True, frozen=True):
    """A task in a list: without what may be large."""

    id: str
    type: str
    queue: str
    state: TaskState
    reason: str
    attempt: int
    attempts_max: int
    retries: Annotated[int, Meta(description="How often it was brought back.")]
    priority: int
    enqueued_at: When
    run_at: When
    started_at: When
    closed_at: When
    worker: str
    workflow_id: str
    run_id: str
    tags: dict[str, str]
    error: Annotated[str, Meta(description="The first line of what its last attempt failed with.")]


class TaskOut(msgspec.Struct, kw_only=True, frozen=True):
    """A task, and what it waits for."""

    id: str
    namespace: str
    type: str
    queue: str
    state: TaskState
    reason: str
    attempt: int
    attempts_max: int
    retries: Annotated[int, Meta(description="How often it was brought back.")]
    priority: int
    enqueued_at: When
    run_at: When
    started_at: When
    closed_at: When
    worker: str
    workflow_id: str
    run_id: str
    tags: dict[str, str]
    cancel_requested: bool
    why: str
    result: Results
    failure: FailureOut | None
    schemas: Schemas


class TaskPage(msgspec.Struct, kw_only=True, frozen=True):
    items: tuple[TaskRow, ...]
    next: Next
    short: Short


class CountOut(msgspec.Struct, kw_only=True, frozen=True):
    """How many match. ``approximate``: at least so many."""

    count: int
    approximate: bool


class EnqueuedOut(msgspec.Struct, kw_only=True, frozen=True):
    id: str


class ItemOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The answer to one item of a batch: 201 or 200 with an id, or a refusal as in a problem."""

    status: int
    id: str = ""
    code: str = ""
    detail: str = ""
    remedy: str = ""
    retryable: bool = False
    pointer: str = ""


class BatchOut(msgspec.Struct, kw_only=True, frozen=True):
    """One answer for each item, in order."""

    items: tuple[ItemOut, ...]


class RetriedItemOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """``changed`` is false for a task that has not ended; a refusal says why, as in a problem."""

    id: str
    changed: bool
    code: str = ""
    detail: str = ""
    remedy: str = ""


class RetriedOut(msgspec.Struct, kw_only=True, frozen=True):
    """What was brought back, or would be. ``more``: others match the filter."""

    items: tuple[RetriedItemOut, ...]
    more: bool
    dry_run: bool


class TaskOutcomeOut(msgspec.Struct, kw_only=True, frozen=True):
    id: str
    state: TaskState
    reason: str
    attempt: int
    result: Results
    failure: FailureOut | None


class AttemptOut(msgspec.Struct, kw_only=True, frozen=True):
    """How one lease of a task ended."""

    attempt: int
    outcome: str
    worker: str
    identity: str
    started_at: When
    ended_at: When
    error_type: str
    error_message: str
    late: bool


class AttemptsOut(msgspec.Struct, kw_only=True, frozen=True):
    items: tuple[AttemptOut, ...]


class WhyOut(msgspec.Struct, kw_only=True, frozen=True):
    """What a workflow or a task waits for, in one sentence."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": ["workflow", "task"]})]
    id: str
    run_id: str
    type: str
    queue: str
    state: str
    waits_for: str
    until: When
    polled: Annotated[bool, Meta(description="Whether a worker that can take it has been seen lately.")]


class QueueTypeOut(msgspec.Struct, kw_only=True, frozen=True):
    """Tasks of one type that may be taken now. ``more``: at least so many."""

    type: str
    ready: int
    more: bool
    oldest_at: When


class QueueOut(msgspec.Struct, kw_only=True, frozen=True):
    """How much waits in a queue and runs from it; ``turns`` are those of workflows."""

    name: str
    ready: int
    delayed: int
    leased: int
    held: int
    uncertain: int
    turns: int
    oldest_at: Annotated[When, Meta(description="Since when the oldest waits.")]
    types: tuple[QueueTypeOut, ...]
    approximate: bool


class QueuesOut(msgspec.Struct, kw_only=True, frozen=True):
    """Queues with open work, by name. ``more``: there are others."""

    items: tuple[QueueOut, ...]
    more: bool


class WorkerOut(msgspec.Struct, kw_only=True, frozen=True):
    """A worker process, as its last poll said. ``slots`` are free ones."""

    worker: str
    identity: str
    build: str
    queues: tuple[str, ...]
    task_types: tuple[str, ...]
    workflow_types: tuple[str, ...]
    slots: int
    workflow_slots: int
    leases: int
    polls: int
    seen_at: When
    stopped: bool


class WorkersOut(msgspec.Struct, kw_only=True, frozen=True):
    """Workers, those seen last first. ``more``: there are others."""

    items: tuple[WorkerOut, ...]
    more: bool


class NamespaceSettingsOut(msgspec.Struct, kw_only=True, frozen=True):
    """What a namespace may do and for how long it keeps."""

    description: str
    retention: Annotated[str, Meta(description="A span (ISO 8601).")] | None
    payload_bytes_max: int
    starts_per_second: float
    starts_burst: int


class NamespaceOut(msgspec.Struct, kw_only=True, frozen=True):
    """A namespace. ``version`` rises with every change; 0 for one that only the server's settings name."""

    name: str
    state: NamespaceState
    version: int
    settings: NamespaceSettingsOut
    created_at: When
    updated_at: When


class NamespacesOut(msgspec.Struct, kw_only=True, frozen=True):
    """Namespaces by name."""

    items: tuple[NamespaceOut, ...]
