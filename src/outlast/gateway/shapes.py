"""The JSON forms of REST: what is taken, with unknown fields refused, and what is given."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from outlast.core import limits
from outlast.core.errors import Invalid
from outlast.core.failure import Failure
from outlast.core.inputs import IfClosed, IfOpen
from outlast.core.payload import Payload, Payloads
from outlast.core.replies import (
    PendingActivity,
    PendingTimer,
    TaskInfo,
    TaskOutcomeReply,
    WorkflowInfo,
    WorkflowOutcome,
)
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from outlast.protocol.transport import Attempt, HistoryPage

JSON_PLAIN: Final = "json/plain"  # the encoding that every SDK reads
_UNITS: Final = {"ms": SECOND // 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}

Span = str | int | float


class RetryIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    max_attempts: int = 5
    first: Span = 1
    factor: float = 2.0
    longest: Span = 3600
    jitter: bool = True
    never_for: tuple[str, ...] = ()


class StartIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    type: str
    id: str = ""
    queue: str = "default"
    input: tuple[msgspec.Raw, ...] = ()
    if_open: IfOpen = IfOpen.FAIL
    if_closed: IfClosed = IfClosed.ALLOW
    run_timeout: Span = 0
    delay: Span = 0
    tags: dict[str, str] | None = None


class SignalIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    input: tuple[msgspec.Raw, ...] = ()
    run_id: str = ""


class StopIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    reason: str = ""
    run_id: str = ""


class EnqueueIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    type: str
    queue: str = "default"
    input: tuple[msgspec.Raw, ...] = ()
    key: str = ""
    delay: Span = 0
    timeout: Span = limits.START_TO_CLOSE // SECOND
    schedule_to_start: Span = 0
    schedule_to_close: Span = 0
    heartbeat: Span = 0
    priority: int = 3
    retry: RetryIn | None = None
    tags: dict[str, str] | None = None


class EnqueueBatchIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    items: tuple[EnqueueIn, ...]


def span(value: Span, field: str) -> int:
    """Return nanoseconds of "250ms", "10m", "3d", or seconds as a number. Raises Invalid."""
    if isinstance(value, str):
        number = value.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = _UNITS.get(value[len(number) :])
        try:
            if unit is not None:
                return _nanoseconds(float(number) * unit)
        except ValueError:
            pass
        raise Invalid(
            "invalid_request", f'{field} is "{value[:50]}".', remedy='Write seconds, or "250ms", "10m", "3d".'
        )
    try:
        return _nanoseconds(value * SECOND)
    except ValueError:
        raise Invalid("invalid_request", f"{field} is {value}.", remedy="Give a number of seconds.") from None


def _nanoseconds(value: float) -> int:
    if not 0 <= value <= limits.SPAN_MAX:
        raise ValueError(value)
    return int(value)


def payloads(values: tuple[msgspec.Raw, ...]) -> Payloads:
    """Return JSON values as payloads, one each. Raises Invalid for one that no worker could read."""
    return tuple(Payload(JSON_PLAIN, _readable(bytes(value), place)) for place, value in enumerate(values))


def _readable(data: bytes, place: int) -> bytes:
    """Return ``data``. What stays raw while a body is decoded was only skipped over: text that is no UTF-8 passes there."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Invalid(
            "malformed_body",
            f"The value at input[{place}] cannot be read: {why}.",
            remedy="Send JSON in UTF-8, with numbers that fit into 64 bits.",
        ) from None
    return data


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


def instant(nanoseconds: int) -> str | None:
    """Return RFC 3339 in UTC with milliseconds; None for not yet."""
    if not nanoseconds:
        return None
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def value_of(payload: Payload) -> Any:
    """Return the JSON value of a payload, or its encoding and data where it is no JSON."""
    if payload.encoding == JSON_PLAIN and payload.data:
        return msgspec.Raw(payload.data)
    form: dict[str, Any] = {"encoding": payload.encoding, "data": base64.b64encode(payload.data).decode()}
    if payload.blob:
        form["size"] = payload.size
    return form


def failure_out(failure: Failure | None) -> dict[str, Any] | None:
    """Return a failure as JSON."""
    if failure is None:
        return None
    return {
        "kind": failure.kind,
        "type": failure.type,
        "message": failure.message,
        "trace": failure.trace,
        "final": failure.final,
        "cause": failure_out(failure.cause),
    }


