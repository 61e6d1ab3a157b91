"""The tree of what the SDK raises and users catch; ``outlast.sdk.errors`` is its door.

Exception
├── Fatal                     raised by a task: no further attempt
├── RetryableError            raised by a task: another attempt, after a delay it may choose
└── OutlastError              has code and remedy
    ├── TaskError             what a failed task raises in its caller; TimedOut, Canceled, WorkerLost
    ├── WorkflowFailed        how a run ended: WorkflowCanceled, WorkflowTerminated, WorkflowTimedOut
    ├── QueryFailed, NotPublished
    ├── InvalidDuration, NotSerializable, PayloadTooLarge, NotReadable, BadArguments
    ├── NotFound, Conflict, Unavailable
    └── HoldsRun              a mistake in the code: the workflow task fails and the run is held, never lost
        ├── Nondeterminism, DirectCall, SandboxViolation, UnsupportedHere
        └── WorkflowTaskFailure, HistoryGap
"""

from typing import Any

from outlast.core.failure import Failure


class Fatal(Exception):
    """Raise it in a task when another attempt would be pointless."""


class RetryableError(Exception):
    """Raise it in a task to be tried again; ``next_delay`` (as durations are written) overrides the backoff."""

    def __init__(self, message: str = "", *, next_delay: Any = None) -> None:
        super().__init__(message)
        self.next_delay = next_delay


class OutlastError(Exception):
    """Anything Outlast itself raises. ``code`` is for programs and never changes its meaning; ``remedy`` says what to do."""

    code: str = "internal"
    remedy: str = ""

    def __init__(self, fact: str, *, remedy: str = "", code: str = "") -> None:
        super().__init__(fact)
        self.fact = fact
        if code:
            self.code = code
        if remedy:
            self.remedy = remedy
            self.add_note(remedy)


class TaskError(OutlastError):
    """A task that was waited for has failed for good.

    ``type`` and ``message`` are those of the exception it raised; ``trace`` is its text on the worker. If that
    exception's class is loaded here, what is raised is an instance of it as well, so ``except CardDeclined`` works.
    """

    code = "task_failed"

    def __init__(self, fact: str, *, failure: Failure, task: str = "", attempt: int = 0) -> None:
        super().__init__(fact)
        self.failure = failure
        self.type = failure.type
        self.message = failure.message
        self.trace = failure.trace
        self.task = task
        self.attempt = attempt


class TimedOut(TaskError):
    """A task ran into one of its timeouts; ``type`` says which."""

    code = "task_timed_out"


class Canceled(TaskError):
    """A task was cancelled by somebody else than its caller."""

    code = "task_canceled"


class WorkerLost(TaskError):
    """The worker vanished on each attempt: the task itself may be what kills it."""

    code = "worker_lost"


class WorkflowFailed(OutlastError):
    """A run has ended without a result. ``failure`` says how."""

    code = "workflow_failed"

    def __init__(
        self, fact: str, *, workflow_id: str = "", run_id: str = "", failure: Failure | None = None, remedy: str = ""
    ) -> None:
        super().__init__(fact, remedy=remedy)
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.failure = failure
        self.type = failure.type if failure else ""
        self.message = failure.message if failure else ""
        self.trace = failure.trace if failure else ""


class WorkflowCanceled(WorkflowFailed):
    """The run was asked to stop, and did."""

    code = "workflow_canceled"


class WorkflowTerminated(WorkflowFailed):
    """The run was stopped from outside without being asked."""

    code = "workflow_terminated"


class WorkflowTimedOut(WorkflowFailed):
    """The run was open longer than its run timeout."""

    code = "workflow_timed_out"


class InvalidDuration(OutlastError, ValueError):
    """Not a length of time."""

    code = "invalid_request"


class NotSerializable(OutlastError, TypeError):
    """A value cannot be written so that it would come back the same. ``path`` names it: ``order.items[2].price``."""

    code = "invalid_request"

    def __init__(self, fact: str, *, path: str = "", remedy: str = "") -> None:
        super().__init__(fact, remedy=remedy)
        self.path = path


class NotReadable(OutlastError, ValueError):
    """A stored value does not have the type that the code expects, cannot be decoded, or is lost; ``code`` says which."""

    code = "invalid_request"

    def __init__(self, fact: str, *, path: str = "", remedy: str = "", code: str = "") -> None:
        super().__init__(fact, remedy=remedy, code=code)
        self.path = path


class QueryFailed(OutlastError):
    """A query method has raised, or there is none of that name; ``type`` and ``message`` are those of what it raised."""

    code = "query_failed"

    def __init__(self, fact: str, *, failure: Failure) -> None:
        super().__init__(fact)
        self.failure = failure
        self.type = failure.type
        self.message = failure.message


class NotPublished(OutlastError, KeyError):
    """The run has published nothing under that name, or not yet."""

    code = "not_published"

    def __str__(self) -> str:
        return self.fact


class PayloadTooLarge(OutlastError):
    """A value is over limits.PAYLOAD_BYTES_MAX."""

    code = "payload_too_large"

    def __init__(self, fact: str, *, path: str, size: int, limit: int, remedy: str = "") -> None:
        super().__init__(fact, remedy=remedy)
        self.path = path
        self.size = size
        self.limit = limit


class BadArguments(OutlastError, TypeError):
    """The arguments do not fit the signature."""

    code = "invalid_request"


class NotFound(OutlastError):
    """No such workflow, run or task in this namespace."""

    code = "workflow_not_found"


class Conflict(OutlastError):
    """The state of things does not allow it."""

    code = "workflow_already_open"


class Unavailable(OutlastError):
    """The engine could not answer; the same request may succeed later."""

    code = "unavailable"


class HoldsRun(OutlastError):
    """A mistake in workflow code or in its deployment. The run is held until the code is right; nothing is lost."""

    cause: str = "workflow_worker_unhandled_failure"


class Nondeterminism(HoldsRun):
    """Workflow code and its history disagree. Nothing new was executed."""

    code = "nondeterminism"
    cause = "non_deterministic_error"

    def __init__(
        self, fact: str, *, event_id: int, recorded: str, replayed: str, place: str = "", remedy: str = ""
    ) -> None:
        super().__init__(fact, remedy=remedy)
        self.event_id = event_id
        self.recorded = recorded
        self.replayed = replayed
        self.place = place


class DirectCall(HoldsRun):
    """A task was called like a plain function inside workflow code."""

    code = "direct_call"


class SandboxViolation(HoldsRun):
    """Workflow code read the clock, chance, a file, a socket or a thread of the machine it happens to run on."""

    code = "sandbox_violation"


class NeverAwaited(HoldsRun):
    """Workflow code came to its end without having awaited what a verb returned: what it stands for was not done."""

    code = "never_awaited"


class UnsupportedHere(HoldsRun):
    """It cannot be done in this place; the remedy says what to write instead."""

    code = "unsupported_here"


class HistoryGap(HoldsRun):
    """The events that came do not follow those that were seen: drop the run and read its history from the start."""

    code = "history_gap"


class WorkflowTaskFailure(HoldsRun):
    """A turn of workflow code failed for a reason that is not the run's own. ``failure`` is what to record."""

    code = "workflow_task_failed"

    def __init__(self, fact: str, *, failure: Failure, cause: str = "workflow_worker_unhandled_failure") -> None:
        super().__init__(fact)
        self.failure = failure
        self.cause = cause
