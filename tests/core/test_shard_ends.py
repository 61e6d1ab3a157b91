"""How runs end from outside: timeouts, limits, termination; and who is told."""

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import limits, replies
from outlast.core.shard.config import ShardConfig
from outlast.core.units import HOUR, SECOND
from tests.core.world import World, payload

PAY = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", schedule_to_close=HOUR)
SLEEP = c.StartTimer(timer_id="1", start_to_fire=HOUR)


def test_a_run_over_its_timeout_ends_and_leaves_nothing_to_wake_it() -> None:
    world = World()
    started = world.start(run_timeout=10 * SECOND)
    world.do(world.turn(), PAY, SLEEP)

    world.pass_time(10.1)

    assert world.run_info().status is replies.RunStatus.TIMED_OUT
    assert world.kinds(started.run_id)[-1] == "WorkflowExecutionTimedOut"
    assert world.tables.timers == {}


def test_a_run_over_its_timeout_that_left_memory_ends_with_its_activities() -> None:
    world = World()
    started = world.start(run_timeout=10 * SECOND)
    world.do(world.turn(), PAY)
    world.restart()

    world.pass_time(10.1)

    assert world.task_info(f"{started.run_id}:5").state is replies.TaskState.CANCELED


def test_termination_leaves_no_timers_of_activities_and_sleeps() -> None:
    world = World()
    started = world.start(run_timeout=HOUR)
    world.do(world.turn(), PAY, SLEEP)
    world.lease()

    world.terminate()

    assert world.tables.timers == {}
    assert world.kinds(started.run_id)[-1] == "WorkflowExecutionTerminated"


def test_termination_during_a_turn_records_what_was_parked_before_the_end() -> None:
    world = World()
    started = world.start()
    world.turn()
    world.signal()

    world.terminate()

    assert world.kinds(started.run_id)[-2:] == ["WorkflowExecutionSignaled", "WorkflowExecutionTerminated"]


def test_requests_to_a_closed_run_change_nothing() -> None:
    world = World()
    world.start()
    world.terminate()

    refused = world.ask(i.SignalWorkflow(workflow_id="w", name="go", request_id="s"), replies.Refused)

    assert refused.code == "workflow_closed"
    assert (world.cancel_run().changed, world.terminate().changed) == (False, False)


def test_a_second_cancel_of_a_run_changes_nothing() -> None:
    world = World()
    started = world.start()
    world.turn()
    world.cancel_run()

    assert not world.cancel_run().changed
    world.terminate()
    assert len(world.found(started.run_id, e.WorkflowExecutionCancelRequested)) == 1


def test_a_history_over_its_limit_ends_the_run_with_the_reason() -> None:
    world = World(config=ShardConfig(history_events_max=10))
    started = world.start()
    world.do(world.turn(), PAY, *(c.RecordMarker(marker_name="m") for _ in range(10)))

    info = world.run_info()

    assert info.status is replies.RunStatus.FAILED
    assert info.failure is not None
    assert info.failure.type == "HistoryLimit"
    assert world.task_info(f"{started.run_id}:5").state is replies.TaskState.CANCELED


def test_signals_alone_cannot_take_a_history_past_its_limit() -> None:
    world = World(config=ShardConfig(history_events_max=5))
    world.start()
    for _ in range(5):
        world.signal()

    info = world.run_info()

    assert (info.status, info.events) == (replies.RunStatus.FAILED, 7)
    assert info.failure is not None
    assert "6 events" in info.failure.message


@pytest.mark.parametrize(("events", "suggested"), [(9, False), (8, True)])
def test_a_run_with_a_long_history_is_told_to_continue_as_new(events: int, suggested: bool) -> None:
    world = World(config=ShardConfig(continue_as_new_events=events))
    started = world.start()
    world.do(world.turn(), *(c.RecordMarker(marker_name="m") for _ in range(4)), force_new=True, cached=True)

    turn = world.turn()
    world.do(turn)

    shown = [event for _, event in turn.events if isinstance(event, e.WorkflowTaskStarted)]
    recorded = world.found(started.run_id, e.WorkflowTaskStarted)
    assert [event.suggest_continue_as_new for event in recorded] == [False, suggested]
    assert shown == recorded[1:]


