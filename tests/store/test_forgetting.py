"""What stores forget, the namespaces they keep, and what they say of queues from the index of ready tasks."""

import pytest

from outlast.core import limits
from outlast.core.admin import NamespaceInfo, NamespaceSettings
from outlast.core.replies import TaskState
from outlast.core.writes import LabelsRow, LoadKeys, LoadReadyTasks
from outlast.store.base import Turns, Waiting
from tests.store.kept import Kept
from tests.store.rows import attempt, page, parked, ready_task, run_row, task_row

SHOP = NamespaceInfo(name="shop", version=1, created_at=5, settings=NamespaceSettings(description="é", retention=7))


def forget(kept: Kept, *, runs: tuple[str, ...] = (), tasks: tuple[str, ...] = ()) -> None:
    """Commit that these are forgotten."""
    batch = kept.next_batch()
    batch.forgotten_runs = dict.fromkeys(runs)
    batch.forgotten_tasks = dict.fromkeys(tasks)
    assert kept.commit(batch) == "done"


def test_a_forgotten_run_leaves_nothing_behind(kept: Kept) -> None:
    batch = kept.next_batch(run_row("a", closed_at=5), run_row("b", closed_at=5), page("a"), page("b"), parked(1, "a"))
    batch.labels["a"] = LabelsRow(id="a", namespace="default", of="run", at=100, items=(("tag.x", "y"),))
    kept.commit(batch)

    forget(kept, runs=("a", "none"))

    assert (kept.find_run("a"), kept.read_run("b").run_id) == (None, "b")
    assert kept.run(kept.store.read_history("a", first_event_id=1, events_max=9)) == []
    assert len(kept.run(kept.store.read_history("b", first_event_id=1, events_max=9))) == 1
    kept.write(run_row("a"))  # the id is free again, and what is made under it has nothing of the first
    assert kept.load(LoadKeys(runs=("a",))).parked == []


def test_a_forgotten_task_leaves_nothing_behind(kept: Kept) -> None:
    kept.write(
        task_row("a", closed_at=5, state=TaskState.FAILED),
        task_row("b", closed_at=5, state=TaskState.FAILED),
        attempt("a"),
        attempt("b"),
    )

    forget(kept, tasks=("a",))

    assert (kept.find_task("a"), kept.read_task("b").task_id) == (None, "b")
    assert kept.run(kept.store.read_attempts("a")) == []
    assert len(kept.run(kept.store.read_attempts("b"))) == 1


def test_an_open_row_is_never_forgotten(kept: Kept) -> None:
    kept.write(run_row("a"), ready_task("t"))

    forget(kept, runs=("a",), tasks=("t",))

    assert kept.find_run("a") is not None
    assert kept.find_task("t") is not None
    assert len(kept.load(LoadReadyTasks(namespace="default", queue="main", type="send", after=(-9, ""), limit=9)).tasks)


def test_the_run_before_is_the_latest_once_the_last_is_forgotten(kept: Kept) -> None:
    kept.write(
        run_row("a", workflow_id="w", opened_no=1, closed_at=5), run_row("b", workflow_id="w", opened_no=2, closed_at=5)
    )

    forget(kept, runs=("b",))

    assert [row.run_id for row in kept.load(LoadKeys(workflows=(("default", "w"),))).runs] == ["a"]


def test_a_workflow_id_may_open_in_the_batch_that_forgets_its_last_run(kept: Kept) -> None:
    kept.write(run_row("a", workflow_id="w", opened_no=1, closed_at=5))
    batch = kept.next_batch(run_row("b", workflow_id="w", opened_no=1))
    batch.forgotten_runs = {"a": None}

    assert kept.commit(batch) == "done"
    assert [row.run_id for row in kept.load(LoadKeys(workflows=(("default", "w"),))).runs] == ["b"]


def test_namespaces_are_kept_changed_and_dropped(kept: Kept) -> None:
    batch = kept.next_batch()
    batch.namespaces = {"shop": SHOP, "yard": NamespaceInfo(name="yard")}
    batch.counters = {("shop", "runs:running"): 1, ("yard", "runs:running"): 2}
    kept.commit(batch)
    kept.reopen()
    claim = kept.claim()
    read = kept.run(kept.store.read_namespaces())

    batch = kept.next_batch()
    batch.namespaces = {"shop": None}
    kept.commit(batch)

    assert claim.namespaces == read == {"shop": SHOP, "yard": NamespaceInfo(name="yard")}
    assert kept.run(kept.store.read_namespaces()) == {"yard": NamespaceInfo(name="yard")}
    assert kept.run(kept.store.read_counters("shop")) == {}
    assert kept.run(kept.store.read_counters("yard")) == {"runs:running": 2}


def test_what_waits_in_a_queue_is_counted_by_type(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_COUNT_MAX", 3)
    kept.write(
        *(ready_task(f"m{n}", n, type="mail", enqueued_at=50 - n) for n in range(5)),
        ready_task("s", type="send", enqueued_at=10, run_at=40),
        task_row("later", type="send"),
        ready_task("other", namespace="other"),
        ready_task("slow", queue="slow", enqueued_at=7),
    )

    assert kept.run(kept.store.read_waiting("default", "main")) == [
        Waiting("mail", 3, 46, more=True),
        Waiting("send", 1, 40),
    ]
    assert kept.run(kept.store.read_waiting("default", "slow")) == [Waiting("send", 1, 7)]
    assert kept.run(kept.store.read_waiting("default", "none")) == []


def test_turns_that_wait_are_counted_by_queue(kept: Kept) -> None:
    kept.write(
        run_row("a", ready_at=9), run_row("b", ready_at=4), run_row("c"), run_row("d", ready_at=5, queue="slow"),
        run_row("e", ready_at=6, namespace="other"),
    )  # fmt: skip

    assert kept.run(kept.store.read_turns()) == [
        Turns("default", "main", "Order", 2, 4),
        Turns("default", "slow", "Order", 1, 5),
        Turns("other", "main", "Order", 1, 6),
    ]
