"""What to raise for a task or a run that ended without a result."""

from typing import Final

from outlast.core.failure import Failure, FailureKind
from outlast.core.replies import RunStatus, TaskOutcomeReply, TaskState, WorkflowOutcome
from outlast.sdk.errors import (
    QueryFailed,
    WorkflowCanceled,
    WorkflowFailed,
    WorkflowTerminated,
    WorkflowTimedOut,
    exception_of,
)

_RUN_ENDS: Final[dict[RunStatus, type[WorkflowFailed]]] = {
    RunStatus.CANCELED: WorkflowCanceled,
    RunStatus.TERMINATED: WorkflowTerminated,
    RunStatus.TIMED_OUT: WorkflowTimedOut,
}


def task_error(reply: TaskOutcomeReply) -> Exception:
    """Return the exception for a task that has not succeeded; its kind says how it ended."""
    failure = reply.failure
    if failure is None or reply.state is TaskState.CANCELED:
        kinds = {TaskState.CANCELED: FailureKind.CANCELED, TaskState.EXPIRED: FailureKind.TIMEOUT}
        failure = Failure(
            kind=kinds.get(reply.state, FailureKind.SERVER),
            type=reply.state.value,
            message=f"Task {reply.task_id} was {reply.state.value}"
            + (f": {reply.reason}" if reply.reason else "")
            + ".",
            cause=failure,
        )
    return exception_of(failure, task=reply.task_id, attempt=reply.attempt)


def workflow_error(reply: WorkflowOutcome) -> WorkflowFailed:
    """Return the exception for a run that has not completed, with what it ended with as its cause."""
    kind = _RUN_ENDS.get(reply.status, WorkflowFailed)
    words = reply.status.value.replace("_", " ")
    said = f": {reply.failure.type}: {reply.failure.message}" if reply.failure is not None else ""
    error = kind(
        f"Workflow {reply.workflow_id} (run {reply.run_id}) {words}{said}",
        workflow_id=reply.workflow_id,
        run_id=reply.run_id,
        failure=reply.failure,
        remedy=f"See:  outlast workflow show {reply.workflow_id}",
    )
    if reply.failure is not None:
        error.__cause__ = exception_of(reply.failure)
    return error


def query_error(failure: Failure, workflow_id: str) -> QueryFailed:
    """Return the exception for a query whose method has raised, with what it raised as its cause."""
    error = QueryFailed(f"The query to {workflow_id} failed: {failure.type}: {failure.message}", failure=failure)
    error.__cause__ = exception_of(failure)
    return error
