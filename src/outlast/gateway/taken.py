"""What REST takes: bodies and queries as structs. A field that is not here is refused, so that no misspelling is silent."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from outlast.core import limits
from outlast.core.errors import Invalid
from outlast.core.inputs import IfClosed, IfOpen
from outlast.core.replies import RunStatus, TaskState
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from outlast.gateway.values import Span, span

ATTEMPTS_MAX: Final = 1_000_000


def _at_most(size: int, **more: Any) -> Meta:
    """Say a bound that the engine's door keeps, in bytes, with a refusal of its own."""
    return Meta(extra_json_schema={"maxLength": size, **more})


Name = Annotated[str, _at_most(limits.NAME_BYTES_MAX, minLength=1)]
Id = Annotated[str, _at_most(limits.WORKFLOW_ID_BYTES_MAX)]
Key = Annotated[str, _at_most(limits.KEY_BYTES_MAX)]
Cursor = Annotated[str, Meta(description="What the page before gave as `next`.")]
Query = Annotated[
    str,
    Meta(
        description='A filter in words, all of it met: `started > 2h ago and tag.plan = "pro"`.',
        examples=["closed = false"],
    ),
]
Limit = Annotated[int, Meta(ge=1, le=limits.LIST_LIMIT_MAX, description="How many items a page has at most.")]
Wait = Annotated[str, Meta(description='How long the answer may be held: "30s", at most "60s".', examples=["10ms"])]
Values = Annotated[tuple[msgspec.Raw, ...], Meta(description="Arguments in order, each any JSON value.")]
Duration = Annotated[Span, Meta(description='Seconds, or "250ms", "10m", "3d", "PT10M".', examples=["10m"])]
RunIdOrNone = Annotated[str, Meta(description="One run of the workflow; left out: the latest.")]


class NoQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class RetryIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How often and when a task is tried again."""

    max_attempts: Annotated[int, Meta(ge=0, le=ATTEMPTS_MAX, description="All tries; 0 for no bound.")] = 5
    first: Duration = 1
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    longest: Duration = 3600
    jitter: bool = True
    never_for: Annotated[tuple[str, ...], Meta(description="Types of errors after which there is no other try.")] = ()


class StartIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A workflow to start. Without an id it gets one from the Idempotency-Key, or a fresh one."""

    type: Name
    id: Id = ""
    queue: Name = "default"
    input: Values = ()
    if_open: IfOpen = IfOpen.FAIL
    if_closed: IfClosed = IfClosed.ALLOW
    run_timeout: Duration = 0
    delay: Duration = 0
    tags: dict[str, str] | None = None
    attributes: Annotated[
        dict[str, str | int | float | bool] | None,
        Meta(description="Search attributes: what lists find it by, with a type."),
    ] = None


class SignalIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: Name
    input: Values = ()
    run_id: str = ""


class QueryIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: Name
    input: Values = ()
    run_id: str = ""
    wait: Wait = "10s"


class StopIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(description="Stands in the history.")] = ""
    run_id: str = ""


class CancelTaskIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    reason: str = ""


class RetryTaskIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(description="Stands among its attempts.")] = ""


class RetryTasksIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Tasks to bring back: by their ids, or by a filter. Without a state, those that failed or expired."""

    ids: Annotated[tuple[str, ...], Meta(max_length=limits.BATCH_ITEMS_MAX)] = ()
    type: str = ""
    queue: str = ""
    state: Annotated[TaskState | None, Meta(description="failed, expired or canceled.")] = None
    query: Query = ""
    limit: Annotated[
        int, Meta(ge=1, le=limits.BATCH_ITEMS_MAX, description="How many a filter brings back at most.")
    ] = limits.BATCH_ITEMS_MAX
    reason: str = ""
    dry_run: Annotated[bool, Meta(description="Only say which it would be.")] = False


class EnqueueIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A task to enqueue. ``key`` is its idempotency key where the header cannot say it: in a batch."""

    type: Name
    queue: Name = "default"
    input: Values = ()
    key: Key = ""
    delay: Duration = 0
    timeout: Duration = limits.START_TO_CLOSE // SECOND
    schedule_to_start: Duration = 0
    schedule_to_close: Duration = 0
    heartbeat: Duration = 0
    priority: Annotated[int, Meta(ge=1, le=5, description="1 goes first.")] = 3
    retry: RetryIn | None = None
    tags: dict[str, str] | None = None


class EnqueueBatchIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    items: Annotated[
        tuple[msgspec.Raw, ...],
        Meta(
            description="Tasks; each is looked at on its own.",
            min_length=1,
            extra_json_schema={
                "items": {"$ref": "#/components/schemas/EnqueueIn"},
                "maxItems": limits.BATCH_ITEMS_MAX,
            },
        ),
    ]


class TasksCountQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    type: str = ""
    state: TaskState | None = None
    queue: str = ""
    run_id: str = ""
    query: Query = ""


class RunQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    run_id: RunIdOrNone = ""


class ResultQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    run_id: RunIdOrNone = ""
    wait: Wait = "0"


class TaskResultQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    wait: Wait = "0"


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    run_id: RunIdOrNone = ""
    after: Annotated[int, Meta(ge=0, le=2**53, description="The id of the last event that the caller has.")] = 0
    limit: Limit = 500
    wait: Wait = "0"


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    run_id: RunIdOrNone = ""
    after: Annotated[int, Meta(ge=0, le=2**53, description="The id of the last event that the caller has.")] = 0


class WorkflowsQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    type: str = ""
    status: RunStatus | None = None
    id: str = ""
    query: Query = ""
    cursor: Cursor = ""
    limit: Limit = 50


class WorkflowsCountQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    type: str = ""
    status: RunStatus | None = None
    id: str = ""
    query: Query = ""


class TasksQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    type: str = ""
    state: TaskState | None = None
    queue: str = ""
    run_id: Annotated[str, Meta(description="The activities of this run; left out: tasks that stand alone.")] = ""
    query: Query = ""
    cursor: Cursor = ""
    limit: Limit = 50


class WorkersQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    queue: Annotated[str, Meta(description="Only workers that poll this queue.")] = ""


class NamespaceSettingsIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of a namespace; what is left out stays as it is, or as a new namespace has it."""

    description: Annotated[str, Meta(max_length=1000)] | None = None
    retention: Annotated[Duration | None, Meta(description="How long closed runs and tasks are kept; 0 for ever.")] = (
        None
    )
    payload_bytes_max: (
        Annotated[int, Meta(ge=0, le=limits.PAYLOAD_BYTES_MAX, description="0 for the server's bound.")] | None
    ) = None
    starts_per_second: (
        Annotated[float, Meta(ge=0, le=1_000_000, description="Starts and enqueues; 0 for no limit.")] | None
    ) = None
    starts_burst: Annotated[int, Meta(ge=0, le=1_000_000, description="How many may come at once.")] | None = None


class NamespaceIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: Name
    settings: NamespaceSettingsIn = NamespaceSettingsIn()


class DeleteNamespaceQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    confirm: Annotated[str, Meta(description="The name of the namespace, again.")] = ""
    force: Annotated[bool, Meta(description="Also when it has open runs or tasks, which are ended.")] = False


class FeedQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    after: Annotated[
        str,
        Meta(
            description="The cursor of the last event that the caller has; left out: from the oldest that is kept; "
            '"now": only what is committed from here on.',
            examples=["now"],
        ),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=limits.FEED_PAGE_EVENTS, description="How many events a page has at most.")] = (
        limits.FEED_PAGE_EVENTS
    )
    wait: Wait = "0"


class WireFeed(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=limits.FEED_PAGE_EVENTS)] = limits.FEED_PAGE_EVENTS
    wait: str = "0"


class WireHistory(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    workflow_id: str = ""
    run_id: str = ""
    first_event_id: int = 1
    wait: str = "0"


class WireAttempts(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    task_id: str = ""


class WirePage(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    cursor: str = ""
    limit: int = 50


def retry_policy(retry: RetryIn | None) -> RetryPolicy | None:
    """Return the policy, or None for the default."""
    if retry is None:
        return None
    return RetryPolicy(
        attempts_max=retry.max_attempts,
        first=span(retry.first, "retry.first"),
        factor=retry.factor,
        longest=span(retry.longest, "retry.longest"),
        jitter=retry.jitter,
        final_types=retry.never_for,
    )


def wait_of(text: str) -> float:
    """Return how many seconds an answer may be held. Raises Invalid."""
    nanoseconds = span(text, "wait", of_query=True)
    if nanoseconds > limits.POLL_WAIT_MAX:
        raise Invalid(
            "invalid_request",
            f"wait is {text[:50]}.",
            remedy=f"Wait at most {limits.POLL_WAIT_MAX // SECOND} s, and ask again.",
            parameter="wait",
        )
    return nanoseconds / SECOND


class WireQueues(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    queue: str = ""


class WireNothing(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """No fields at all."""
