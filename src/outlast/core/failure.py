"""A recorded error: what a task, a run or a workflow task ended with."""

from enum import StrEnum
from typing import Final

import msgspec

from outlast.core.payload import Payload

SEALED: Final = "outlast/sealed:"
"""What text begins with that codecs of the app have encrypted; the rest is for who has the keys."""


class FailureKind(StrEnum):
    """Where a failure comes from; decides which exception the SDK raises for it."""

    APPLICATION = "application"  # user code raised
    TIMEOUT = "timeout"  # one of the four timeouts, or the run's; ``type`` says which
    CANCELED = "canceled"
    TERMINATED = "terminated"
    WORKER_LOST = "worker_lost"  # the lease ended without an answer
    ACTIVITY = "activity"  # wraps what an activity ended with; the cause is inside
    SERVER = "server"  # the engine closed it, for example at a limit


class Failure(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """An error as stored. Text is bounded by limits.FAILURE_TEXT_BYTES_MAX before it gets here.

    An app that encrypts its values encrypts ``message`` and ``trace`` as well: they begin with SEALED then.

    ``final`` means that no further attempt is made. ``next_delay`` (nanoseconds) overrides the backoff.
    """

    kind: FailureKind
    type: str
    message: str
    trace: str = ""
    final: bool = False
    details: tuple[Payload, ...] = ()
    cause: "Failure | None" = None
    next_delay: int | None = None
    info: dict[str, str] = {}
    extra: dict[str, bytes] | None = None

    @property
    def remedy(self) -> str:
        """What the SDK says to do about it, "" for an error that is not its own."""
        return self.info.get("remedy", "")

    @property
    def said(self) -> str:
        """Type and the first line of the message, for a sentence; of an encrypted message, that it is."""
        first = "(encrypted)" if self.message.startswith(SEALED) else self.message.partition("\n")[0]
        return f"{self.type}: {first}"
