"""Words that cross each other on the way: heartbeats, ends, cancels, returns and the end of a lease."""

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.failure import Failure, FailureKind
from outlast.core.retry import RetryPolicy
from outlast.core.units import HOUR, SECOND
from tests.core.world import World, enqueue_of

QUICK = RetryPolicy(attempts_max=5, first=SECOND, factor=1.0, jitter=False)


def test_each_heartbeat_of_a_request_stands_alone() -> None:
    world = World()
    world.enqueue("a", retry=QUICK)
    world.enqueue("b", retry=QUICK)
    a, b = world.poll(slots=2).tasks
    world.complete(a)
    items = tuple(i.HeartbeatItem(token=token) for token in (a.token, b.token, i.TaskToken("none", 1)))

    given = world.ask(i.Heartbeat(items=items, worker="one"), replies.HeartbeatReply).items

    assert [answer.action for answer in given] == ["stop", "continue", "stop"]


def test_a_heartbeat_in_the_last_moment_of_a_lease_keeps_it() -> None:
    world = World()
    world.enqueue(retry=QUICK, start_to_close=HOUR)
    lease = world.lease()
    world.pass_time(29.999999)

    action = world.beat(lease).action
    world.pass_time(29)

    assert action == "continue"
    assert world.outcomes() == []
    assert world.complete(lease) is None


def test_every_heartbeat_tells_of_a_cancel_also_under_a_new_owner() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.cancel_task()
    told = [world.beat(lease).action for _ in range(2)]

    world.restart()

    assert [*told, world.beat(lease).action] == ["cancel"] * 3


def test_a_task_that_succeeds_in_spite_of_a_cancel_has_succeeded() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.cancel_task()

    assert world.complete(lease) is None
    assert world.task_info().state is replies.TaskState.SUCCEEDED
    assert world.cancel_task() == replies.Accepted(changed=False)


def test_a_task_whose_worker_is_lost_after_a_cancel_is_canceled_and_not_tried_again() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.lease()
    world.cancel_task()

    world.pass_time(60)

    assert world.task_info().state is replies.TaskState.CANCELED
    assert len(world.attempts()) == 1
    assert world.ready_tasks() == []


def test_a_failure_after_a_cancel_is_not_retried() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.cancel_task()

    world.fail(lease)

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.tables.timers == {}


def test_nothing_that_is_said_under_a_returned_lease_counts() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.give_back(lease)

    said = [world.beat(lease).action, getattr(world.begin(lease), "code", ""), getattr(world.fail(lease), "code", "")]

    assert said == ["stop", "lease_lost", "lease_lost"]
    assert world.task_info().state is replies.TaskState.ENQUEUED


def test_a_lease_returned_many_times_uses_no_attempt_and_each_has_its_own_number() -> None:
    world = World()
    world.enqueue(retry=RetryPolicy(attempts_max=2, first=SECOND, jitter=False))
    for _ in range(6):
        world.give_back(world.lease())

    lease = world.lease()

    assert (lease.attempt, lease.token.lease) == (1, 7)


def test_a_poll_id_used_again_after_its_work_was_done_is_a_new_poll() -> None:
    world = World()
    world.enqueue("a")
    world.enqueue("b")
    (first,) = world.poll(poll_id="p", slots=1).tasks
    world.complete(first)

    (second,) = world.poll(poll_id="p", slots=1).tasks

    assert second.token.task_id == "b"


def test_two_completions_of_one_attempt_in_one_request_count_once() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    items = (
        i.Completion(token=lease.token, outcome=i.TaskSucceeded()),
        i.Completion(token=lease.token, outcome=i.TaskCanceled()),
        i.Completion(token=lease.token, outcome=i.TaskSucceeded()),
    )

    given = world.ask(i.CompleteTasks(items=items, worker="one"), replies.CompletionsReply).items

    assert [refused and refused.code for refused in given] == [None, "already_completed", None]
    assert world.outcomes() == [(1, 1, "succeeded")]


def test_a_retry_after_the_deadline_of_the_task_is_not_waited_for() -> None:
    world = World()
    world.enqueue(retry=QUICK, schedule_to_close=60 * SECOND)
    later = Failure(kind=FailureKind.APPLICATION, type="Busy", message="", next_delay=HOUR)

    world.complete(world.lease(), i.TaskFailed(failure=later))

    info = world.task_info()
    assert (info.state, info.reason) == (replies.TaskState.EXPIRED, "schedule_to_close")
    assert world.tables.timers == {}


def test_tasks_that_no_worker_knows_hold_up_no_others() -> None:
    world = World()
    for n in range(50):
        world.enqueue(f"unknown {n}", type="unknown", priority=1)
    world.enqueue("known")

    assert world.ready_tasks() == ["known"]


def test_timers_that_are_late_fire_once_each_in_the_order_of_their_instants() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), *[c.StartTimer(timer_id=str(n), start_to_fire=(10 - n) * SECOND) for n in range(5)])
    world.stall(24 * 3600)
    world.restart()
    world.tick()

    world.pass_time(60)

    assert [event.timer_id for event in world.found(started.run_id, e.TimerFired)] == ["4", "3", "2", "1", "0"]
    assert world.tables.timers == {}


def test_many_delays_that_are_late_are_all_given_out_once_after_a_day_away() -> None:
    world = World()
    for n in range(2500):
        world.send(enqueue_of(f"t{n}", delay=(1 + n % 7) * SECOND))
    world.stall(24 * 3600)
    world.restart()
    world.tick()

    given = [name for n in range(4) for name in world.ready_tasks(f"worker {n}")]

    assert len(given) == 2500
    assert len(set(given)) == 2500
    assert world.tables.timers == {}
