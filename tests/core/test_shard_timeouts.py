"""Heartbeats and the four timeouts of a task."""

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.failure import FailureKind
from outlast.core.retry import RetryPolicy
from outlast.core.units import DAY, HOUR, SECOND
from tests.core.world import World, failure, payload

QUICK = RetryPolicy(attempts_max=5, first=SECOND, factor=1.0, jitter=False)
ONCE = RetryPolicy(attempts_max=1)


def test_heartbeats_keep_a_long_attempt_alive() -> None:
    world = World()
    world.enqueue(start_to_close=HOUR)
    lease = world.lease()
    for _ in range(12):
        world.pass_time(10)
        world.beat(lease)

    assert world.complete(lease) is None
    assert world.outcomes() == [(1, 1, "succeeded")]


def test_a_heartbeat_never_extends_past_start_to_close() -> None:
    world = World()
    world.enqueue(start_to_close=40 * SECOND)
    lease = world.lease()
    world.pass_time(20)

    answer = world.beat(lease)

    assert answer == replies.HeartbeatAnswer(action="continue", lease_until=lease.deadline)


def test_a_lease_never_ends_behind_start_to_close() -> None:
    world = World()
    world.enqueue(start_to_close=10 * SECOND)

    lease = world.lease()

    assert world.task_row().lease_until == lease.deadline


def test_a_heartbeat_never_shortens_a_lease() -> None:
    world = World()
    world.enqueue(start_to_close=HOUR)
    lease = world.lease()
    world.pass_time(1)
    first = world.beat(lease).lease_until

    second = world.beat(lease).lease_until

    assert second >= first


def test_a_heartbeat_of_an_old_holder_leaves_the_new_lease_alone() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    old = world.lease("one")
    world.pass_time(32)
    world.lease("two")
    before = world.task_info().lease_until
    world.pass_time(5)

    answer = world.beat(old)

    assert answer.action == "stop"
    assert world.task_info().lease_until == before


def test_a_heartbeat_for_an_unknown_task_says_stop() -> None:
    world = World()
    token = i.TaskToken("none", 1)

    reply = world.ask(i.Heartbeat(items=(i.HeartbeatItem(token=token),), worker="one"), replies.HeartbeatReply)

    assert reply.items[0].action == "stop"


def test_a_plain_heartbeat_is_written_only_after_half_a_lease() -> None:
    world = World()
    world.enqueue(start_to_close=HOUR)
    lease = world.lease()
    stored = world.task_row().lease_until
    world.pass_time(10)
    world.beat(lease)
    early = world.task_row().lease_until
    world.pass_time(10)

    world.beat(lease)

    assert early == stored
    assert world.task_row().lease_until == world.now + world.config.task_lease


def test_details_of_a_heartbeat_reach_the_next_attempt() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.beat(lease, details=payload("row 7"))
    world.pass_time(32)

    assert world.lease("two").details == payload("row 7")


def test_details_sent_with_a_failure_reach_the_next_attempt() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.beat(lease, details=payload("row 7"))
    world.complete(lease, i.TaskFailed(failure=failure()), details=payload("row 100"))
    world.pass_time(1.1)

    assert world.lease().details == payload("row 100")


def test_acknowledged_details_survive_a_restart() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.beat(world.lease(), details=payload("row 7"))

    world.restart()

    assert world.task_info().details == payload("row 7")


def test_the_last_failure_is_shown_to_the_next_attempt() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.fail(world.lease(), "first")
    world.pass_time(1.1)

    lease = world.lease()

    assert lease.last_failure is not None
    assert lease.last_failure.message == "first"


def test_a_handler_that_gives_no_sign_of_progress_times_out() -> None:
    world = World()
    world.enqueue(heartbeat=5 * SECOND, retry=QUICK)
    lease = world.lease()
    world.pass_time(3)
    world.beat(lease)
    world.pass_time(3)

    assert world.outcomes() == [(1, 1, "timeout:heartbeat")]


def test_a_sign_of_progress_extends_the_heartbeat_timeout() -> None:
    world = World()
    world.enqueue(heartbeat=5 * SECOND, retry=QUICK)
    lease = world.lease()
    world.pass_time(3)
    world.beat(lease, progress=True)
    world.pass_time(3)

    assert world.task_info().state is replies.TaskState.LEASED


def test_an_attempt_over_start_to_close_is_ended_and_retried() -> None:
    world = World()
    world.enqueue(start_to_close=10 * SECOND, retry=QUICK)
    world.lease()
    world.pass_time(10.1)

    assert world.outcomes() == [(1, 1, "timeout:start_to_close")]
    assert world.task_info().state is replies.TaskState.RETRY_WAIT


