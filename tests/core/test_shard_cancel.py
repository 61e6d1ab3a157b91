"""Cancelling tasks and the activities of runs, in each of their states."""

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.failure import FailureKind
from outlast.core.retry import RetryPolicy
from outlast.core.units import HOUR, SECOND
from tests.core.world import World, failure, payload

QUICK = RetryPolicy(attempts_max=5, first=SECOND, factor=1.0, jitter=False)
ONCE = RetryPolicy(attempts_max=1)
PAY = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", retry=QUICK)
STOP_PAY = c.RequestCancelActivity(activity_id="1")


def test_a_waiting_task_is_canceled_at_once() -> None:
    world = World()
    world.enqueue()

    assert world.cancel_task().changed

    info = world.task_info()
    assert (info.state, info.reason) == (replies.TaskState.CANCELED, "canceled")
    assert info.failure is not None
    assert info.failure.kind is FailureKind.CANCELED
    assert world.ready_tasks() == []


def test_a_delayed_task_is_canceled_and_its_timer_goes() -> None:
    world = World()
    world.enqueue(delay=HOUR)

    world.cancel_task()

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.tables.timers == {}


def test_a_task_that_waits_for_its_next_attempt_is_canceled_and_its_timer_goes() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.fail(world.lease())

    world.cancel_task()

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.tables.timers == {}


def test_a_handler_is_told_to_stop_by_its_next_heartbeat() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()

    world.cancel_task()

    assert world.beat(lease).action == "cancel"
    assert world.task_info().state is replies.TaskState.LEASED


def test_a_handler_that_stops_when_asked_ends_its_task_as_canceled() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.cancel_task()

    world.complete(lease, i.TaskCanceled())

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.outcomes() == [(1, 1, "canceled")]


def test_a_handler_that_finishes_in_spite_of_a_cancel_has_succeeded() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.cancel_task()

    world.complete(lease, i.TaskSucceeded(result=(payload("1"),)))

    assert world.task_info().state is replies.TaskState.SUCCEEDED


def test_a_handler_that_fails_after_a_cancel_is_not_retried() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.cancel_task()

    world.fail(lease)

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.tables.timers == {}


def test_a_handler_that_stops_without_being_asked_has_failed() -> None:
    world = World()
    world.enqueue(retry=QUICK)

    world.complete(world.lease(), i.TaskCanceled())

    info = world.task_info()
    assert (info.state, info.reason) == (replies.TaskState.RETRY_WAIT, "Canceled")


def test_a_handler_that_does_not_stop_loses_its_lease_after_a_grace() -> None:
    world = World()
    world.enqueue(retry=QUICK, start_to_close=HOUR)
    lease = world.lease()
    world.cancel_task()
    for _ in range(3):
        world.pass_time(10.1)
        world.beat(lease)

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.beat(lease).action == "stop"


def test_a_repeated_cancel_changes_nothing() -> None:
    world = World()
    world.enqueue()
    world.lease()
    world.cancel_task()

    assert not world.cancel_task().changed


def test_a_cancel_of_an_ended_task_changes_nothing() -> None:
    world = World()
    world.enqueue()
    world.complete(world.lease())

    assert not world.cancel_task().changed
    assert world.task_info().state is replies.TaskState.SUCCEEDED


def test_a_cancel_of_an_unknown_task_is_refused() -> None:
    world = World()

    refused = world.ask(i.CancelTask(task_id="none"), replies.Refused)

    assert refused.code == "task_not_found"


def test_a_cancel_from_another_namespace_finds_nothing() -> None:
    world = World()
    world.enqueue()

    refused = world.ask(i.CancelTask(task_id="t"), replies.Refused, namespace="other")

    assert refused.code == "task_not_found"
    assert world.task_info().state is replies.TaskState.ENQUEUED


def test_a_canceled_task_whose_lease_is_returned_is_given_to_nobody() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.cancel_task()

    world.give_back(lease)

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.ready_tasks() == []


def test_a_canceled_single_attempt_that_never_began_is_given_to_nobody() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    world.lease()
    world.cancel_task()

    world.pass_time(31)

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.ready_tasks() == []


def test_a_cancel_request_survives_a_restart() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.cancel_task()

    world.restart()

    assert world.beat(lease).action == "cancel"


def run_with_activity(world: World) -> str:
    started = world.start()
    world.do(world.turn(), PAY, cached=True)
    return started.run_id


def wake(world: World) -> replies.WorkflowTask:
    """Give the run something to look at and return the turn that shows it."""
    world.signal()
    return world.turn()


