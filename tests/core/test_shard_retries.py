"""Retries: how long, how often, and what happens to tasks that take their worker with them."""

from collections import Counter

import pytest

from outlast.core import inputs as i
from outlast.core import limits, replies
from outlast.core.failure import Failure, FailureKind
from outlast.core.retry import RetryPolicy, Verdict, backoff, verdict
from outlast.core.shard.config import ShardConfig
from outlast.core.units import FOREVER, HOUR, MINUTE, SECOND
from tests.core.world import World, failure

QUICK = RetryPolicy(attempts_max=10, first=SECOND, factor=1.0, jitter=False)
LOST = Failure(kind=FailureKind.WORKER_LOST, type="WorkerLost", message="gone")


def lose(world: World, worker: str) -> None:
    """Have ``worker`` vanish with all it holds, and let the pauses before the next attempts pass."""
    world.pass_time(31.5)
    world.ask(i.StopWorker(worker=worker), replies.Accepted)


# The policy.


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (500, 60)])
def test_pauses_grow_by_the_factor_up_to_the_longest(attempt: int, seconds: int) -> None:
    policy = RetryPolicy(first=SECOND, factor=2.0, longest=MINUTE, jitter=False)

    assert backoff(policy, attempt=attempt, key="t") == seconds * SECOND


def test_pauses_of_many_tasks_fill_the_whole_span_evenly() -> None:
    policy = RetryPolicy(first=SECOND, factor=2.0, longest=MINUTE)

    buckets = Counter(backoff(policy, attempt=1, key=f"t{n}") * 10 // SECOND for n in range(2000))

    assert set(buckets) == set(range(10))
    assert all(100 <= count <= 300 for count in buckets.values())


def test_pauses_after_the_second_attempt_fill_a_span_twice_as_long() -> None:
    policy = RetryPolicy(first=SECOND, factor=2.0, longest=MINUTE)

    buckets = Counter(backoff(policy, attempt=2, key=f"t{n}") * 10 // (2 * SECOND) for n in range(2000))

    assert set(buckets) == set(range(10))
    assert all(100 <= count <= 300 for count in buckets.values())


def test_a_pause_with_jitter_is_the_same_each_time_it_is_asked_for() -> None:
    policy = RetryPolicy()

    assert backoff(policy, attempt=3, key="t") == backoff(policy, attempt=3, key="t")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Verdict.AGAIN),
        ({"cancel_requested": True, "failure": failure(final=True)}, Verdict.CANCELED),
        ({"failure": failure(final=True)}, Verdict.FINAL_ERROR),
        ({"failure": failure(type="CardError"), "attempt": 9}, Verdict.FINAL_ERROR),
        ({"attempt": 5, "close_by": 0}, Verdict.ATTEMPTS_USED),
        ({"failure": LOST, "lost_in_a_row": 3}, Verdict.ATTEMPTS_USED),
        ({"lost_in_a_row": 3}, Verdict.AGAIN),
        ({"close_by": 110}, Verdict.OUT_OF_TIME),
        ({"close_by": 111}, Verdict.AGAIN),
    ],
    ids=[
        "plain", "canceled first", "final", "final type before attempts", "attempts before time", "lost too often",
        "lost does not count for other failures", "pause would end at the deadline", "pause ends before the deadline",
    ],
)  # fmt: skip
def test_the_questions_about_another_attempt_are_asked_in_their_order(
    changes: dict[str, object], expected: Verdict
) -> None:
    asked: dict[str, object] = {
        "failure": failure(), "attempt": 1, "lost_in_a_row": 0, "pause": 10, "now": 100, "close_by": FOREVER,
        "cancel_requested": False, **changes,
    }  # fmt: skip

    said = verdict(RetryPolicy(final_types=("CardError",)), **asked)  # pyright: ignore[reportArgumentType]

    assert said is expected


