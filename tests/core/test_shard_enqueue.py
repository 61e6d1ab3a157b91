"""Making tasks: keys, ids, batches, delays."""

from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.shard.config import ShardConfig
from outlast.core.units import DAY, HOUR, SECOND
from tests.core.world import World, enqueue_of, payload


def test_a_repeated_enqueue_gets_the_first_answer_and_makes_nothing() -> None:
    world = World()
    world.enqueue("t", key="k")

    again = world.enqueue("u", key="k")

    assert again == replies.TaskEnqueuedReply(task_id="t", replayed=True)
    assert list(world.tables.tasks) == ["t"]


def test_a_repeated_enqueue_is_known_after_a_restart() -> None:
    world = World()
    world.enqueue("t", key="k")
    world.restart()

    assert world.enqueue("u", key="k").replayed


def test_a_task_whose_id_is_its_key_needs_no_row_for_the_key() -> None:
    world = World()
    world.enqueue("t")
    world.restart()

    assert world.enqueue("t") == replies.TaskEnqueuedReply(task_id="t", replayed=True)
    assert world.tables.dedup == {}


def test_a_task_is_found_by_a_key_that_is_its_id() -> None:
    world = World()
    world.enqueue("k")

    assert world.enqueue("t", key="k") == replies.TaskEnqueuedReply(task_id="k", replayed=True)


def test_a_key_used_for_another_body_is_refused_and_names_the_first_task() -> None:
    world = World()
    world.enqueue("t", key="k", input=(payload("A"),))

    refused = world.ask(enqueue_of("u", key="k", input=(payload("B"),)), replies.Refused)

    assert refused.code == "idempotency_key_reused"
    assert refused.facts == {"id": "t"}
    assert list(world.tables.tasks) == ["t"]


def test_a_key_that_is_an_id_used_for_another_body_is_refused() -> None:
    world = World()
    world.enqueue("t", input=(payload("A"),))

    refused = world.ask(enqueue_of("t", input=(payload("B"),)), replies.Refused)

    assert refused.code == "idempotency_key_reused"


def test_an_id_that_is_taken_is_refused() -> None:
    world = World()
    world.enqueue("t", key="k")

    refused = world.ask(enqueue_of("t", key="other"), replies.Refused)

    assert refused.code == "task_already_exists"


def test_a_task_without_a_key_is_never_taken_for_a_repeat() -> None:
    world = World()
    world.enqueue("t", key="")

    refused = world.ask(enqueue_of("t", key=""), replies.Refused)

    assert refused.code == "task_already_exists"


def test_the_same_key_in_another_namespace_is_another_key() -> None:
    world = World()
    world.enqueue("t", key="k")

    reply = world.ask(enqueue_of("u", key="k"), replies.TaskEnqueuedReply, namespace="other")

    assert reply == replies.TaskEnqueuedReply(task_id="u", polled=False)


def test_a_key_is_not_found_in_the_task_of_another_namespace() -> None:
    world = World()
    world.enqueue("k")

    reply = world.ask(enqueue_of("t", key="k"), replies.TaskEnqueuedReply, namespace="other")

    assert reply == replies.TaskEnqueuedReply(task_id="t", polled=False)


def test_an_id_of_another_namespace_is_refused_without_saying_what_it_is() -> None:
    world = World()
    world.enqueue("t")

    refused = world.ask(enqueue_of("t"), replies.Refused, namespace="other")

    assert refused.code == "task_already_exists"
    assert "one for all namespaces" in refused.fact
    assert refused.facts == {}


def test_a_key_is_free_again_after_its_window() -> None:
    world = World()
    world.enqueue("t", key="k")
    world.complete(world.lease())
    world.stall(25 * HOUR / SECOND)

    assert world.enqueue("u", key="k") == replies.TaskEnqueuedReply(task_id="u", polled=False)


def test_a_refused_enqueue_leaves_its_key_free() -> None:
    world = World()
    world.enqueue("t")
    world.ask(enqueue_of("t", key="k"), replies.Refused)

    assert world.enqueue("u", key="k") == replies.TaskEnqueuedReply(task_id="u", polled=False)


def test_many_first_uses_of_a_key_make_one_task() -> None:
    world = World(hold_commits=True)
    tickets = [world.send(enqueue_of(f"t{n}", key="k")) for n in range(100)]
    world.release()

    given = [world.answers[ticket] for ticket in tickets]

    assert given == [
        replies.TaskEnqueuedReply(task_id="t0", polled=False),
        *[replies.TaskEnqueuedReply(task_id="t0", replayed=True)] * 99,
    ]
    assert list(world.tables.tasks) == ["t0"]


def test_each_item_of_a_batch_has_its_own_answer() -> None:
    world = World()
    world.enqueue("taken", key="other")
    items = (enqueue_of("a"), enqueue_of("taken"), enqueue_of("a"), enqueue_of("b"))

    reply = world.ask(i.EnqueueTasks(items=items), replies.TasksEnqueued)

    kinds = [item.code if isinstance(item, replies.Refused) else (item.task_id, item.replayed) for item in reply.items]
    assert kinds == [("a", False), "task_already_exists", ("a", True), ("b", False)]
    assert set(world.tables.tasks) == {"taken", "a", "b"}


