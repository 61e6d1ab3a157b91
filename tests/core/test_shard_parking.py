"""What arrives for a run while its turn is in a worker's hands."""

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.shard.config import ShardConfig
from outlast.core.units import SECOND
from tests.core.world import World, failure, payload

PAY = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default")
SLEEP = c.StartTimer(timer_id="1", start_to_fire=5 * SECOND)
AFTER_COMPLETED = [
    "WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted",
]  # fmt: skip


def test_what_arrives_during_a_turn_is_recorded_behind_its_commands_in_order_of_arrival() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), PAY, SLEEP)
    world.signal("wake")
    lease, turn = world.lease("two"), world.turn()
    world.signal("first")
    world.complete(lease, worker="two")
    world.cancel_run()
    parked = world.run_info().parked

    world.do(turn, c.RecordMarker(marker_name="note"))

    assert parked == 4
    assert world.kinds(started.run_id)[-6:] == [
        "WorkflowTaskCompleted", "MarkerRecorded", "WorkflowExecutionSignaled", "ActivityTaskStarted",
        "ActivityTaskCompleted", "WorkflowExecutionCancelRequested",
    ]  # fmt: skip


def test_the_end_of_an_activity_that_was_parked_points_to_its_start() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), PAY)
    world.signal()
    lease, turn = world.lease("two"), world.turn()
    world.signal()
    world.complete(lease, worker="two")

    world.do(turn)

    (completed,) = world.found(started.run_id, e.ActivityTaskCompleted)
    assert isinstance(world.history(started.run_id)[completed.started_event_id - 1], e.ActivityTaskStarted)


def test_parked_events_survive_a_restart_and_are_shown_next() -> None:
    world = World()
    started = world.start()
    world.turn()
    world.signal("kept")
    stored = len(world.tables.parked[started.run_id])

    world.restart()
    turn = world.turn()

    assert stored == 1
    assert turn.started_event_id == 4
    assert world.kinds(started.run_id) == ["WorkflowExecutionStarted", "WorkflowExecutionSignaled"]
    assert world.tables.parked.get(started.run_id, {}) == {}


def test_a_timer_canceled_while_its_firing_is_parked_did_not_fire() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), SLEEP)
    world.signal()
    turn = world.turn()
    world.pass_time(6)

    world.do(turn, c.CancelTimer(timer_id="1"))

    assert world.kinds(started.run_id)[-1] == "TimerCanceled"
    assert world.found(started.run_id, e.TimerFired) == []
    assert world.poll().workflow_tasks == ()


def test_a_run_that_closes_with_a_canceled_timer_whose_firing_is_parked_is_not_held_open() -> None:
    world = World()
    world.start()
    world.do(world.turn(), SLEEP)
    world.signal()
    turn = world.turn()
    world.pass_time(6)

    reply = world.do(turn, c.CancelTimer(timer_id="1"), c.CompleteWorkflow())

    assert reply.refused is None


def test_a_timer_that_fires_during_a_turn_fires_once() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), SLEEP)
    world.signal()
    turn = world.turn()
    world.pass_time(6)
    world.tick()

    world.do(turn)

    assert len(world.found(started.run_id, e.TimerFired)) == 1


def test_a_parked_event_is_refused_when_too_much_is_parked() -> None:
    world = World(config=ShardConfig(parked_bytes_max=10))
    world.start()
    world.turn()
    world.signal(input=(payload("x" * 50),))

    refused = world.ask(i.SignalWorkflow(workflow_id="w", name="go", request_id="s"), replies.Refused)

    assert (refused.code, refused.retryable) == ("busy", True)


def test_a_refused_signal_leaves_its_key_free() -> None:
    world = World(config=ShardConfig(parked_bytes_max=10))
    world.start()
    turn = world.turn()
    world.signal(input=(payload("x" * 50),))
    world.ask(i.SignalWorkflow(workflow_id="w", name="go", request_id="s"), replies.Refused)
    world.do(turn)

    assert world.signal(request_id="s").changed


@pytest.mark.parametrize("arrives", ["signal", "cancel_run"])
def test_a_run_does_not_close_over_what_its_code_has_not_seen(arrives: str) -> None:
    world = World()
    started = world.start()
    turn = world.turn()
    getattr(world, arrives)()

    refused = world.do(turn, PAY, c.CompleteWorkflow()).refused

    assert refused is not None
    assert refused.code == "unhandled_command"
    assert "ActivityTaskScheduled" not in world.kinds(started.run_id)
    assert len(world.turn().events) == 4


def test_a_run_closes_over_the_end_of_an_activity_it_has_not_seen() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), PAY)
    world.signal()
    lease, turn = world.lease("two"), world.turn()
    world.complete(lease, worker="two")

    reply = world.do(turn, c.CompleteWorkflow())

    assert reply.refused is None
    assert world.kinds(started.run_id)[-1] == "WorkflowExecutionCompleted"
    assert world.tables.parked.get(started.run_id, {}) == {}


def test_continuing_as_new_carries_signals_and_is_held_by_a_cancel_alone() -> None:
    world = World()
    world.start()
    turn = world.turn()
    world.signal()
    world.cancel_run()

    refused = world.do(turn, c.ContinueAsNew()).refused

    assert refused is not None
    assert refused.code == "unhandled_command"


def test_a_second_close_and_what_stands_behind_it_is_ignored() -> None:
    world = World()
    started = world.start()

    world.do(world.turn(), c.CompleteWorkflow(result=(payload("1"),)), c.FailWorkflow(failure=failure()), PAY)

    assert world.kinds(started.run_id) == [*AFTER_COMPLETED, "WorkflowExecutionCompleted"]
