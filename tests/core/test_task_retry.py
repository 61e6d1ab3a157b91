"""A task that ended without success is brought back: once for a request, as new, under the same id."""

from typing import Any

import msgspec
import pytest

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.errors import InvariantBroken
from outlast.core.machines import task as machine
from outlast.core.replies import TaskState
from outlast.core.retry import RetryPolicy
from outlast.core.task import Task
from outlast.core.units import DAY, HOUR, SECOND
from outlast.core.writes import TaskSpec, TaskStatus
from tests.core.laws import broken_laws
from tests.core.world import World, payload

TWICE = RetryPolicy(attempts_max=2, first=SECOND, factor=1.0, jitter=False)
ONCE = RetryPolicy(attempts_max=1)


def retry(world: World, *task_ids: str, request_id: str = "r-1", reason: str = "") -> list[object]:
    """Ask for tasks to be brought back and return their answers: whether it changed, or the code of the refusal."""
    request = i.RetryTasks(task_ids=task_ids or ("t",), request_id=request_id, reason=reason, identity="ann")
    items = world.ask(request, replies.TasksRetried).items
    return [item.code if isinstance(item, replies.Refused) else item.changed for item in items]


def failed(**options: Any) -> World:
    """Return a world with a task that failed at its only attempt."""
    world = World()
    world.enqueue(retry=ONCE, **options)
    world.fail(world.lease())
    return world


def a_task(state: TaskState, **fields: Any) -> Task:
    return Task(
        namespace="default", task_id="t", queue="q", type="job", spec=TaskSpec(), status=TaskStatus(), state=state, **fields
    )  # fmt: skip


# --- the decision by itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.EXPIRED, TaskState.CANCELED])
def test_what_ended_without_success_begins_anew_under_a_higher_lease_number(state: TaskState) -> None:
    task = a_task(state, attempt=3, lease=4, closed_at=50, reason="attempts", order_key=9)

    machine.bring_back(task, now=100)

    assert (task.state, task.attempt, task.lease) == (TaskState.ENQUEUED, 0, 5)
    assert (task.closed_at, task.run_at, task.reason, task.order_key) == (0, 100, "", 0)
    assert task.status.retries == 1


@pytest.mark.parametrize("state", [TaskState.SUCCEEDED, TaskState.LEASED, TaskState.RETRY_WAIT, TaskState.ENQUEUED])
def test_nothing_else_is_ever_brought_back(state: TaskState) -> None:
    with pytest.raises(InvariantBroken):
        machine.bring_back(a_task(state), now=100)


def test_the_ends_that_it_was_given_count_from_then_on() -> None:
    task = a_task(TaskState.EXPIRED, enqueued_at=1_000, closed_at=1_500)
    task.spec = TaskSpec(start_by=1_100, close_by=1_500)

    machine.bring_back(task, now=2_000)

    assert (task.start_by, task.close_by) == (2_100, 2_500)


# --- in a shard ------------------------------------------------------------------------------------------------------


def test_a_failed_task_runs_again_and_may_succeed() -> None:
    world = failed(input=(payload("1"),))

    assert retry(world, reason="the bank is back") == [True]
    lease = world.lease()
    world.complete(lease)

    assert (lease.attempt, lease.token.lease) == (1, 3)
    assert lease.input == (payload("1"),)
    info = world.task_info()
    assert (info.state, info.retries, info.attempt) == (TaskState.SUCCEEDED, 1, 1)
    assert world.outcomes() == [(1, 1, "failed"), (2, 0, "retried"), (3, 1, "succeeded")]
    said = world.attempts()[1]
    assert (said.identity, said.error_message) == ("ann", "the bank is back")
    assert broken_laws(world.tables) == []


def test_it_has_as_many_attempts_as_a_new_one() -> None:
    world = World()
    world.enqueue(retry=TWICE)
    for _ in range(2):
        world.fail(world.lease())
        world.pass_time(2)
    assert world.task_info().state is TaskState.FAILED

    retry(world)
    world.fail(world.lease())
    assert world.task_info().state is TaskState.RETRY_WAIT
    world.pass_time(2)
    world.fail(world.lease())

    assert world.task_info().state is TaskState.FAILED
    assert [attempt for _, attempt, _ in world.outcomes()] == [1, 2, 0, 1, 2]
    assert broken_laws(world.tables) == []


def test_a_repeated_request_brings_it_back_once() -> None:
    world = failed()
    retry(world)
    world.fail(world.lease())

    assert retry(world) == [True]
    assert world.task_info().state is TaskState.FAILED
    world.restart()
    assert retry(world) == [True]
    assert world.task_info().state is TaskState.FAILED
    assert retry(world, request_id="r-2") == [True]
    assert world.task_info().state is TaskState.ENQUEUED


def test_each_task_of_a_request_has_an_answer_of_its_own() -> None:
    world = failed()
    world.enqueue("open")
    world.enqueue("other")
    for lease in world.poll(slots=1, turns=0).tasks:
        world.complete(lease)

    answers = retry(world, "t", "none", "open", "other", "t")

    assert answers == [True, "task_not_found", "task_closed", False, True]


def test_a_repeat_under_one_fingerprint_brings_back_nothing_that_the_first_left() -> None:
    world = failed()
    world.enqueue("later", retry=ONCE)
    request = i.RetryTasks(task_ids=("t", "later", "none"), request_id="r", fingerprint="one")

    first = world.ask(request, replies.TasksRetried)
    for lease in world.poll(turns=0).tasks:
        world.fail(lease)
    world.restart()
    again = world.ask(request, replies.TasksRetried)
    other = world.ask(msgspec.structs.replace(request, task_ids=("later",), fingerprint="two"), replies.Refused)

    assert again == first
    assert other.code == "idempotency_key_reused"
    assert (world.task_info("t").state, world.task_info("later").state) == (TaskState.FAILED, TaskState.FAILED)


