"""The names of the counters that commits keep: tasks by queue and state, runs by status. Stored names never change."""

from typing import Final

from outlast.core.replies import RunStatus, TaskState

TASKS: Final = "tasks"
RUNS: Final = "runs"


def counter_of(queue: str, state: TaskState | RunStatus) -> str:
    """Return the name of the counter of tasks of ``queue`` in ``state``, or of runs in that status."""
    return f"{TASKS}:{queue}:{state}" if isinstance(state, TaskState) else f"{RUNS}:{state}"


def counted_by(name: str) -> tuple[str, str, str]:
    """Return what the counter ``name`` counts: TASKS or RUNS (or what is no count), in which queue, in which state."""
    of, _, rest = name.partition(":")
    queue, _, state = rest.rpartition(":")
    return of, queue, state


def is_count(name: str) -> bool:
    """Say whether the counter ``name`` counts tasks or runs; others keep what an owner has to remember."""
    return counted_by(name)[0] in {TASKS, RUNS}
