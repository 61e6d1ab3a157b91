"""What ``--json`` prints: one struct per kind of object, whose JSON Schema is a promise to scripts.

Fields are only ever added. Instants are RFC 3339 in UTC with milliseconds, null for not yet; spans are seconds.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec

from outlast.core.failure import Failure
from outlast.core.payload import Payload, Payloads
from outlast.core.replies import RunStatus, TaskInfo, WorkflowInfo
from outlast.core.units import SECOND
from outlast.protocol.transport import Attempt

JSON_PLAIN: Final = "json/plain"  # the encoding that every SDK reads


class FailureOut(msgspec.Struct, kw_only=True):
    type: str
    message: str
    trace: str = ""


class StartedOut(msgspec.Struct, kw_only=True):
    """``started`` is false when an open run was returned; ``replayed`` when the same key had started it before."""

    id: str
    run_id: str
    started: bool
    replayed: bool
    dry_run: bool = False


class EnqueuedOut(msgspec.Struct, kw_only=True):
    """``error`` says why an item of a file was not taken; then ``id`` is empty."""

    id: str
    replayed: bool
    dry_run: bool = False
    error: str = ""


class ChangeOut(msgspec.Struct, kw_only=True):
    """``changed`` is false when there was nothing to do; ``error`` says why it was refused, by its code."""

    id: str
    did: str
    changed: bool
    dry_run: bool = False
    error: str = ""


class CountOut(msgspec.Struct, kw_only=True):
    """``approximate``: there are at least this many."""

    count: int
    approximate: bool = False


class WorkflowOut(msgspec.Struct, kw_only=True):
    id: str
    run_id: str
    type: str
    queue: str
    status: str
    started_at: str | None
    closed_at: str | None
    events: int
    build: str
    tags: dict[str, str]
    waits_for: str
    failure: FailureOut | None


class StepOut(msgspec.Struct, kw_only=True):
    event_id: int
    kind: str
    name: str
    state: str
    began_at: str | None
    ended_at: str | None
    attempt: int
    detail: str


class EventOut(msgspec.Struct, kw_only=True):
    """One event of a history; ``fields`` are those of its kind (see the reference of events)."""

    event_id: int
    at: str | None
    kind: str
    fields: dict[str, Any]


class WorkflowShown(msgspec.Struct, kw_only=True):
    """``events`` is filled with --raw, ``steps`` without."""

    workflow: WorkflowOut
    steps: tuple[StepOut, ...]
    events: tuple[EventOut, ...]


class TaskOut(msgspec.Struct, kw_only=True):
    id: str
    type: str
    queue: str
    state: str
    reason: str
    attempt: int
    max_attempts: int
    priority: int
    enqueued_at: str | None
    run_at: str | None
    closed_at: str | None
    worker: str
    workflow_id: str
    run_id: str
    tags: dict[str, str]
    failure: FailureOut | None


class AttemptOut(msgspec.Struct, kw_only=True):
    """``late``: a word that came after the lease had ended; it changed nothing."""

    attempt: int
    outcome: str
    worker: str
    started_at: str | None
    ended_at: str | None
    error_type: str
    error_message: str
    late: bool


class TaskShown(msgspec.Struct, kw_only=True):
    task: TaskOut
    attempts: tuple[AttemptOut, ...]
    waits_for: str


class OutcomeOut(msgspec.Struct, kw_only=True):
    """How a run or task ended. A value that is not JSON is {"encoding", "bytes"} with the bytes in base64."""

    id: str
    run_id: str
    state: str
    result: list[Any]
    failure: FailureOut | None


class AnsweredOut(msgspec.Struct, kw_only=True):
    """What the code of a run said."""

    id: str
    result: list[Any]


class WhyOut(msgspec.Struct, kw_only=True):
    """``lines`` is the answer for people."""

    kind: str
    id: str
    run_id: str
    type: str
    state: str
    waits_for: str
    at: tuple[str, ...]
    before: tuple[str, ...]
    helps: tuple[str, ...]
    lines: tuple[str, ...]


class SettingOut(msgspec.Struct, kw_only=True):
    """A secret's value is masked."""

    name: str
    value: str
    origin: str
    reloadable: bool
    secret: bool


class FindingOut(msgspec.Struct, kw_only=True):
    """``level`` is "ok", "note" or "problem"; ``code`` never changes its meaning."""

    code: str
    area: str
    level: str
    fact: str
    remedy: str


class QueueTypeOut(msgspec.Struct, kw_only=True):
    """Ready tasks of one type; ``more``: at least so many."""

    type: str
    ready: int
    oldest_at: str | None
    more: bool


