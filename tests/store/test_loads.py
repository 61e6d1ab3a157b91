"""Loads: by key and by index range, in order, page after page."""

import pytest

from outlast.core.units import FOREVER
from outlast.core.writes import LoadKeys, LoadLeasedTasks, LoadReadyRuns, LoadReadyTasks, LoadTimers
from tests.store.kept import Kept
from tests.store.rows import dedup, leased_task, parked, ready_task, run_row, task_row, timer

LEAST = -(2**63)  # below every order key


def ready_ids(
    kept: Kept, after: tuple[int, str] = (LEAST, ""), limit: int = 99, queue: str = "main", type: str = "send"
) -> list[str]:
    """Return the ids of ready tasks."""
    load = LoadReadyTasks(namespace="default", queue=queue, type=type, after=after, limit=limit)
    return [row.task_id for row in kept.load(load).tasks]


def ready_run_ids(kept: Kept, after: tuple[int, str] = (0, ""), limit: int = 99) -> list[str]:
    """Return the ids of ready runs."""
    return [row.run_id for row in kept.load(LoadReadyRuns(after=after, limit=limit)).runs]


def timer_ids(kept: Kept, after: tuple[int, str] = (0, ""), limit: int = 99) -> list[str]:
    """Return the ids of timers."""
    return [row.timer_id for row in kept.load(LoadTimers(after=after, limit=limit)).timers]


def leased_ids(kept: Kept, after: str = "", limit: int = 99) -> list[str]:
    """Return the ids of leased tasks."""
    return [row.task_id for row in kept.load(LoadLeasedTasks(after=after, limit=limit)).tasks]


def test_a_load_of_no_keys_is_an_empty_page(kept: Kept) -> None:
    found = kept.load(LoadKeys())

    assert (found.runs, found.parked, found.tasks, found.timers, found.dedup) == ([], [], [], [], [])


def test_what_is_not_there_is_absent_from_the_page(kept: Kept) -> None:
    kept.write(run_row(), task_row(), dedup())

    found = kept.load(
        LoadKeys(
            workflows=(("default", "none"), ("other", "workflow of run-1")),
            runs=("none", "run-1"),
            tasks=("none", "task-1"),
            dedup=(("default", "start", "none"), ("default", "start", "key-1")),
        )
    )

    assert [row.run_id for row in found.runs] == ["run-1"]
    assert [row.task_id for row in found.tasks] == ["task-1"]
    assert [row.key for row in found.dedup] == ["key-1"]


def test_a_workflow_id_gives_its_run_that_was_opened_last(kept: Kept) -> None:
    kept.write(run_row("run-z", workflow_id="w", opened_no=1, closed_at=1, started_at=900))
    kept.write(run_row("run-a", workflow_id="w", opened_no=2, closed_at=2, started_at=100))
    kept.write(run_row("run-m", workflow_id="w", opened_no=10, started_at=500))

    assert [row.run_id for row in kept.load(LoadKeys(workflows=(("default", "w"),))).runs] == ["run-m"]


def test_a_closed_run_is_found_by_its_workflow_id(kept: Kept) -> None:
    kept.write(run_row(workflow_id="w", closed_at=5, status="completed", outcome=b"outcome"))

    assert kept.load(LoadKeys(workflows=(("default", "w"),))).runs[0].outcome == b"outcome"


def test_an_entity_asked_for_twice_comes_once(kept: Kept) -> None:
    kept.write(run_row(workflow_id="w"), task_row(), dedup(), parked())
    key = ("default", "start", "key-1")

    found = kept.load(
        LoadKeys(
            workflows=(("default", "w"), ("default", "w")),
            runs=("run-1", "run-1"),
            tasks=("task-1", "task-1"),
            dedup=(key, key),
        )
    )

    assert (len(found.runs), len(found.parked), len(found.tasks), len(found.dedup)) == (1, 1, 1, 1)


def test_entities_come_in_the_order_they_were_asked_for(kept: Kept) -> None:
    kept.write(*(run_row(f"run-{n}") for n in range(5)), *(task_row(f"task-{n}") for n in range(5)))

    found = kept.load(LoadKeys(runs=("run-3", "run-0", "run-4"), tasks=("task-2", "task-4", "task-0")))

    assert [row.run_id for row in found.runs] == ["run-3", "run-0", "run-4"]
    assert [row.task_id for row in found.tasks] == ["task-2", "task-4", "task-0"]


