"""Rows that are read while other things happen, and entities that have left memory."""

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.expiries import Expiries
from outlast.core.units import HOUR, MINUTE, SECOND
from tests.core.world import World, enqueue_of

POLL = i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job",), slots=5, wait=MINUTE)


def test_a_task_committed_while_the_first_page_was_being_read_is_given_out() -> None:
    world = World()
    world.hold_loads = True
    poll = world.send(POLL)
    ticket = world.send(enqueue_of("t", key=""))
    (first, *rest), world.pages = world.pages, []
    world.core.loaded(rest[-1][0], rest[-1][1], now=world.now)
    world.settle()
    assert ticket in world.answers
    world.core.loaded(first[0], first[1], now=world.now)
    world.hold_loads = False

    world.hand_in()

    work = world.answers[poll]
    assert isinstance(work, replies.Work)
    assert [lease.token.task_id for lease in work.tasks] == ["t"]


def test_a_timer_committed_while_the_first_page_was_being_read_fires() -> None:
    world = World()
    world.hold_loads = True
    world.claim()
    world.hold_loads = False
    world.enqueue(delay=SECOND, key="")

    world.hand_in()
    world.settle()
    world.pass_time(1.1)

    assert world.ready_tasks() == ["t"]


def test_a_poll_waits_until_a_new_owner_has_read_all_leases() -> None:
    world = World()
    world.enqueue(key="")
    given = world.poll(poll_id="p", slots=1)
    world.enqueue("u", key="")
    world.hold_loads = True
    world.restart()
    world.hold_loads = False
    again = world.send(
        i.Poll(poll_id="p", worker="one", queues=("default",), task_types=("job", "pay"), slots=1, wait=SECOND)
    )

    before = again in world.answers
    world.hand_in()

    assert not before
    work = world.answers[again]
    assert isinstance(work, replies.Work)
    assert [lease.token for lease in work.tasks] == [lease.token for lease in given.tasks]


def test_a_poll_behind_one_whose_caller_has_gone_waits_for_all_leases_too() -> None:
    world = World()
    world.enqueue(key="")
    given = world.poll(poll_id="p", slots=1)
    world.enqueue("u", key="")
    world.hold_loads = True
    world.restart()
    first, again = (
        world.send(
            i.Poll(poll_id=poll_id, worker=worker, queues=("default",), task_types=("job", "pay"), slots=1, wait=SECOND)
        )
        for poll_id, worker in (("o", "two"), ("p", "one"))
    )

    world.forget(first)
    before = again in world.answers
    world.hold_loads = False
    world.hand_in()

    assert not before
    work = world.answers[again]
    assert isinstance(work, replies.Work)
    assert [lease.token for lease in work.tasks] == [lease.token for lease in given.tasks]


def test_inputs_that_wait_for_the_same_row_keep_their_order() -> None:
    world = World()
    world.start()
    world.restart()
    world.hold_loads = True
    tickets = [world.send(i.SignalWorkflow(workflow_id="w", name=name, request_id=name)) for name in ("a", "b", "c")]
    world.hold_loads = False

    world.hand_in()

    signals = [event for event in world.history("run-1") if hasattr(event, "signal_name")]
    assert [getattr(event, "signal_name", "") for event in signals] == ["a", "b", "c"]
    assert set(tickets) <= set(world.answers)


def test_what_is_not_there_is_read_once() -> None:
    world = World()
    world.ask(i.DescribeTask(task_id="none"), replies.Refused)
    world.hold_loads = True

    world.ask(i.DescribeTask(task_id="none"), replies.Refused)

    assert world.pages == []


def test_what_was_not_there_is_found_once_it_is_made() -> None:
    world = World()
    world.ask(i.DescribeTask(task_id="t"), replies.Refused)
    world.ask(i.DescribeWorkflow(workflow_id="w"), replies.Refused)

    world.enqueue("t")
    world.start("w")

    assert world.task_info("t").state is replies.TaskState.ENQUEUED
    assert world.run_info("w").status is replies.RunStatus.RUNNING


def test_memory_wins_over_a_page_that_is_older() -> None:
    world = World()
    world.enqueue()
    world.restart()
    world.hold_loads = True
    world.send(POLL)
    pages, world.pages = world.pages, []
    world.hold_loads = False
    world.cancel_task()
    world.pages = pages

    world.hand_in()

    assert world.task_info().state is replies.TaskState.CANCELED
    assert world.ready_tasks() == []


