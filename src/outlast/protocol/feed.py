"""What stands in a feed beside the events of histories, and what can be asked for instead of a cursor."""

from typing import Final

NOW: Final = "now"  # instead of a cursor: only what is committed from here on

TASK_ENQUEUED: Final = "TaskEnqueued"
TASK_ATTEMPT_ENDED: Final = "TaskAttemptEnded"
TASK_RETRIED: Final = "TaskRetried"
TASK_CLOSED: Final = "TaskClosed"
FORGOTTEN: Final = "Forgotten"  # an event of a history that is not kept any more
