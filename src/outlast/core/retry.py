"""Backoff, attempts, and which failures are final."""

from enum import StrEnum
from typing import Final

import msgspec

from outlast.core import limits
from outlast.core.failure import Failure, FailureKind
from outlast.core.units import FOREVER, HOUR, SECOND, Nanos, fraction_of


class RetryPolicy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How attempts follow each other. Spans in nanoseconds; the defaults are those of every task.

    ``attempts_max`` counts all tries; 0 means no bound. ``final_types`` are names of error types that are never retried.
    """

    attempts_max: int = 5
    first: int = SECOND
    factor: float = 2.0
    longest: int = HOUR
    jitter: bool = True
    final_types: tuple[str, ...] = ()


DEFAULT_POLICY: Final = RetryPolicy()


class Verdict(StrEnum):
    """What follows a failed attempt."""

    AGAIN = "again"
    FINAL_ERROR = "non_retryable_failure"
    ATTEMPTS_USED = "maximum_attempts_reached"
    OUT_OF_TIME = "timeout"
    CANCELED = "cancel_requested"


def backoff(policy: RetryPolicy, *, attempt: int, key: str) -> Nanos:
    """Return the pause after failed attempt number ``attempt`` (from 1): full jitter over the exponential span.

    Full jitter draws from the whole span, so that what failed together does not come back together. The draw is a
    function of ``key`` and ``attempt``, so that it can be repeated.
    """
    exponent = min(attempt - 1, 64)
    span = min(policy.first * policy.factor**exponent, float(policy.longest))
    if policy.jitter:
        span *= fraction_of("backoff", key, attempt)
    return Nanos(int(span))


def verdict(
    policy: RetryPolicy,
    failure: Failure,
    *,
    attempt: int,
    lost_in_a_row: int,
    pause: int,
    now: int,
    close_by: int,
    cancel_requested: bool,
) -> Verdict:
    """Say whether another attempt follows; the order of the questions is Temporal's.

    ``close_by`` is the instant of schedule-to-close (FOREVER for none). An attempt that ended with its worker counts like
    any other. ``lost_in_a_row`` counts such losses once the task is run alone, where no neighbour can have caused them: a
    task that kills its worker ends after WORKER_LOST_ATTEMPTS_MAX of them, however many attempts it has left.
    """
    if cancel_requested:
        return Verdict.CANCELED
    if failure.final or failure.type in policy.final_types:
        return Verdict.FINAL_ERROR
    if policy.attempts_max and attempt >= policy.attempts_max:
        return Verdict.ATTEMPTS_USED
    if failure.kind is FailureKind.WORKER_LOST and lost_in_a_row >= limits.WORKER_LOST_ATTEMPTS_MAX:
        return Verdict.ATTEMPTS_USED
    if close_by < FOREVER and now + pause >= close_by:
        return Verdict.OUT_OF_TIME
    return Verdict.AGAIN
