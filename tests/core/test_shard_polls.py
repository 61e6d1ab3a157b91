"""Polls of workers, and which worker gets the next turn of a run."""

import pytest

from outlast.core import inputs as i
from outlast.core import limits, replies
from outlast.core.admin import DescribeWorkers, WorkersInfo
from outlast.core.shard import matching
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.state import Shard
from outlast.core.units import MINUTE, SECOND
from tests.core.world import World, enqueue_of


def test_a_poll_asked_again_gives_the_same_leases_and_turns() -> None:
    world = World()
    world.start()
    world.enqueue()
    first = world.poll(poll_id="p")

    again = world.poll(poll_id="p")

    assert again == first
    assert (len(first.tasks), len(first.workflow_tasks)) == (1, 1)


def test_a_poll_asked_again_leaves_out_what_has_ended_meanwhile() -> None:
    world = World()
    world.enqueue("a")
    world.enqueue("b")
    first = world.poll(poll_id="p")
    world.complete(first.tasks[0])

    again = world.poll(poll_id="p")

    assert [lease.token.task_id for lease in again.tasks] == ["b"]


def test_a_poll_asked_again_of_which_nothing_is_left_is_a_new_poll() -> None:
    world = World()
    world.enqueue("a")
    world.complete(world.poll(poll_id="p").tasks[0])
    world.enqueue("b")

    again = world.poll(poll_id="p")

    assert [lease.token.task_id for lease in again.tasks] == ["b"]


def test_a_poll_asked_again_after_a_restart_gives_the_same_leases() -> None:
    world = World()
    world.enqueue()
    first = world.poll(poll_id="p")
    world.restart()

    again = world.poll(poll_id="p")

    assert again.tasks == first.tasks


def test_the_oldest_answers_of_polls_are_forgotten_when_they_have_too_many_leases() -> None:
    world = World(config=ShardConfig(poll_leases_max=3))
    world.enqueue("a")
    world.enqueue("b")
    world.poll(poll_id="p")
    world.enqueue("c")
    world.enqueue("d")
    second = world.poll(poll_id="q")

    forgotten = world.poll(poll_id="p")
    again = world.poll(poll_id="q")

    assert [lease.token.task_id for lease in second.tasks] == ["c", "d"]
    assert not forgotten.tasks
    assert again == second


def test_an_answer_with_more_leases_than_are_kept_is_kept_alone() -> None:
    world = World(config=ShardConfig(poll_leases_max=1))
    world.enqueue("a")
    world.enqueue("b")
    first = world.poll(poll_id="p")

    again = world.poll(poll_id="p")

    assert len(first.tasks) == 2
    assert again == first


def test_a_held_poll_that_is_asked_again_is_answered_empty() -> None:
    world = World()
    poll = i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job",), slots=1, wait=MINUTE)
    first = world.send(poll)
    second = world.send(poll)

    world.enqueue()

    assert world.answers[first] == replies.Work()
    work = world.answers[second]
    assert isinstance(work, replies.Work)
    assert len(work.tasks) == 1


