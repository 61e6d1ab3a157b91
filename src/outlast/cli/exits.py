"""Exit codes, and how what went wrong is said: code, fact, remedy, on stderr; never a traceback for bad input."""

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outlast.core.replies import RunStatus, TaskState

DONE: Final = 0
FAILED: Final = 1  # the run failed
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4  # conflict, precondition, not allowed, a store that cannot be used
NOT_REACHED: Final = 5
WAITED: Final = 6
FOUND_PROBLEMS: Final = 7
INTERRUPTED: Final = 130

_BY_CODE: Final = {
    "invalid_request": USAGE,
    "unknown_field": USAGE,
    "invalid_query": USAGE,
    "invalid_cursor": USAGE,
    "malformed_body": USAGE,
    "payload_too_large": USAGE,
    "body_too_large": USAGE,
    "no_app": USAGE,
    "no_module": NOT_FOUND,
    "namespace_not_found": NOT_FOUND,
    "workflow_not_found": NOT_FOUND,
    "task_not_found": NOT_FOUND,
    "store_not_found": NOT_FOUND,
    "timeout": NOT_REACHED,
    "unavailable": NOT_REACHED,
    "not_owner": NOT_REACHED,
    "store_full": NOT_REACHED,
}


def exit_code_of(code: str) -> int:
    """Return the exit code for an error's code."""
    return _BY_CODE.get(code, REFUSED)


def of_status(status: "RunStatus") -> int:
    """Return the exit code for a run that ended so."""
    return DONE if status.value in {"completed", "continued_as_new"} else FAILED


def of_state(state: "TaskState") -> int:
    """Return the exit code for a task that ended so."""
    return DONE if state.value == "succeeded" else FAILED


def complain(code: str, fact: str, remedy: str) -> int:
    """Say what is wrong and what to do; return the exit code."""
    sys.stderr.write(f"outlast: {fact}  [{code}]\n")
    if remedy:
        sys.stderr.write(f"  → {remedy}\n")
    return exit_code_of(code)