def test_all_leases_of_many_pages_are_watched_after_a_restart() -> None:
    world = World(config=ShardConfig(page_rows=3))
    for n in range(10):
        world.enqueue(f"t{n}")
    world.poll(slots=10)
    world.restart()

    world.pass_time(31)

    assert [world.outcomes(f"t{n}") for n in range(10)] == [[(1, 1, "worker_lost")]] * 10


def test_all_runs_of_many_pages_are_offered_after_a_restart() -> None:
    world = World(config=ShardConfig(page_rows=3))
    for n in range(10):
        world.start(f"w{n}")

    world.restart()

    assert len(world.poll(turns=20).workflow_tasks) == 10


def test_all_timers_of_many_pages_fire_after_a_restart() -> None:
    world = World(config=ShardConfig(page_rows=3, window_max=4, window_low=1))
    for n in range(20):
        world.enqueue(f"t{n}", delay=(20 - n) * SECOND)
    world.restart()

    world.pass_time(21)

    assert [world.task_row(f"t{n}").ready for n in range(20)] == [1] * 20
    assert world.tables.timers == {}


def test_all_ready_tasks_of_many_pages_are_given_out_in_order_after_a_restart() -> None:
    world = World(config=ShardConfig(page_rows=3, window_max=4, window_low=1))
    for n in range(20):
        world.enqueue(f"t{n:02}")
    world.restart()

    given = [lease.token.task_id for _ in range(10) for lease in world.poll(slots=3).tasks]

    assert given == [f"t{n:02}" for n in range(20)]


def test_a_run_that_left_memory_while_on_offer_gets_its_turn() -> None:
    world = World(config=ShardConfig(runs_cached_max=1))
    for n in range(4):
        world.start(f"w{n}")

    turns = [turn.workflow_id for _ in range(4) for turn in world.poll(turns=4).workflow_tasks]

    assert sorted(turns) == ["w0", "w1", "w2", "w3"]


def test_a_run_that_left_memory_while_it_waited_for_its_worker_is_offered_to_any() -> None:
    world = World(config=ShardConfig(runs_cached_max=1))
    world.start("a")
    world.do(world.turn("one"), cached=True, force_new=True)
    for n in range(3):
        world.start(f"w{n}", queue="elsewhere")
        world.enqueue(f"t{n}")

    world.pass_time(5.1)

    assert [turn.workflow_id for turn in world.poll("two").workflow_tasks] == ["a"]


def test_a_run_that_left_memory_in_backoff_is_offered_when_it_is_over() -> None:
    world = World(config=ShardConfig(runs_cached_max=1))
    world.start("a")
    world.not_done(world.turn())
    for n in range(3):
        world.start(f"w{n}", queue="elsewhere")
        world.enqueue(f"t{n}")

    world.pass_time(1.1)

    assert [turn.workflow_id for turn in world.poll("two").workflow_tasks] == ["a"]


def test_a_caller_keeps_waiting_for_a_run_that_has_left_memory() -> None:
    world = World(config=ShardConfig(runs_cached_max=1))
    world.start("a")
    ticket = world.send(i.AwaitWorkflow(workflow_id="a"))
    for n in range(3):
        world.start(f"w{n}", queue="elsewhere")

    world.terminate("a")

    outcome = world.answers[ticket]
    assert isinstance(outcome, replies.WorkflowOutcome)
    assert outcome.status is replies.RunStatus.TERMINATED


def test_an_activity_ends_although_its_run_has_left_memory() -> None:
    world = World(config=ShardConfig(runs_cached_max=1, tasks_cached_max=1))
    started = world.start("a")
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default"))
    lease = world.lease()
    for n in range(3):
        world.start(f"w{n}", queue="elsewhere")
        world.enqueue(f"t{n}", delay=HOUR)

    world.complete(lease)

    assert world.kinds(started.run_id)[-1] == "ActivityTaskCompleted"


def test_dedup_rows_that_have_left_memory_are_still_known() -> None:
    world = World(config=ShardConfig(dedup_cached_max=1))
    for n in range(5):
        world.enqueue(f"t{n}", key=f"k{n}")

    assert world.enqueue("x", key="k0").replayed


def test_a_description_lists_activities_that_have_left_memory() -> None:
    world = World(config=ShardConfig(tasks_cached_max=1))
    world.start("a")
    world.do(world.turn(), *(
        c.ScheduleActivity(activity_id=str(n), activity_type="pay", task_queue="elsewhere") for n in range(5)
    ))  # fmt: skip
    world.restart()

    assert [activity.activity_id for activity in world.run_info("a").activities] == ["0", "1", "2", "3", "4"]


