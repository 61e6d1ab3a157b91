"""What time may take away: leases after a take-over and a stall, and the lease on the shard itself."""

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.retry import RetryPolicy
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.core import UNAVAILABLE
from outlast.core.units import HOUR, MINUTE, SECOND
from outlast.core.writes import CommitOutcome
from tests.core.world import World, enqueue_of

QUICK = RetryPolicy(attempts_max=5, first=SECOND, factor=1.0, jitter=False)
LEASED_SHARD = ShardConfig(shard_lease=5 * SECOND)


def test_a_lease_has_a_fresh_term_under_a_new_owner() -> None:
    world = World()
    world.enqueue(retry=QUICK, start_to_close=HOUR)
    lease = world.lease()
    world.stall(300)
    world.restart()
    world.pass_time(29.9)

    assert world.task_info().state is replies.TaskState.LEASED
    assert world.complete(lease) is None


def test_a_fresh_term_ends_too() -> None:
    world = World()
    world.enqueue(retry=QUICK, start_to_close=HOUR)
    world.lease()
    world.stall(300)
    world.restart()
    world.pass_time(30.1)

    assert world.outcomes() == [(1, 1, "worker_lost")]


def test_a_lease_stored_with_a_later_end_keeps_it_under_a_new_owner() -> None:
    world = World(config=ShardConfig(task_lease=60 * SECOND))
    world.enqueue(retry=QUICK, start_to_close=HOUR)
    world.lease()
    world.config = ShardConfig(task_lease=10 * SECOND)
    world.restart()
    world.pass_time(50)

    assert world.task_info().state is replies.TaskState.LEASED


def test_nothing_expires_right_after_a_stall() -> None:
    world = World()
    world.enqueue(retry=QUICK, start_to_close=HOUR)
    lease = world.lease()
    world.stall(120)
    world.tick()

    assert world.task_info().state is replies.TaskState.LEASED
    assert world.complete(lease) is None


def test_a_turn_is_not_timed_out_right_after_a_stall() -> None:
    world = World()
    world.start()
    turn = world.turn()
    world.stall(120)
    world.tick()

    assert world.do(turn).refused is None


def test_a_turn_times_out_a_term_after_a_stall() -> None:
    world = World()
    started = world.start()
    world.turn()
    world.stall(120)
    world.tick()

    world.pass_time(10.1)

    assert world.kinds(started.run_id)[-1] == "WorkflowTaskTimedOut"


def test_a_lease_given_after_a_stall_has_no_second_term() -> None:
    world = World()
    world.stall(120)
    world.enqueue(retry=QUICK, start_to_close=5 * SECOND)
    world.pass_time(0.01)
    world.lease()
    world.pass_time(5.1)

    assert world.outcomes() == [(1, 1, "timeout:start_to_close")]


def test_a_short_pause_is_no_stall() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.lease()
    world.pass_time(29.5)
    world.stall(0.9)

    world.tick()

    assert world.outcomes() == [(1, 1, "worker_lost")]


def test_a_completion_that_arrived_before_the_look_at_the_clock_wins_over_the_expiry() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.pass_time(29.8)
    world.stall(0.5)

    refused = world.complete(lease)
    world.tick()

    assert refused is None
    assert world.task_info().state is replies.TaskState.SUCCEEDED


def test_a_heartbeat_that_arrived_before_the_look_at_the_clock_wins_over_the_expiry() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.pass_time(29.8)
    world.stall(0.5)

    world.beat(lease)
    world.tick()

    assert world.task_info().state is replies.TaskState.LEASED


def test_a_stall_is_noticed_although_nothing_is_due() -> None:
    world = World()
    world.enqueue()
    world.lease()

    wakeup = world.core.next_wakeup()

    assert wakeup is not None
    assert wakeup - world.now <= world.config.stall // 2


def test_an_idle_shard_asks_for_no_wake_up() -> None:
    world = World()

    assert world.core.next_wakeup() is None


def test_a_clock_that_steps_back_expires_nothing_and_moves_nothing_back() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.pass_time(20)
    world.stall(-3600)

    world.tick()
    world.beat(lease)

    assert world.task_info().lease_until > world.now + 3600 * SECOND


def test_times_of_a_new_owner_never_go_back_behind_the_last_commit() -> None:
    world = World()
    world.enqueue()
    last = world.tables.held.last_at
    world.stall(-3600)
    world.restart()

    started = world.start()

    assert world.tables.runs[started.run_id].started_at >= last