def test_a_batch_sent_again_stores_nothing_twice() -> None:
    world = World()
    batch = i.EnqueueTasks(items=tuple(enqueue_of(f"t{n}") for n in range(100)))
    world.ask(batch, replies.TasksEnqueued)
    world.restart()

    again = world.ask(batch, replies.TasksEnqueued)

    assert all(isinstance(item, replies.TaskEnqueuedReply) and item.replayed for item in again.items)
    assert len(world.tables.tasks) == 100


def test_a_delayed_task_is_leased_no_earlier_than_it_may() -> None:
    world = World()
    world.enqueue(delay=60 * SECOND)
    world.pass_time(59.9)
    early = world.ready_tasks()
    state = world.task_info().state

    world.pass_time(0.2)

    assert (early, state) == ([], replies.TaskState.ENQUEUED)
    assert world.lease().attempt == 1


def test_a_delay_survives_the_death_of_a_worker_and_a_restart() -> None:
    world = World()
    world.enqueue(delay=60 * SECOND)
    world.poll("gone")
    world.pass_time(30)
    world.restart()
    world.pass_time(29)
    early = world.ready_tasks()

    world.pass_time(1.1)

    assert early == []
    assert world.lease("other").attempt == 1
    assert world.tables.timers == {}


def test_a_task_delayed_for_thirty_days_starts_in_time_in_spite_of_daily_restarts() -> None:
    world = World()
    due = world.now + 30 * DAY
    world.enqueue(delay=30 * DAY)
    for _ in range(29):
        world.stall(DAY / SECOND)
        world.restart()
        world.tick()
    early = world.ready_tasks()

    world.now = due + 1
    world.tick()

    assert early == []
    assert world.ready_tasks() == ["t"]


def test_awaiting_a_task_is_answered_when_it_ends() -> None:
    world = World()
    world.enqueue()
    ticket = world.send(i.AwaitTask(task_id="t"))
    before = ticket in world.answers

    world.complete(world.lease(), i.TaskSucceeded(result=(payload("1"),)))

    assert not before
    assert world.answers[ticket] == replies.TaskOutcomeReply(
        task_id="t", state=replies.TaskState.SUCCEEDED, attempt=1, result=(payload("1"),)
    )


def test_awaiting_an_ended_task_is_answered_at_once() -> None:
    world = World()
    world.enqueue()
    world.complete(world.lease())

    assert world.ask(i.AwaitTask(task_id="t"), replies.TaskOutcomeReply).state is replies.TaskState.SUCCEEDED


def test_a_caller_who_has_gone_is_not_answered() -> None:
    world = World()
    world.enqueue()
    gone = world.send(i.AwaitTask(task_id="t"))
    stays = world.send(i.AwaitTask(task_id="t"))
    world.forget(gone)

    world.complete(world.lease())

    assert gone not in world.answers
    assert stays in world.answers


def test_the_last_caller_to_go_leaves_nobody_behind() -> None:
    world = World()
    world.enqueue()
    world.forget(world.send(i.AwaitTask(task_id="t")))

    assert world.core.shard.waiters == {}
    assert world.core.shard.waiting == {}


def test_a_caller_who_goes_while_the_task_is_being_read_is_not_answered() -> None:
    world = World()
    world.enqueue()
    world.complete(world.lease())
    world.restart()
    world.core.handle("gone", i.AwaitTask(task_id="t"), namespace="default", principal="", now=world.now)

    world.core.forget("gone", now=world.now)
    world.settle()

    assert "gone" not in world.answers


def test_no_more_callers_wait_than_may() -> None:
    world = World(config=ShardConfig(waiters_max=1))
    world.enqueue()
    world.send(i.AwaitTask(task_id="t"))

    refused = world.ask(i.AwaitTask(task_id="t"), replies.Refused)

    assert (refused.code, refused.retryable) == ("busy", True)


def test_an_unknown_task_is_not_found_by_anybody() -> None:
    world = World()

    described = world.ask(i.DescribeTask(task_id="none"), replies.Refused)
    awaited = world.ask(i.AwaitTask(task_id="none"), replies.Refused)

    assert (described.code, awaited.code) == ("task_not_found", "task_not_found")


def test_a_task_of_another_namespace_is_not_described() -> None:
    world = World()
    world.enqueue()

    refused = world.ask(i.DescribeTask(task_id="t"), replies.Refused, namespace="other")

    assert refused.code == "task_not_found"


def test_a_description_says_what_a_task_waits_for() -> None:
    world = World()
    world.enqueue("delayed", delay=HOUR)
    world.enqueue("alone", type="nobody knows it")
    world.enqueue("a")
    world.enqueue("b")
    leased = world.lease()

    whys = {name: world.task_info(name).why for name in ("delayed", "alone", "a", "b")}

    assert leased.token.task_id == "a"
    assert whys == {
        "delayed": "its delay to pass",
        "alone": 'a worker: none polls queue "default" for "nobody knows it"',
        "a": "worker one, attempt 1",
        "b": "a free slot at a worker",
    }


def test_a_description_says_how_a_task_ended() -> None:
    world = World()
    world.enqueue("a")
    world.enqueue("b", delay=HOUR)
    world.cancel_task("b")
    world.complete(world.lease())

    assert world.task_info("a").why == "nothing: it is succeeded"
    assert world.task_info("b").why == "nothing: it is canceled (canceled)"
