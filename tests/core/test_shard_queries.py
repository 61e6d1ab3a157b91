"""Queries: who answers them, when, and what becomes of one that nobody answers. And what code has published."""

import pytest

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import limits, replies
from outlast.core.admin import Forget, Forgotten
from outlast.core.shard.config import ShardConfig
from tests.core.world import World, failure, payload

TIMER = c.StartTimer(timer_id="1", start_to_fire=10**12)


def query_of(name: str = "count", **options: object) -> i.QueryWorkflow:
    return i.QueryWorkflow(workflow_id="w", name=name, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def waiting_run(*, cached: bool = True, config: ShardConfig | None = None) -> World:
    """Return a world with one run that waits, in the memory of worker "one" if ``cached``."""
    world = World(config=config or ShardConfig())
    world.start()
    world.do(world.turn(), TIMER, cached=cached)
    return world


def answer(world: World, task: replies.QueryTask, text: str = "3", *, worker: str = "one") -> None:
    item = i.QueryAnswer(token=task.token, result=(payload(text),))
    world.ask(i.AnswerQueries(worker=worker, items=(item,)), replies.Accepted)


def test_a_query_goes_to_a_worker_and_its_answer_to_the_caller() -> None:
    world = waiting_run()
    ticket = world.send(query_of(input=(payload("1"),)))

    (task,) = world.poll().queries
    answer(world, task)

    assert (task.name, task.workflow_id, task.input) == ("count", "w", (payload("1"),))
    assert task.last_event_id == len(world.history(task.token.run_id))
    assert world.answers[ticket] == replies.QueryAnswered(result=(payload("3"),))
    assert world.poll().queries == ()


def test_a_query_writes_nothing() -> None:
    world = waiting_run()
    before = world.core.shard.gate.committed
    world.send(query_of())

    (task,) = world.poll().queries
    answer(world, task)

    assert world.core.shard.gate.committed == before


def test_a_failure_of_the_code_is_the_answer() -> None:
    world = waiting_run()
    ticket = world.send(query_of())
    (task,) = world.poll().queries

    item = i.QueryAnswer(token=task.token, failure=failure("no such thing"))
    world.ask(i.AnswerQueries(worker="one", items=(item,)), replies.Accepted)

    reply = world.answers[ticket]
    assert isinstance(reply, replies.QueryAnswered)
    assert reply.failure == failure("no such thing")


def test_a_run_that_has_something_to_show_to_its_code_shows_it_first() -> None:
    world = waiting_run()
    world.signal()
    ticket = world.send(query_of())

    work = world.poll()
    assert work.queries == ()
    assert world.poll().queries == ()  # the turn is out
    world.do(work.workflow_tasks[0], cached=True)
    (task,) = world.poll().queries

    assert task.last_event_id == len(world.history(task.token.run_id))
    assert ticket not in world.answers


def test_the_query_sees_no_turn_whose_commit_is_on_its_way() -> None:
    world = waiting_run()
    world.signal()
    turn = world.turn()
    world.send(query_of())
    poll = i.Poll(
        poll_id="held", worker="one", queues=("default",), workflow_types=("order",), workflow_slots=1, wait=10**10
    )
    ticket = world.send(poll)
    world.hold_commits = True

    done = i.WorkflowTaskDone(token=turn.token, cached=True)
    world.send(i.CompleteWorkflowTasks(worker="one", done=(done,)))

    assert ticket not in world.answers
    world.release()
    reply = world.answers[ticket]
    assert isinstance(reply, replies.Work)
    assert len(reply.queries) == 1


def test_the_worker_that_has_the_run_in_memory_is_asked_first() -> None:
    world = waiting_run()
    world.send(query_of())

    assert world.poll("two").queries == ()
    assert len(world.poll("one").queries) == 1


def test_any_worker_is_asked_when_the_one_with_the_run_does_not_come() -> None:
    world = waiting_run()
    world.send(query_of())

    world.pass_time(2.001)

    assert len(world.poll("two").queries) == 1


def test_a_worker_that_says_nothing_is_not_waited_for_alone() -> None:
    world = waiting_run()
    ticket = world.send(query_of())
    (lost,) = world.poll("one").queries

    world.pass_time(2.001)
    (again,) = world.poll("two").queries
    answer(world, again, "4", worker="two")
    answer(world, lost, "5")

    assert world.answers[ticket] == replies.QueryAnswered(result=(payload("4"),))


def test_a_query_that_nobody_answers_says_what_to_do() -> None:
    world = waiting_run()
    ticket = world.send(query_of(wait=5 * 10**9))

    world.pass_time(5.001)

    reply = world.answers[ticket]
    assert isinstance(reply, replies.Refused)
    assert (reply.code, reply.retryable) == ("query_unanswered", True)


def test_without_a_worker_for_the_type_the_refusal_says_so() -> None:
    world = World()
    world.start()
    ticket = world.send(query_of())

    world.pass_time(10.001)

    reply = world.answers[ticket]
    assert isinstance(reply, replies.Refused)
    assert 'No worker polls queue "default" for "order"' in reply.remedy


def test_a_run_whose_code_fails_cannot_be_asked() -> None:
    world = World()
    world.start()
    waiting = world.send(query_of())
    world.not_done(world.turn())

    refused = world.ask(query_of(), replies.Refused)
    world.pass_time(2.001)

    assert refused.code == "workflow_held"
    assert refused.remedy
    assert waiting in world.answers or len(world.core.shard.queries) == 1


def test_a_closed_run_still_answers() -> None:
    world = waiting_run()
    world.terminate()
    ticket = world.send(query_of())

    (task,) = world.poll("two").queries
    answer(world, task, worker="two")

    assert world.answers[ticket] == replies.QueryAnswered(result=(payload("3"),))


def test_a_query_to_a_run_that_left_memory_brings_it_back() -> None:
    world = waiting_run(cached=False)
    world.restart()
    world.send(query_of())

    assert len(world.poll("two").queries) == 1


def test_a_caller_who_has_gone_is_asked_for_no_more() -> None:
    world = waiting_run()
    ticket = world.send(query_of())

    world.forget(ticket)

    assert world.poll().queries == ()
    assert world.core.shard.queries == {}


def test_an_owner_that_goes_down_tells_the_caller() -> None:
    world = waiting_run()
    ticket = world.send(query_of())

    world.core.step_down("test")
    world.settle()

    reply = world.answers[ticket]
    assert isinstance(reply, replies.Refused)
    assert reply.code == "unavailable"


def test_an_answer_to_the_owner_before_changes_nothing() -> None:
    world = waiting_run(cached=False)
    world.send(query_of())
    (old,) = world.poll().queries
    world.restart()
    ticket = world.send(query_of())

    answer(world, old, "9")

    assert ticket not in world.answers


def test_another_namespace_can_neither_ask_nor_answer() -> None:
    world = waiting_run()
    refused = world.ask(query_of(), replies.Refused, namespace="other")
    ticket = world.send(query_of())
    (task,) = world.poll().queries

    item = i.QueryAnswer(token=task.token, result=(payload("9"),))
    world.ask(i.AnswerQueries(worker="one", items=(item,)), replies.Accepted, namespace="other")

    assert refused.code == "workflow_not_found"
    assert ticket not in world.answers


def test_more_queries_than_may_wait_are_refused() -> None:
    world = World(config=ShardConfig(queries_max=2))
    world.start()
    world.do(world.turn(), TIMER)
    world.send(query_of())
    world.send(query_of())

    refused = world.ask(query_of(), replies.Refused)

    assert (refused.code, refused.retryable) == ("busy", True)


def test_what_code_publishes_is_told_without_a_worker() -> None:
    world = World()
    world.start()

    world.do(world.turn(), c.RecordMarker(marker_name="publish", details={"stage": payload('"a"')}), TIMER)
    world.signal()
    world.do(world.turn(), c.RecordMarker(marker_name="publish", details={"stage": payload('"b"')}))

    assert world.run_info().published == {"stage": payload('"b"')}
    world.restart()
    assert world.run_info().published == {"stage": payload('"b"')}


@pytest.mark.parametrize(
    "details",
    [
        {"big": payload("x" * (limits.PUBLISHED_BYTES_MAX + 1))},
        {f"n{n}": payload("1") for n in range(limits.PUBLISHED_MAX + 1)},
    ],
    ids=["too large", "too many"],
)
def test_more_than_may_be_published_fails_the_turn(details: dict[str, object]) -> None:
    world = World()
    world.start()

    reply = world.do(world.turn(), c.RecordMarker(marker_name="publish", details=details))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert reply.refused is not None
    assert reply.refused.code == "bad_command"
    assert world.run_info().published is None


def test_a_run_that_is_forgotten_while_it_is_asked_answers_that_it_is_gone() -> None:
    world = waiting_run(config=ShardConfig(idempotency_window=1))
    world.terminate()
    run_id = world.run_info().run_id
    ticket = world.send(query_of())
    world.now += 2

    world.ask(Forget(runs=(run_id,), closed_before=world.now + 1), Forgotten)
    world.poll()

    reply = world.answers[ticket]
    assert isinstance(reply, replies.Refused)
    assert reply.code == "workflow_not_found"


def test_a_run_is_not_forgotten_while_a_worker_reads_it_for_a_query() -> None:
    world = waiting_run(config=ShardConfig(idempotency_window=1))
    world.terminate()
    run_id = world.run_info().run_id
    ticket = world.send(query_of())
    world.now += 2
    wanted = Forget(runs=(run_id,), closed_before=world.now + 1)

    (task,) = world.poll("two").queries
    meanwhile = world.ask(wanted, Forgotten)
    answer(world, task, worker="two")
    after = world.ask(wanted, Forgotten)

    assert (meanwhile, after) == (Forgotten(), Forgotten(runs=1))
    assert world.answers[ticket] == replies.QueryAnswered(result=(payload("3"),))
