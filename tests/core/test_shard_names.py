"""What is kept by names that clients choose is bounded, and giving it up loses nothing."""

import pytest

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.shard.config import ShardConfig
from outlast.core.units import MINUTE, SECOND
from tests.core.world import World, enqueue_of


def poll_of(queue: str = "default", *types: str, worker: str = "w", slots: int = 5) -> i.Poll:
    return i.Poll(poll_id=f"{queue} {types}", worker=worker, queues=(queue,), task_types=types or ("job",), slots=slots)


def polled(world: World, poll: i.Poll) -> list[str]:
    """Poll without a wait and return the tasks that were given."""
    ticket = world.send(poll)
    world.pass_time(0.001)
    reply = world.answers[ticket]
    assert isinstance(reply, replies.Work)
    return [lease.token.task_id for lease in reply.tasks]


def test_polls_for_more_names_than_may_be_are_refused_until_others_have_gone() -> None:
    world = World(config=ShardConfig(names_max=3))
    for n in range(3):
        polled(world, poll_of(f"q{n}"))

    refused = world.ask(poll_of("q3"), replies.Refused)
    known = polled(world, poll_of("q0"))
    world.pass_time(61)
    later = polled(world, poll_of("q3"))

    assert (refused.code, refused.retryable, known, later) == ("busy", True, [], [])
    assert list(world.core.shard.types_seen) == [("default", "q3", "t:job")]


def test_who_polls_stays_known_while_others_come_and_go() -> None:
    world = World(config=ShardConfig(names_max=4))
    world.enqueue("t", type="slow")
    polled(world, poll_of("default", "slow", slots=0))
    for n in range(6):
        world.pass_time(50)
        polled(world, poll_of(f"q{n}"))
        polled(world, poll_of("default", "slow", slots=0))

    assert world.task_info("t").polled


def test_tasks_of_more_types_than_windows_are_all_given_out() -> None:
    world = World(config=ShardConfig(names_max=3))
    for n in range(10):
        world.enqueue(f"t{n}", type=f"type{n}")
    windows = len(world.core.shard.ready)
    given: list[str] = []
    for n in range(10):
        given += polled(world, poll_of("default", f"type{n}"))
        world.pass_time(61)

    assert windows <= 3
    assert sorted(given) == [f"t{n}" for n in range(10)]
    assert len(world.core.shard.ready) <= 4


def test_a_task_that_became_ready_without_a_window_is_found_by_a_poll_before_its_commit_returns() -> None:
    world = World(config=ShardConfig(names_max=1))
    world.enqueue("other", type="other")
    world.hold_commits = True
    world.send(enqueue_of("t"))
    poll = world.send(i.Poll(poll_id="p", worker="w", queues=("default",), task_types=("job",), slots=5, wait=MINUTE))
    before = poll in world.answers

    world.release()

    reply = world.answers[poll]
    assert not before
    assert isinstance(reply, replies.Work)
    assert [lease.token.task_id for lease in reply.tasks] == ["t"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_namespace_has_no_more_queues_than_it_may(restarted: bool) -> None:
    world = World(config=ShardConfig(queues_max=2))
    for n in range(2):
        world.enqueue(f"t{n}", queue=f"q{n}")
    if restarted:
        world.restart()

    refused = world.ask(enqueue_of("t2", queue="q2"), replies.Refused)

    assert (refused.code, refused.retryable) == ("limit_exceeded", False)
    assert world.enqueue("t3", queue="q0").task_id == "t3"
    assert world.ask(enqueue_of("t4", queue="q2"), replies.TaskEnqueuedReply, namespace="other").task_id == "t4"


def test_a_turn_that_asks_for_one_queue_too_many_fails_and_changes_nothing() -> None:
    world = World(config=ShardConfig(queues_max=1))
    world.enqueue("t", queue="q")
    world.start()
    activities = [
        c.ScheduleActivity(activity_id=queue, activity_type="pay", task_queue=queue) for queue in ("q", "another")
    ]

    reply = world.do(world.turn(), *activities)

    assert reply.refused is not None
    assert reply.refused.code == "limit_exceeded"
    assert world.run_info().activities == ()
    assert world.run_info().task_state == "backoff"


def test_nothing_is_kept_of_queues_of_runs_that_have_been_given_out() -> None:
    world = World()
    world.start()
    world.do(world.turn(), c.CompleteWorkflow())
    world.poll()

    assert world.core.shard.offers == {}


def test_nothing_is_kept_of_workers_that_had_runs_in_memory_and_do_not_come_back() -> None:
    world = World()
    for n in range(5):
        world.start(f"w{n}")
        world.do(world.turn(f"worker{n}"), cached=True, worker=f"worker{n}")
        world.signal(workflow_id=f"w{n}")
        world.terminate(f"w{n}")
    before = len(world.core.shard.sticky)
    world.pass_time(20)

    assert (before, len(world.core.shard.sticky)) == (5, 0)


def test_workers_are_forgotten_though_the_oldest_holds_a_lease() -> None:
    world = World(config=ShardConfig(workers_max=3))
    world.enqueue("t", start_to_close=MINUTE)
    lease = world.lease("first")
    for n in range(20):
        polled(world, poll_of("default", worker=f"worker{n}"))
        world.pass_time(1 / SECOND)

    assert len(world.core.shard.workers) <= 4
    assert world.beat(lease, worker="first").action == "continue"
