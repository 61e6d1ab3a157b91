"""Moved rows: what a run or a task is born with stays, everything else moves."""

from typing import TypeVar

import msgspec
import pytest

from outlast.core.replies import TaskState
from outlast.core.writes import (
    CommitOutcome,
    LoadKeys,
    LoadLeasedTasks,
    LoadReadyRuns,
    LoadReadyTasks,
    RunMove,
    RunRow,
    TaskMove,
    TaskRow,
    run_after,
    task_after,
)
from tests.store.kept import Kept
from tests.store.rows import leased_task, move_of_run, move_of_task, parked, ready_task, run_row, task_row

RUN_MOVES = [name for name in RunMove.__struct_fields__ if name != "run_id"]
TASK_MOVES = [name for name in TaskMove.__struct_fields__ if name != "task_id"]


def other(value: object) -> object:
    """Return a value of the same type that differs."""
    match value:
        case TaskState():
            return TaskState.LEASED
        case str():
            return f"{value} other"
        case int():
            return value + 1
        case _:
            return b"other"


R = TypeVar("R", RunRow, TaskRow)


def all_other(row: R, but: set[str]) -> R:
    """Return ``row`` with another value in every field, ``but`` these."""
    names = [name for name in row.__struct_fields__ if name not in but]
    return msgspec.structs.replace(row, **{name: other(getattr(row, name)) for name in names})


@pytest.mark.parametrize("name", RUN_MOVES)
def test_a_moved_run_has_the_new_value_of(kept: Kept, name: str) -> None:
    kept.write(run_row())
    moved = run_row()
    setattr(moved, name, other(getattr(moved, name)))

    kept.move(moved)

    assert kept.read_run() == moved


@pytest.mark.parametrize("name", TASK_MOVES)
def test_a_moved_task_has_the_new_value_of(kept: Kept, name: str) -> None:
    kept.write(task_row())
    moved = task_row()
    setattr(moved, name, other(getattr(moved, name)))

    kept.move(moved)

    assert kept.read_task() == moved


def test_a_moved_run_keeps_all_that_it_was_born_with(kept: Kept) -> None:
    born = all_other(run_row(), {"run_id", "closed_at"})
    kept.write(born)

    kept.move(run_row())

    assert kept.read_run() == run_after(born, move_of_run(run_row()))


def test_a_moved_task_keeps_all_that_it_was_born_with(kept: Kept) -> None:
    born = all_other(task_row(), {"task_id"})
    kept.write(born)

    kept.move(task_row())

    assert kept.read_task() == task_after(born, move_of_task(task_row()))


@pytest.mark.parametrize(("row", "move"), [(RunRow, RunMove), (TaskRow, TaskMove)])
def test_all_but_what_an_entity_is_born_with_moves(row: type[msgspec.Struct], move: type[msgspec.Struct]) -> None:
    born_with: dict[type[msgspec.Struct], set[str]] = {
        RunRow: {
            "namespace", "workflow_id", "opened_no", "original_run_id", "first_run_id", "type", "model", "principal",
            "identity", "started_at", "parent", "fixed", "extra",
        },
        TaskRow: {
            "namespace", "type", "enqueued_at", "run_id", "scheduled_event_id", "principal", "identity", "spec", "extra",
            "priority",
        },
    }  # fmt: skip

    assert {*row.__struct_fields__} - {*move.__struct_fields__} == born_with[row]
    assert {*move.__struct_fields__} <= {*row.__struct_fields__}


def test_a_run_that_closes_makes_room_for_the_next_in_one_batch(kept: Kept) -> None:
    kept.write(run_row(workflow_id="w"))
    batch = kept.next_batch(run_row("run-2", workflow_id="w", opened_no=2))
    batch.run_moves["run-1"] = move_of_run(run_row(workflow_id="w", status="completed", closed_at=9))

    assert kept.commit(batch) is CommitOutcome.DONE
    assert kept.load(LoadKeys(workflows=(("default", "w"),))).runs[0].run_id == "run-2"


def test_a_workflow_id_opens_again_after_its_run_has_closed(kept: Kept) -> None:
    kept.write(run_row(workflow_id="w"))
    kept.move(run_row(workflow_id="w", status="completed", closed_at=9))

    kept.write(run_row("run-2", workflow_id="w", opened_no=2))

    assert kept.read_run("run-2").status == "running"