def test_runs_come_with_their_parked_rows_in_order(kept: Kept) -> None:
    kept.write(run_row(), run_row("run-2"), parked(10), parked(2), parked(1, "run-2"), parked(1))

    found = kept.load(LoadKeys(runs=("run-2", "run-1")))

    assert [(row.run_id, row.n) for row in found.parked] == [("run-2", 1), ("run-1", 1), ("run-1", 2), ("run-1", 10)]


def test_a_run_found_by_workflow_id_comes_with_its_parked_rows(kept: Kept) -> None:
    kept.write(run_row(workflow_id="w"), parked(1), parked(2))

    assert len(kept.load(LoadKeys(workflows=(("default", "w"),))).parked) == 2


def test_parked_rows_of_other_runs_stay_out_of_the_page(kept: Kept) -> None:
    kept.write(run_row(), run_row("run-2"), parked(1, "run-2"))

    assert kept.load(LoadKeys(runs=("run-1",))).parked == []


def test_ready_tasks_come_by_order_key_and_then_id(kept: Kept) -> None:
    kept.write(ready_task("c", 1), ready_task("b", 2), ready_task("a", 2), ready_task("z", -5), ready_task("d", 1))

    assert ready_ids(kept) == ["z", "c", "d", "a", "b"]


def test_ready_tasks_go_on_after_the_last_one_of_a_page(kept: Kept) -> None:
    kept.write(*(ready_task(f"task-{n}", n // 2) for n in range(6)))

    first = ready_ids(kept, limit=3)
    second = ready_ids(kept, after=(1, "task-2"), limit=3)

    assert (first, second) == (["task-0", "task-1", "task-2"], ["task-3", "task-4", "task-5"])


def test_a_place_between_two_ready_tasks_is_a_fine_place_to_go_on_from(kept: Kept) -> None:
    kept.write(ready_task("a", 1), ready_task("b", 3))

    assert ready_ids(kept, after=(2, "anything")) == ["b"]
    assert ready_ids(kept, after=(1, "a")) == ["b"]
    assert ready_ids(kept, after=(1, "A")) == ["a", "b"]


def test_order_keys_may_be_as_small_and_as_large_as_they_get(kept: Kept) -> None:
    kept.write(ready_task("large", 2**63 - 1), ready_task("small", -(2**63) + 1), ready_task("zero", 0))

    assert ready_ids(kept) == ["small", "zero", "large"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_gives_nothing(kept: Kept, limit: int) -> None:
    kept.write(ready_task("a"), leased_task("b"), timer(), run_row(ready_at=1))

    assert ready_ids(kept, limit=limit) == []
    assert leased_ids(kept, limit=limit) == []
    assert timer_ids(kept, limit=limit) == []
    assert ready_run_ids(kept, limit=limit) == []


def test_ready_tasks_are_those_of_one_queue_and_type(kept: Kept) -> None:
    kept.write(
        ready_task("a"),
        ready_task("b", queue="slow"),
        ready_task("c", type="print"),
        ready_task("d", namespace="other"),
        ready_task("e", queue="slow", type="print"),
    )

    assert ready_ids(kept) == ["a"]
    assert ready_ids(kept, queue="slow") == ["b"]
    assert ready_ids(kept, type="print") == ["c"]
    assert ready_ids(kept, queue="slow", type="print") == ["e"]


def test_a_task_that_is_not_ready_is_not_among_the_ready(kept: Kept) -> None:
    kept.write(task_row("waiting", run_at=900), ready_task("ready"))

    assert ready_ids(kept) == ["ready"]


def test_an_unknown_queue_has_no_ready_tasks(kept: Kept) -> None:
    assert ready_ids(kept, queue="none") == []


def test_ready_tasks_come_whole(kept: Kept) -> None:
    task = ready_task(
        "a", 3, build="v1", attempt=2, lease=4, principal="p", run_id="r", scheduled_event_id=5, extra=b"e"
    )
    kept.write(task)

    load = LoadReadyTasks(namespace="default", queue="main", type="send", after=(LEAST, ""), limit=1)

    assert kept.load(load).tasks == [task]


def test_leased_tasks_come_by_id(kept: Kept) -> None:
    kept.write(leased_task("c"), leased_task("a"), leased_task("b"), task_row("d"))

    assert leased_ids(kept) == ["a", "b", "c"]


def test_leased_tasks_go_on_after_the_last_one_of_a_page(kept: Kept) -> None:
    kept.write(*(leased_task(f"task-{n}") for n in range(5)))

    assert leased_ids(kept, limit=2) == ["task-0", "task-1"]
    assert leased_ids(kept, after="task-1", limit=2) == ["task-2", "task-3"]
    assert leased_ids(kept, after="task-4", limit=2) == []


def test_leased_tasks_of_every_namespace_and_queue_come_in_one_order(kept: Kept) -> None:
    kept.write(leased_task("b", namespace="other"), leased_task("a", queue="slow"), leased_task("c", type="print"))

    assert leased_ids(kept) == ["a", "b", "c"]


def test_timers_come_by_instant_and_then_id(kept: Kept) -> None:
    kept.write(timer(9, "a"), timer(5, "c"), timer(5, "b"), timer(1, "d"))

    assert timer_ids(kept) == ["d", "b", "c", "a"]


def test_timers_go_on_after_the_last_one_of_a_page(kept: Kept) -> None:
    kept.write(*(timer(n // 2, f"timer-{n}") for n in range(2, 8)))

    assert timer_ids(kept, limit=3) == ["timer-2", "timer-3", "timer-4"]
    assert timer_ids(kept, after=(2, "timer-4"), limit=3) == ["timer-5", "timer-6", "timer-7"]


def test_one_timer_id_may_fire_at_two_instants(kept: Kept) -> None:
    kept.write(timer(5, "same"), timer(6, "same"))

    assert timer_ids(kept) == ["same", "same"]


def test_a_timer_may_be_set_for_never(kept: Kept) -> None:
    kept.write(timer(FOREVER, "far"))

    assert timer_ids(kept, after=(FOREVER - 1, "")) == ["far"]


def test_a_timer_comes_with_its_kind_and_target(kept: Kept) -> None:
    kept.write(timer(5, "t", "task_due", "task-9"))

    assert kept.load(LoadTimers(after=(0, ""), limit=1)).timers == [timer(5, "t", "task_due", "task-9")]


def test_ready_runs_come_by_instant_and_then_id(kept: Kept) -> None:
    kept.write(run_row("c", ready_at=1), run_row("b", ready_at=2), run_row("a", ready_at=2), run_row("d"))

    assert ready_run_ids(kept) == ["c", "a", "b"]


def test_ready_runs_go_on_after_the_last_one_of_a_page(kept: Kept) -> None:
    kept.write(*(run_row(f"run-{n}", ready_at=1 + n // 2) for n in range(6)))

    assert ready_run_ids(kept, limit=3) == ["run-0", "run-1", "run-2"]
    assert ready_run_ids(kept, after=(2, "run-2"), limit=3) == ["run-3", "run-4", "run-5"]


def test_ready_runs_come_with_their_parked_rows(kept: Kept) -> None:
    kept.write(run_row("a", ready_at=1), run_row("b"), parked(2, "a"), parked(1, "a"), parked(1, "b"))

    found = kept.load(LoadReadyRuns(after=(0, ""), limit=9))

    assert [(row.run_id, row.n) for row in found.parked] == [("a", 1), ("a", 2)]


def test_a_closed_run_is_never_ready(kept: Kept) -> None:
    kept.write(run_row(ready_at=5))

    kept.move(run_row(ready_at=5, closed_at=6, status="terminated"))

    assert ready_run_ids(kept) == []


@pytest.mark.parametrize("page_rows", [1, 2, 3, 7, 50])
def test_pages_of_any_size_cover_every_row_once(kept: Kept, page_rows: int) -> None:
    kept.write(*(ready_task(f"task-{n:02}", n % 5) for n in range(23)))

    seen: list[str] = []
    after = (LEAST, "")
    while ids := ready_ids(kept, after=after, limit=page_rows):
        seen += ids
        after = (kept.read_task(ids[-1]).order_key, ids[-1])

    assert len(seen) == len(set(seen)) == 23