def test_an_activity_cannot_be_canceled_behind_the_back_of_its_run() -> None:
    world = World()
    run_id = run_with_activity(world)

    refused = world.ask(i.CancelTask(task_id=f"{run_id}:5"), replies.Refused)

    assert refused.code == "invalid_request"


def test_an_activity_that_nobody_has_is_canceled_with_the_turn() -> None:
    world = World()
    run_id = run_with_activity(world)
    world.do(wake(world), STOP_PAY)

    assert world.kinds(run_id)[-2:] == ["ActivityTaskCancelRequested", "ActivityTaskCanceled"]
    (canceled,) = world.found(run_id, e.ActivityTaskCanceled)
    assert (canceled.scheduled_event_id, canceled.started_event_id) == (5, 0)
    assert canceled.latest_cancel_requested_event_id == len(world.history(run_id)) - 1
    assert world.turn().run_id == run_id


def test_an_activity_canceled_in_the_turn_that_asks_for_it_ends_at_once() -> None:
    world = World()
    started = world.start()

    world.do(world.turn(), PAY, STOP_PAY)

    assert world.kinds(started.run_id)[-3:] == [
        "ActivityTaskScheduled", "ActivityTaskCancelRequested", "ActivityTaskCanceled",
    ]  # fmt: skip


def test_a_running_activity_is_told_and_its_answer_is_recorded() -> None:
    world = World()
    run_id = run_with_activity(world)
    lease = world.lease("two")
    world.do(wake(world), STOP_PAY)

    assert world.beat(lease).action == "cancel"
    world.complete(lease, i.TaskCanceled(details=(payload("half"),)))

    (canceled,) = world.found(run_id, e.ActivityTaskCanceled)
    assert canceled.details == (payload("half"),)
    assert canceled.started_event_id == len(world.history(run_id)) - 1


def test_an_activity_in_backoff_is_canceled_with_the_turn() -> None:
    world = World()
    run_id = run_with_activity(world)
    world.complete(world.lease("two"), i.TaskFailed(failure=failure()))
    world.do(wake(world), STOP_PAY)

    assert world.kinds(run_id)[-2:] == ["ActivityTaskStarted", "ActivityTaskCanceled"]
    assert world.tables.timers == {}


def test_a_second_request_to_cancel_an_activity_is_recorded_only() -> None:
    world = World()
    run_id = run_with_activity(world)
    world.lease("two")
    world.do(wake(world), STOP_PAY)

    world.do(wake(world), STOP_PAY)

    assert len(world.found(run_id, e.ActivityTaskCancelRequested)) == 2
    assert world.found(run_id, e.ActivityTaskCanceled) == []


def test_a_cancel_that_crosses_the_end_of_its_activity_is_recorded_before_it() -> None:
    world = World()
    run_id = run_with_activity(world)
    lease = world.lease("two")
    turn = wake(world)
    world.complete(lease, worker="two")

    world.do(turn, STOP_PAY)

    assert world.kinds(run_id)[-3:] == [
        "ActivityTaskCancelRequested", "ActivityTaskStarted", "ActivityTaskCompleted",
    ]  # fmt: skip


def test_a_returned_activity_that_was_to_stop_ends_and_its_run_is_told() -> None:
    world = World()
    run_id = run_with_activity(world)
    lease = world.lease("two")
    world.do(wake(world), STOP_PAY)

    world.give_back(lease, worker="two")

    assert world.kinds(run_id)[-1] == "ActivityTaskCanceled"
    assert world.turn().run_id == run_id


def test_activities_of_a_run_that_closes_are_canceled_with_it() -> None:
    world = World()
    run_id = run_with_activity(world)
    lease = world.lease("two")
    world.do(wake(world), c.CompleteWorkflow())

    info = world.task_info(f"{run_id}:5")
    assert (info.state, info.reason) == (replies.TaskState.CANCELED, "run_closed")
    assert world.beat(lease).action == "stop"
    assert world.outcomes(f"{run_id}:5") == [(1, 1, "canceled")]


SLOW_PAY = c.ScheduleActivity(
    activity_id="1",
    activity_type="pay",
    task_queue="default",
    retry=QUICK,
    schedule_to_start=HOUR,
    schedule_to_close=HOUR,
)


def test_an_activity_that_nobody_has_leaves_no_timer_when_its_run_closes() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), SLOW_PAY)

    world.terminate()

    assert world.tables.timers == {}
    assert world.task_info(f"{started.run_id}:5").state is replies.TaskState.CANCELED


def test_an_activity_in_backoff_leaves_no_timer_when_its_run_closes() -> None:
    world = World()
    world.start()
    world.do(world.turn(), SLOW_PAY)
    world.fail(world.lease("two"))

    world.terminate()

    assert world.tables.timers == {}