def test_a_key_whose_request_was_refused_for_all_its_tasks_is_free() -> None:
    world = failed()
    refused = i.RetryTasks(task_ids=("none",), request_id="r", fingerprint="one")
    world.ask(refused, replies.TasksRetried)

    (item,) = world.ask(i.RetryTasks(task_ids=("t",), request_id="r", fingerprint="two"), replies.TasksRetried).items

    assert item == replies.Accepted(changed=True)


def test_a_task_of_another_namespace_is_not_found() -> None:
    world = failed()

    request = i.RetryTasks(task_ids=("t",), request_id="r")
    (item,) = world.ask(request, replies.TasksRetried, namespace="other").items

    assert isinstance(item, replies.Refused)
    assert item.code == "task_not_found"


def test_a_canceled_task_that_is_brought_back_is_not_asked_to_stop() -> None:
    world = World()
    world.enqueue()
    world.cancel_task()

    retry(world)
    lease = world.lease()

    assert world.beat(lease).action == "continue"
    assert world.complete(lease) is None
    assert world.task_info().state is TaskState.SUCCEEDED


@pytest.mark.parametrize("end", ["schedule_to_start", "schedule_to_close"])
def test_a_delay_that_has_passed_is_not_added_to_the_ends_of_a_task_that_is_brought_back(end: str) -> None:
    world = World()
    options: dict[str, Any] = {"delay": HOUR, end: 10 * SECOND}
    world.enqueue(**options)
    world.pass_time(HOUR / SECOND + 11)
    assert world.task_info().state is TaskState.EXPIRED

    assert retry(world) == [True]
    world.restart()
    world.pass_time(9)
    assert world.task_info().state is TaskState.ENQUEUED
    world.pass_time(2)

    assert (world.task_info().state, world.task_info().reason) == (TaskState.EXPIRED, end)


def test_an_expired_task_gets_its_ends_anew_and_old_timers_say_nothing() -> None:
    world = World()
    world.enqueue(schedule_to_close=10 * SECOND, start_to_close=HOUR, retry=ONCE)
    world.pass_time(1)
    world.fail(world.lease())
    world.pass_time(4)

    retry(world)
    world.pass_time(7)  # past the first end, which stands no more
    assert world.task_info().state is TaskState.ENQUEUED
    world.pass_time(4)

    assert (world.task_info().state, world.task_info().reason) == (TaskState.EXPIRED, "schedule_to_close")
    assert retry(world, request_id="r-2") == [True]
    assert world.task_info().state is TaskState.ENQUEUED
    assert broken_laws(world.tables) == []


def test_a_word_under_an_old_lease_stays_late() -> None:
    world = failed()
    world.enqueue("late", retry=ONCE)
    lease = world.lease()
    world.pass_time(60)
    assert world.task_info("late").state is not TaskState.LEASED
    world.cancel_task("late")

    retry(world, "late")
    refused = world.complete(lease)

    assert refused is not None
    assert world.task_info("late").state is TaskState.ENQUEUED


def test_what_its_handler_saved_is_there_again() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    lease = world.lease()
    world.beat(lease, details=payload("7"))
    world.fail(lease)

    retry(world)

    assert world.lease().details == payload("7")


def test_who_waits_for_it_waits_for_its_new_end() -> None:
    world = failed()
    retry(world)

    ticket = world.send(i.AwaitTask(task_id="t"))
    assert ticket not in world.answers
    world.complete(world.lease())

    reply = world.answers[ticket]
    assert isinstance(reply, replies.TaskOutcomeReply)
    assert reply.state is TaskState.SUCCEEDED


def test_an_activity_is_its_runs_business() -> None:
    world = World()
    run_id = world.start().run_id
    pay = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", retry=ONCE)
    world.do(world.turn(), pay)
    world.fail(world.lease())

    assert retry(world, f"{run_id}:5") == ["invalid_request"]
    assert world.task_info(f"{run_id}:5").state is TaskState.FAILED


def test_it_is_brought_back_after_a_restart_and_stays_so() -> None:
    world = failed()
    world.restart()

    assert retry(world) == [True]
    world.restart()

    assert world.ready_tasks() == ["t"]


# --- keys ------------------------------------------------------------------------------------------------------------


def test_its_key_stands_for_it_for_as_long_as_it_is_open() -> None:
    world = failed(key="k")
    world.pass_time(1)
    retry(world)
    world.now += 3 * DAY
    world.tick()

    again = world.enqueue("t-2", key="k", retry=ONCE)

    assert (again.task_id, again.replayed) == ("t", True)


def test_a_key_that_made_another_task_meanwhile_stays_with_that_one() -> None:
    world = failed(key="k")
    world.now += 3 * DAY
    world.tick()
    world.enqueue("t-2", key="k", retry=ONCE)

    retry(world)
    leases = world.poll(turns=0).tasks
    for lease in leases:
        world.complete(lease)
    again = world.enqueue("t-3", key="k", retry=ONCE)

    assert sorted(lease.token.task_id for lease in leases) == ["t", "t-2"]
    assert (again.task_id, again.replayed) == ("t-2", True)
    assert broken_laws(world.tables) == []
