"""Nothing is said before it is committed, and nothing that was not committed is ever said."""

import pytest

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.core import UNAVAILABLE
from outlast.core.units import MINUTE, SECOND
from outlast.core.writes import CommitOutcome, LoadKeys
from tests.core.world import NS, World, enqueue_of, payload

POLL = i.Poll(
    poll_id="p",
    worker="one",
    queues=("default",),
    task_types=("job",),
    workflow_types=("order",),
    slots=5,
    workflow_slots=5,
    wait=MINUTE,
)
LOST = (CommitOutcome.REFUSED, CommitOutcome.FULL, CommitOutcome.LOCKED, CommitOutcome.UNKNOWN)


def start_of(workflow_id: str) -> i.StartWorkflow:
    return i.StartWorkflow(
        type="order", queue="default", run_id=f"run of {workflow_id}", request_id="r", workflow_id=workflow_id
    )


@pytest.mark.parametrize(
    "request_",
    [
        enqueue_of("t"),
        start_of("w"),
        i.EnqueueTasks(items=(enqueue_of("a"), enqueue_of("b"))),
        i.StartWorkflows(items=(start_of("w"),)),
    ],
    ids=["enqueue", "start", "enqueues", "starts"],
)
def test_a_change_is_acknowledged_when_it_is_committed_and_no_earlier(request_: i.Request) -> None:
    world = World(hold_commits=True)
    ticket = world.send(request_)
    before = ticket in world.answers

    world.release()

    assert not before
    assert not isinstance(world.answers[ticket], replies.Refused)


def test_a_refusal_that_rests_on_something_not_committed_waits_for_it() -> None:
    world = World(hold_commits=True)
    world.send(start_of("w"))
    refused = world.send(
        i.StartWorkflow(type="order", queue="default", run_id="other", request_id="s", workflow_id="w")
    )
    before = refused in world.answers

    world.release()

    assert not before
    assert isinstance(world.answers[refused], replies.Refused)


def test_a_repeat_is_not_acknowledged_before_the_first_is_committed() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("t"))
    again = world.send(enqueue_of("t"))
    before = again in world.answers

    world.release()

    assert not before
    assert world.answers[again] == replies.TaskEnqueuedReply(task_id="t", replayed=True)


def test_a_read_of_something_not_committed_waits_for_it() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("t"))
    read = world.send(i.DescribeTask(task_id="t"))
    before = read in world.answers

    world.release()

    assert not before
    assert isinstance(world.answers[read], replies.TaskInfo)


def test_a_read_of_what_is_committed_is_answered_while_nothing_is_on_its_way() -> None:
    world = World()
    world.enqueue()
    number = world.tables.held.last_number

    world.task_info()

    assert world.tables.held.last_number == number


def test_work_is_given_out_when_its_lease_is_committed_and_no_earlier() -> None:
    world = World()
    world.enqueue()
    world.hold_commits = True
    poll = world.send(POLL)
    before = poll in world.answers

    world.release()

    assert not before
    work = world.answers[poll]
    assert isinstance(work, replies.Work)
    assert len(work.tasks) == 1


def test_the_result_of_a_task_is_told_when_it_is_committed_and_no_earlier() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    waiter = world.send(i.AwaitTask(task_id="t"))
    world.hold_commits = True
    item = i.Completion(token=lease.token, outcome=i.TaskSucceeded())
    done = world.send(i.CompleteTasks(items=(item,), worker="one"))
    before = (waiter in world.answers, done in world.answers)

    world.release()

    assert before == (False, False)
    assert {waiter, done} <= set(world.answers)


def test_inputs_that_come_during_a_commit_go_together_in_the_next() -> None:
    world = World(hold_commits=True)
    first = world.send(enqueue_of("a"))
    second, third = world.send(enqueue_of("b")), world.send(enqueue_of("c"))
    number = world.tables.held.last_number

    world.release()

    assert world.tables.held.last_number == number + 2
    assert {first, second, third} <= set(world.answers)


def test_an_answer_of_the_second_batch_does_not_leave_with_the_first() -> None:
    world = World(hold_commits=True)
    first = world.send(enqueue_of("a"))
    second = world.send(enqueue_of("b"))
    batch = world.held
    assert batch is not None
    world.core.on_commit(batch.number, world.tables.apply(batch), now=world.now)
    world.held = None

    world.settle()

    assert first in world.answers
    assert second not in world.answers


