"""What REST gives: answers as structs, made from the engine's replies. Fields are only ever added; enums may grow."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from outlast.core.failure import Failure
from outlast.core.replies import (
    PendingActivity,
    PendingTimer,
    RunStatus,
    TaskInfo,
    TaskOutcomeReply,
    TaskState,
    WorkflowInfo,
    WorkflowOutcome,
)
from outlast.gateway.values import error_line, instant, plain, values_of
from outlast.protocol.transport import Attempt, HistoryPage, Listing

When = Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None
Results = Annotated[
    tuple[Any, ...], Meta(description="JSON values; one that is no JSON stands as its encoding and data in base64.")
]
Short = Annotated[bool, Meta(description="The page ended before it was full for what it costs; `next` goes on.")]
Next = Annotated[str, Meta(description="The cursor of the next page; empty at the end.")]


class FailureOut(msgspec.Struct, kw_only=True, frozen=True):
    kind: str
    type: str
    message: str
    trace: str
    final: bool
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
    """A run, and what it waits for."""

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


class EventOut(msgspec.Struct, kw_only=True, frozen=True):
    """A fact of a run. What the fields are depends on the kind; the reference of events lists them."""

    event_id: int
    at: When
    kind: str
    fields: dict[str, Any]


class HistoryOut(msgspec.Struct, kw_only=True, frozen=True):
    """Events in order. ``last`` is what to ask for as ``after`` next; ``more``: there are further ones already."""

    id: str
    run_id: str
    events: tuple[EventOut, ...]
    last: int
    more: bool
    closed: bool


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


def failure_out(failure: Failure | None) -> FailureOut | None:
    """Return a failure with its causes."""
    if failure is None:
        return None
    return FailureOut(
        kind=failure.kind,
        type=failure.type,
        message=failure.message,
        trace=failure.trace,
        final=failure.final,
        cause=failure_out(failure.cause),
    )


def workflow_out(info: WorkflowInfo) -> WorkflowOut:
    """Return a run, whole."""
    return WorkflowOut(
        id=info.workflow_id,
        run_id=info.run_id,
        first_run_id=info.first_run_id,
        namespace=info.namespace,
        type=info.type,
        queue=info.queue,
        status=info.status,
        build=info.build,
        started_at=instant(info.started_at),
        closed_at=instant(info.closed_at),
        events=info.events,
        history_bytes=info.history_bytes,
        cancel_requested=info.cancel_requested,
        why=info.why,
        why_at=instant(info.why_at),
        activities=tuple(_activity_out(activity) for activity in info.activities),
        timers=tuple(_timer_out(timer) for timer in info.timers),
        tags=info.tags or {},
        result=values_of(info.result),
        failure=failure_out(info.failure),
        workflow_task=TurnOut(state=info.task_state, attempt=info.task_attempt, failure=failure_out(info.task_failure)),
        published={name: values_of((value,))[0] for name, value in (info.published or {}).items()},
    )


def workflow_page(listing: Listing) -> WorkflowPage:
    """Return a page of runs."""
    return WorkflowPage(
        items=tuple(_workflow_row(info) for info in listing.runs), next=listing.next, short=listing.short
    )


def _workflow_row(info: WorkflowInfo) -> WorkflowRow:
    return WorkflowRow(
        id=info.workflow_id,
        run_id=info.run_id,
        first_run_id=info.first_run_id,
        type=info.type,
        queue=info.queue,
        status=info.status,
        build=info.build,
        started_at=instant(info.started_at),
        closed_at=instant(info.closed_at),
        events=info.events,
        tags=info.tags or {},
        error=error_line(info.failure),
    )


def _activity_out(activity: PendingActivity) -> ActivityOut:
    return ActivityOut(
        activity_id=activity.activity_id,
        task_id=activity.task_id,
        type=activity.type,
        queue=activity.queue,
        state=activity.state,
        reason=activity.reason,
        attempt=activity.attempt,
        attempts_max=activity.attempts_max,
        run_at=instant(activity.run_at),
        worker=activity.worker,
        last_failure=failure_out(activity.last_failure),
    )


def _timer_out(timer: PendingTimer) -> TimerOut:
    return TimerOut(timer_id=timer.timer_id, fire_at=instant(timer.fire_at), summary=timer.summary)


def task_out(info: TaskInfo) -> TaskOut:
    """Return a task, whole."""
    return TaskOut(
        id=info.task_id,
        namespace=info.namespace,
        type=info.type,
        queue=info.queue,
        state=info.state,
        reason=info.reason,
        attempt=info.attempt,
        attempts_max=info.attempts_max,
        priority=info.priority,
        enqueued_at=instant(info.enqueued_at),
        run_at=instant(info.run_at),
        started_at=instant(info.started_at),
        closed_at=instant(info.closed_at),
        worker=info.worker,
        workflow_id=info.workflow_id,
        run_id=info.run_id,
        tags=info.tags or {},
        cancel_requested=info.cancel_requested,
        why=info.why,
        result=values_of(info.result),
        failure=failure_out(info.failure),
    )


def task_page(listing: Listing) -> TaskPage:
    """Return a page of tasks."""
    return TaskPage(items=tuple(_task_row(info) for info in listing.tasks), next=listing.next, short=listing.short)


def _task_row(info: TaskInfo) -> TaskRow:
    return TaskRow(
        id=info.task_id,
        type=info.type,
        queue=info.queue,
        state=info.state,
        reason=info.reason,
        attempt=info.attempt,
        attempts_max=info.attempts_max,
        priority=info.priority,
        enqueued_at=instant(info.enqueued_at),
        run_at=instant(info.run_at),
        started_at=instant(info.started_at),
        closed_at=instant(info.closed_at),
        worker=info.worker,
        workflow_id=info.workflow_id,
        run_id=info.run_id,
        tags=info.tags or {},
        error=error_line(info.failure),
    )


def workflow_outcome_out(outcome: WorkflowOutcome) -> OutcomeOut:
    """Return how a run ended."""
    return OutcomeOut(
        id=outcome.workflow_id,
        run_id=outcome.run_id,
        status=outcome.status,
        result=values_of(outcome.result),
        failure=failure_out(outcome.failure),
        new_run_id=outcome.new_run_id,
    )


def task_outcome_out(outcome: TaskOutcomeReply) -> TaskOutcomeOut:
    """Return how a task ended."""
    return TaskOutcomeOut(
        id=outcome.task_id,
        state=outcome.state,
        reason=outcome.reason,
        attempt=outcome.attempt,
        result=values_of(outcome.result),
        failure=failure_out(outcome.failure),
    )


def events_out(page: HistoryPage) -> tuple[EventOut, ...]:
    """Return events: kind by name, fields as they are stored, payloads as values where they are."""
    return tuple(
        EventOut(
            event_id=page.first_event_id + n,
            at=instant(at),
            kind=type(event).__name__,
            fields={name: plain(getattr(event, name)) for name in event.__struct_fields__},
        )
        for n, (at, event) in enumerate(page.events)
    )


def attempt_out(attempt: Attempt) -> AttemptOut:
    """Return how one lease of a task ended."""
    return AttemptOut(
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        worker=attempt.worker,
        identity=attempt.identity,
        started_at=instant(attempt.started_at),
        ended_at=instant(attempt.ended_at),
        error_type=attempt.error_type,
        error_message=attempt.error_message,
        late=attempt.late,
    )


def why_workflow(info: WorkflowInfo) -> WhyOut:
    """Return what a run waits for."""
    return WhyOut(
        kind="workflow",
        id=info.workflow_id,
        run_id=info.run_id,
        type=info.type,
        queue=info.queue,
        state=info.status,
        waits_for=info.why,
        until=instant(info.why_at),
        polled=info.polled,
    )


def why_task(info: TaskInfo) -> WhyOut:
    """Return what a task waits for."""
    return WhyOut(
        kind="task",
        id=info.task_id,
        run_id=info.run_id,
        type=info.type,
        queue=info.queue,
        state=info.state,
        waits_for=info.why,
        until=instant(info.run_at if not info.closed_at and info.state is TaskState.RETRY_WAIT else 0),
        polled=info.polled,
    )
