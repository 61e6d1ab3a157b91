"""The seam between the verbs users write (``charge.execute(o)``) and the run whose code writes them.

Inside workflow code the verbs mean commands; outside they mean requests to an engine. ``current_runtime`` tells which.
"""

from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any, Final, Protocol

from outlast.sdk.definition import TaskDefinition, TaskOptions


class WorkflowRuntime(Protocol):
    """A run whose code is executing on this thread now."""

    workflow_id: str
    run_id: str

    def execute_activity(
        self, definition: TaskDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskOptions
    ) -> Awaitable[Any]:
        """Schedule the activity at once and return what gives its result; cancelling that cancels the activity."""
        ...

    def enqueue_detached(
        self, definition: TaskDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskOptions
    ) -> str:
        """Enqueue a standalone task in the commit of this turn; return its id."""
        ...

    def receive_signal(self, name: str, type: Any, timeout: float | None) -> Awaitable[Any]:
        """Return the next signal of this name, in order of arrival. ``timeout`` in seconds, then TimeoutError."""
        ...


CURRENT: Final[ContextVar[WorkflowRuntime | None]] = ContextVar("outlast_workflow_runtime", default=None)


def current_runtime() -> WorkflowRuntime | None:
    """Return the run whose code is executing here, or None outside workflow code."""
    return CURRENT.get()