def test_what_moves_often_is_written_once() -> None:
    world = World()
    started = world.start()
    world.hold_commits = True
    world.send(enqueue_of("held"))
    for n in range(5):
        world.send(i.SignalWorkflow(workflow_id="w", name="go", request_id=f"s{n}"))
    world.hold_commits = False
    batch = world.held
    assert batch is not None
    world.held = None
    world.core.on_commit(batch.number, world.tables.apply(batch), now=world.now)

    following = world.core.take_batch(now=world.now)

    assert following is not None
    assert list(following.run_moves) == [started.run_id]
    assert [(row.first_event_id, row.count) for row in following.history] == [(2, 5)]
    assert len(following.dedup) == 5


def test_a_task_that_ends_in_the_batch_that_makes_it_is_one_row() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("held"))
    world.send(enqueue_of("t", delay=SECOND))
    world.send(i.CancelTask(task_id="t"))
    world.release()

    assert world.task_row().state is replies.TaskState.CANCELED
    assert world.tables.timers == {}


@pytest.mark.parametrize("outcome", LOST, ids=str)
def test_anything_but_done_ends_the_owner_and_answers_everybody_once(outcome: CommitOutcome) -> None:
    world = World()
    world.enqueue("stored")
    world.start("stored")
    waiting = [
        world.send(i.AwaitTask(task_id="stored")),
        world.send(i.AwaitWorkflow(workflow_id="stored")),
        world.send(i.Poll(poll_id="idle", worker="two", queues=("other",), task_types=("job",), slots=1, wait=MINUTE)),
    ]
    world.hold_commits = True
    in_flight, behind = world.send(enqueue_of("a")), world.send(enqueue_of("b"))
    world.core.handle("loading", i.DescribeTask(task_id="none"), namespace="default", principal="", now=world.now)

    world.release(outcome)

    assert world.core.stepped_down
    tickets = [*waiting, in_flight, behind, "loading"]
    assert [world.answers[ticket] for ticket in tickets] == [UNAVAILABLE] * 6


@pytest.mark.parametrize("outcome", LOST, ids=str)
def test_a_new_owner_knows_nothing_that_was_not_committed(outcome: CommitOutcome) -> None:
    world = World()
    world.enqueue("kept")
    world.hold_commits = True
    world.send(enqueue_of("lost"))
    world.release(outcome)

    world.restart()

    assert world.task_info("kept").state is replies.TaskState.ENQUEUED
    assert world.ask(i.DescribeTask(task_id="lost"), replies.Refused).code == "task_not_found"


def test_a_commit_whose_end_was_not_known_may_have_happened() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("t"))
    batch = world.held
    assert batch is not None
    world.tables.apply(batch)
    world.release(CommitOutcome.UNKNOWN)

    world.restart()

    assert world.enqueue("t").replayed


def test_a_batch_of_an_earlier_owner_changes_nothing() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("t"))
    batch = world.held
    assert batch is not None

    world.hold_commits = False
    world.restart()

    assert world.tables.apply(batch) is CommitOutcome.REFUSED
    assert world.tables.tasks == {}


def test_an_owner_that_has_stepped_down_answers_whoever_still_comes() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("t"))
    world.release(CommitOutcome.UNKNOWN)

    late = world.send(enqueue_of("late"))

    assert world.answers[late] == UNAVAILABLE


def test_an_owner_that_has_stepped_down_does_nothing_more() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("t"))
    world.release(CommitOutcome.UNKNOWN)
    core = world.core

    core.tick(now=world.now + MINUTE)
    core.on_commit(99, CommitOutcome.DONE, now=world.now)
    core.loaded(99, world.tables.load(LoadKeys()), now=world.now)
    core.step_down("again")

    assert core.take_batch(now=world.now) is None
    assert core.next_wakeup() is None
    assert core.take_outputs() == []


def test_a_commit_that_was_not_asked_for_ends_the_owner() -> None:
    world = World()

    world.core.on_commit(99, CommitOutcome.DONE, now=world.now)

    assert world.core.stepped_down