def test_a_policy_without_a_bound_never_runs_out_of_attempts() -> None:
    said = verdict(
        RetryPolicy(attempts_max=0), failure(), attempt=10**6, lost_in_a_row=0, pause=1, now=1, close_by=FOREVER,
        cancel_requested=False,
    )  # fmt: skip

    assert said is Verdict.AGAIN


# Through the shard.


def test_a_task_that_fails_too_often_is_failed_and_keeps_all_it_had() -> None:
    world = World()
    world.enqueue(retry=RetryPolicy(attempts_max=2, first=SECOND, jitter=False))
    world.fail(world.lease(), "first")
    world.pass_time(1.1)
    world.fail(world.lease(), "second")

    info = world.task_info()

    assert (info.state, info.reason, info.attempt) == (replies.TaskState.FAILED, "maximum_attempts_reached", 2)
    assert info.failure is not None
    assert info.failure.message == "second"
    assert world.outcomes() == [(1, 1, "failed"), (2, 2, "failed")]


def test_a_final_error_is_not_retried() -> None:
    world = World()
    world.enqueue(retry=QUICK)

    world.fail(world.lease(), final=True)

    info = world.task_info()
    assert (info.state, info.reason) == (replies.TaskState.FAILED, "non_retryable_failure")


def test_an_error_of_a_final_type_is_not_retried() -> None:
    world = World()
    world.enqueue(retry=RetryPolicy(final_types=("CardError",)))

    world.fail(world.lease(), type="CardError")

    assert world.task_info().state is replies.TaskState.FAILED


def test_an_error_may_say_when_the_next_attempt_starts() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    later = Failure(kind=FailureKind.APPLICATION, type="Busy", message="later", next_delay=MINUTE)
    world.complete(world.lease(), i.TaskFailed(failure=later))
    world.pass_time(59.9)
    early = world.ready_tasks()

    world.pass_time(0.2)

    assert early == []
    assert world.lease().attempt == 2


def test_a_pause_survives_a_restart() -> None:
    world = World()
    world.enqueue(retry=RetryPolicy(first=10 * SECOND, jitter=False))
    world.fail(world.lease())
    world.restart()
    world.pass_time(9.9)
    early = world.ready_tasks()

    world.pass_time(0.2)

    assert early == []
    assert world.lease().attempt == 2
    assert world.tables.timers == {}


def test_a_task_that_waits_for_its_next_attempt_says_why() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.fail(world.lease())

    assert world.task_info().why == "its next attempt, after attempt 1 ended with ValueError"


# Tasks that take their worker with them.


def test_a_task_whose_worker_dies_each_time_is_failed_after_its_attempts() -> None:
    world = World()
    world.enqueue(retry=RetryPolicy(attempts_max=3, first=SECOND, factor=1.0, jitter=False))
    for n in range(3):
        world.lease(f"worker {n}")
        lose(world, f"worker {n}")

    info = world.task_info()

    assert (info.state, info.reason) == (replies.TaskState.FAILED, "maximum_attempts_reached")
    assert [outcome for _, _, outcome in world.outcomes()] == ["worker_lost"] * 3
    assert world.ready_tasks() == []


def test_a_task_that_is_lost_three_times_in_a_row_is_failed_however_many_attempts_it_has() -> None:
    world = World()
    world.enqueue(retry=RetryPolicy(attempts_max=0, first=SECOND, factor=1.0, jitter=False))
    for n in range(3):
        world.lease(f"worker {n}")
        lose(world, f"worker {n}")

    assert world.task_info().state is replies.TaskState.FAILED


def test_a_word_from_the_worker_in_between_ends_the_row_of_losses() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.lease("worker 0")
    lose(world, "worker 0")
    world.lease("worker 1")
    lose(world, "worker 1")
    world.fail(world.lease("worker 2"))
    world.pass_time(1.1)
    world.lease("worker 3")
    lose(world, "worker 3")

    assert world.task_info().state is replies.TaskState.ENQUEUED


def twice_lost(world: World, task_id: str = "poison") -> None:
    """Make a task that two workers have died with."""
    world.enqueue(task_id, retry=QUICK)
    for name in ("dead 1", "dead 2"):
        world.lease(name)
        lose(world, name)


