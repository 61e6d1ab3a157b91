"""What a handler can ask of its context when it stands alone, as in a unit test."""

import asyncio

import pytest

from outlast import TaskContext
from outlast.sdk.errors import NotSerializable


def test_a_context_for_a_test_says_what_it_was_made_with() -> None:
    ctx = TaskContext.for_test(attempt=2, attempts_max=4, task_id="t", operation_id="op")

    assert (ctx.attempt, ctx.attempts_max, ctx.task_id, ctx.operation_id) == (2, 4, "t", "op")


def test_a_context_begins_with_the_checkpoint_of_the_attempt_before() -> None:
    ctx = TaskContext.for_test(checkpoint={"row": 7})

    assert ctx.checkpoint(default=None) == {"row": 7}


def test_a_checkpoint_that_was_saved_is_the_next_one_read() -> None:
    ctx = TaskContext.for_test(checkpoint=1)

    ctx.save_checkpoint(2)

    assert ctx.checkpoint(default=0) == 2


def test_without_a_checkpoint_the_default_comes_back() -> None:
    ctx = TaskContext.for_test()

    ctx.progress(1, total=2)
    ctx.heartbeat()

    assert ctx.checkpoint(default="start") == "start"


def test_a_checkpoint_that_cannot_be_written_is_refused_where_it_is_saved() -> None:
    ctx = TaskContext.for_test()

    with pytest.raises(NotSerializable, match="checkpoint"):
        ctx.save_checkpoint(object())


def test_a_cancelled_handler_leaves_by_an_exception_that_no_except_clause_takes() -> None:
    ctx = TaskContext.for_test(cancelled=True)

    assert ctx.cancelled
    with pytest.raises(asyncio.CancelledError):
        ctx.raise_if_cancelled()


def test_an_operation_id_falls_back_to_the_tasks_own() -> None:
    assert TaskContext.for_test(task_id="t", operation_id="").operation_id == "t"
