"""Ids that grow with time: what is surely new is not looked for, what may be stored is."""

import pytest

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.shard.freshness import COUNTER, mark_of, rank_of, time_of
from tests.core.world import World, enqueue_of, payload


def uuid7(n: int) -> str:
    """Return an id as time-ordered ids look, the ``n``-th in order."""
    return f"{n:08x}-0000-7000-8000-00000000abcd"


def test_ranks_grow_with_the_time_in_the_id() -> None:
    assert rank_of(uuid7(1)) < rank_of(uuid7(2))


def test_ranks_grow_with_the_count_within_a_millisecond() -> None:
    assert rank_of(f"{uuid7(1)[:-4]}abcd") < rank_of(f"{uuid7(1)[:-4]}abce") < rank_of(uuid7(2))


def test_the_time_in_a_rank_is_that_of_the_id_without_the_version() -> None:
    assert time_of(rank_of("0123abcd-4567-7fed-8000-00000000abcd")) == 0x0123ABCD4567FED


@pytest.mark.parametrize("end", ["0000-7000-8000-00000000abcd", "ffff-7fff-bfff-ffffffffffff"])
def test_a_new_owner_takes_no_id_of_the_stored_time_for_new_and_every_later_one(end: str) -> None:
    stored = rank_of(f"00000005-{end}")

    mark = mark_of({COUNTER: time_of(stored)})

    assert stored <= mark
    assert rank_of(f"00000005-{end[:24]}ffff") <= mark
    assert mark < rank_of("00000006-0000-7000-8000-000000000000")
    assert time_of(mark) == time_of(stored)


@pytest.mark.parametrize(
    "name",
    [
        "", "t", "00000001-0000-4000-8000-00000000abcd", "00000001-0000-7000-8000-00000000abc",
        "0000000g-0000-7000-8000-00000000abcd", "00000001+0000-7000-8000-00000000abcd",
        "000-0001-0000-7000-8000-00000000abcd"[:36],
    ],
    ids=["empty", "short", "another version", "too short", "no digit", "another sign", "signs elsewhere"],
)  # fmt: skip
def test_names_of_another_shape_have_no_rank(name: str) -> None:
    assert rank_of(name) == 0


def test_a_new_id_is_not_looked_for() -> None:
    world = World()
    world.poll()
    world.hold_loads = True

    world.enqueue(uuid7(5))

    assert world.pages == []


def test_of_ids_of_one_millisecond_only_a_later_one_is_not_looked_for() -> None:
    world = World()
    world.poll()
    world.enqueue(f"{uuid7(5)[:-4]}5555")
    world.hold_loads = True

    world.enqueue(f"{uuid7(5)[:-4]}6666")
    assert world.pages == []
    waiting = world.send(enqueue_of(f"{uuid7(5)[:-4]}4444"))
    assert len(world.pages) == 1
    world.hand_in()
    assert waiting in world.answers


def test_after_a_restart_every_id_of_the_last_stored_millisecond_is_looked_for() -> None:
    world = World()
    world.enqueue(f"{uuid7(5)[:-4]}6666")
    world.restart()

    assert world.enqueue(f"{uuid7(5)[:-4]}6666").replayed
    world.hold_loads = True
    asked = len(world.pages)
    world.send(enqueue_of(f"{uuid7(5)[:-4]}7777"))
    assert len(world.pages) == asked + 1


def test_an_id_that_was_stored_is_known_after_a_restart() -> None:
    world = World()
    world.enqueue(uuid7(5))
    world.restart()

    assert world.enqueue(uuid7(5)).replayed


def test_an_older_id_is_looked_for() -> None:
    world = World()
    world.enqueue(uuid7(5))
    world.restart()

    assert world.enqueue(uuid7(4)) == replies.TaskEnqueuedReply(task_id=uuid7(4), polled=False)
    assert world.enqueue(uuid7(5)).replayed


def test_a_key_that_was_kept_is_known_after_a_restart() -> None:
    world = World()
    world.enqueue("t", key=uuid7(5))
    world.restart()

    assert world.enqueue("u", key=uuid7(5)) == replies.TaskEnqueuedReply(task_id="t", replayed=True)


def test_a_key_that_was_refused_may_be_used_after_a_restart() -> None:
    world = World()
    world.enqueue("t", input=(payload("A"),))
    world.ask(enqueue_of("t", key=uuid7(5)), replies.Refused)
    world.restart()

    assert world.enqueue("u", key=uuid7(5)) == replies.TaskEnqueuedReply(task_id="u", polled=False)


def test_a_signals_key_is_known_after_a_restart() -> None:
    world = World()
    world.start()
    world.signal(request_id=uuid7(9))
    world.restart()

    assert not world.signal(request_id=uuid7(9)).changed


def test_a_start_without_an_id_is_known_after_a_restart() -> None:
    world = World()
    first = world.start("", request_id=uuid7(8), run_id=uuid7(9))
    world.restart()

    again = world.start("", request_id=uuid7(8), run_id=uuid7(10))

    assert (again.run_id, again.replayed) == (first.run_id, True)


def test_a_run_that_followed_another_is_known_after_a_restart() -> None:
    world = World()
    world.start(run_id=uuid7(1))
    done = i.WorkflowTaskDone(token=world.turn().token, commands=(c.ContinueAsNew(),))
    world.ask(i.CompleteWorkflowTasks(worker="one", done=(done,), new_run_ids=(uuid7(2),)), replies.WorkflowTasksReply)
    world.restart()

    assert world.run_info(run_id=uuid7(2)).status is replies.RunStatus.RUNNING


def test_nothing_is_known_of_an_id_that_was_never_stored() -> None:
    world = World()

    assert world.ask(i.DescribeTask(task_id=uuid7(7)), replies.Refused).code == "task_not_found"
    assert world.ask(i.DescribeWorkflow(workflow_id="w", run_id=uuid7(7)), replies.Refused).code == "workflow_not_found"
