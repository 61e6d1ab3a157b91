"""Turns of workflow code: what is shown, who may answer, and what a failure leaves."""

import msgspec

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.shard.config import ShardConfig
from outlast.core.units import MINUTE, SECOND
from tests.core.world import World

PAY = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default")
SLEEP = c.StartTimer(timer_id="1", start_to_fire=5 * SECOND)
AFTER_COMPLETED = [
    "WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted",
]  # fmt: skip


def test_a_turn_is_shown_only_after_what_it_shows_is_committed() -> None:
    world = World()
    poll = world.send(
        i.Poll(poll_id="p", worker="one", queues=("default",), workflow_types=("order",), workflow_slots=1, wait=MINUTE)
    )
    world.hold_commits = True
    world.send(i.StartWorkflow(type="order", queue="default", run_id="r", request_id="s", workflow_id="w"))
    before = poll in world.answers

    world.release()

    assert not before
    work = world.answers[poll]
    assert isinstance(work, replies.Work)
    assert work.workflow_tasks[0].run_id == "r"


def test_the_shown_pair_is_in_no_history_until_the_turn_ends() -> None:
    world = World()
    started = world.start()

    turn = world.turn()

    assert turn.started_event_id == 3
    assert world.kinds(started.run_id) == ["WorkflowExecutionStarted"]


def test_a_worker_that_keeps_the_run_is_shown_only_what_is_new() -> None:
    world = World()
    world.start()
    reply = world.do(world.turn(), SLEEP, cached=True)
    world.signal()

    turn = world.turn()

    assert turn.first_event_id == reply.last_event_id + 1
    assert [type(event).__name__ for _, event in turn.events] == [
        "WorkflowExecutionSignaled", "WorkflowTaskScheduled", "WorkflowTaskStarted",
    ]  # fmt: skip


def test_a_turn_that_shows_nothing_but_itself_is_complete() -> None:
    world = World()
    world.start()
    world.do(world.turn(), cached=True, force_new=True)

    turn = world.turn()

    assert turn.first_event_id == 5
    assert [type(event).__name__ for _, event in turn.events] == ["WorkflowTaskScheduled", "WorkflowTaskStarted"]


def test_another_worker_is_shown_the_whole_history_by_reference() -> None:
    world = World()
    world.start()
    world.do(world.turn(), SLEEP)
    world.signal()

    turn = world.turn("two")

    assert (turn.first_event_id, turn.events) == (1, ())


def test_only_the_worker_that_keeps_a_run_gets_its_next_turn() -> None:
    world = World()
    world.start()
    world.do(world.turn("one"), cached=True, force_new=True)

    assert world.poll("two").workflow_tasks == ()
    assert len(world.poll("one").workflow_tasks) == 1


def test_a_run_whose_worker_does_not_come_is_offered_to_any() -> None:
    world = World()
    world.start()
    world.do(world.turn("one"), cached=True, force_new=True)
    world.pass_time(5.1)

    turn = world.turn("two")

    assert turn.first_event_id == 1


def test_a_run_goes_to_any_when_its_worker_has_not_been_seen_lately() -> None:
    world = World()
    world.start()
    world.do(world.turn("one"), cached=True)
    world.pass_time(6)
    world.signal()

    assert world.turn("two").first_event_id == 1


def test_a_worker_whose_poll_is_held_is_not_taken_for_gone() -> None:
    world = World()
    world.start()
    world.do(world.turn("one"), cached=True)
    poll = world.send(
        i.Poll(poll_id="p", worker="one", queues=("default",), workflow_types=("order",), workflow_slots=1, wait=MINUTE)
    )
    world.pass_time(20)

    world.signal()

    work = world.answers[poll]
    assert isinstance(work, replies.Work)
    assert work.workflow_tasks[0].first_event_id == 5


def test_runs_of_a_stopped_worker_are_offered_to_any_at_once() -> None:
    world = World()
    world.start()
    world.do(world.turn("one"), cached=True, force_new=True)

    world.ask(i.StopWorker(worker="one"), replies.Accepted)

    assert world.turn("two").first_event_id == 1


def test_runs_that_a_stopped_worker_kept_are_later_offered_to_any() -> None:
    world = World()
    world.start()
    world.do(world.turn("one"), cached=True)
    world.ask(i.StopWorker(worker="one"), replies.Accepted)
    world.signal()

    assert world.turn("two").first_event_id == 1