def test_no_second_batch_is_taken_while_one_is_in_flight() -> None:
    world = World(hold_commits=True)
    world.send(enqueue_of("a"))
    world.send(enqueue_of("b"))

    assert world.core.take_batch(now=world.now) is None


def test_nothing_to_write_makes_no_batch() -> None:
    world = World()

    assert world.core.take_batch(now=world.now) is None


def test_a_full_batch_asks_for_no_more_input() -> None:
    world = World(config=ShardConfig(batch_rows_max=3), hold_commits=True)
    world.send(enqueue_of("held"))
    before = world.core.full
    for n in range(3):
        world.send(enqueue_of(f"t{n}"))

    assert not before
    assert world.core.full


def test_a_batch_with_many_bytes_asks_for_no_more_input() -> None:
    world = World(config=ShardConfig(batch_bytes_max=20_000), hold_commits=True)
    world.send(enqueue_of("held"))
    before = world.core.full
    big = enqueue_of("big", input=(payload("x" * 20_000),))
    world.core.handle("ticket", big, namespace=NS, principal="tester", now=world.now, size=20_100)
    world.settle()

    assert not before
    assert world.core.full


def test_inputs_that_change_nothing_do_not_fill_a_batch() -> None:
    world = World(config=ShardConfig(batch_bytes_max=1_000))
    question = i.DescribeTask(task_id="none")
    world.core.handle("ticket", question, namespace=NS, principal="tester", now=world.now, size=2_000)
    world.settle()

    assert not world.core.full


def test_heavy_leases_are_given_out_over_several_batches() -> None:
    world = World(config=ShardConfig(batch_bytes_max=50_000))
    for n in range(10):
        world.enqueue(f"t{n}")
        lease = world.lease()
        world.beat(lease, details=payload("x" * 20_000))
        world.give_back(lease)
    before = world.tables.held.last_number
    polls = [
        world.send(i.Poll(poll_id=f"p{n}", worker="w", queues=("default",), task_types=("job",), slots=1, wait=SECOND))
        for n in range(10)
    ]
    world.pass_time(0.1)

    works = [world.answers[poll] for poll in polls]
    assert sum(len(work.tasks) for work in works if isinstance(work, replies.Work)) == 10
    assert world.tables.held.last_number - before >= 4


def test_every_kind_of_row_counts_towards_a_full_batch() -> None:
    world = World(config=ShardConfig(batch_rows_max=9))
    world.start()
    world.do(world.turn(), *(c.StartTimer(timer_id=f"t{n}", start_to_fire=60 * SECOND) for n in range(9)))
    world.hold_commits = True
    world.send(enqueue_of("held"))
    before = world.core.full
    world.send(i.TerminateWorkflow(workflow_id="w", request_id="t"))

    assert not before
    assert world.core.full


def test_a_turn_is_not_shown_a_signal_whose_commit_is_lost() -> None:
    world = World()
    started = world.start()
    world.do(world.turn())
    poll = world.send(POLL)
    world.hold_commits = True
    world.send(i.SignalWorkflow(workflow_id="w", name="go", request_id="s"))

    world.release(CommitOutcome.REFUSED)

    assert world.answers[poll] == UNAVAILABLE
    world.restart()
    assert "WorkflowExecutionSignaled" not in world.kinds(started.run_id)


def test_closing_and_following_run_are_one_commit() -> None:
    world = World()
    started = world.start()
    turn = world.turn()
    number = world.tables.held.last_number
    world.do(turn, c.ContinueAsNew())

    first, second = world.tables.runs.values()

    assert (first.run_id, first.status) == (started.run_id, "continued_as_new")
    assert (first.commit_no, second.commit_no) == (number + 1, number + 1)


def test_reads_do_not_pile_up_without_bound_behind_a_commit_that_hangs() -> None:
    world = World(config=ShardConfig(answers_max=3), hold_commits=True)
    world.send(enqueue_of("held"))
    world.send(enqueue_of("gathers"))
    before = world.core.full
    for _ in range(2):
        world.send(i.DescribeTask(task_id="gathers"))
    full = world.core.full

    world.release()

    assert (before, full, world.core.full) == (False, True, False)
