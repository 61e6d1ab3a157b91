"""A commit: all or nothing, under its fence, in dense numbers, read back at once."""

import pytest

from outlast.core.units import Fence
from outlast.core.writes import Batch, CommitOutcome, LoadKeys, LoadTimers
from outlast.store.base import RunFilter, TaskFilter
from tests.store.kept import Kept
from tests.store.rows import (
    Row,
    attempt,
    batch_of,
    dedup,
    message,
    page,
    parked,
    run_row,
    task_row,
    timer,
)

ONE_OF_EACH: tuple[Row, ...] = (
    run_row("run-x"), task_row("task-x"), page("run-x"), parked(1, "run-x"), attempt("task-x"), timer(7, "timer-x"),
    dedup("key-x"), message(77),
)  # fmt: skip

KEYS_OF_EACH = LoadKeys(runs=("run-x",), tasks=("task-x",), dedup=(("default", "start", "key-x"),))


def is_there(kept: Kept) -> list[bool]:
    """Say of each kind in ONE_OF_EACH whether its row is stored."""
    found = kept.load(KEYS_OF_EACH)
    history = kept.run(kept.store.read_history("run-x", first_event_id=1, events_max=9))
    attempts = kept.run(kept.store.read_attempts("task-x"))
    timers = kept.load(LoadTimers(after=(0, ""), limit=9)).timers
    return [bool(rows) for rows in (found.runs, found.parked, found.tasks, found.dedup, history, attempts, timers)]


def test_a_batch_with_a_row_of_each_kind_is_stored_whole(kept: Kept) -> None:
    kept.write(*ONE_OF_EACH)

    assert all(is_there(kept))


def test_an_empty_batch_commits_and_counts(kept: Kept) -> None:
    assert kept.commit(kept.next_batch()) is CommitOutcome.DONE
    assert kept.claim().last_number == 1


def test_numbers_begin_with_one_after_the_first_claim(kept: Kept) -> None:
    assert kept.number == 0
    assert kept.run(kept.store.commit(batch_of(fence=kept.fence, number=1))) is CommitOutcome.DONE


@pytest.mark.parametrize("number", [-1, 0, 2, 4, 100])
def test_a_number_that_is_not_the_next_one_is_refused(kept: Kept, number: int) -> None:
    kept.write()
    kept.write()

    outcome = kept.run(kept.store.commit(batch_of(*ONE_OF_EACH, fence=kept.fence, number=number)))

    assert outcome is CommitOutcome.REFUSED
    assert not any(is_there(kept))


@pytest.mark.parametrize("fence", [(1, 0), (1, 2), (0, 1), (2, 1), (0, 0), (2, 2)])
def test_a_fence_that_is_not_the_current_one_changes_nothing(kept: Kept, fence: tuple[int, int]) -> None:
    assert kept.fence == Fence(1, 1)

    outcome = kept.run(kept.store.commit(batch_of(*ONE_OF_EACH, fence=Fence(*fence), number=1)))

    assert outcome is CommitOutcome.REFUSED
    assert not any(is_there(kept))


def test_an_owner_that_was_followed_is_fenced(kept: Kept) -> None:
    old = kept.fence
    kept.claim("b")

    outcome = kept.run(kept.store.commit(batch_of(*ONE_OF_EACH, fence=old, number=1)))

    assert outcome is CommitOutcome.REFUSED
    assert not any(is_there(kept))
    kept.write(*ONE_OF_EACH)
    assert all(is_there(kept))


def test_a_refused_batch_uses_up_no_number(kept: Kept) -> None:
    kept.run(kept.store.commit(batch_of(fence=Fence(1, 0), number=1)))

    assert kept.commit(kept.next_batch()) is CommitOutcome.DONE
    assert kept.number == 1


def test_a_batch_of_another_shard_is_refused(kept: Kept) -> None:
    batch = Batch(5, kept.fence, 1, 100)

    assert kept.commit(batch) is CommitOutcome.REFUSED


def test_the_same_batch_twice_is_refused_the_second_time(kept: Kept) -> None:
    batch = kept.next_batch(run_row(), page())

    assert kept.commit(batch) is CommitOutcome.DONE
    assert kept.commit(batch) is CommitOutcome.REFUSED


@pytest.mark.parametrize(
    ("stored", "clashing"),
    [
        ((run_row(),), run_row(state=b"again")),
        ((task_row(),), task_row(status=b"again")),
        ((page(),), page(blob=b"again")),
        ((parked(),), parked(blob=b"again")),
        ((attempt(),), attempt(outcome="failed")),
        ((message(),), message(blob=b"again")),
        ((run_row(workflow_id="w"),), run_row("run-2", workflow_id="w", opened_no=2)),
        ((run_row(workflow_id="w", closed_at=1),), run_row("run-2", workflow_id="w", opened_no=1)),
    ],
    ids=["run", "task", "page", "parked", "attempt", "message", "open_run", "opened_number"],
)
def test_a_row_that_clashes_with_a_stored_one_leaves_the_whole_batch_out(
    kept: Kept, stored: tuple[Row, ...], clashing: Row
) -> None:
    kept.write(*stored)

    outcome = kept.commit(kept.next_batch(*ONE_OF_EACH, clashing))

    assert outcome is CommitOutcome.UNKNOWN
    assert not any(is_there(kept))


