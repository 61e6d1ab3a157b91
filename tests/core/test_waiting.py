"""What a run waits for at its activities is said in words that people use."""

import pytest

from outlast.core.replies import PendingActivity, TaskState
from outlast.core.waiting import at_activities


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (TaskState.ENQUEUED, 'a worker of queue "bulk" to take activity "charge"'),
        (TaskState.LEASED, 'activity "charge", which runs: attempt 2 of 5'),
        (TaskState.RETRY_WAIT, 'activity "charge" to be tried again: attempt 2 of 5 failed'),
    ],
)
def test_each_state_of_an_activity_is_said_in_words(state: TaskState, said: str) -> None:
    activity = PendingActivity(
        activity_id="1",
        scheduled_event_id=5,
        task_id="r:5",
        type="charge",
        queue="bulk",
        state=state,
        attempt=2,
        attempts_max=5,
    )

    assert at_activities(activity, 1) == said
    assert at_activities(activity, 3) == f"{said}, and 2 more"
