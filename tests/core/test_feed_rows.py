"""What a batch says to the feed: every page of a history, every end of a lease, and the life of standalone tasks."""

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import limits, replies
from outlast.core.feed import WITH_ROW, Changes, Entry, Place, What, entries_of, rows_of
from outlast.core.retry import RetryPolicy
from outlast.core.units import HOUR
from outlast.core.writes import FeedRow
from tests.core.world import World, enqueue_of, failure

PAY = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", schedule_to_close=HOUR)


def all_entries(rows: list[FeedRow]) -> list[Entry]:
    """Return the entries of rows of one namespace."""
    return entries_of(rows, after=Place(0), events_max=10**9)


def test_an_empty_commit_has_no_row() -> None:
    assert rows_of(1, 100, {}) == []


def test_a_commit_has_one_row_for_each_namespace() -> None:
    rows = rows_of(7, 100, {"a": Changes(enqueued=["t1"]), "b": Changes(history=[("r1", 1, 3)], enqueued=["t2"])})

    assert [(row.namespace, row.number, row.first, row.count, row.at) for row in rows] == [
        ("a", 7, 0, 1, 100),
        ("b", 7, 0, 4, 100),
    ]


def test_a_large_commit_is_cut_into_rows_that_follow_each_other() -> None:
    size = limits.FEED_ROW_ENTRIES
    changes = Changes(history=[(f"r{n}", 1, 2) for n in range(size + 1)], tasks=[(f"t{n}", 1, "") for n in range(size)])
    rows = rows_of(7, 100, {"a": changes})
    entries = all_entries(rows)

    assert [(row.first, row.count) for row in rows] == [(0, 2 * size), (2 * size, 2), (2 * size + 2, size)]
    assert [entry.before for entry in entries] == [
        *range(0, 2 * size + 2, 2),
        *range(2 * size + 2, 3 * size + 2),
    ]
    assert entries[-1].end == Place(7, 3 * size + 2)


def test_any_place_in_a_commit_is_followed_by_exactly_the_rest() -> None:
    changes = Changes(history=[("r1", 4, 3), ("r2", 1, 1)], enqueued=["t1"], tasks=[("t0", 2, ""), ("t0", 9, "failed")])
    rows = rows_of(7, 100, {"a": changes})
    for seen in range(8):
        entries = entries_of(rows, after=Place(7, seen), events_max=100)

        assert sum(entry.events for entry in entries) - max(0, seen - entries[0].before if entries else 0) == 7 - seen
        assert all(entry.end > (7, seen) for entry in entries)
    assert [entry.what for entry in all_entries(rows)] == [
        What.HISTORY, What.HISTORY, What.ENQUEUED, What.ATTEMPT, What.CLOSED,
    ]  # fmt: skip


def told(world: World) -> list[tuple[str, str]]:
    """Return what the feed tells of tasks and leases, in order."""
    rows = world.tables.feed.get("default", [])
    return [(entry.what.value, entry.id) for entry in all_entries(rows) if entry.what is not What.HISTORY]


def test_one_life_of_a_task_is_told_in_its_order_and_once() -> None:
    world = World()
    world.enqueue("t1")
    lease = world.lease()
    world.complete(lease)
    world.restart()

    assert told(world) == [("enqueued", "t1"), ("attempt", "t1"), ("closed", "t1")]


def test_a_task_that_ends_without_a_lease_is_told_as_closed() -> None:
    world = World()
    world.enqueue("t1")
    world.cancel_task("t1")

    assert told(world) == [("enqueued", "t1"), ("closed", "t1")]


def test_a_lease_that_ran_out_is_told_and_a_late_word_is_not() -> None:
    world = World()
    world.enqueue("t1")
    lease = world.lease()
    world.pass_time(60)
    world.complete(lease)

    assert told(world)[:2] == [("enqueued", "t1"), ("attempt", "t1")]
    assert [row.late for row in world.attempts("t1")] == [0, 1]
    assert told(world).count(("attempt", "t1")) == 1


def test_of_an_activity_only_its_leases_are_told_beside_its_history() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), PAY)
    lease = world.lease()
    world.complete(lease)

    assert told(world) == [("attempt", f"{started.run_id}:5")]


def test_histories_are_told_page_by_page_as_they_are_stored() -> None:
    world = World()
    world.start()
    world.do(world.turn(), PAY)
    world.complete(world.lease())
    pages = [
        (entry.id, entry.key, entry.events)
        for entry in all_entries(world.tables.feed["default"])
        if entry.what is What.HISTORY
    ]

    assert pages == [
        (row.run_id, row.first_event_id, row.count) for rows in world.tables.history.values() for row in rows
    ]
    assert len(pages) >= 3


def test_a_task_that_was_brought_back_is_told_between_its_two_ends() -> None:
    world = World()
    world.enqueue("t1", retry=RetryPolicy(attempts_max=1))
    world.fail(world.lease())
    world.ask(i.RetryTasks(task_ids=("t1",), request_id="again"), replies.TasksRetried)
    world.complete(world.lease())
    rows = world.tables.feed["default"]
    outcomes = [
        world.tables.attempts[entry.id][entry.key, 0].outcome if entry.what in WITH_ROW else entry.state
        for entry in all_entries(rows)
    ]

    assert told(world) == [(kind, "t1") for kind in ("enqueued", "attempt", "closed", "retried", "attempt", "closed")]
    assert outcomes == ["", "failed", "failed", "retried", "succeeded", "succeeded"]


def test_ends_and_retries_of_one_commit_are_told_in_the_order_of_the_tasks_life() -> None:
    world = World()
    world.enqueue("t1", retry=RetryPolicy(attempts_max=1))
    world.enqueue("t2")
    leases = {lease.token.task_id: lease for lease in world.poll(turns=0).tasks}
    world.hold_commits = True
    world.send(enqueue_of("t3"))  # is on its way, so that what follows gathers for one commit
    failed = i.Completion(token=leases["t1"].token, outcome=i.TaskFailed(failure=failure(final=True)))
    world.send(i.CompleteTasks(items=(failed,), worker="one"))
    world.send(i.RetryTasks(task_ids=("t1",), request_id="again"))
    world.send(i.CancelTask(task_id="t1"))
    world.send(i.RetryTasks(task_ids=("t1",), request_id="once more"))
    world.send(
        i.CompleteTasks(items=(i.Completion(token=leases["t2"].token, outcome=i.TaskSucceeded()),), worker="one")
    )
    world.release()

    last = [
        entry for entry in all_entries(world.tables.feed["default"]) if entry.number == world.tables.held.last_number
    ]
    assert [(entry.id, entry.what.value, entry.state) for entry in last] == [
        ("t1", "attempt", ""),
        ("t1", "closed", "failed"),
        ("t1", "retried", ""),
        ("t1", "closed", "canceled"),
        ("t1", "retried", ""),
        ("t2", "attempt", ""),
        ("t2", "closed", "succeeded"),
    ]
    assert world.task_info("t1").state is replies.TaskState.ENQUEUED
