"""Lists: newest first, by filter, from a cursor on."""

from typing import Any

import pytest

from outlast.core.replies import TaskState
from outlast.store.base import RunFilter, TaskFilter
from tests.store.kept import Kept
from tests.store.rows import leased_task, run_row, task_row

IN_DEFAULT: dict[str, Any] = {"namespace": "default"}


def run_ids(kept: Kept, **wanted: Any) -> list[str]:
    """Return the ids of runs in "default" that match."""
    return [row.run_id for row in kept.run(kept.store.list_runs(RunFilter(**(IN_DEFAULT | wanted)))).rows]


def task_ids(kept: Kept, **wanted: Any) -> list[str]:
    """Return the ids of tasks in "default" that match."""
    return [row.task_id for row in kept.run(kept.store.list_tasks(TaskFilter(**(IN_DEFAULT | wanted)))).rows]


@pytest.fixture
def some_runs(kept: Kept) -> Kept:
    """Seven runs of two types, in several states, two of them started at one instant, one in another namespace."""
    kept.write(
        run_row("a", started_at=10, type="Order", closed_at=11, status="completed", workflow_id="w", opened_no=1),
        run_row("b", started_at=20, type="Order", closed_at=21, status="failed", workflow_id="w", opened_no=2),
        run_row("c", started_at=20, type="Mail", workflow_id="v"),
        run_row("d", started_at=15, type="Mail", closed_at=16, status="completed"),
        run_row("e", started_at=30, type="Order", workflow_id="w", opened_no=3),
        run_row("f", started_at=5, type="Mail", closed_at=6, status="failed"),
        run_row("x", started_at=25, type="Order", namespace="other"),
    )
    return kept


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, "ecbdaf"),
        ({"type": "Order"}, "eba"),
        ({"type": "Mail"}, "cdf"),
        ({"type": "None"}, ""),
        ({"status": "running"}, "ec"),
        ({"status": "completed"}, "da"),
        ({"status": "failed"}, "bf"),
        ({"status": "canceled"}, ""),
        ({"workflow_id": "w"}, "eba"),
        ({"workflow_id": "v"}, "c"),
        ({"workflow_id": "none"}, ""),
        ({"type": "Order", "status": "failed"}, "b"),
        ({"type": "Mail", "status": "failed", "workflow_id": "w"}, ""),
        ({"workflow_id": "w", "status": "running"}, "e"),
        ({"namespace": "other"}, "x"),
        ({"namespace": "none"}, ""),
        ({"limit": 2}, "ec"),
        ({"limit": 0}, ""),
        ({"limit": -3}, ""),
        ({"before": (20, "c")}, "bdaf"),
        ({"before": (20, "b")}, "daf"),
        ({"before": (20, "bb")}, "bdaf"),
        ({"before": (20, "")}, "daf"),
        ({"before": (5, "f")}, ""),
        ({"before": (2**62, "")}, "ecbdaf"),
        ({"before": (20, "c"), "type": "Mail"}, "df"),
        ({"before": (20, "c"), "status": "failed", "limit": 1}, "b"),
    ],
)
def test_runs_are_listed_by_filter(some_runs: Kept, wanted: dict[str, Any], expected: str) -> None:
    assert run_ids(some_runs, **wanted) == list(expected)