def test_a_suspect_is_run_alone() -> None:
    world = World()
    twice_lost(world)
    for n in range(5):
        world.enqueue(f"good {n}")

    given = world.poll("worker", slots=4)
    more = world.poll("worker", slots=3)

    assert [lease.token.task_id for lease in given.tasks] == ["poison"]
    assert more.tasks == ()


def test_a_task_that_was_lost_is_run_alone_when_its_next_attempt_is_its_last() -> None:
    world = World()
    world.enqueue("poison", retry=RetryPolicy(attempts_max=2, first=SECOND, jitter=False))
    world.enqueue("good", retry=RetryPolicy(attempts_max=2, first=SECOND, jitter=False))
    world.poll("dead 1", slots=2)
    lose(world, "dead 1")

    alone = [[lease.token.task_id for lease in world.poll(name, slots=2).tasks] for name in ("a", "b")]

    assert alone == [["poison"], ["good"]]


@pytest.mark.parametrize("attempts_max", [2, 3, 4])
def test_no_good_task_fails_beside_a_poison_one_however_few_attempts_it_has(attempts_max: int) -> None:
    world = World()
    few = RetryPolicy(attempts_max=attempts_max, first=SECOND, jitter=False)
    world.enqueue("poison", retry=few)
    for n in range(12):
        world.enqueue(f"good {n:02}", retry=few)

    for n in range(40):
        work_off(world, f"worker {n}")

    states = Counter(row.state for row in world.tables.tasks.values())
    assert states == {replies.TaskState.SUCCEEDED: 12, replies.TaskState.FAILED: 1}
    assert [outcome for _, _, outcome in world.outcomes("poison")] == ["worker_lost"] * min(attempts_max, 3)


def busy_with_good(world: World, worker: str) -> replies.TaskLease:
    """Have ``worker`` hold a good task while a suspect is ready, and ask for more, so that it is kept for the suspect."""
    twice_lost(world)
    world.enqueue("good", priority=1, start_to_close=HOUR)
    good = world.lease(worker)
    assert world.poll(worker, slots=4).tasks == ()
    return good


def test_a_worker_that_has_other_work_is_kept_for_the_suspect_until_it_is_idle() -> None:
    world = World()
    good = busy_with_good(world, "worker")
    world.enqueue("more", priority=1)
    while_busy = world.poll("worker", slots=4)
    world.complete(good, worker="worker")

    once_idle = world.poll("worker", slots=4)

    assert while_busy.tasks == ()
    assert [lease.token.task_id for lease in once_idle.tasks] == ["poison"]


def test_a_suspect_that_waits_for_its_worker_is_given_to_nobody_else() -> None:
    world = World()
    busy_with_good(world, "worker")

    assert world.ready_tasks("other") == []


def test_a_held_poll_gets_the_suspect_when_its_worker_becomes_idle() -> None:
    world = World()
    good = busy_with_good(world, "worker")
    held = world.send(
        i.Poll(poll_id="held", worker="worker", queues=("default",), task_types=("job",), slots=4, wait=MINUTE)
    )

    world.complete(good, worker="worker")

    work = world.answers[held]
    assert isinstance(work, replies.Work)
    assert [lease.token.task_id for lease in work.tasks] == ["poison"]


def test_good_tasks_go_on_elsewhere_while_a_suspect_runs() -> None:
    world = World()
    twice_lost(world)
    for n in range(5):
        world.enqueue(f"good {n}")
    world.poll("worker", slots=4)

    given = world.poll("other", slots=10)

    assert len(given.tasks) == 5


def test_a_worker_takes_other_work_again_when_its_suspect_has_ended() -> None:
    world = World()
    twice_lost(world)
    world.enqueue("good")
    (suspect,) = world.poll("worker", slots=4).tasks

    world.complete(suspect, worker="worker")

    assert [lease.token.task_id for lease in world.poll("worker", slots=4).tasks] == ["good"]


