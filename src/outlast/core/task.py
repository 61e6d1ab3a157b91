"""The state of a task in memory: its row, opened up."""

from dataclasses import dataclass

from outlast.core.inputs import TaskState
from outlast.core.units import FOREVER
from outlast.core.writes import TaskSpec, TaskStatus

TERMINAL = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELED, TaskState.EXPIRED})


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One task, standalone or an activity of a run."""

    namespace: str
    task_id: str
    queue: str
    type: str
    spec: TaskSpec
    status: TaskStatus
    build: str = ""
    state: TaskState = TaskState.ENQUEUED
    reason: str = ""
    ready: bool = False
    order_key: int = 0
    attempt: int = 0
    lease: int = 0
    lease_until: int = 0
    worker: str = ""
    run_at: int = 0
    enqueued_at: int = 0
    closed_at: int = 0
    run_id: str = ""
    scheduled_event_id: int = 0
    principal: str = ""
    identity: str = ""

    # Only in memory.
    stored: bool = False
    pinned: int = 0
    in_window: bool = False

    @property
    def closed(self) -> bool:
        return self.state in TERMINAL

    @property
    def attempts_max(self) -> int:
        return self.spec.retry.attempts_max

    @property
    def begin_needed(self) -> bool:
        """Whether its handler may only run after an acknowledged ``Begin`` (ARCHITECTURE §8)."""
        return self.spec.retry.attempts_max == 1

    def expiry(self) -> int:
        """Return the instant at which the lease ends unless something is heard: the first of its three ends."""
        status = self.status
        return min(self.lease_until, status.attempt_deadline or FOREVER, status.heartbeat_deadline or FOREVER)
