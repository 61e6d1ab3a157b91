"""What a handler can ask and say about the attempt it runs in."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from outlast.core.failure import Failure
from outlast.core.inputs import TaskToken
from outlast.core.payload import Payload
from outlast.core.replies import TaskLease
from outlast.core.units import SECOND
from outlast.sdk.converter import Converter

T = TypeVar("T")

ABSENT: Final = "outlast/none"  # encoding of details that carry progress, but no checkpoint
LOGGER: Final = logging.getLogger("outlast.task")


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far a handler says it is."""

    done: float
    total: float | None = None
    note: str = ""


class TaskContext:
    """The attempt that a handler runs in; handed in as its first parameter when that is annotated ``TaskContext``.

    It may be used from any thread until the handler has returned. Instants are timezone-aware.
    """

    __slots__ = ("_cancelled", "_converter", "_details", "_lease", "_lease_lost", "_loaded", "_notify", "_progress")

    def __init__(self, lease: TaskLease, converter: Converter, notify: Callable[[], None] | None = None) -> None:
        self._lease = lease
        self._converter = converter
        self._notify = notify
        self._details: Payload | None = None  # the last ones said in this attempt
        self._progress: Progress | None = None
        self._loaded = lease.details
        self._cancelled = False
        self._lease_lost = False

    @classmethod
    def for_test(
        cls,
        *,
        attempt: int = 1,
        attempts_max: int = 5,
        checkpoint: Any = None,
        task_id: str = "test",
        operation_id: str = "op_test",
        cancelled: bool = False,
    ) -> "TaskContext":
        """Return a context for a unit test: it stands alone and keeps what is said to it."""
        converter = Converter()
        lease = TaskLease(
            token=TaskToken(task_id, attempt),
            type="test",
            queue="test",
            attempt=attempt,
            attempts_max=attempts_max,
            operation_id=operation_id,
            details=None if checkpoint is None else converter.to_payload(checkpoint, path="checkpoint"),
        )
        context = cls(lease, converter)
        context._cancelled = cancelled
        return context

    @property
    def attempt(self) -> int:
        """The number of this try, from 1."""
        return self._lease.attempt

    @property
    def attempts_max(self) -> int:
        """How many tries there may be; 0 for no bound."""
        return self._lease.attempts_max

    @property
    def task_id(self) -> str:
        """The id of the task; of an activity, its run's with the number of an event."""
        return self._lease.token.task_id

    @property
    def operation_id(self) -> str:
        """The same over all attempts and recoveries: hand it to the outer world as idempotency key."""
        return self._lease.operation_id or self._lease.token.task_id

    @property
    def workflow_id(self) -> str:
        """Of the workflow that this is an activity of; empty for a standalone task."""
        return self._lease.workflow_id

    @property
    def run_id(self) -> str:
        """Of the run that this is an activity of; empty for a standalone task."""
        return self._lease.run_id

    @property
    def queue(self) -> str:
        """The task queue from which the worker had it."""
        return self._lease.queue

    @property
    def deadline(self) -> datetime | None:
        """When this attempt must have ended."""
        return _instant(self._lease.deadline)

    @property
    def enqueued_at(self) -> datetime | None:
        """When the task was made, by the engine's clock."""
        return _instant(self._lease.enqueued_at)

    @property
    def last_failure(self) -> Failure | None:
        """What the attempt before this one ended with, its texts opened; one that cannot be says why."""
        return self._converter.opened(self._lease.last_failure)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the task, its attempt and its run."""
        lease = self._lease
        fields = {"task": lease.token.task_id, "attempt": lease.attempt, "task_type": lease.type, "run": lease.run_id}
        return logging.LoggerAdapter(LOGGER, fields)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: somebody asked for it, or the lease is lost."""
        return self._cancelled or self._lease_lost

    @property
    def lease_lost(self) -> bool:
        """Whether the task may be running elsewhere: change nothing more; what is returned no longer counts."""
        return self._lease_lost

    @property
    def details(self) -> Payload | None:
        """What the handler said last, as it is stored; for the worker."""
        return self._details

    def tell_cancelled(self) -> None:
        """Let the handler know that it should stop; for the worker."""
        self._cancelled = True

    def tell_lease_lost(self) -> None:
        """Let the handler know that the lease is lost; for the worker."""
        self._lease_lost = True

    def drop_details(self) -> None:
        """Forget what was said, since the engine does not take it; for the worker."""
        self._details = None

    def raise_if_cancelled(self) -> None:
        """Raise asyncio.CancelledError, in plain functions as well, if the handler should stop."""
        if self.cancelled:
            raise asyncio.CancelledError("the lease is lost" if self._lease_lost else "the task is to be cancelled")

    def checkpoint(self, default: T) -> T:
        """Return what was saved last, in this attempt or an earlier one; ``default`` if nothing was.

        The value is read as the type of ``default``; with None it comes as plain JSON.
        """
        saved = self._details if self._details is not None and self._details.encoding != ABSENT else self._loaded
        if saved is None or saved.encoding == ABSENT:
            return default
        kind: Any = Any if default is None or isinstance(default, _PLAIN) else type(default)
        value: T = self._converter.from_payload(saved, kind)
        return value

    def save_checkpoint(self, value: Any) -> None:
        """Keep ``value`` for the next attempt.

        It travels with the next heartbeat and always with the end of the attempt. When the process dies, the next
        attempt sees the last value that the engine has acknowledged.
        """
        self._say(self._converter.to_payload(value, path="checkpoint"))

    def heartbeat(self, value: Any = None) -> None:
        """Say that the handler is alive; ``value``, if given, is the new checkpoint."""
        if value is None:
            self._say(self._details)
        else:
            self._say(self._converter.to_payload(value, path="checkpoint"))

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the handler is; shown to whoever looks at the task."""
        self._progress = Progress(done, total, note)
        self._say(self._details)

    def _say(self, details: Payload | None) -> None:
        if self._progress is not None:
            kept = details or self._loaded or Payload(ABSENT)
            metadata = {**(kept.metadata or {}), "progress": msgspec.json.encode(self._progress)}
            details = Payload(kept.encoding, kept.data, metadata, kept.blob, kept.size)
        self._details = details
        if self._notify is not None:
            self._notify()


_PLAIN: Final = (bool, int, float, str, list, dict)


def _instant(at: int) -> datetime | None:
    return datetime.fromtimestamp(at / SECOND, UTC) if at else None
