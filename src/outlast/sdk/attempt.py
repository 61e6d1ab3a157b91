"""One attempt at a task in this process: from its lease to what it ended with."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final

from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import TaskCanceled, TaskFailed, TaskOutcome, TaskSucceeded
from outlast.core.limits import TASK_LEASE
from outlast.core.payload import Payload
from outlast.core.replies import TaskLease
from outlast.sdk.context import TaskContext
from outlast.sdk.converter import Converter
from outlast.sdk.definition import TaskDefinition
from outlast.sdk.errors import BadArguments, NotReadable, NotSerializable, OutlastError, PayloadTooLarge, failure_of
from outlast.sdk.failures import told

RESULT_NOT_SERIALIZABLE: Final = "RESULT_NOT_SERIALIZABLE"
ARGUMENTS_NOT_READABLE: Final = "ARGUMENTS_NOT_READABLE"
BEATS_PER_LEASE: Final = 3  # two heartbeats may be lost before the lease is


class Attempt:
    """A lease, the handler that works under it and, in the end, the outcome. Owned by the worker's loop until it runs."""

    __slots__ = (
        "asked_to_stop",
        "beat_at",
        "complaint",
        "context",
        "converter",
        "definition",
        "held",
        "is_async",
        "lease",
        "lost",
        "outcome",
        "renewed_at",
        "said",
        "said_pause",
        "sent_at",
        "started",
        "taken_at",
        "task",
        "ticket",
        "void",
        "window",
    )

    def __init__(self, lease: TaskLease, definition: TaskDefinition, converter: Converter, now: float) -> None:
        self.lease = lease
        self.definition = definition
        self.converter = converter
        self.is_async = definition.is_async
        self.context: TaskContext | None = None
        self.window = (lease.lease or TASK_LEASE) / 1e9  # seconds from one renewal to the loss
        self.taken_at = now  # monotonic seconds, as the next three
        self.renewed_at = now  # when the request for the last renewal was sent
        self.sent_at = now  # when the last heartbeat was sent, answered or not
        self.beat_at = now + self.window / BEATS_PER_LEASE
        self.said = False  # the handler has said something that has not been sent
        given = (lease.deadline - lease.started_at) / 1e9 if lease.deadline else self.window
        self.said_pause = min(self.window, (lease.heartbeat / 1e9) or self.window, given, 5.0) / 5
        self.started = False
        self.ticket = [True]  # whoever pops it may start the attempt, or hand it back
        self.held = True  # it takes up a slot
        self.asked_to_stop = False  # somebody wants the task cancelled
        self.lost = False  # the handler was told that its lease is lost
        self.void = False  # the engine has said that the lease is lost: the outcome goes nowhere
        self.task: asyncio.Task[None] | None = None
        self.outcome: TaskOutcome | None = None
        self.complaint = ""  # what a log says of an outcome that is a failure

    @property
    def name(self) -> str:
        """For people: the type and id of the task, and which attempt this is."""
        return f"{self.definition.name} {self.lease.token.task_id} (attempt {self.lease.attempt})"

    @property
    def details(self) -> Payload | None:
        """What the handler said last."""
        return None if self.context is None else self.context.details

    def claim(self) -> bool:
        """Return True to one caller only: it may start the attempt or hand its lease back. From any thread."""
        try:
            self.ticket.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Call the plain function and keep what comes of it in ``outcome``. Never raises."""
        try:
            args, kwargs = self._arguments()
        except BaseException as error:  # noqa: BLE001 - whatever a converter raises is the attempt's end, not the thread's
            self.outcome = self._sealed(_unreadable(error))
            return
        try:
            result = self.definition.function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the attempt's end, not the thread's; SystemExit as well
            self.outcome = self._sealed(self._failed(error))
            return
        self._succeeded(result)

    async def arun(self) -> None:
        """Await the coroutine and keep what comes of it in ``outcome``. Never raises, not even CancelledError."""
        try:
            args, kwargs = self._arguments()
        except BaseException as error:  # noqa: BLE001 - as in run
            self.outcome = self._sealed(_unreadable(error))
            return
        try:
            result = await self.definition.function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - as in run
            self.outcome = self._sealed(self._failed(error))
            return
        self._succeeded(result)

    def prepare(self, notify: "Callable[[Attempt], None]") -> None:
        """Make the context the handler gets, if it takes one; ``notify`` is called when it says something."""
        if self.definition.takes_context:
            self.context = TaskContext(self.lease, self.converter, lambda: notify(self))

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = self.converter.payloads_to_arguments(self.definition.parameters, self.lease.input)
        return ((self.context, *args) if self.context is not None else tuple(args)), kwargs

    def _succeeded(self, result: Any) -> None:
        try:
            if inspect.iscoroutine(result):
                result.close()
                raise NotSerializable(
                    "the result is a coroutine that was not awaited",
                    remedy="Await it, or declare the task `async def`.",
                )
            payload = self.converter.to_payload(result, path="result", declared=self.definition.parameters.result)
        except Exception as error:  # noqa: BLE001 - any value at all may come back from user code
            self.outcome = self._sealed(TaskFailed(failure=_not_serializable(error)))
            return
        self.outcome = TaskSucceeded(result=(payload,))

    def refused(self, outcome: TaskOutcome) -> None:
        """Put ``outcome`` in the place of one that the engine does not take."""
        self.outcome = self._sealed(outcome)

    def _sealed(self, outcome: TaskOutcome) -> TaskOutcome:
        """Return ``outcome`` as it may leave this program, having noted what a log may say of it."""
        if not isinstance(outcome, TaskFailed):
            return outcome
        failure = outcome.failure
        self.complaint = told(self.converter.logged(failure.said, failure), failure)
        return TaskFailed(failure=self.converter.sealed(failure))

    def _failed(self, error: BaseException) -> TaskOutcome:
        context = self.context
        if isinstance(error, asyncio.CancelledError):
            if self.asked_to_stop or self.lost or (context is not None and context.cancelled):
                return TaskCanceled()
            return TaskFailed(
                failure=Failure(
                    kind=FailureKind.APPLICATION, type="CancelledError", message="The handler cancelled itself."
                )
            )
        failure = recorded(error)
        finals = self.definition.options.retry.final_types
        if finals and not failure.final and any(kind.__name__ in finals for kind in type(error).__mro__):
            return TaskFailed(failure=_made_final(failure))
        return TaskFailed(failure=failure)


def recorded(error: BaseException) -> Failure:
    """Return ``error`` as it is stored; whatever its text does, there is a failure to record."""
    try:
        return failure_of(error)
    except Exception:  # noqa: BLE001 - losing the failure would leave the task leased
        return Failure(
            kind=FailureKind.APPLICATION, type=type(error).__name__, message="(the error itself cannot be written down)"
        )


def too_large(refused_code: str, fact: str) -> TaskOutcome:
    """Return the outcome in place of one that the engine does not take for good."""
    return TaskFailed(
        failure=Failure(
            kind=FailureKind.APPLICATION,
            type=RESULT_NOT_SERIALIZABLE,
            message=f"The engine does not take the result ({refused_code}): {fact}",
            final=True,
        )
    )


def _not_serializable(error: Exception) -> Failure:
    path = getattr(error, "path", "") if isinstance(error, NotSerializable | PayloadTooLarge) else ""
    remedy = error.remedy if isinstance(error, OutlastError) else ""
    inner = recorded(error)
    return Failure(
        kind=FailureKind.APPLICATION,
        type=RESULT_NOT_SERIALIZABLE,
        message=inner.message,
        final=True,
        info={"path": path, "remedy": remedy} if path or remedy else {},
    )


def _unreadable(error: BaseException) -> TaskOutcome:
    inner = recorded(error)
    known = isinstance(error, NotReadable | BadArguments)
    return TaskFailed(
        failure=Failure(
            kind=FailureKind.APPLICATION,
            type=ARGUMENTS_NOT_READABLE if known else inner.type,
            message=inner.message,
            trace="" if known else inner.trace,
            final=known,
            info=inner.info,
        )
    )


def _made_final(failure: Failure) -> Failure:
    return Failure(
        kind=failure.kind,
        type=failure.type,
        message=failure.message,
        trace=failure.trace,
        final=True,
        details=failure.details,
        cause=failure.cause,
        info=failure.info,
        extra=failure.extra,
    )
