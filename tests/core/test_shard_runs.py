"""Runs through the shard core: events as histories have them, policies, closing, recovery."""

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from tests.core.world import World, failure, payload


def test_a_started_run_shows_its_first_turn_and_completes() -> None:
    world = World()
    started = world.start()

    turn = world.turn()
    reply = world.do(turn, c.CompleteWorkflow(result=(payload("1"),)))

    assert [type(event).__name__ for _, event in turn.events] == [
        "WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted",
    ]  # fmt: skip
    assert reply.refused is None
    assert world.kinds(started.run_id) == [
        "WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted",
        "WorkflowExecutionCompleted",
    ]  # fmt: skip
    outcome = world.ask(i.AwaitWorkflow(workflow_id="w"), replies.WorkflowOutcome)
    assert outcome.status is replies.RunStatus.COMPLETED


def test_an_activity_runs_and_its_end_is_recorded_with_its_start() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default"), cached=True)

    lease = world.lease()
    assert world.complete(lease, i.TaskSucceeded(result=(payload("2"),))) is None
    turn = world.turn()

    assert turn.first_event_id == 6
    assert [type(event).__name__ for _, event in turn.events] == [
        "ActivityTaskStarted", "ActivityTaskCompleted", "WorkflowTaskScheduled", "WorkflowTaskStarted",
    ]  # fmt: skip
    world.do(turn, c.CompleteWorkflow())
    assert world.kinds(started.run_id)[4:8] == [
        "ActivityTaskScheduled", "ActivityTaskStarted", "ActivityTaskCompleted", "WorkflowTaskScheduled",
    ]  # fmt: skip


def test_a_signal_during_a_turn_is_parked_and_keeps_the_run_open() -> None:
    world = World()
    started = world.start()
    turn = world.turn()
    world.ask(i.SignalWorkflow(workflow_id="w", name="go", request_id="s1"), replies.Accepted)

    refused = world.do(turn, c.CompleteWorkflow()).refused
    again = world.turn()
    world.do(again, c.CompleteWorkflow())

    assert refused is not None
    assert refused.code == "unhandled_command"
    assert "WorkflowExecutionSignaled" in world.kinds(started.run_id)
    assert world.run_info().status is replies.RunStatus.COMPLETED


def test_a_timer_fires_once_and_never_early() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), c.StartTimer(timer_id="1", start_to_fire=5 * SECOND))

    world.pass_time(4.9)
    assert "TimerFired" not in world.kinds(started.run_id)
    world.pass_time(0.2)

    assert world.kinds(started.run_id).count("TimerFired") == 1
    assert not world.tables.timers


def test_a_restart_loses_nothing_that_was_acknowledged() -> None:
    world = World()
    started = world.start()
    world.do(
        world.turn(),
        c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default"),
        c.StartTimer(timer_id="1", start_to_fire=3600 * SECOND),
    )
    lease = world.lease()

    world.restart()
    assert world.complete(lease) is None
    world.restart()
    turn = world.turn()
    world.do(turn, c.CancelTimer(timer_id="1"), c.CompleteWorkflow())

    assert world.run_info().status is replies.RunStatus.COMPLETED
    assert not world.tables.timers
    assert world.history(started.run_id)


def test_a_turn_of_an_earlier_owner_is_refused() -> None:
    world = World()
    world.start()
    turn = world.turn()
    world.restart()

    refused = world.do(turn, c.CompleteWorkflow()).refused

    assert refused is not None
    assert refused.code == "workflow_task_lost"


def test_continue_as_new_carries_what_was_not_received() -> None:
    world = World()
    started = world.start()
    turn = world.turn()
    world.ask(i.SignalWorkflow(workflow_id="w", name="go", request_id="s1"), replies.Accepted)
    world.do(turn, c.ContinueAsNew(input=(payload("2"),)))

    info = world.run_info()
    (first,) = world.found(info.run_id, e.WorkflowExecutionStarted)

    assert info.run_id != started.run_id
    assert [signal.request_id for signal in first.carried_signals] == ["s1"]
    again = world.ask(i.SignalWorkflow(workflow_id="w", name="go", request_id="s1"), replies.Accepted)
    assert again.changed is False


def test_a_failing_activity_is_retried_and_then_seen_by_the_run() -> None:
    world = World()
    started = world.start()
    retry = RetryPolicy(attempts_max=2, first=SECOND)
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", retry=retry))

    world.complete(world.lease(), i.TaskFailed(failure=failure()))
    world.pass_time(1.1)
    world.complete(world.lease(), i.TaskFailed(failure=failure("again")))

    (failed,) = world.found(started.run_id, e.ActivityTaskFailed)
    assert failed.retry_state == "maximum_attempts_reached"
    assert failed.failure.message == "again"


def test_a_terminated_run_tells_its_workers_to_stop() -> None:
    world = World()
    world.start()
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default"))
    lease = world.lease()

    world.ask(i.TerminateWorkflow(workflow_id="w", request_id="x"), replies.Accepted)

    beat = world.ask(i.Heartbeat(items=(i.HeartbeatItem(token=lease.token),), worker="one"), replies.HeartbeatReply)
    assert beat.items[0].action == "stop"
    refused = world.complete(lease)
    assert refused is not None
    assert refused.code == "lease_lost"