def test_a_stopped_worker_gets_nothing_more() -> None:
    world = World()
    poll = world.send(i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job",), slots=1, wait=MINUTE))
    world.ask(i.StopWorker(worker="one"), replies.Accepted)
    world.enqueue()

    assert world.answers[poll] == replies.Work()
    assert world.poll("one").tasks == ()


def test_a_worker_of_another_namespace_gets_no_run_by_its_name() -> None:
    world = World()
    world.start()
    world.do(world.turn("one"), cached=True, force_new=True)
    poll = i.Poll(poll_id="p", worker="one", queues=("default",), workflow_types=("order",), workflow_slots=1)

    ticket = world.send(poll, namespace="other")
    world.pass_time(0.001)

    assert world.answers[ticket] == replies.Work()
    assert len(world.poll("one").workflow_tasks) == 1


def test_stopping_a_worker_of_another_namespace_stops_nobody_here() -> None:
    world = World()
    world.enqueue()

    world.ask(i.StopWorker(worker="one"), replies.Accepted, namespace="other")

    assert len(world.poll("one").tasks) == 1


def test_a_turn_completed_twice_gets_the_same_answer() -> None:
    world = World()
    started = world.start()
    turn = world.turn()
    first = world.do(turn, SLEEP)

    again = world.do(turn, SLEEP)

    assert again == first
    assert len(world.found(started.run_id, e.TimerStarted)) == 1


def test_a_turn_said_to_have_failed_twice_is_counted_once() -> None:
    world = World()
    world.start()
    turn = world.turn()
    first = world.not_done(turn)

    assert world.not_done(turn) == first
    assert world.run_info().task_attempt == 2


def test_a_turn_is_nothing_to_another_namespace() -> None:
    world = World()
    world.start()
    turn = world.turn()
    done = i.WorkflowTaskDone(token=turn.token, commands=(c.CompleteWorkflow(),))

    reply = world.ask(
        i.CompleteWorkflowTasks(worker="one", done=(done,)), replies.WorkflowTasksReply, namespace="other"
    )

    assert reply.done[0].refused is not None
    assert reply.done[0].refused.code == "workflow_task_lost"
    assert world.run_info().status is replies.RunStatus.RUNNING


def test_a_turn_of_a_run_that_was_terminated_is_lost() -> None:
    world = World()
    world.start()
    turn = world.turn()
    world.terminate()

    refused = world.do(turn, c.CompleteWorkflow()).refused

    assert refused is not None
    assert refused.code == "workflow_task_lost"
    assert world.run_info().status is replies.RunStatus.TERMINATED


def test_a_returned_turn_is_offered_again_uncounted() -> None:
    world = World()
    world.start()
    world.give_back(turns=(world.turn(),))

    turn = world.turn("two")

    assert (turn.attempt, len(turn.events)) == (1, 3)


def test_returning_a_turn_that_has_ended_changes_nothing() -> None:
    world = World()
    world.start()
    turn = world.turn()
    world.do(turn, SLEEP)

    world.give_back(turns=(turn,))

    assert world.poll().workflow_tasks == ()


def test_the_first_failure_of_a_turn_is_in_the_history_and_later_ones_are_counted() -> None:
    world = World()
    started = world.start()
    for _ in range(4):
        world.not_done(world.turn())
        world.pass_time(MINUTE / SECOND)

    info = world.run_info()

    assert world.kinds(started.run_id) == [
        "WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskFailed",
    ]  # fmt: skip
    assert (info.task_attempt, info.events) == (5, 4)


def test_a_turn_that_works_after_failures_is_recorded_with_its_attempt() -> None:
    world = World()
    started = world.start()
    world.not_done(world.turn())
    world.pass_time(2)
    world.not_done(world.turn())
    world.pass_time(3)

    turn = world.turn()
    world.do(turn, c.CompleteWorkflow())

    assert turn.attempt == 3
    assert [event.attempt for event in world.found(started.run_id, e.WorkflowTaskScheduled)] == [1, 3]
    assert world.kinds(started.run_id)[-2:] == ["WorkflowTaskCompleted", "WorkflowExecutionCompleted"]


def test_a_failed_turn_waits_longer_each_time() -> None:
    world = World()
    world.start()
    world.not_done(world.turn())
    first = world.run_info()
    world.pass_time(1.1)
    world.not_done(world.turn())
    second = world.run_info()

    assert first.task_state == "backoff"
    assert first.why.startswith("another try of its code after 1 that failed")
    assert 0.9 * SECOND <= first.why_at - world.now + 1.1 * SECOND <= SECOND + 1
    assert 1.8 * SECOND <= second.why_at - world.now <= 2 * SECOND


def test_a_failed_turn_waits_never_longer_than_the_longest() -> None:
    world = World(config=ShardConfig(backoff_max=3 * SECOND))
    world.start()
    for _ in range(6):
        world.not_done(world.turn())
        world.pass_time(3.1)

    assert len(world.poll().workflow_tasks) == 1


def test_a_run_whose_code_disagrees_with_its_history_waits_at_least_a_minute() -> None:
    world = World()
    world.start()
    world.not_done(world.turn(), "non_deterministic_error")
    world.pass_time(59.9)
    early = world.poll().workflow_tasks

    world.pass_time(0.2)

    assert early == ()
    assert len(world.poll().workflow_tasks) == 1


def test_a_cancel_brings_a_failing_run_forward_and_a_signal_does_not() -> None:
    world = World()
    world.start()
    world.not_done(world.turn(), "non_deterministic_error")
    world.signal()
    early = world.poll().workflow_tasks

    world.cancel_run()

    assert early == ()
    assert len(world.poll().workflow_tasks) == 1


def test_a_worker_that_comes_has_what_is_held_tried_after_a_moment_and_one_that_was_there_does_not() -> None:
    world = World()
    world.start()
    world.not_done(world.turn(worker="old"), "non_deterministic_error")
    world.pass_time(2)
    again = world.poll(worker="old").workflow_tasks

    first = world.poll(worker="new").workflow_tasks
    world.pass_time(1.1)
    second = world.poll(worker="new").workflow_tasks

    assert (again, first) == ((), ())
    assert [task.attempt for task in second] == [2]
    assert world.core.shard.held == {}


def test_a_worker_that_comes_to_many_held_runs_has_none_of_them_written() -> None:
    world = World()
    for n in range(20):
        world.start(f"w-{n}")
    for task in world.poll(worker="old", turns=20).workflow_tasks:
        world.not_done(task, "non_deterministic_error")
    before = world.tables.held.last_number

    world.poll(worker="new")

    assert world.tables.held.last_number == before
    world.pass_time(1.1)
    assert len(world.poll(worker="new", turns=20).workflow_tasks) == 20


def test_a_worker_of_another_type_or_namespace_moves_nothing_that_is_held() -> None:
    world = World()
    world.start()
    world.not_done(world.turn(worker="old"), "non_deterministic_error")

    poll = i.Poll(poll_id="p", worker="new", queues=("default",), workflow_types=("another",), workflow_slots=1)
    world.send(poll)
    world.send(msgspec.structs.replace(poll, workflow_types=("order",)), namespace="elsewhere")
    world.pass_time(30)

    assert world.poll(worker="old").workflow_tasks == ()


def test_a_run_that_is_terminated_is_held_no_longer() -> None:
    world = World()
    world.start()
    world.not_done(world.turn(worker="old"), "non_deterministic_error")
    world.terminate()
    world.pass_time(61)

    world.poll(worker="new")

    assert world.core.shard.held == {}


def test_the_backoff_of_a_turn_survives_a_restart() -> None:
    world = World()
    world.start()
    world.not_done(world.turn(), "non_deterministic_error")
    world.restart()
    early = world.poll().workflow_tasks

    world.pass_time(61)

    assert early == ()
    assert world.turn().attempt == 2


def test_what_arrives_during_a_failing_turn_is_recorded_behind_its_failure() -> None:
    world = World()
    started = world.start()
    turn = world.turn()
    world.signal()

    world.not_done(turn)

    assert world.kinds(started.run_id)[-2:] == ["WorkflowTaskFailed", "WorkflowExecutionSignaled"]


def test_a_turn_whose_worker_is_not_heard_of_is_given_to_another() -> None:
    world = World()
    started = world.start()
    old = world.turn("one")
    world.pass_time(10.1)

    new = world.turn("two")
    refused = world.do(old, c.CompleteWorkflow()).refused

    assert world.kinds(started.run_id)[-1] == "WorkflowTaskTimedOut"
    assert new.attempt == 2
    assert refused is not None
    assert refused.code == "workflow_task_lost"


def test_a_turn_has_the_timeout_of_its_run() -> None:
    world = World()
    started = world.start(task_timeout=2 * SECOND)
    world.turn()
    world.pass_time(2.1)

    assert world.kinds(started.run_id)[-1] == "WorkflowTaskTimedOut"


def test_later_attempts_of_a_turn_have_more_time() -> None:
    world = World()
    world.start()
    timeouts: list[int] = []
    for _ in range(6):
        turn = world.turn()
        timeouts.append(turn.timeout // SECOND)
        world.not_done(turn)
        world.pass_time(60)

    assert timeouts == [10, 10, 10, 15, 20, 30]


def test_a_turn_answered_in_time_does_not_time_out_later() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), PAY)
    world.pass_time(20)

    assert "WorkflowTaskTimedOut" not in world.kinds(started.run_id)
