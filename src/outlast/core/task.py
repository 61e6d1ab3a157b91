"""The state of a task in memory: its row, opened up.

The states have names of their own here: an enumeration's member costs ten times a global to look up, and a task's life
looks at some thirty.
"""

from typing import Final

import msgspec

from outlast.core.replies import TaskState
from outlast.core.writes import TaskSpec, TaskStatus

ENQUEUED: Final = TaskState.ENQUEUED
LEASED: Final = TaskState.LEASED
RETRY_WAIT: Final = TaskState.RETRY_WAIT
SUCCEEDED: Final = TaskState.SUCCEEDED
FAILED: Final = TaskState.FAILED
CANCELED: Final = TaskState.CANCELED
EXPIRED: Final = TaskState.EXPIRED
TERMINAL: Final = frozenset({SUCCEEDED, FAILED, CANCELED, EXPIRED})
LETTERS: Final = TERMINAL - {SUCCEEDED}  # it ended without success: it may be brought back


class Task(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """One task, standalone or an activity of a run. A Struct, since it is made faster than a dataclass."""

    namespace: str
    task_id: str
    queue: str
    type: str
    spec: TaskSpec
    status: TaskStatus
    build: str = ""
    state: TaskState = ENQUEUED
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

    @property
    def start_by(self) -> int:
        """The instant by which its first attempt must begin, 0 for none."""
        return self.status.start_by if self.status.retries else self.spec.start_by

    @property
    def close_by(self) -> int:
        """The instant by which it must end, 0 for none."""
        return self.status.close_by if self.status.retries else self.spec.close_by

    def expiry(self) -> int:
        """Return the instant at which the lease ends unless something is heard: the first of its three ends."""
        status = self.status
        end = self.lease_until
        if 0 < status.attempt_deadline < end:
            end = status.attempt_deadline
        return status.heartbeat_deadline if 0 < status.heartbeat_deadline < end else end
