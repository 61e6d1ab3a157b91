"""Halving a batch and joining the replies: nothing is lost, doubled or moved."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    CompleteWorkflowTasks,
    EnqueueTask,
    EnqueueTasks,
    StopWorker,
    WorkflowTaskDone,
    WorkflowTaskNotDone,
    WorkflowToken,
)
from outlast.core.replies import (
    Accepted,
    CompletionsReply,
    HeartbeatAnswer,
    HeartbeatReply,
    Refused,
    TaskEnqueuedReply,
    TasksEnqueued,
    WorkflowTaskReply,
    WorkflowTasksReply,
)
from outlast.protocol.halves import halves_of, joined

FAILURE = Failure(kind=FailureKind.APPLICATION, type="X", message="y")


@given(st.integers(2, 40))
def test_the_halves_of_a_batch_are_the_batch(count: int) -> None:
    items = tuple(EnqueueTask(task_id=f"t-{n}", type="t", queue="q") for n in range(count))

    halves = halves_of(EnqueueTasks(items=items))

    assert halves is not None
    first, second = halves
    assert isinstance(first, EnqueueTasks)
    assert isinstance(second, EnqueueTasks)
    assert first.items + second.items == items
    assert first.items
    assert second.items


@given(st.integers(0, 9), st.integers(0, 9))
def test_the_halves_of_turns_keep_their_run_ids(done: int, not_done: int) -> None:
    request = CompleteWorkflowTasks(
        worker="w",
        done=tuple(WorkflowTaskDone(token=WorkflowToken(f"r-{n}", 1, 1, n)) for n in range(done)),
        not_done=tuple(
            WorkflowTaskNotDone(token=WorkflowToken(f"x-{n}", 1, 1, n), cause="c", failure=FAILURE)
            for n in range(not_done)
        ),
        new_run_ids=tuple(f"new-{n}" for n in range(done)),
    )

    halves = halves_of(request)

    if halves is None:
        assert done + not_done <= 1
        return
    first, second = halves
    assert isinstance(first, CompleteWorkflowTasks)
    assert isinstance(second, CompleteWorkflowTasks)
    assert first.done + second.done == request.done
    assert first.not_done + second.not_done == request.not_done
    for half in (first, second):
        assert [turn.token.run_id[2:] for turn in half.done] == [run_id[4:] for run_id in half.new_run_ids]
        assert half.done or half.not_done


@pytest.mark.parametrize(
    "request_",
    [StopWorker(worker="w"), EnqueueTasks(items=(EnqueueTask(task_id="t", type="t", queue="q"),))],
    ids=["no batch", "one item"],
)
def test_what_cannot_be_divided_stays_whole(request_: Any) -> None:
    assert halves_of(request_) is None


def test_replies_are_joined_in_order() -> None:
    one, two = TaskEnqueuedReply(task_id="1"), TaskEnqueuedReply(task_id="2")
    beat = HeartbeatAnswer(action="continue")
    turn = WorkflowTaskReply(last_event_id=3)

    assert joined(TasksEnqueued(items=(one,)), TasksEnqueued(items=(two,))) == TasksEnqueued(items=(one, two))
    assert joined(CompletionsReply(items=(None,)), CompletionsReply(items=())) == CompletionsReply(items=(None,))
    assert joined(HeartbeatReply(items=(beat,)), HeartbeatReply(items=(beat,))) == HeartbeatReply(items=(beat, beat))
    assert joined(WorkflowTasksReply(done=(turn,)), WorkflowTasksReply(not_done=(turn,))) == WorkflowTasksReply(
        done=(turn,), not_done=(turn,)
    )


def test_a_refused_half_refuses_the_whole() -> None:
    refused = Refused(code="busy", fact="full", retryable=True)

    assert joined(TasksEnqueued(items=()), refused) == refused
    with pytest.raises(TypeError):
        joined(TasksEnqueued(items=()), Accepted())
