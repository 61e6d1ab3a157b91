"""SQLite: every connection has every setting, and the schema is what the rows need."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from outlast.core.units import Instant
from outlast.core.writes import AttemptRow, DedupRow, HistoryRow, MessageRow, ParkedRow, RunRow, TaskRow, TimerRow
from outlast.query.check import filter_of
from outlast.query.fields import RUN_FIELDS
from outlast.query.predicate import Predicate
from outlast.store.base import RunFilter, StoreError, TaskFilter
from outlast.store.sqlite import listing, reading
from outlast.store.sqlite.connection import Connection, Cursor, connect, settings_of, wanted_settings
from outlast.store.sqlite.queries import RUN_TROUBLE, TASK_TROUBLE
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept
from tests.store.rows import ready_task, run_row

COLUMNS = {
    "runs": RunRow, "tasks": TaskRow, "attempts": AttemptRow, "history": HistoryRow, "parked": ParkedRow,
    "timers": TimerRow, "dedup": DedupRow, "outbox": MessageRow,
}  # fmt: skip


def opened(path: Path) -> Kept:
    """Return an open store over ``path``, not claimed."""
    return Kept(lambda: SqliteStore(path, allow_network_disk=True))


def connect_plainly(path: Path) -> Connection:
    """Return a connection with SQLite's own settings."""
    return cast("Connection", apsw.Connection(str(path)))


def writer_of(kept: Kept) -> Connection:
    """Return the store's own writing connection."""
    store = kept.store
    assert isinstance(store, SqliteStore)
    assert store._writer is not None
    return store._writer


def test_both_connections_of_a_store_have_every_setting(tmp_path: Path) -> None:
    with opened(tmp_path / "shard.db") as kept:
        store = kept.store
        assert isinstance(store, SqliteStore)
        assert store._writer is not None
        assert store._reader is not None

        assert settings_of(store._writer) == settings_of(store._reader) == wanted_settings()


def test_a_connection_of_another_thread_has_every_setting(tmp_path: Path) -> None:
    found: list[dict[str, int | str]] = []

    def look() -> None:
        connection = connect(str(tmp_path / "shard.db"))
        found.append(settings_of(connection))
        connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert found == [wanted_settings()]


def test_a_connection_of_another_process_has_every_setting(tmp_path: Path) -> None:
    code = (
        "import sys; from outlast.store.sqlite.connection import *; "
        "c = connect(sys.argv[1]); print(settings_of(c) == wanted_settings())"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "shard.db")], capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\n"


def test_a_setting_outlives_reopening(tmp_path: Path) -> None:
    with opened(tmp_path / "shard.db") as kept:
        kept.reopen()

        assert settings_of(writer_of(kept)) == wanted_settings()


def test_commits_reach_the_disk_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    with opened(tmp_path / "shard.db") as kept:
        assert settings_of(writer_of(kept))["synchronous"] == 2
    with Kept(lambda: SqliteStore(tmp_path / "fast.db", synchronous="OFF", allow_network_disk=True)) as kept:
        assert settings_of(writer_of(kept))["synchronous"] == 0


def test_a_file_that_cannot_be_put_into_wal_mode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    other = connect_plainly(path)
    other.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    other.execute("BEGIN IMMEDIATE; CREATE TABLE t (x)").fetchall()

    with pytest.raises((StoreError, apsw.Error)):
        connect(str(path), synchronous="FULL")
    other.close()


def test_a_database_in_memory_cannot_be_had_in_wal_mode_and_is_refused() -> None:
    with pytest.raises(StoreError) as caught:
        connect(":memory:")

    assert caught.value.code == "unavailable"
    assert "memory" in caught.value.fact


@pytest.mark.parametrize("table", COLUMNS)
def test_a_table_has_the_fields_of_its_row_in_order(tmp_path: Path, table: str) -> None:
    with opened(tmp_path / "shard.db") as kept:
        columns = [row[1] for row in writer_of(kept).execute(f"PRAGMA table_info({table})")]

    assert tuple(columns) == COLUMNS[table].__struct_fields__


