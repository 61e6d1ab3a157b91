"""Attempts of tasks: leases and their numbers, what is said under them, begins and returns."""

from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from outlast.core.writes import TimerKind
from tests.core.world import World, failure, payload

QUICK = RetryPolicy(attempts_max=5, first=SECOND, factor=1.0, jitter=False)
ONCE = RetryPolicy(attempts_max=1)


def test_a_first_lease_has_number_one_and_attempt_one() -> None:
    world = World()
    world.enqueue(input=(payload("7"),))

    lease = world.lease()

    assert lease.token == i.TaskToken("t", 1)
    assert (lease.attempt, lease.attempts_max, lease.input) == (1, 5, (payload("7"),))


def test_lease_and_attempt_numbers_rise_with_each_attempt() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.fail(world.lease())
    world.pass_time(1.1)

    lease = world.lease()

    assert (lease.token.lease, lease.attempt) == (2, 2)


def test_a_leased_task_is_given_to_nobody_else() -> None:
    world = World()
    world.enqueue()
    world.lease("one")

    assert world.ready_tasks("two") == []


def test_five_hundred_tasks_are_each_leased_once_by_twelve_workers() -> None:
    world = World()
    for n in range(500):
        world.enqueue(f"t{n}")

    given = [lease.token.task_id for n in range(120) for lease in world.poll(f"worker-{n % 12}", slots=5).tasks]

    assert len(given) == 500
    assert len(set(given)) == 500


def test_tasks_given_out_are_given_to_nobody_else_when_the_owner_changes_half_way() -> None:
    world = World()
    for n in range(500):
        world.enqueue(f"t{n}")
    given = [lease.token.task_id for n in range(50) for lease in world.poll(f"worker-{n % 12}", slots=5).tasks]

    world.restart()

    given += [lease.token.task_id for n in range(70) for lease in world.poll(f"worker-{n % 12}", slots=5).tasks]
    assert len(given) == 500
    assert len(set(given)) == 500


def test_an_attempt_leaves_one_row_when_it_ends() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()

    world.complete(lease)

    (row,) = world.attempts()
    assert (row.lease, row.attempt, row.late, row.outcome, row.worker) == (1, 1, 0, "succeeded", "one")


def test_a_failed_attempt_keeps_its_error_in_its_row() -> None:
    world = World()
    world.enqueue()

    world.complete(world.lease(), i.TaskFailed(failure=failure("no such card", type="CardError")))

    (row,) = world.attempts()
    assert (row.outcome, row.error_type, row.error_message) == ("failed", "CardError", "no such card")


def test_a_completion_of_an_expired_lease_changes_nothing_and_is_kept_as_evidence() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    old = world.lease("one")
    world.pass_time(32)
    new = world.lease("two")
    world.complete(new, i.TaskSucceeded(result=(payload("B"),)), worker="two")

    refused = world.complete(old, i.TaskSucceeded(result=(payload("A"),)))

    assert refused is not None
    assert refused.code == "lease_lost"
    assert world.task_info().result == (payload("B"),)
    assert [(row.lease, row.late, row.outcome) for row in world.attempts()] == [
        (1, 0, "worker_lost"), (1, 1, "late_succeeded"), (2, 0, "succeeded"),
    ]  # fmt: skip
    assert [row.worker for row in world.attempts()] == ["one", "one", "two"]


def test_a_word_of_an_old_holder_leaves_the_new_one_alone() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    old = world.lease("one")
    world.pass_time(32)
    new = world.lease("two")

    refused = world.complete(old, i.TaskSucceeded(result=(payload("A"),)))

    assert refused is not None
    assert refused.code == "lease_lost"
    assert (world.task_info().state, world.task_info().worker) == (replies.TaskState.LEASED, "two")
    assert new.token.lease > old.token.lease
    assert world.complete(new, i.TaskSucceeded(result=(payload("B"),)), worker="two") is None
    assert world.task_info().result == (payload("B"),)


