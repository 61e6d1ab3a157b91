"""What a run has open and waits for: activities, conditions, signals; and how each is cancelled."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from outlast.core.events import WorkflowExecutionSignaled
from outlast.core.failure import Failure, FailureKind
from outlast.sdk.definition import TaskDefinition
from outlast.sdk.failures import exception_of
from outlast.sdk.loop import Future


class Canceling(Protocol):
    """What can take an activity back."""

    def cancel_activity(self, future: "ActivityFuture") -> bool:
        """Ask for the cancel; True if the activity was not even asked for yet and is taken back at once."""
        ...


class ActivityFuture(Future):
    """The result of an activity. Cancelling it asks the engine; it resolves when the activity's end is recorded."""

    __slots__ = ("absorbing", "activity_id", "canceling", "definition", "index", "requested", "scheduled_event_id")
    activity_id: str
    definition: TaskDefinition
    index: int  # of its command in the turn that scheduled it
    scheduled_event_id: int  # 0 until that turn is over
    requested: bool  # a cancel was asked for
    absorbing: bool  # the cancel of the run stopped here: the run's main task waits for it directly
    canceling: Canceling

    def cancel(self, msg: Any = None) -> bool:
        if self.done():
            return False
        if self.requested:
            return True
        self.requested = True
        if self.canceling.cancel_activity(self):
            return super().cancel(msg)
        return True

    def end_canceled(self) -> None:
        """The cancel that was asked for is recorded: raise CancelledError in what waits."""
        super().cancel()


@dataclass(slots=True)
class Condition:
    """A ``wait_until`` that is not true yet."""

    holds: Callable[[], object]
    future: Future


@dataclass(slots=True)
class Received:
    """A signal that waits for its receiver. ``event_id`` is 1 for one that an earlier run of the chain handed on."""

    event_id: int
    event: WorkflowExecutionSignaled


@dataclass(slots=True)
class Mailbox:
    """The signals of one name, in order of arrival, and the code that waits for the next."""

    signals: deque[Received] = field(default_factory=deque[Received])
    waiters: deque[Future] = field(default_factory=deque[Future])

    def wake(self) -> None:
        """Let the first receiver that still waits look again."""
        while self.waiters and self.signals:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class ContinueRequested(BaseException):
    """Raised by ``workflow.continue_as_new`` to leave the main function; passes through ``except Exception``."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__("continue as new")
        self.positional = args
        self.named = kwargs


def waiting_for(task: "asyncio.Task[Any]") -> Any:
    """Return the future that ``task`` waits for, None if it runs or has ended."""
    return getattr(task, "_fut_waiter", None)


def canceled_by_others(future: ActivityFuture) -> Exception:
    """Return what to raise for an activity that somebody cancelled who is not this run."""
    failure = Failure(kind=FailureKind.CANCELED, type="Canceled", message="The task was cancelled from outside.")
    return exception_of(failure, task=future.definition.name)