def test_what_has_ended_and_left_memory_is_not_read_again_when_its_lease_would_have_ended() -> None:
    world = World(config=ShardConfig(runs_cached_max=0, tasks_cached_max=0))
    run_id = world.start().run_id
    schedule = c.ScheduleActivity(activity_id="a", activity_type="pay", task_queue="default")
    world.do(world.turn(), schedule, cached=True)
    world.complete(world.lease())
    world.do(world.turn(), c.CompleteWorkflow())
    world.enqueue("pushes the others out")
    assert run_id not in world.core.shard.runs
    assert list(world.core.shard.tasks) == ["pushes the others out"]
    asked = world.core.loading.next_id

    world.pass_time(60)

    assert world.core.loading.next_id == asked


def test_expiries_come_up_in_order_whatever_the_order_they_were_put_in() -> None:
    expiries = Expiries()
    for at in (5, 7, 3, 7, 9, 1):
        expiries.put(at, "lease", f"at {at}", at)
    expiries.put(2, "turn", "at 2", 2)

    assert expiries.next_at() == 1
    assert sorted(n for _, _, n in expiries.take(7, 100)) == [1, 2, 3, 5, 7, 7]
    assert expiries.next_at() == 9
    assert expiries.take(8, 100) == []
    assert expiries.take(9, 100) == [("lease", "at 9", 9)]
    assert expiries.next_at() is None


def test_no_more_expiries_are_taken_at_once_than_asked_for() -> None:
    expiries = Expiries()
    for n in range(5):
        expiries.put(10 - n, "lease", "t", n)
        expiries.put(n, "turn", "t", n)

    taken = [len(expiries.take(20, 4)) for _ in range(4)]

    assert taken == [4, 4, 2, 0]


PAY = c.ScheduleActivity(activity_id="1", activity_type="job", task_queue="default", start_to_close=HOUR)


def test_a_completion_that_waits_for_two_loads_is_not_passed_by_the_expiry_of_one_of_its_leases() -> None:
    world = World()
    runs = [world.start(name).run_id for name in "ab"]
    for _ in runs:
        world.do(world.turn(), PAY)
    leases = world.poll(turns=0).tasks
    world.restart()
    world.hold_loads = True
    world.send(i.DescribeWorkflow(workflow_id="a", run_id=runs[0]))
    items = tuple(i.Completion(token=lease.token, outcome=i.TaskSucceeded()) for lease in leases)
    done = world.send(i.CompleteTasks(items=items, worker="one"))
    world.pass_time(31)
    asked_first, *asked_later = world.pages
    world.pages = [*asked_later, asked_first]
    world.hold_loads = False

    world.hand_in()

    assert world.answers[done] == replies.CompletionsReply(items=(None, None))
    assert [world.task_row(lease.token.task_id).state for lease in leases] == [replies.TaskState.SUCCEEDED] * 2


def test_an_input_that_comes_later_is_not_held_up_by_others_that_need_something_else() -> None:
    world = World()
    world.enqueue("t")
    world.hold_loads = True
    world.send(i.DescribeTask(task_id="slow"))

    ticket = world.send(i.DescribeTask(task_id="t"))

    assert isinstance(world.answers[ticket], replies.TaskInfo)


def test_who_waits_behind_a_caller_that_has_gone_is_answered() -> None:
    world = World()
    world.hold_loads = True
    gone = world.send(i.AwaitTask(task_id="none"))
    behind = world.send(i.DescribeTask(task_id="none"))
    world.forget(gone)
    world.hold_loads = False

    world.hand_in()

    assert gone not in world.answers
    assert isinstance(world.answers[behind], replies.Refused)


def test_a_poll_that_waits_for_the_leases_of_a_new_owner_is_forgotten_with_its_caller() -> None:
    world = World()
    world.enqueue("t")
    world.hold_loads = True
    world.restart()
    poll = world.send(POLL)
    world.forget(poll)
    world.hold_loads = False

    world.hand_in()

    assert poll not in world.answers
    assert world.ready_tasks() == ["t"]


def test_as_many_inputs_wait_for_rows_as_may_and_no_more_are_asked_for() -> None:
    world = World(config=ShardConfig(inputs_held_max=2))
    world.hold_loads = True
    world.send(i.DescribeTask(task_id="a"))
    before = world.core.full
    world.send(i.DescribeTask(task_id="b"))
    full = world.core.full

    world.hold_loads = False
    world.hand_in()

    assert (before, full, world.core.full) == (False, True, False)