def test_a_completion_after_expiry_and_before_the_next_lease_is_refused() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.pass_time(30.5)

    refused = world.complete(lease)

    assert refused is not None
    assert refused.code == "lease_lost"
    assert world.task_info().state is replies.TaskState.RETRY_WAIT


def test_a_late_word_that_repeats_an_earlier_failure_is_not_taken_for_a_recorded_one() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    world.fail(world.lease())
    world.pass_time(1.1)
    second = world.lease()
    world.pass_time(30.5)

    refused = world.fail(second)

    assert refused is not None
    assert refused.code == "lease_lost"
    assert world.outcomes()[-1] == (2, 0, "late_failed")


def test_a_token_of_a_lease_that_never_was_leaves_no_evidence() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    item = i.Completion(token=i.TaskToken("t", lease.token.lease + 5), outcome=i.TaskSucceeded())

    (refused,) = world.ask(i.CompleteTasks(items=(item,), worker="one"), replies.CompletionsReply).items

    assert refused is not None
    assert refused.code == "lease_lost"
    assert world.attempts() == []


def test_a_repeat_of_the_winning_completion_gets_the_winning_answer() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.complete(lease, i.TaskSucceeded(result=(payload("1"),)))

    again = world.complete(lease, i.TaskSucceeded(result=(payload("1"),)))

    assert again is None
    assert len(world.attempts()) == 1


def test_a_repeat_of_the_winning_completion_is_known_after_a_restart() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.complete(lease)
    world.restart()

    assert world.complete(lease) is None


def test_another_outcome_than_the_winning_one_is_refused() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.complete(lease)

    refused = world.fail(lease)

    assert refused is not None
    assert refused.code == "already_completed"
    assert world.task_info().state is replies.TaskState.SUCCEEDED


def test_a_repeat_of_a_failure_that_is_retried_gets_the_same_answer() -> None:
    world = World()
    world.enqueue(retry=QUICK)
    lease = world.lease()
    world.fail(lease)

    assert world.fail(lease) is None
    assert world.task_info().attempt == 1


def test_each_item_of_a_completion_stands_alone() -> None:
    world = World()
    world.enqueue("a")
    world.enqueue("b")
    a, b = world.poll().tasks
    world.complete(a)
    items = tuple(
        i.Completion(token=token, outcome=i.TaskFailed(failure=failure()))
        for token in (a.token, b.token, i.TaskToken("none", 1))
    )

    given = world.ask(i.CompleteTasks(items=items, worker="one"), replies.CompletionsReply).items

    assert [reply and reply.code for reply in given] == ["already_completed", None, "task_not_found"]


def test_a_token_is_no_good_in_another_namespace() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    item = i.Completion(token=lease.token, outcome=i.TaskSucceeded())

    reply = world.ask(i.CompleteTasks(items=(item,), worker="one"), replies.CompletionsReply, namespace="other")
    beat = world.ask(
        i.Heartbeat(items=(i.HeartbeatItem(token=lease.token),), worker="one"),
        replies.HeartbeatReply,
        namespace="other",
    )
    world.ask(i.ReturnTasks(tokens=(lease.token,), worker="one"), replies.Accepted, namespace="other")

    assert reply.items[0] is not None
    assert reply.items[0].code == "task_not_found"
    assert beat.items[0].action == "stop"
    assert world.task_info().state is replies.TaskState.LEASED


def test_a_task_with_one_attempt_asks_for_a_begin() -> None:
    world = World()
    world.enqueue(retry=ONCE)

    assert world.lease().begin_needed


def test_a_single_attempt_that_never_began_is_handed_back_uncounted() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    world.lease()
    world.pass_time(30.1)

    lease = world.lease("two")

    assert (lease.attempt, lease.token.lease) == (1, 2)
    assert world.outcomes() == [(1, 1, "returned")]


