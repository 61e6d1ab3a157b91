"""A stored row that cannot be opened stands still, says so, and keeps nothing else from being served."""

import msgspec
import pytest

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import limits, replies
from outlast.core.replies import TaskState
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from tests.core.world import World

BAD = b"\xc1"  # no MessagePack begins so


def spoil_task(world: World, task_id: str) -> None:
    row = world.tables.tasks[task_id]
    world.tables.tasks[task_id] = msgspec.structs.replace(row, status=BAD)


def spoil_run(world: World, run_id: str) -> None:
    row = world.tables.runs[run_id]
    world.tables.runs[run_id] = msgspec.structs.replace(row, state=BAD)


def code_of(world: World, request: i.ShardRequest) -> str:
    reply = world.ask(request, object)
    return reply.code if isinstance(reply, replies.Refused) else type(reply).__name__


def test_other_tasks_of_its_queue_are_given_out() -> None:
    world = World()
    for name in ("before", "bad", "after"):
        world.enqueue(name)
    spoil_task(world, "bad")
    world.restart()

    assert world.ready_tasks() == ["before", "after"]
    assert not world.stepped_down


@pytest.mark.parametrize(
    "request_",
    [
        i.DescribeTask(task_id="bad"),
        i.CancelTask(task_id="bad"),
        i.AwaitTask(task_id="bad"),
        i.EnqueueTask(task_id="bad", type="job", queue="default", key="bad"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_what_is_asked_of_a_damaged_task_is_refused_as_that(request_: i.ShardRequest) -> None:
    world = World()
    world.enqueue("bad")
    spoil_task(world, "bad")
    before = world.tables.tasks["bad"]
    world.restart()

    assert code_of(world, request_) == "store_damaged"
    assert world.tables.tasks["bad"] == before
    assert not world.stepped_down


def test_an_answer_to_a_damaged_task_refuses_only_itself() -> None:
    world = World()
    world.enqueue("bad")
    world.enqueue("good")
    leases = world.poll(turns=0).tasks
    spoil_task(world, "bad")
    world.restart()

    items = tuple(i.Completion(token=lease.token, outcome=i.TaskSucceeded()) for lease in leases)
    reply = world.ask(i.CompleteTasks(items=items, worker="one"), replies.CompletionsReply)

    assert [item.code if item else "" for item in reply.items] == ["store_damaged", ""]
    assert world.task_info("good").state is TaskState.SUCCEEDED


def test_a_timer_of_a_damaged_task_stays_for_who_can_read_it() -> None:
    world = World()
    world.enqueue("bad", delay=5 * SECOND)
    spoil_task(world, "bad")
    world.restart()
    assert code_of(world, i.DescribeTask(task_id="bad")) == "store_damaged"
    world.pass_time(6)

    assert [timer.target for timer in world.tables.timers.values()] == ["bad"]
    assert not world.stepped_down


def test_a_damaged_run_stands_still_and_others_go_on() -> None:
    world = World()
    bad = world.start("bad").run_id
    world.start("good")
    spoil_run(world, bad)
    world.restart()

    assert world.turn().workflow_id == "good"
    assert code_of(world, i.DescribeWorkflow(workflow_id="bad")) == "store_damaged"
    assert code_of(world, i.DescribeWorkflow(workflow_id="bad", run_id=bad)) == "store_damaged"
    assert code_of(world, i.SignalWorkflow(workflow_id="bad", name="go", request_id="s")) == "store_damaged"
    again = i.StartWorkflow(type="order", queue="default", run_id="r-new", request_id="r-new", workflow_id="bad")
    assert code_of(world, again) == "store_damaged"
    assert not world.stepped_down


def test_a_run_ends_beside_an_activity_that_is_damaged() -> None:
    world = World()
    run_id = world.start().run_id
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default"))
    spoil_task(world, f"{run_id}:5")
    world.restart()

    world.terminate()

    assert world.run_info().status is replies.RunStatus.TERMINATED
    assert not world.stepped_down


PAY = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default")


def spoiled_run_with_activity(command: c.ScheduleActivity = PAY, *, leased: bool = True) -> tuple[World, str]:
    """Return a world that has lost its memory, and the id of the activity of a run in it that cannot be read."""
    world = World()
    run_id = world.start("bad").run_id
    world.do(world.turn(), command)
    if leased:
        world.lease()
    spoil_run(world, run_id)
    world.restart()
    return world, f"{run_id}:5"


def test_an_answer_to_an_activity_of_a_damaged_run_refuses_only_itself() -> None:
    world, bad = spoiled_run_with_activity()
    world.enqueue("good")
    good = world.lease("two")
    before = world.tables.tasks[bad]

    items = tuple(i.Completion(token=token, outcome=i.TaskSucceeded()) for token in (i.TaskToken(bad, 1), good.token))
    for _ in range(2):
        reply = world.ask(i.CompleteTasks(items=items, worker="one"), replies.CompletionsReply)
        assert [item.code if item else "" for item in reply.items] == ["store_damaged", ""]
    begun = world.ask(i.Begin(tokens=(i.TaskToken(bad, 1),), worker="one"), replies.Begun)
    beat = i.Heartbeat(items=(i.HeartbeatItem(token=i.TaskToken(bad, 1)),), worker="one")

    assert [item.code if item else "" for item in begun.items] == ["store_damaged"]
    assert [item.action for item in world.ask(beat, replies.HeartbeatReply).items] == ["stop"]
    assert code_of(world, i.CancelTask(task_id=bad)) == "store_damaged"
    assert code_of(world, i.DescribeTask(task_id=bad)) == "TaskInfo"
    assert world.task_info("good").state is TaskState.SUCCEEDED
    assert world.tables.tasks[bad] == before
    assert not world.stepped_down


@pytest.mark.parametrize(
    "command",
    [
        msgspec.structs.replace(PAY, retry=RetryPolicy(attempts_max=1)),
        msgspec.structs.replace(PAY, schedule_to_close=5 * SECOND),
    ],
    ids=["last attempt lost", "overdue"],
)
def test_no_end_from_inside_reaches_an_activity_of_a_damaged_run(command: c.ScheduleActivity) -> None:
    world, bad = spoiled_run_with_activity(command)
    before, timers = world.tables.tasks[bad], dict(world.tables.timers)
    for _ in range(2):
        world.pass_time(120)
        assert (world.tables.tasks[bad], world.tables.timers) == (before, timers)
        world.restart()
    world.pass_time(120)
    world.ask(i.ReturnTasks(tokens=(i.TaskToken(bad, 1),), worker="one"), replies.Accepted)

    assert world.core.shard.leased == 0
    assert world.tables.tasks[bad] == before
    world.enqueue("good")
    assert world.ready_tasks("one") == ["good"]
    assert not world.stepped_down


def test_an_activity_that_waits_is_not_given_out_for_a_damaged_run() -> None:
    world, bad = spoiled_run_with_activity(leased=False)
    assert code_of(world, i.DescribeWorkflow(workflow_id="bad")) == "store_damaged"
    world.enqueue("good")

    assert world.ready_tasks() == ["good"]
    assert world.task_info(bad).state is TaskState.ENQUEUED


def test_a_store_of_which_nothing_can_be_read_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAMAGED_MAX", 2)
    world = World()
    for n in range(3):
        world.enqueue(f"t{n}")
        spoil_task(world, f"t{n}")
    world.restart()

    with pytest.raises(msgspec.MsgspecError):
        world.ready_tasks()
