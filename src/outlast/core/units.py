"""Ids and quantities. Instants and spans are integer nanoseconds everywhere in the engine."""

import hashlib
from typing import Final, NewType

import msgspec

Instant = NewType("Instant", int)  # nanoseconds since 1970-01-01T00:00:00Z
Nanos = NewType("Nanos", int)  # a length of time

RunId = NewType("RunId", str)  # UUIDv7, given from outside with the request
WorkflowId = NewType("WorkflowId", str)  # the caller's name for a workflow
TaskId = NewType("TaskId", str)  # UUIDv7 for a standalone task, "<run id>:<event id>" for an activity
Namespace = NewType("Namespace", str)

MICROSECOND: Final = Nanos(1_000)
MILLISECOND: Final = Nanos(1_000_000)
SECOND: Final = Nanos(1_000_000_000)
MINUTE: Final = Nanos(60 * SECOND)
HOUR: Final = Nanos(60 * MINUTE)
DAY: Final = Nanos(24 * HOUR)

FOREVER: Final = Instant(2**62)  # later than any instant that can be asked for


class Fence(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Proof of who owns a shard, compared in order: the incarnation of the database, then the epoch in it."""

    incarnation: int
    epoch: int


def later(now: int, span: int) -> int:
    """Return the instant ``span`` nanoseconds after ``now``, never past FOREVER."""
    at = now + span
    return min(FOREVER, at)


def fraction_of(*parts: object) -> float:
    """Return a number in [0, 1) that depends on ``parts`` alone: chance that a replay repeats."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def operation_id_of(namespace: str, original_run_id: str, position: str) -> str:
    """Return the id under which the outside world knows an operation of a run.

    The same over retries, workers, engine recovery and reset (ARCHITECTURE §9): it depends only on
    the namespace, the run that the chain of resets began with, and the place in the run or its explicit key.
    """
    text = f"{namespace}\x1f{original_run_id}\x1f{position}"
    return "op_" + hashlib.blake2b(text.encode(), digest_size=15).hexdigest()