def test_a_single_attempt_that_began_and_was_lost_fails() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    assert world.begin(world.lease()) is None

    world.pass_time(30.1)

    info = world.task_info()
    assert (info.state, info.reason) == (replies.TaskState.FAILED, "maximum_attempts_reached")


def test_a_begin_survives_a_restart() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    world.begin(world.lease())

    world.restart()
    world.pass_time(30.1)

    assert world.task_info().state is replies.TaskState.FAILED


def test_a_begin_may_be_repeated() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    lease = world.lease()
    world.begin(lease)

    assert world.begin(lease) is None


def test_a_begin_under_a_lost_lease_is_refused() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    lease = world.lease()
    world.pass_time(30.1)

    refused = world.begin(lease)

    assert refused is not None
    assert refused.code == "lease_lost"


def test_a_begin_of_an_unknown_task_is_refused() -> None:
    world = World()

    (refused,) = world.ask(i.Begin(tokens=(i.TaskToken("none", 1),), worker="one"), replies.Begun).items

    assert refused is not None
    assert refused.code == "task_not_found"


def test_a_returned_lease_does_not_count_as_an_attempt() -> None:
    world = World()
    world.enqueue()
    world.give_back(world.lease())

    lease = world.lease()

    assert (lease.attempt, lease.token.lease) == (1, 2)
    assert world.outcomes() == [(1, 1, "returned")]


def test_a_lease_that_began_cannot_be_returned() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.begin(lease)

    world.give_back(lease)

    assert world.task_info().state is replies.TaskState.LEASED


def test_returning_a_stale_lease_changes_nothing() -> None:
    world = World()
    world.enqueue()
    old = world.lease()
    world.give_back(old)
    world.lease("two")

    world.give_back(old)

    assert world.task_info().worker == "two"


def test_returning_an_ended_or_unknown_task_changes_nothing() -> None:
    world = World()
    world.enqueue()
    lease = world.lease()
    world.complete(lease)

    world.give_back(lease)
    world.ask(i.ReturnTasks(tokens=(i.TaskToken("none", 1),), worker="one"), replies.Accepted)

    assert world.outcomes() == [(1, 1, "succeeded")]


def test_a_returned_task_still_has_to_start_in_time() -> None:
    world = World()
    world.enqueue(schedule_to_start=10 * SECOND)
    world.give_back(world.lease())

    world.pass_time(10.1)

    assert world.task_info().reason == "schedule_to_start"


def test_a_task_returned_after_it_had_to_start_is_given_to_nobody() -> None:
    world = World()
    world.enqueue(schedule_to_start=10 * SECOND)
    lease = world.lease()
    world.pass_time(11)
    world.send(i.Poll(poll_id="p", worker="two", queues=("default",), task_types=("job",), slots=1, wait=60 * SECOND))

    world.give_back(lease)
    world.tick()

    info = world.task_info()
    assert (info.state, info.reason) == (replies.TaskState.EXPIRED, "schedule_to_start")


def test_schedule_timers_are_named_by_kind() -> None:
    world = World()
    world.enqueue(delay=SECOND, schedule_to_start=2 * SECOND, schedule_to_close=3 * SECOND)

    assert {row.kind for row in world.tables.timers.values()} == {
        TimerKind.TASK_DUE.value, TimerKind.TASK_START_BY.value, TimerKind.TASK_CLOSE_BY.value,
    }  # fmt: skip


def test_a_single_attempt_that_told_of_progress_has_begun_whether_or_not_it_was_said_before() -> None:
    world = World()
    world.enqueue(retry=ONCE)
    lease = world.lease()
    world.beat(lease, progress=True)
    world.send(i.ReturnTasks(tokens=(lease.token,), worker="one"))
    world.pass_time(61)

    assert world.outcomes() == [(1, 1, "worker_lost")]
    assert world.task_info().state is replies.TaskState.FAILED
