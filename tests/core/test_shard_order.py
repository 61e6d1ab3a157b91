"""In which order ready tasks are given out: fair between keys, urgent ones first, none waiting for ever."""

import pytest

from outlast.core import inputs as i
from outlast.core import limits, replies
from outlast.core.shard import fairness
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.fairness import BOOST, UNIT
from outlast.core.shard.state import Fair
from outlast.core.task import Task
from outlast.core.units import SECOND
from outlast.core.writes import TaskSpec, TaskStatus
from tests.core.world import NS, World, enqueue_of


def waiting_task(task_id: str, *, fairness_key: str) -> Task:
    """Return a task that has no place in its queue yet."""
    return Task(
        namespace=NS,
        task_id=task_id,
        queue="default",
        type="job",
        spec=TaskSpec(fairness_key=fairness_key),
        status=TaskStatus(),
    )


def test_tasks_are_given_out_in_the_order_in_which_they_came() -> None:
    world = World()
    for name in "badc":
        world.enqueue(name)

    assert world.ready_tasks() == ["b", "a", "d", "c"]


def test_more_urgent_tasks_go_first() -> None:
    world = World()
    world.enqueue("usual", priority=3)
    world.enqueue("last", priority=5)
    world.enqueue("first", priority=1)
    world.enqueue("soon", priority=2)

    assert world.ready_tasks() == ["first", "soon", "usual", "last"]


def test_an_urgent_task_passes_a_bounded_number_of_earlier_ones() -> None:
    world = World()
    world.enqueue("patient", priority=3)
    before = world.task_row("patient").order_key

    world.enqueue("urgent", priority=2)

    assert before - BOOST < world.task_row("urgent").order_key < before


def test_a_task_of_low_priority_is_passed_by_at_most_so_many_later_ones() -> None:
    world = World()
    world.enqueue("patient", priority=4)
    for n in range(BOOST // UNIT + 10):
        world.enqueue(f"t{n}", priority=3)

    given = [lease.token.task_id for lease in world.poll(slots=2000).tasks]

    assert given.index("patient") <= BOOST // UNIT + 1


def test_keys_of_fairness_take_turns_however_many_one_of_them_sends() -> None:
    world = World()
    for n in range(10):
        world.enqueue(f"many {n}", fairness_key="many")
    world.enqueue("few 0", fairness_key="few")
    world.enqueue("few 1", fairness_key="few")

    order = world.ready_tasks()

    assert order.index("few 1") <= 4


def test_a_key_that_was_quiet_does_not_catch_up_on_the_past() -> None:
    world = World()
    for n in range(20):
        world.enqueue(f"a{n}", fairness_key="a")
    world.ready_tasks()
    for n in range(10):
        world.enqueue(f"b{n}", fairness_key="b")
        world.enqueue(f"c{n}", fairness_key="a")

    order = world.ready_tasks()

    assert {name[0] for name in order[:4]} == {"b", "c"}


def test_the_order_survives_a_restart() -> None:
    world = World()
    world.enqueue("usual")
    world.enqueue("last", priority=5)
    world.enqueue("first", priority=1)
    world.restart()
    world.enqueue("after")

    assert world.ready_tasks() == ["first", "usual", "after", "last"]


def test_a_retried_task_keeps_its_place() -> None:
    world = World()
    world.enqueue("t")
    world.fail(world.lease())
    world.enqueue("later")
    world.pass_time(1.1)

    assert world.ready_tasks() == ["t", "later"]


def test_types_of_one_queue_are_served_in_one_order() -> None:
    world = World()
    world.enqueue("a", type="job")
    world.enqueue("b", type="pay")
    world.enqueue("c", type="job")

    assert world.ready_tasks() == ["a", "b", "c"]


def test_a_worker_gets_only_types_that_it_knows() -> None:
    world = World()
    world.enqueue("known")
    world.enqueue("unknown", type="other")

    assert world.ready_tasks() == ["known"]


def test_a_worker_gets_work_of_each_of_its_queues() -> None:
    world = World()
    world.enqueue("a", queue="one")
    world.enqueue("b", queue="two")
    poll = i.Poll(poll_id="p", worker="w", queues=("two", "one"), task_types=("job",), slots=5)

    ticket = world.send(poll)
    world.pass_time(0.001)

    work = world.answers[ticket]
    assert isinstance(work, replies.Work)
    assert {lease.token.task_id for lease in work.tasks} == {"a", "b"}


def test_a_worker_gets_nothing_of_another_namespace() -> None:
    world = World()
    world.ask(enqueue_of("t"), replies.TaskEnqueuedReply, namespace="other")

    assert world.ready_tasks() == []


def test_a_bounded_number_of_fairness_keys_is_remembered() -> None:
    world = World(config=ShardConfig(fair_keys_max=6))
    for n in range(20):
        world.enqueue(f"t{n}", fairness_key=f"k{n}")
        world.poll(slots=5)

    (fair,) = world.core.shard.fair.values()
    assert len(fair.last) <= 6


def test_fifty_thousand_fairness_keys_are_sorted_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = World().core.shard
    sorted_at: list[int] = []
    forget = fairness._forget_keys

    def counted(fair: Fair, *, keep: int) -> None:
        sorted_at.append(len(fair.last))
        forget(fair, keep=keep)

    monkeypatch.setattr(fairness, "_forget_keys", counted)
    passes = [fairness.order_key_of(shard, waiting_task(f"t{n}", fairness_key=f"k{n}")) for n in range(50_000)]

    (fair,) = shard.fair.values()
    assert len(fair.last) <= limits.FAIR_KEYS_MAX
    assert 0 < len(sorted_at) <= 2 * 50_000 // limits.FAIR_KEYS_MAX
    assert passes == sorted(passes)


def test_a_key_that_was_forgotten_does_not_get_ahead_of_where_it_stood() -> None:
    world = World(config=ShardConfig(fair_keys_max=4))
    for n in range(5):
        world.enqueue(f"greedy{n}", fairness_key="greedy")
    for n in range(8):
        for again in range(6):
            world.enqueue(f"o{n}-{again}", fairness_key=f"other{n}")
    world.enqueue("late", fairness_key="greedy")

    (fair,) = world.core.shard.fair.values()
    assert len(fair.last) <= 4
    keys = [world.task_row(task_id).order_key for task_id in ("greedy4", "late")]
    assert keys == sorted(keys)
    assert keys[0] < keys[1]


def test_a_delayed_task_takes_its_place_when_it_is_due() -> None:
    world = World()
    world.enqueue("delayed", delay=SECOND)
    world.enqueue("now")
    world.pass_time(1.1)

    assert world.ready_tasks() == ["now", "delayed"]
