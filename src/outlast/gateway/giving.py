"""The engine's replies as what REST gives."""

from typing import Any

import msgspec

from outlast.core.admin import NamespaceInfo, WorkerInfo
from outlast.core.carriers import schemas_in
from outlast.core.events import Event
from outlast.core.failure import Failure
from outlast.core.replies import (
    PendingActivity,
    PendingTimer,
    TaskInfo,
    TaskOutcomeReply,
    TaskState,
    WorkflowInfo,
    WorkflowOutcome,
)
from outlast.gateway.given import (
    ActivityOut,
    AttemptOut,
    CountOut,
    EventOut,
    FailureOut,
    FeedEventOut,
    NamespaceOut,
    NamespaceSettingsOut,
    OutcomeOut,
    QueueOut,
    QueueTypeOut,
    TaskOut,
    TaskOutcomeOut,
    TaskPage,
    TaskRow,
    TimerOut,
    TurnOut,
    WhyOut,
    WorkerOut,
    WorkflowOut,
    WorkflowPage,
    WorkflowRow,
)
from outlast.gateway.values import error_line, instant, plain, span_out, values_of
from outlast.protocol.transport import Attempt, Count, FeedEvent, HistoryPage, Listing, QueueInfo


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
        remedy=failure.remedy,
        cause=failure_out(failure.cause),
    )


def workflow_out(info: WorkflowInfo) -> WorkflowOut:
    """Return a run, whole."""
    return WorkflowOut(
        **_of_run(info),
        namespace=info.namespace,
        history_bytes=info.history_bytes,
        cancel_requested=info.cancel_requested,
        why=info.why,
        why_at=instant(info.why_at),
        activities=tuple(_activity_out(activity) for activity in info.activities),
        timers=tuple(_timer_out(timer) for timer in info.timers),
        result=values_of(info.result),
        failure=failure_out(info.failure),
        workflow_task=TurnOut(state=info.task_state, attempt=info.task_attempt, failure=failure_out(info.task_failure)),
        published={name: values_of((value,))[0] for name, value in (info.published or {}).items()},
        warning=info.warning,
        schemas=schemas_in(info),
    )


def workflow_page(listing: Listing) -> WorkflowPage:
    """Return a page of runs."""
    return WorkflowPage(
        items=tuple(_workflow_row(info) for info in listing.runs), next=listing.next, short=listing.short
    )


def _workflow_row(info: WorkflowInfo) -> WorkflowRow:
    return WorkflowRow(**_of_run(info), error=error_line(info.failure))


def _of_run(info: WorkflowInfo) -> dict[str, Any]:
    """Return the fields that a run has in a list and by itself."""
    return {
        "id": info.workflow_id,
        "run_id": info.run_id,
        "first_run_id": info.first_run_id,
        "type": info.type,
        "queue": info.queue,
        "status": info.status,
        "build": info.build,
        "started_at": instant(info.started_at),
        "closed_at": instant(info.closed_at),
        "events": info.events,
        "tags": info.tags or {},
    }


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
        **_of_task(info),
        namespace=info.namespace,
        cancel_requested=info.cancel_requested,
        why=info.why,
        result=values_of(info.result),
        failure=failure_out(info.failure),
        schemas=schemas_in(info),
    )


def task_page(listing: Listing) -> TaskPage:
    """Return a page of tasks."""
    return TaskPage(items=tuple(_task_row(info) for info in listing.tasks), next=listing.next, short=listing.short)


def _task_row(info: TaskInfo) -> TaskRow:
    return TaskRow(**_of_task(info), error=error_line(info.failure))


def _of_task(info: TaskInfo) -> dict[str, Any]:
    """Return the fields that a task has in a list and by itself."""
    return {
        "id": info.task_id,
        "type": info.type,
        "queue": info.queue,
        "state": info.state,
        "reason": info.reason,
        "attempt": info.attempt,
        "attempts_max": info.attempts_max,
        "retries": info.retries,
        "priority": info.priority,
        "enqueued_at": instant(info.enqueued_at),
        "run_at": instant(info.run_at),
        "started_at": instant(info.started_at),
        "closed_at": instant(info.closed_at),
        "worker": info.worker,
        "workflow_id": info.workflow_id,
        "run_id": info.run_id,
        "tags": info.tags or {},
    }


def count_out(found: Count) -> CountOut:
    """Return how many match."""
    return CountOut(count=found.count, approximate=found.approximate)


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


def event_out(event_id: int, at: int, event: Event) -> EventOut:
    """Return an event: kind by name, fields as they are stored, payloads as values where they are."""
    return EventOut(
        event_id=event_id, at=instant(at), kind=type(event).__name__, fields=plain(event), schemas=schemas_in(event)
    )


def events_out(page: HistoryPage) -> tuple[EventOut, ...]:
    """Return the events of a page."""
    return tuple(event_out(page.first_event_id + n, at, event) for n, (at, event) in enumerate(page.events))


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


def feed_event_out(event: FeedEvent) -> FeedEventOut:
    """Return an event of the feed; one of a history with the fields that it has there."""
    fields: dict[str, Any] = {}
    if event.event is not None:
        fields = plain(event.event)
    elif event.attempt is not None:
        fields = msgspec.structs.asdict(attempt_out(event.attempt))
    elif event.state:
        fields = {"state": event.state}
    return FeedEventOut(
        cursor=event.cursor,
        commit=event.commit,
        at=instant(event.at),
        kind=event.kind,
        type=event.type,
        workflow_id=event.workflow_id,
        run_id=event.run_id,
        event_id=event.event_id,
        task_id=event.task_id,
        queue=event.queue,
        fields=fields,
        gone=event.gone,
        schemas={} if event.event is None else schemas_in(event.event),
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


def queue_out(info: QueueInfo) -> QueueOut:
    """Return how full a queue is."""
    return QueueOut(
        name=info.queue,
        ready=info.ready,
        delayed=info.delayed,
        leased=info.leased,
        held=info.held,
        uncertain=info.uncertain,
        turns=info.turns,
        oldest_at=instant(info.oldest_at),
        types=tuple(
            QueueTypeOut(type=one.type, ready=one.ready, more=one.more, oldest_at=instant(one.oldest_at))
            for one in info.types
        ),
        approximate=info.approximate,
    )


def worker_out(info: WorkerInfo) -> WorkerOut:
    """Return what is known of a worker."""
    return WorkerOut(
        worker=info.worker,
        identity=info.identity,
        build=info.build,
        queues=info.queues,
        task_types=info.task_types,
        workflow_types=info.workflow_types,
        slots=info.slots,
        workflow_slots=info.workflow_slots,
        leases=info.leases,
        polls=info.polls,
        seen_at=instant(info.seen_at),
        stopped=info.stopped,
    )


def namespace_out(info: NamespaceInfo) -> NamespaceOut:
    """Return a namespace with its settings."""
    settings = info.settings
    return NamespaceOut(
        name=info.name,
        state=info.state,
        version=info.version,
        settings=NamespaceSettingsOut(
            description=settings.description,
            retention=span_out(settings.retention),
            payload_bytes_max=settings.payload_bytes_max,
            starts_per_second=settings.starts_per_second,
            starts_burst=settings.starts_burst,
        ),
        created_at=instant(info.created_at),
        updated_at=instant(info.updated_at),
    )