def test_a_poll_without_work_is_answered_when_its_wait_is_over() -> None:
    world = World()
    poll = world.send(i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job",), slots=1, wait=SECOND))
    world.pass_time(0.9)
    before = poll in world.answers

    world.pass_time(0.2)

    assert not before
    assert world.answers[poll] == replies.Work()


def test_a_poll_whose_caller_has_gone_takes_no_work() -> None:
    world = World()
    poll = world.send(i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job",), slots=1, wait=MINUTE))
    world.forget(poll)

    world.enqueue()

    assert poll not in world.answers
    assert world.task_info().state is replies.TaskState.ENQUEUED


def test_no_more_polls_are_held_than_may_be() -> None:
    world = World(config=ShardConfig(polls_max=1))
    poll = i.Poll(poll_id="p", worker="one", queues=("default",), wait=MINUTE)
    world.send(poll)

    refused = world.ask(i.Poll(poll_id="q", worker="one", queues=("default",)), replies.Refused)

    assert (refused.code, refused.retryable) == ("busy", True)


def test_a_poll_takes_no_more_than_it_has_room_for() -> None:
    world = World()
    for n in range(3):
        world.start(f"w{n}")
        world.enqueue(f"t{n}")

    work = world.poll(slots=2, turns=1)

    assert (len(work.tasks), len(work.workflow_tasks)) == (2, 1)


def test_polls_are_served_in_the_order_in_which_they_came() -> None:
    world = World()
    first, second = (
        world.send(i.Poll(poll_id=name, worker=name, queues=("default",), task_types=("job",), slots=1, wait=MINUTE))
        for name in ("a", "b")
    )

    world.enqueue()

    assert first in world.answers
    assert second not in world.answers


def test_a_poll_id_of_another_namespace_brings_none_of_its_leases() -> None:
    world = World()
    world.enqueue("t")
    world.poll(poll_id="p")

    stranger = i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job",), slots=1)
    ticket = world.send(stranger, namespace="other")
    world.pass_time(0.001)

    assert world.answers[ticket] == replies.Work()


def test_a_poll_id_of_another_worker_does_not_end_a_held_poll() -> None:
    world = World()
    mine = i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job",), slots=1, wait=10 * SECOND)
    ticket = world.send(mine)

    world.poll("two", poll_id="p")

    assert ticket not in world.answers


def test_polls_that_end_together_are_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    polls = [
        world.send(i.Poll(poll_id=f"p{n}", worker="w", queues=("default",), task_types=("job",), slots=1, wait=SECOND))
        for n in range(50)
    ]
    matched: list[int] = []
    match = matching.match

    def counted(shard: Shard) -> None:
        matched.append(shard.now)
        match(shard)

    monkeypatch.setattr(matching, "match", counted)
    world.now += SECOND
    world.core.tick(now=world.now)
    world.core.take_batch(now=world.now)
    world.settle()

    assert all(world.answers[poll] == replies.Work() for poll in polls)
    assert len(matched) <= 4


def test_one_tick_ends_a_bounded_number_of_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DUE_AT_ONCE", 5)
    world = World()
    polls = [
        world.send(i.Poll(poll_id=f"p{n}", worker="w", queues=("default",), task_types=("job",), slots=1, wait=SECOND))
        for n in range(12)
    ]
    world.now += SECOND
    world.core.tick(now=world.now)
    world.settle()
    first = sum(poll in world.answers for poll in polls)

    world.tick()

    assert (first, sum(poll in world.answers for poll in polls)) == (5, 12)


def test_nothing_is_kept_of_queues_whose_polls_have_ended() -> None:
    world = World()
    for n in range(20):
        world.send(i.Poll(poll_id="p", worker="w", queues=(f"q{n}",), task_types=("job",), slots=1, wait=SECOND))
    world.pass_time(1.1)

    shard = world.core.shard
    assert (len(shard.polls), len(shard.poll_of), len(shard.poll_of_ticket)) == (0, 0, 0)


def test_work_that_nobody_polls_for_is_told_as_such_and_only_when_it_is_made() -> None:
    world = World()
    enqueue, start = enqueue_of("t"), i.StartWorkflow(type="order", queue="default", run_id="r", request_id="s")

    alone = world.ask(enqueue, replies.TaskEnqueuedReply), world.ask(start, replies.WorkflowStarted)
    repeated = world.ask(enqueue, replies.TaskEnqueuedReply), world.ask(start, replies.WorkflowStarted)
    world.poll()
    known = world.ask(enqueue_of("u"), replies.TaskEnqueuedReply)
    other = world.ask(enqueue_of("v", type="nobody"), replies.TaskEnqueuedReply)
    elsewhere = world.ask(enqueue_of("w", queue="images"), replies.TaskEnqueuedReply)

    assert [reply.polled for reply in alone] == [False, False]
    assert [(reply.replayed, reply.polled) for reply in repeated] == [(True, True), (True, True)]
    assert (known.polled, other.polled, elsewhere.polled) == (True, False, False)


def polls_as(world: World, identity: str) -> replies.Work:
    """Take one task as a worker that says who it is."""
    poll = i.Poll(
        poll_id="p", worker="w-1", queues=("default",), task_types=("job",), slots=1, identity=identity, build="v7"
    )
    return world.ask(poll, replies.Work)


def test_a_worker_that_is_only_known_from_its_lease_has_its_name() -> None:
    world = World()
    world.enqueue()
    polls_as(world, "4711@shop")
    world.restart()

    (worker,) = world.ask(DescribeWorkers(), WorkersInfo).items

    assert (worker.identity, worker.build, worker.leases, worker.seen_at) == ("4711@shop", "v7", 1, 0)


def test_a_task_in_hand_tells_who_has_it_until_when_and_when_that_was_heard_of() -> None:
    world = World()
    world.enqueue("t")
    polls_as(world, "4711@shop")
    given_at = world.now
    world.pass_time(5)

    info = world.ask(i.DescribeTask(task_id="t"), replies.TaskInfo)

    assert info.why == "worker 4711@shop, attempt 1"
    assert (info.worker, info.worker_identity, info.heard_at) == ("w-1", "4711@shop", given_at)
    assert info.expires_at == info.lease_until == given_at + world.config.task_lease
    world.pass_time(60)
    later = world.ask(i.DescribeTask(task_id="t"), replies.TaskInfo)
    assert (later.expires_at, later.heard_at, later.worker_identity) == (0, 0, "")