@pytest.mark.parametrize(
    "rows",
    [
        (page(), page(blob=b"again")),
        (parked(), parked(blob=b"again")),
        (attempt(), attempt(outcome="failed")),
        (run_row(workflow_id="w"), run_row("run-2", workflow_id="w", opened_no=2)),
    ],
    ids=["page", "parked", "attempt", "open_run"],
)
def test_two_rows_of_one_batch_that_clash_leave_it_out(kept: Kept, rows: tuple[Row, ...]) -> None:
    outcome = kept.commit(kept.next_batch(*ONE_OF_EACH, *rows))

    assert outcome is CommitOutcome.UNKNOWN
    assert not any(is_there(kept))


@pytest.mark.parametrize(
    "row", [run_row(), task_row(), run_row(closed_at=5, status="completed")], ids=["run", "task", "closed"]
)
def test_a_move_of_what_is_not_stored_leaves_the_whole_batch_out(kept: Kept, row: Row) -> None:
    batch = kept.next_batch(*ONE_OF_EACH)
    moved = kept.next_batch(row, new=False)
    batch.run_moves |= moved.run_moves
    batch.task_moves |= moved.task_moves

    assert kept.commit(batch) is CommitOutcome.UNKNOWN
    assert not any(is_there(kept))


def test_what_was_stored_stays_when_a_batch_fails(kept: Kept) -> None:
    kept.write(*ONE_OF_EACH)

    kept.commit(kept.next_batch(run_row("run-x"), task_row("task-9")))

    assert all(is_there(kept))
    assert kept.find_task("task-9") is None


def test_the_number_of_a_failed_batch_is_still_the_next_one(kept: Kept) -> None:
    kept.write(run_row())
    kept.commit(kept.next_batch(run_row()))

    kept.write(run_row("run-2"))

    assert kept.claim().last_number == 2


def test_a_batch_of_thousands_of_rows_is_stored_whole(kept: Kept) -> None:
    runs = [run_row(f"run-{n:04}") for n in range(1_500)]
    tasks = [task_row(f"task-{n:04}") for n in range(1_500)]

    kept.write(*runs, *tasks, *(page(row.run_id) for row in runs))

    assert len(kept.run(kept.store.list_runs(RunFilter(namespace="default", limit=10_000))).rows) == 1_500
    assert len(kept.run(kept.store.list_tasks(TaskFilter(namespace="default", limit=10_000))).rows) == 1_500


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 341])
def test_every_count_of_rows_is_added_and_moved_whole(kept: Kept, count: int) -> None:
    ids = [f"{n:04}" for n in range(count)]
    kept.write(*(run_row(id) for id in ids), *(task_row(id) for id in ids), *(timer(7, id) for id in ids))

    kept.move(*(run_row(id, state=id.encode()) for id in ids), *(task_row(id, status=id.encode()) for id in ids))

    found = kept.load(LoadKeys(runs=tuple(ids), tasks=tuple(ids)))
    assert [row.state for row in found.runs] == [id.encode() for id in ids]
    assert [row.status for row in found.tasks] == [id.encode() for id in ids]
    assert len(kept.load(LoadTimers(after=(0, ""), limit=1_000)).timers) == count


def test_rows_that_the_caller_changes_afterwards_stay_as_they_were_committed(kept: Kept) -> None:
    run, task, history, event, ended = run_row(), task_row(), page(), parked(), attempt()
    kept.write(run, task, history, event, ended)

    run.state = task.status = history.blob = event.blob = b"changed"
    ended.outcome = "changed"

    found = kept.load(LoadKeys(runs=("run-1",), tasks=("task-1",)))
    assert (found.runs[0].state, found.tasks[0].status, found.parked[0].blob) == (b"state", b"status", b"parked")
    assert kept.run(kept.store.read_history("run-1", first_event_id=1, events_max=1))[0].blob == b"events"
    assert kept.run(kept.store.read_attempts("task-1"))[0].outcome == "succeeded"


def test_rows_that_a_reader_changes_stay_as_they_were_committed(kept: Kept) -> None:
    kept.write(run_row(), task_row(), page(), parked(), attempt())
    found = kept.load(LoadKeys(runs=("run-1",), tasks=("task-1",)))
    history = kept.run(kept.store.read_history("run-1", first_event_id=1, events_max=1))

    found.runs[0].state = found.tasks[0].status = found.parked[0].blob = history[0].blob = b"changed"

    again = kept.load(LoadKeys(runs=("run-1",), tasks=("task-1",)))
    assert (again.runs[0].state, again.tasks[0].status, again.parked[0].blob) == (b"state", b"status", b"parked")
    assert kept.run(kept.store.read_history("run-1", first_event_id=1, events_max=1))[0].blob == b"events"
