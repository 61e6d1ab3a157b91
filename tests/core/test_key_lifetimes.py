"""How long an idempotency key binds, and to what: as long as what it made is open, and a window beyond."""

import pytest

from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.retry import RetryPolicy
from outlast.core.units import HOUR
from tests.core.world import World, enqueue_of

WINDOW = 24 * 3600  # seconds
REPLAYED = replies.TaskEnqueuedReply(task_id="a", replayed=True)


def forget_old(world: World) -> None:
    """Drop the rows of periods that are over, as an engine does now and then, and what memory knows of them."""
    period = world.now // world.config.idempotency_window
    for key in [key for key, row in world.tables.dedup.items() if row.period < period]:
        del world.tables.dedup[key]
    world.restart()


@pytest.mark.parametrize("delay", [0, 60 * HOUR], ids=["nobody takes it", "it is not due"])
def test_a_key_binds_for_as_long_as_its_task_is_open(delay: int) -> None:
    world = World()
    world.enqueue("a", key="k", delay=delay)
    world.stall(2.4 * WINDOW)
    forget_old(world)

    assert world.enqueue("b", key="k", delay=delay) == REPLAYED


def test_a_key_binds_while_its_task_waits_for_another_attempt() -> None:
    world = World()
    world.enqueue("a", key="k", retry=RetryPolicy(attempts_max=2, first=60 * HOUR, longest=60 * HOUR, jitter=False))
    world.fail(world.lease())
    world.stall(2.4 * WINDOW)
    forget_old(world)

    assert world.enqueue("b", key="k") == REPLAYED


@pytest.mark.parametrize("ends", ["succeeds", "is canceled", "fails", "is late"])
def test_a_key_binds_for_a_window_after_its_task_has_ended_and_is_free_then(ends: str) -> None:
    world = World()
    late = {"schedule_to_start": 30 * HOUR} if ends == "is late" else {}
    world.enqueue("a", key="k", **late)
    world.stall(WINDOW + 3600)
    match ends:
        case "succeeds":
            world.complete(world.lease())
        case "fails":
            world.fail(world.lease(), final=True)
        case "is canceled":
            world.cancel_task("a")
        case _:
            world.pass_time(5 * 3600 + 1)
    world.stall(WINDOW - 60)
    forget_old(world)
    within = world.ask(enqueue_of("b", key="k", **late), replies.TaskEnqueuedReply)
    world.stall(120)
    forget_old(world)

    after = world.ask(enqueue_of("c", key="k", **late), replies.TaskEnqueuedReply)

    assert within == REPLAYED
    assert after == replies.TaskEnqueuedReply(task_id="c", polled=False)


def test_the_end_of_a_task_does_not_take_a_key_from_the_task_that_has_it_now() -> None:
    world = World()
    world.enqueue("a", key="k")
    world.complete(world.lease())
    world.stall(WINDOW + 1)
    world.enqueue("b", key="k")

    world.complete(world.lease())

    assert world.enqueue("c", key="k") == replies.TaskEnqueuedReply(task_id="b", replayed=True)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_key_that_made_a_task_makes_no_other_whose_id_is_the_key(restarts: bool) -> None:
    world = World()
    world.enqueue("a", key="k")
    if restarts:
        world.restart()

    assert world.enqueue("k", key="k") == REPLAYED
    assert list(world.tables.tasks) == ["a"]


def test_keys_that_look_alike_are_different_keys() -> None:
    world = World()
    keys = ["k", "K", " k", "k ", "\uff4b", "é", "e\u0301", "k\u200b", "0", "00"]

    made = [world.enqueue(f"t{n}", key=key).replayed for n, key in enumerate(keys)]

    assert made == [False] * len(keys)


def test_one_key_names_different_things_at_different_endpoints() -> None:
    world = World()
    world.enqueue("a", key="k")
    world.start("w", request_id="k")
    world.start("v", request_id="k")
    world.signal("go", request_id="k")

    world.signal("go", request_id="k", workflow_id="v")

    assert len(world.tables.runs) == 2
    assert [len(world.found(run_id, type(world.history(run_id)[-1]))) for run_id in world.tables.runs] == [1, 1]


def test_a_batch_may_name_one_key_twice_and_makes_one_task() -> None:
    world = World()
    items = (enqueue_of("a", key="k"), enqueue_of("b", key="k"), enqueue_of("c", key="k", type="other"))

    given = world.ask(i.EnqueueTasks(items=items), replies.TasksEnqueued).items

    assert given[:2] == (replies.TaskEnqueuedReply(task_id="a", polled=False), REPLAYED)
    assert isinstance(given[2], replies.Refused)
    assert given[2].code == "idempotency_key_reused"
    assert list(world.tables.tasks) == ["a"]