def test_time_goes_on_under_a_new_owner_whose_clock_is_behind_the_last_commit() -> None:
    world = World()
    world.enqueue("late", delay=20 * SECOND)
    world.enqueue("held")
    world.lease()
    run = world.start()
    world.do(world.turn(), c.StartTimer(timer_id="nap", start_to_fire=20 * SECOND))
    world.stall(-3600)
    world.restart()

    world.pass_time(19)
    assert world.task_row("late").ready == 0
    assert world.found(run.run_id, e.TimerFired) == []
    world.pass_time(14)  # time goes a twentieth slower until the clock has caught up

    assert world.outcomes("held") == [(1, 1, "worker_lost")]
    assert len(world.found(run.run_id, e.TimerFired)) == 1
    assert "late" in world.ready_tasks("two")


def test_a_clock_that_was_behind_and_is_set_right_fires_nothing_early() -> None:
    world = World()
    world.enqueue("late", delay=1800 * SECOND)
    world.enqueue("held", start_to_close=3600 * SECOND)
    world.stall(-3600)
    world.restart()
    world.lease()
    world.pass_time(20)
    leased = world.task_row("held").lease_until

    world.set_clock_ahead(3600)

    assert world.core.shard.now - world.now < SECOND  # they agree, but for what the clock had made up for by then
    assert world.task_row("late").ready == 0
    assert world.task_row("held").lease_until - leased < 2 * SECOND
    world.pass_time(1700)
    assert world.task_row("late").ready == 0
    world.pass_time(100)
    assert world.task_row("late").ready == 1


def test_a_lease_on_the_shard_is_over_when_the_clock_that_was_behind_is_set_past_its_end() -> None:
    world = World(config=LEASED_SHARD)
    world.enqueue()
    world.stall(-3600)
    world.restart()
    world.pass_time(1)

    world.set_clock_ahead(3600)

    assert world.stepped_down


def test_a_lease_on_the_shard_lasts_as_long_under_a_clock_that_is_behind_the_last_commit() -> None:
    world = World(config=LEASED_SHARD)
    world.enqueue()
    world.stall(-3600)
    world.restart()

    world.pass_time(30)
    assert not world.stepped_down
    world.hold_commits = True
    world.pass_time(6)

    assert world.stepped_down


# The lease on the shard.


def test_reads_are_refused_once_the_lease_on_the_shard_may_have_ended() -> None:
    world = World(config=LEASED_SHARD)
    world.enqueue()
    world.stall(4.5)

    ticket = world.send(i.DescribeTask(task_id="t"))

    assert world.answers[ticket] == UNAVAILABLE
    assert world.stepped_down == "the lease on the shard has ended"


def test_a_commit_renews_the_lease_on_the_shard() -> None:
    world = World(config=LEASED_SHARD)
    world.pass_time(3)
    world.enqueue()
    world.stall(3)

    assert world.task_info().state is replies.TaskState.ENQUEUED


def test_an_idle_owner_renews_its_lease_each_second() -> None:
    world = World(config=LEASED_SHARD)
    world.pass_time(60)

    assert not world.core.stepped_down
    assert world.tables.held.lease_until >= world.now + 4 * SECOND
    assert 55 <= world.tables.held.last_number <= 65


def test_an_idle_owner_that_cannot_renew_steps_down_before_its_lease_ends() -> None:
    world = World(config=LEASED_SHARD)
    world.hold_commits = True

    world.pass_time(4.1)

    assert world.stepped_down == "the lease on the shard has ended"
    assert world.now < world.tables.held.lease_until


def test_an_owner_whose_renewal_is_on_its_way_does_not_ask_to_be_woken_at_once() -> None:
    world = World(config=LEASED_SHARD)
    world.hold_commits = True
    world.pass_time(2.5)

    wakeup = world.core.next_wakeup()

    assert wakeup is not None
    assert wakeup > world.now


def test_an_idle_owner_whose_shard_was_taken_steps_down_with_its_next_renewal() -> None:
    world = World(config=LEASED_SHARD)
    world.tables.held = world.tables.held._replace(lease_until=0)
    world.tables.claim(owner="other", now=world.now, lease_until=world.now + MINUTE)

    world.pass_time(1.1)

    assert world.stepped_down == "batch 1: refused"


def test_answers_of_a_commit_that_came_back_too_late_are_not_given() -> None:
    world = World(config=LEASED_SHARD)
    world.hold_commits = True
    ticket = world.send(enqueue_of("t"))
    world.stall(5)

    world.release(CommitOutcome.DONE)

    assert world.answers[ticket] == UNAVAILABLE


def test_an_owner_without_a_lease_serves_for_ever() -> None:
    world = World()
    world.enqueue()
    world.stall(HOUR / SECOND * 24 * 365)

    assert world.task_info().state is replies.TaskState.ENQUEUED