def test_a_held_poll_of_a_suspects_worker_gets_work_when_the_suspect_has_ended() -> None:
    world = World()
    twice_lost(world)
    world.enqueue("good")
    (suspect,) = world.poll("worker", slots=4).tasks
    held = world.send(
        i.Poll(poll_id="held", worker="worker", queues=("default",), task_types=("job",), slots=4, wait=MINUTE)
    )

    world.complete(suspect, worker="worker")

    work = world.answers[held]
    assert isinstance(work, replies.Work)
    assert [lease.token.task_id for lease in work.tasks] == ["good"]


def test_a_suspect_is_offered_to_any_when_its_worker_is_not_heard_of() -> None:
    world = World()
    busy_with_good(world, "gone")
    world.pass_time(10.1)

    assert world.ready_tasks("other") == ["poison"]


def test_a_suspect_stays_with_a_worker_that_is_heard_of() -> None:
    world = World()
    good = busy_with_good(world, "worker")
    world.pass_time(6)
    world.beat(good, worker="worker")
    world.pass_time(6)

    assert world.ready_tasks("other") == []


def test_a_suspect_is_offered_to_any_when_its_worker_was_forgotten() -> None:
    world = World(config=ShardConfig(workers_max=3))
    good = busy_with_good(world, "worker")
    world.complete(good, worker="worker")
    for n in range(5):
        world.poll(f"passer-by {n}", slots=0, turns=0)
    world.pass_time(10.1)

    assert world.ready_tasks("other") == ["poison"]


def test_a_canceled_suspect_keeps_no_worker_waiting() -> None:
    world = World()
    busy_with_good(world, "worker")
    world.cancel_task("poison")
    world.enqueue("next")

    given = world.poll("worker", slots=4)

    assert [lease.token.task_id for lease in given.tasks] == ["next"]


def test_a_suspect_that_may_start_no_more_is_not_started() -> None:
    world = World()
    world.enqueue("poison", retry=QUICK, schedule_to_close=70 * SECOND)
    for name in ("dead 1", "dead 2"):
        world.lease(name)
        lose(world, name)
    world.enqueue("good", priority=1, start_to_close=HOUR)
    good = world.lease("worker")
    world.poll("worker", slots=4)
    world.stall(8)

    world.complete(good, worker="worker")

    assert world.poll("worker", slots=4).tasks == ()
    assert world.task_info("poison").reason == "schedule_to_close"


def work_off(world: World, worker: str) -> None:
    """Have a new worker take four tasks: it dies if the poison is among them, else it completes them."""
    leases = world.poll(worker, slots=4).tasks
    if any(lease.token.task_id == "poison" for lease in leases):
        lose(world, worker)
        return
    for lease in leases:
        world.complete(lease, worker=worker)
    world.pass_time(0.5)


def test_fifty_good_tasks_succeed_beside_a_poison_one() -> None:
    world = World()
    world.enqueue("poison", retry=QUICK)
    for n in range(50):
        world.enqueue(f"good {n:02}", retry=QUICK)

    for n in range(60):
        work_off(world, f"worker {n}")

    states = Counter(row.state for row in world.tables.tasks.values())
    assert states == {replies.TaskState.SUCCEEDED: 50, replies.TaskState.FAILED: 1}
    assert world.task_info("poison").state is replies.TaskState.FAILED


@pytest.mark.parametrize("asked", [-5 * SECOND, 2**62, 2**63 - 1])
def test_a_pause_that_a_failure_asks_for_is_neither_in_the_past_nor_longer_than_a_span_may_be(asked: int) -> None:
    world = World()
    world.enqueue()
    ended_at = world.now

    world.complete(
        world.lease(),
        i.TaskFailed(failure=Failure(kind=FailureKind.APPLICATION, type="Busy", message="later", next_delay=asked)),
    )

    assert world.task_info().state is replies.TaskState.RETRY_WAIT
    assert ended_at <= world.task_row().run_at <= world.now + limits.SPAN_MAX