class QueueOut(msgspec.Struct, kw_only=True):
    """``turns`` are of workflows; ``approximate``: ready and delayed are not told apart."""

    name: str
    ready: int
    delayed: int
    leased: int
    held: int
    uncertain: int
    turns: int
    oldest_at: str | None
    approximate: bool
    types: tuple[QueueTypeOut, ...]


class WorkerOut(msgspec.Struct, kw_only=True):
    """A worker process as its last poll said."""

    id: str
    identity: str
    build: str
    queues: tuple[str, ...]
    task_types: tuple[str, ...]
    workflow_types: tuple[str, ...]
    free_slots: int
    free_workflow_slots: int
    leases: int
    seen_at: str | None
    stopped: bool


class NamespaceOut(msgspec.Struct, kw_only=True):
    """``retention`` in seconds, 0 for ever; limits are 0 where there is none of its own."""

    name: str
    state: str
    version: int
    description: str
    retention: float
    payload_bytes_max: int
    starts_per_second: float
    starts_burst: int
    created_at: str | None
    updated_at: str | None
    dry_run: bool = False


class WrittenOut(msgspec.Struct, kw_only=True):
    """One file of a new project."""

    path: str
    dry_run: bool = False


class MigrationOut(msgspec.Struct, kw_only=True):
    """The schema that the store had, and the one it has now or, with --check or --dry-run, would have."""

    store: str
    before: int
    after: int
    copy: str
    dry_run: bool = False


class VersionOut(msgspec.Struct, kw_only=True):
    version: str
    python: str
    sqlite: str
    schema: int


def schema_of(name: str) -> str:
    """Return the JSON Schema of the struct ``name`` as text."""
    schema = msgspec.json.schema(globals()[name])
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def instant(nanoseconds: int) -> str | None:
    """Return RFC 3339 in UTC with milliseconds; None for not yet."""
    if not nanoseconds:
        return None
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(nanoseconds: int) -> float:
    """Return a span in seconds."""
    return nanoseconds / SECOND


def value(payload: Payload) -> Any:
    """Return the value of a payload: JSON as it is, other data with its encoding."""
    if payload.blob:
        return {"encoding": payload.encoding, "size": payload.size}
    if payload.encoding == JSON_PLAIN:
        try:
            return msgspec.json.decode(payload.data)
        except msgspec.MsgspecError:
            pass
    return {"encoding": payload.encoding, "bytes": payload.data}


def values(payloads: Payloads) -> list[Any]:
    """Return the values of payloads."""
    return [value(payload) for payload in payloads]


def plain(thing: object) -> Any:
    """Return a part of an event as what JSON has: structs as objects, payloads as their values, empty fields left out."""
    if isinstance(thing, Payload):
        return value(thing)
    if isinstance(thing, msgspec.Struct):
        found = {name: getattr(thing, name) for name in thing.__struct_fields__}
        return {name: plain(part) for name, part in found.items() if part not in (None, "", 0, (), False)}
    if isinstance(thing, tuple | list):
        return [plain(part) for part in cast("tuple[object, ...]", thing)]
    if isinstance(thing, dict):
        return {str(name): plain(part) for name, part in cast("dict[object, object]", thing).items()}
    return thing


def failure_out(failure: Failure | None) -> FailureOut | None:
    """Return a failure as it is printed."""
    return None if failure is None else FailureOut(type=failure.type, message=failure.message, trace=failure.trace)


def workflow_out(info: WorkflowInfo) -> WorkflowOut:
    """Return a run as it is printed."""
    return WorkflowOut(
        id=info.workflow_id,
        run_id=info.run_id,
        type=info.type,
        queue=info.queue,
        status=info.status.value,
        started_at=instant(info.started_at),
        closed_at=instant(info.closed_at),
        events=info.events,
        build=info.build,
        tags=info.tags or {},
        waits_for=info.why if info.status is RunStatus.RUNNING else "",
        failure=failure_out(info.failure),
    )


def task_out(info: TaskInfo) -> TaskOut:
    """Return a task as it is printed."""
    return TaskOut(
        id=info.task_id,
        type=info.type,
        queue=info.queue,
        state=info.state.value,
        reason=info.reason,
        attempt=info.attempt,
        max_attempts=info.attempts_max,
        priority=info.priority,
        enqueued_at=instant(info.enqueued_at),
        run_at=instant(info.run_at),
        closed_at=instant(info.closed_at),
        worker=info.worker,
        workflow_id=info.workflow_id,
        run_id=info.run_id,
        tags=info.tags or {},
        failure=failure_out(info.failure),
    )


def attempt_out(attempt: Attempt) -> AttemptOut:
    """Return an attempt as it is printed."""
    return AttemptOut(
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        worker=attempt.worker,
        started_at=instant(attempt.started_at),
        ended_at=instant(attempt.ended_at),
        error_type=attempt.error_type,
        error_message=attempt.error_message,
        late=attempt.late,
    )