def test_one_workflow_id_may_be_open_in_two_namespaces(kept: Kept) -> None:
    kept.write(run_row(workflow_id="w"), run_row("run-2", workflow_id="w", namespace="other"))

    found = kept.load(LoadKeys(workflows=(("default", "w"), ("other", "w"))))

    assert [row.run_id for row in found.runs] == ["run-1", "run-2"]


def test_a_run_that_is_started_and_closed_in_one_batch_is_stored_closed(kept: Kept) -> None:
    kept.write(run_row(closed_at=9, status="failed"), run_row("run-2", workflow_id="workflow of run-1", opened_no=2))

    assert kept.read_run().closed_at == 9
    assert kept.read_run("run-2").closed_at == 0


def test_a_run_leaves_the_ready_ones_when_it_needs_no_task_any_more(kept: Kept) -> None:
    kept.write(run_row(ready_at=5))

    kept.move(run_row(ready_at=0))

    assert kept.load(LoadReadyRuns(after=(0, ""), limit=9)).runs == []


def test_a_run_changes_its_place_among_the_ready_ones(kept: Kept) -> None:
    kept.write(run_row("run-1", ready_at=5), run_row("run-2", ready_at=6))

    kept.move(run_row("run-1", ready_at=7))

    assert [row.run_id for row in kept.load(LoadReadyRuns(after=(0, ""), limit=9)).runs] == ["run-2", "run-1"]


def test_a_task_that_is_leased_leaves_the_ready_ones(kept: Kept) -> None:
    kept.write(ready_task("task-1"), ready_task("task-2"))

    kept.move(leased_task("task-1"))

    ready = kept.load(LoadReadyTasks(namespace="default", queue="main", type="send", after=(-1, ""), limit=9))
    leased = kept.load(LoadLeasedTasks(after="", limit=9))
    assert [row.task_id for row in ready.tasks] == ["task-2"]
    assert [row.task_id for row in leased.tasks] == ["task-1"]


def test_a_task_whose_lease_ended_comes_back_at_its_new_place(kept: Kept) -> None:
    kept.write(leased_task("task-1"), ready_task("task-2", 5))

    kept.move(ready_task("task-1", 6))

    ready = kept.load(LoadReadyTasks(namespace="default", queue="main", type="send", after=(-1, ""), limit=9))
    assert [row.task_id for row in ready.tasks] == ["task-2", "task-1"]
    assert kept.load(LoadLeasedTasks(after="", limit=9)).tasks == []


def test_a_task_moves_to_another_queue(kept: Kept) -> None:
    kept.write(ready_task("task-1"))

    kept.move(ready_task("task-1", queue="slow"))

    main = kept.load(LoadReadyTasks(namespace="default", queue="main", type="send", after=(-1, ""), limit=9))
    slow = kept.load(LoadReadyTasks(namespace="default", queue="slow", type="send", after=(-1, ""), limit=9))
    assert ([row.task_id for row in main.tasks], [row.task_id for row in slow.tasks]) == ([], ["task-1"])


def test_unparked_rows_go_before_new_ones_are_parked(kept: Kept) -> None:
    kept.write(run_row(), parked(1), parked(2))
    batch = kept.next_batch(parked(1, blob=b"fresh"))
    batch.unparked["run-1"] = None

    assert kept.commit(batch) is CommitOutcome.DONE
    assert [row.blob for row in kept.load(LoadKeys(runs=("run-1",))).parked] == [b"fresh"]


def test_unparking_one_run_leaves_the_others_alone(kept: Kept) -> None:
    kept.write(run_row(), run_row("run-2"), parked(1), parked(1, "run-2"))
    batch = kept.next_batch()
    batch.unparked["run-1"] = None
    kept.commit(batch)

    assert [row.run_id for row in kept.load(LoadKeys(runs=("run-1", "run-2"))).parked] == ["run-2"]


def test_unparking_a_run_with_nothing_parked_is_fine(kept: Kept) -> None:
    batch = kept.next_batch()
    batch.unparked["run-1"] = None

    assert kept.commit(batch) is CommitOutcome.DONE