BY_START = "started_at DESC, run_id DESC"
PLANS = {
    "tasks_ready": (
        "FROM tasks WHERE ready = 1 AND namespace = ? AND queue = ? AND type = ? AND (order_key, task_id) > (?, ?) "
        "ORDER BY order_key, task_id"
    ),
    "tasks_leased": "FROM tasks WHERE state = 'leased' AND task_id > ? ORDER BY task_id",
    "runs_ready": (
        "FROM runs WHERE ready_at > 0 AND closed_at = 0 AND (ready_at, run_id) > (?, ?) ORDER BY ready_at, run_id"
    ),
    "runs_by_workflow": "FROM runs WHERE namespace = ? AND workflow_id = ? ORDER BY opened_no DESC",
    "runs_by_start": f"FROM runs WHERE namespace = ? AND (started_at, run_id) < (?, ?) ORDER BY {BY_START}",
    "runs_by_trouble": f"FROM runs WHERE namespace = ? AND status = ? AND {RUN_TROUBLE} ORDER BY {BY_START}",
    "tasks_by_trouble": (
        f"FROM tasks WHERE namespace = ? AND state = ? AND {TASK_TROUBLE} ORDER BY enqueued_at DESC, task_id DESC"
    ),
    "tasks_by_enqueue": (
        "FROM tasks WHERE namespace = ? AND (enqueued_at, task_id) < (?, ?) ORDER BY enqueued_at DESC, task_id DESC"
    ),
    "timers USING PRIMARY KEY": ("FROM timers WHERE (fire_at, timer_id) > (?, ?) ORDER BY fire_at, timer_id"),
    "history USING PRIMARY KEY": "FROM history WHERE run_id = ? AND first_event_id >= ? ORDER BY first_event_id",
}


@pytest.mark.parametrize("index", PLANS)
def test_a_page_is_read_from_its_index_and_not_sorted(tmp_path: Path, index: str) -> None:
    statement = f"SELECT * {PLANS[index]} LIMIT 9"

    with opened(tmp_path / "shard.db") as kept:
        places = [None] * statement.count("?")
        plan = [row[3] for row in writer_of(kept).execute(f"EXPLAIN QUERY PLAN {statement}", places)]

    assert len(plan) == 1
    assert index in plan[0]


def asked(query: str) -> Predicate | None:
    """Return what a filter asks of runs."""
    return filter_of(query, RUN_FIELDS, now=Instant(1))


@pytest.mark.parametrize(
    ("listed", "index"),
    [
        (RunFilter(namespace="n", workflow_id="w"), "runs_by_workflow (namespace=? AND workflow_id=?)"),
        (RunFilter(namespace="n", status="failed", before=(5, "r")), "runs_by_trouble (namespace=? AND status=? AND"),
        (RunFilter(namespace="n", before=(5, "r")), "runs_by_start (namespace=? AND (started_at,run_id)<(?,?))"),
        (TaskFilter(namespace="n", run_id="r"), "(task_id>? AND task_id<?)"),
        (TaskFilter(namespace="n", state="failed"), "tasks_by_trouble (namespace=? AND state=?)"),
        (TaskFilter(namespace="n", state="leased"), "tasks_leased"),
        (RunFilter(namespace="n", where=asked("id = w")), "runs_by_workflow (namespace=? AND workflow_id=?)"),
        (
            RunFilter(namespace="n", where=asked("tag.plan = pro")),
            "labels_by_value (namespace=? AND of=? AND name=? AND",
        ),
        (RunFilter(namespace="n", where=asked("started > now and started < now")), "(namespace=? AND started_at>? AND"),
    ],
    ids=[
        "workflow",
        "failed_runs",
        "runs",
        "activities",
        "failed_tasks",
        "leased_tasks",
        "workflow asked",
        "label",
        "times",
    ],
)
def test_a_list_is_read_from_the_index_that_narrows_it(
    tmp_path: Path, listed: RunFilter | TaskFilter, index: str
) -> None:
    with opened(tmp_path / "shard.db") as kept:
        asked = Explained(writer_of(kept))
        if isinstance(listed, RunFilter):
            listing.list_runs(cast("Connection", asked), listed)
        else:
            listing.list_tasks(cast("Connection", asked), listed)

    assert index in asked.plans[0]


def test_queues_are_read_from_indexes_and_sorted_by_none(tmp_path: Path) -> None:
    with opened(tmp_path / "shard.db") as kept:
        kept.claim()
        kept.write(ready_task("a", queue="q"), run_row("r", ready_at=5))
        asked = Explained(writer_of(kept))
        reading.read_waiting(cast("Connection", asked), "default", "q")
        reading.read_turns(cast("Connection", asked))

    types, count, oldest, *_ = asked.plans
    assert "COVERING INDEX tasks_ready (namespace=? AND queue=? AND type>?)" in types
    assert "COVERING INDEX tasks_ready (namespace=? AND queue=? AND type=?)" in count
    assert "INDEX tasks_ready (namespace=? AND queue=? AND type=?)" in oldest
    assert "runs_ready" in asked.plans[-1]
    assert not any("TEMP B-TREE FOR ORDER BY" in plan for plan in (types, count, oldest))
    assert not any("SCAN tasks" in plan for plan in asked.plans)


class Explained:
    """A connection that notes how each statement would be carried out."""

    def __init__(self, connection: Connection) -> None:
        self.plans: list[str] = []
        self._connection = connection

    def execute(self, statements: str, bindings: Sequence[Any] = ()) -> Cursor:
        plan = self._connection.execute(f"EXPLAIN QUERY PLAN {statements}", bindings).fetchall()
        self.plans.append("; ".join(row[3] for row in plan))
        return self._connection.execute(statements, bindings)