def workflow_out(info: WorkflowInfo) -> dict[str, Any]:
    """Return a run as JSON."""
    return {
        "id": info.workflow_id,
        "run_id": info.run_id,
        "first_run_id": info.first_run_id,
        "namespace": info.namespace,
        "type": info.type,
        "queue": info.queue,
        "status": info.status,
        "build": info.build,
        "started_at": instant(info.started_at),
        "closed_at": instant(info.closed_at),
        "events": info.events,
        "history_bytes": info.history_bytes,
        "cancel_requested": info.cancel_requested,
        "why": info.why,
        "activities": [_activity_out(activity) for activity in info.activities],
        "timers": [_timer_out(timer) for timer in info.timers],
        "tags": info.tags or {},
        "result": [value_of(payload) for payload in info.result],
        "failure": failure_out(info.failure),
        "workflow_task": {
            "state": info.task_state,
            "attempt": info.task_attempt,
            "failure": failure_out(info.task_failure),
        },
    }


def _activity_out(activity: PendingActivity) -> dict[str, Any]:
    return {
        "activity_id": activity.activity_id,
        "task_id": activity.task_id,
        "type": activity.type,
        "queue": activity.queue,
        "state": activity.state,
        "reason": activity.reason,
        "attempt": activity.attempt,
        "attempts_max": activity.attempts_max,
        "run_at": instant(activity.run_at),
        "worker": activity.worker,
        "last_failure": failure_out(activity.last_failure),
    }


def _timer_out(timer: PendingTimer) -> dict[str, Any]:
    return {"timer_id": timer.timer_id, "fire_at": instant(timer.fire_at), "summary": timer.summary}


def task_out(info: TaskInfo) -> dict[str, Any]:
    """Return a task as JSON."""
    return {
        "id": info.task_id,
        "namespace": info.namespace,
        "type": info.type,
        "queue": info.queue,
        "state": info.state,
        "reason": info.reason,
        "attempt": info.attempt,
        "attempts_max": info.attempts_max,
        "priority": info.priority,
        "enqueued_at": instant(info.enqueued_at),
        "run_at": instant(info.run_at),
        "started_at": instant(info.started_at),
        "closed_at": instant(info.closed_at),
        "worker": info.worker,
        "workflow_id": info.workflow_id,
        "run_id": info.run_id,
        "tags": info.tags or {},
        "cancel_requested": info.cancel_requested,
        "result": [value_of(payload) for payload in info.result],
        "failure": failure_out(info.failure),
        "why": info.why,
    }


def outcome_out(outcome: WorkflowOutcome | TaskOutcomeReply) -> dict[str, Any]:
    """Return how a run or a task ended."""
    named: dict[str, Any]
    if isinstance(outcome, WorkflowOutcome):
        named = {"id": outcome.workflow_id, "run_id": outcome.run_id, "status": outcome.status}
    else:
        named = {"id": outcome.task_id, "state": outcome.state, "attempt": outcome.attempt}
    return {
        **named,
        "result": [value_of(payload) for payload in outcome.result],
        "failure": failure_out(outcome.failure),
    }


def history_out(page: HistoryPage) -> dict[str, Any]:
    """Return a page of events: kind by name, fields as they are stored, payloads as JSON where they are."""
    return {
        "id": page.workflow_id,
        "run_id": page.run_id,
        "events": [
            {
                "event_id": page.first_event_id + n,
                "at": instant(at),
                "kind": type(event).__name__,
                **{name: _plain(getattr(event, name)) for name in event.__struct_fields__},
            }
            for n, (at, event) in enumerate(page.events)
        ],
        "next_event_id": page.next_event_id,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Payload):
        return value_of(value)
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any field of any event
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] - as above
    return value


def attempt_out(attempt: Attempt) -> dict[str, Any]:
    """Return how one lease of a task ended."""
    return {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "worker": attempt.worker,
        "identity": attempt.identity,
        "started_at": instant(attempt.started_at),
        "ended_at": instant(attempt.ended_at),
        "error_type": attempt.error_type,
        "error_message": attempt.error_message,
        "late": attempt.late,
    }