def test_what_a_worker_is_shown_of_its_turn_is_what_is_recorded_of_it() -> None:
    world = World()
    started = world.start(task_timeout=20 * SECOND)

    turn = world.turn()
    world.do(turn)

    assert [event for _, event in turn.events] == world.history(started.run_id)[:3]


def test_a_history_of_many_bytes_suggests_to_continue_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTINUE_AS_NEW_BYTES", 100)
    world = World()
    started = world.start(input=(payload("x" * 200),))

    world.do(world.turn())

    assert [event.suggest_continue_as_new for event in world.found(started.run_id, e.WorkflowTaskStarted)] == [True]


def test_a_long_history_is_warned_of_before_it_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HISTORY_EVENTS_WARN", 2)
    world = World()
    world.start()
    before = world.run_info().warning
    world.signal()

    assert before == ""
    assert world.run_info().warning.startswith("Its history has 2 events")


def test_a_run_takes_no_more_signals_than_it_may() -> None:
    world = World(config=ShardConfig(signals_max=2))
    world.start()
    world.signal()
    world.signal()

    refused = world.ask(i.SignalWorkflow(workflow_id="w", name="go", request_id="s"), replies.Refused)

    assert refused.code == "limit_exceeded"


def test_a_signals_key_used_for_another_signal_is_refused() -> None:
    world = World()
    world.start()
    world.signal("go", "k")

    refused = world.ask(i.SignalWorkflow(workflow_id="w", name="stop", request_id="k"), replies.Refused)

    assert refused.code == "idempotency_key_reused"


def three_runs(world: World) -> replies.WorkflowStarted:
    """Play a chain of three runs to its end, and start another of the same workflow id."""
    started = world.start()
    world.do(world.turn(), c.ContinueAsNew())
    world.do(world.turn(), c.ContinueAsNew())
    world.do(world.turn(), c.CompleteWorkflow(result=(payload("end"),)))
    world.start()
    return started


def test_who_follows_a_chain_is_told_its_end_although_the_id_was_used_again() -> None:
    world = World()
    started = three_runs(world)
    world.restart()

    outcome = world.ask(i.AwaitWorkflow(workflow_id="w", run_id=started.run_id), replies.WorkflowOutcome)

    assert outcome.result == (payload("end"),)


def test_who_does_not_follow_is_told_how_the_run_itself_ended() -> None:
    world = World()
    started = three_runs(world)

    outcome = world.ask(i.AwaitWorkflow(workflow_id="w", run_id=started.run_id, follow=False), replies.WorkflowOutcome)

    assert outcome.status is replies.RunStatus.CONTINUED_AS_NEW


def test_who_waits_for_an_open_run_is_handed_on_along_its_chain() -> None:
    world = World()
    world.start()
    ticket = world.send(i.AwaitWorkflow(workflow_id="w"))
    world.do(world.turn(), c.ContinueAsNew())
    before = ticket in world.answers

    world.do(world.turn(), c.CompleteWorkflow(result=(payload("end"),)))

    outcome = world.answers[ticket]
    assert not before
    assert isinstance(outcome, replies.WorkflowOutcome)
    assert outcome.result == (payload("end"),)


def test_a_following_run_id_that_is_taken_fails_the_turn_alone() -> None:
    world = World()
    world.start("other", run_id="taken")
    world.terminate("other")
    world.start()
    world.restart()
    done = i.WorkflowTaskDone(token=world.turn().token, commands=(c.ContinueAsNew(),))

    reply = world.ask(
        i.CompleteWorkflowTasks(worker="one", done=(done,), new_run_ids=("taken",)), replies.WorkflowTasksReply
    ).done[0]

    assert reply.refused is not None
    assert reply.refused.code == "bad_command"
    assert world.run_info().status is replies.RunStatus.RUNNING