@pytest.fixture
def some_tasks(kept: Kept) -> Kept:
    """Tasks in several states, queues and types; two are activities of run "r"."""
    kept.write(
        task_row("a", enqueued_at=10, type="send", state=TaskState.SUCCEEDED, closed_at=11),
        task_row("b", enqueued_at=20, type="send", state=TaskState.FAILED, closed_at=21, queue="slow"),
        task_row("c", enqueued_at=20, type="print"),
        task_row("r:5", enqueued_at=15, type="print", run_id="r", scheduled_event_id=5),
        task_row("r:6", enqueued_at=30, type="send", run_id="r", scheduled_event_id=6, state=TaskState.FAILED),
        task_row("rr:7", enqueued_at=31, type="send", run_id="rr", scheduled_event_id=7),
        task_row("x", enqueued_at=25, namespace="other"),
    )
    return kept


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, "rr:7 r:6 c b r:5 a"),
        ({"type": "send"}, "rr:7 r:6 b a"),
        ({"type": "none"}, ""),
        ({"state": "failed"}, "r:6 b"),
        ({"state": "enqueued"}, "rr:7 c r:5"),
        ({"state": "succeeded"}, "a"),
        ({"queue": "slow"}, "b"),
        ({"queue": "main", "state": "failed"}, "r:6"),
        ({"run_id": "r"}, "r:6 r:5"),
        ({"run_id": "rr"}, "rr:7"),
        ({"run_id": "none"}, ""),
        ({"run_id": "r", "type": "print"}, "r:5"),
        ({"run_id": "r", "limit": 1}, "r:6"),
        ({"run_id": "r", "before": (30, "r:6")}, "r:5"),
        ({"standalone": True}, "c b a"),
        ({"standalone": True, "state": "failed"}, "b"),
        ({"standalone": True, "run_id": "r"}, ""),
        ({"namespace": "other"}, "x"),
        ({"limit": 2}, "rr:7 r:6"),
        ({"limit": 0}, ""),
        ({"before": (20, "c")}, "b r:5 a"),
        ({"before": (20, "b")}, "r:5 a"),
        ({"before": (10, "a")}, ""),
        ({"before": (30, "r:6"), "state": "failed"}, "b"),
    ],
)
def test_tasks_are_listed_by_filter(some_tasks: Kept, wanted: dict[str, Any], expected: str) -> None:
    assert task_ids(some_tasks, **wanted) == expected.split()


def test_a_run_is_listed_by_its_state_of_now(some_runs: Kept) -> None:
    some_runs.move(run_row("c", started_at=20, type="Mail", workflow_id="v", closed_at=40, status="failed"))

    assert run_ids(some_runs, status="failed") == ["c", "b", "f"]
    assert run_ids(some_runs, status="running") == ["e"]


def test_a_task_is_listed_by_its_state_of_now(some_tasks: Kept) -> None:
    some_tasks.move(task_row("c", type="print", state=TaskState.EXPIRED, closed_at=40))

    assert task_ids(some_tasks, state="expired") == ["c"]
    assert "c" not in task_ids(some_tasks, state="enqueued")


def test_listed_rows_come_whole(kept: Kept) -> None:
    run, task = run_row(outcome=b"o", reason="r", extra=b"x"), task_row(worker="w", extra=b"x")
    kept.write(run, task)

    assert kept.run(kept.store.list_runs(RunFilter(namespace="default"))).rows == [run]
    assert kept.run(kept.store.list_tasks(TaskFilter(namespace="default"))).rows == [task]


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_following_the_cursor_lists_every_run_once(kept: Kept, limit: int) -> None:
    kept.write(*(run_row(f"run-{n:02}", started_at=n // 4) for n in range(20)))

    seen: list[str] = []
    before: tuple[int, str] | None = None
    while found := kept.run(kept.store.list_runs(RunFilter(namespace="default", before=before, limit=limit))).rows:
        seen += [row.run_id for row in found]
        before = (found[-1].started_at, found[-1].run_id)

    assert seen == [f"run-{n:02}" for n in reversed(range(20))]


def test_lists_are_the_same_after_closing(some_runs: Kept) -> None:
    some_runs.reopen()

    assert run_ids(some_runs) == list("ecbdaf")


def test_leased_tasks_are_listed_newest_first_and_by_filter(kept: Kept) -> None:
    kept.write(
        leased_task("a", enqueued_at=1),
        leased_task("b", enqueued_at=3, queue="slow"),
        leased_task("c", enqueued_at=2),
        leased_task("d", enqueued_at=4, namespace="other"),
        task_row("e", enqueued_at=5),
    )

    assert task_ids(kept, state="leased") == ["b", "c", "a"]
    assert task_ids(kept, state="leased", queue="main") == ["c", "a"]
    assert task_ids(kept, state="leased", before=(3, "b")) == ["c", "a"]