def test_a_task_without_timeouts_gets_a_start_to_close() -> None:
    world = World()
    world.enqueue()

    lease = world.lease()

    assert lease.start_to_close > 0


def test_a_task_that_nobody_starts_in_time_expires() -> None:
    world = World()
    world.enqueue(schedule_to_start=10 * SECOND)
    world.pass_time(10.1)

    info = world.task_info()

    assert (info.state, info.reason, info.attempt) == (replies.TaskState.EXPIRED, "schedule_to_start", 0)
    assert info.failure is not None
    assert (info.failure.kind, info.failure.type) == (FailureKind.TIMEOUT, "ScheduleToStart")
    assert world.tables.timers == {}


def test_schedule_to_start_ends_with_the_first_lease() -> None:
    world = World()
    world.enqueue(schedule_to_start=10 * SECOND, retry=QUICK)
    world.fail(world.lease())

    world.pass_time(20)

    assert world.task_info().state is replies.TaskState.ENQUEUED
    assert world.tables.timers == {}


def test_schedule_to_close_ends_a_task_in_a_workers_hands() -> None:
    world = World()
    world.enqueue(schedule_to_close=10 * SECOND)
    lease = world.lease()
    world.pass_time(10.1)

    refused = world.complete(lease)

    assert refused is not None
    assert refused.code == "lease_lost"
    assert world.task_info().reason == "schedule_to_close"
    assert world.outcomes() == [(1, 0, "late_succeeded"), (1, 1, "timeout:schedule_to_close")][::-1]


def test_a_lease_tells_the_first_instant_by_which_its_attempt_must_have_ended() -> None:
    world = World()
    world.enqueue("closes", schedule_to_close=5 * SECOND)
    world.enqueue("both", schedule_to_close=5 * SECOND, start_to_close=2 * SECOND)
    world.enqueue("far", schedule_to_close=DAY, start_to_close=2 * SECOND)

    spans = {lease.token.task_id: lease.deadline - lease.started_at for lease in world.poll().tasks}

    assert spans == {"closes": 5 * SECOND, "both": 2 * SECOND, "far": 2 * SECOND}


def test_retries_end_before_schedule_to_close_and_leave_no_timer() -> None:
    world = World()
    slow = RetryPolicy(attempts_max=0, first=25 * SECOND, factor=1.0, jitter=False)
    world.enqueue(schedule_to_close=60 * SECOND, retry=slow)
    ends = world.now + 60 * SECOND
    for _ in range(2):
        world.fail(world.lease())
        world.pass_time(25.001)
    third = world.lease()

    world.fail(third)

    info = world.task_info()
    assert (info.state, info.reason, info.attempt) == (replies.TaskState.EXPIRED, "schedule_to_close", 3)
    assert third.started_at < ends
    assert world.tables.timers == {}


def test_the_history_of_an_activity_that_succeeds_after_failures_names_the_last_of_them() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", retry=QUICK))
    for text in ("first", "second"):
        world.fail(world.lease(), text)
        world.pass_time(1.1)
    world.complete(world.lease())

    (event,) = world.found(started.run_id, e.ActivityTaskStarted)
    assert event.attempt == 3
    assert event.last_failure is not None
    assert event.last_failure.message == "second"


def test_the_timeout_at_schedule_to_close_names_the_last_failure() -> None:
    world = World()
    world.enqueue(schedule_to_close=10 * SECOND, retry=RetryPolicy(first=5 * SECOND, factor=1.0, jitter=False))
    world.fail(world.lease(), "card declined")
    world.pass_time(5.001)

    world.pass_time(5.1)

    failure_ = world.task_info().failure
    assert failure_ is not None
    assert failure_.type == "ScheduleToClose"
    assert failure_.cause is not None
    assert failure_.cause.message == "card declined"


def test_a_lease_that_runs_out_counts_as_a_lost_worker() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.lease("one")
    world.pass_time(30.1)

    info = world.task_info()

    assert (info.state, info.reason) == (replies.TaskState.RETRY_WAIT, "WorkerLost")
    assert info.failure is not None
    assert info.failure.info == {"worker": "one"}
    assert world.outcomes() == [(1, 1, "worker_lost")]


def test_each_expired_lease_is_acted_upon_once() -> None:
    world = World()
    for n in range(20):
        world.enqueue(f"t{n}", retry=QUICK)
    world.poll("one", slots=20)

    world.pass_time(300)

    assert [world.outcomes(f"t{n}") for n in range(20)] == [[(1, 1, "worker_lost")]] * 20
