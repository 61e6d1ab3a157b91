"""Stored structs to bytes and back: MessagePack, by fields in order, so that a field may be appended and never moved.

Every ``decode_`` raises ``msgspec.MsgspecError`` for bytes that do not hold what it is asked for. An older form decodes as
well: fields that it lacks get their defaults. A newer form decodes too: trailing fields that are not known are left out.
"""

from typing import Final

import msgspec

from outlast.core.admin import NamespaceInfo
from outlast.core.events import Timed
from outlast.core.replies import WorkflowOutcome
from outlast.core.writes import RunFixed, RunState, TaskSpec, TaskStatus

_encode: Final = msgspec.msgpack.Encoder().encode

_timed: Final = msgspec.msgpack.Decoder(Timed)
_events: Final = msgspec.msgpack.Decoder(tuple[Timed, ...])
_run_state: Final = msgspec.msgpack.Decoder(RunState)
_run_fixed: Final = msgspec.msgpack.Decoder(RunFixed)
_task_spec: Final = msgspec.msgpack.Decoder(TaskSpec)
_task_status: Final = msgspec.msgpack.Decoder(TaskStatus)
_outcome: Final = msgspec.msgpack.Decoder(WorkflowOutcome)
_namespace: Final = msgspec.msgpack.Decoder(NamespaceInfo)


def encode_events(events: "tuple[Timed, ...] | list[Timed]") -> bytes:
    """Return the blob of a history page."""
    return _encode(events)


def decode_events(blob: bytes) -> tuple[Timed, ...]:
    """Return the events of a history page's blob, in order."""
    return _events.decode(blob)


def encode_timed(timed: Timed) -> bytes:
    """Return the blob of a parked row."""
    return _encode(timed)


def decode_timed(blob: bytes) -> Timed:
    """Return the event of a parked row's blob with its instant."""
    return _timed.decode(blob)


def encode_state(state: RunState) -> bytes:
    """Return ``RunRow.state``."""
    return _encode(state)


def decode_state(blob: bytes) -> RunState:
    """Return a new RunState from ``RunRow.state``."""
    return _run_state.decode(blob)


def encode_fixed(fixed: RunFixed) -> bytes:
    """Return ``RunRow.fixed``."""
    return _encode(fixed)


def decode_fixed(blob: bytes) -> RunFixed:
    """Return a new RunFixed from ``RunRow.fixed``."""
    return _run_fixed.decode(blob)


def encode_spec(spec: TaskSpec) -> bytes:
    """Return ``TaskRow.spec``."""
    return _encode(spec)


def decode_spec(blob: bytes) -> TaskSpec:
    """Return the TaskSpec of ``TaskRow.spec``."""
    return _task_spec.decode(blob)


def encode_status(status: TaskStatus) -> bytes:
    """Return ``TaskRow.status``."""
    return _encode(status)


def decode_status(blob: bytes) -> TaskStatus:
    """Return a new TaskStatus from ``TaskRow.status``."""
    return _task_status.decode(blob)


def encode_outcome(outcome: WorkflowOutcome) -> bytes:
    """Return ``RunRow.outcome``."""
    return _encode(outcome)


def decode_outcome(blob: bytes) -> WorkflowOutcome:
    """Return the WorkflowOutcome of ``RunRow.outcome``; the blob of an open run is empty and does not decode."""
    return _outcome.decode(blob)


def encode_namespace(info: NamespaceInfo) -> bytes:
    """Return the stored form of a namespace."""
    return _encode(info)


def decode_namespace(blob: bytes) -> NamespaceInfo:
    """Return what ``encode_namespace`` was given."""
    return _namespace.decode(blob)
