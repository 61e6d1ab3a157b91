"""Statements over many rows: any number of rows is written whole, by statements that stay prepared, out of memory kept ready."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from outlast.core.writes import (
    AttemptRow,
    CommitOutcome,
    DedupRow,
    HistoryRow,
    MessageRow,
    ParkedRow,
    RunRow,
    TaskRow,
    TimerRow,
)
from outlast.store.sqlite import queries
from outlast.store.sqlite.bulk import SIZES, Bulk
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept
from tests.store.rows import Row, run_row, task_row

COUNTS = sorted({*SIZES, *(size - 1 for size in SIZES), *(size + 1 for size in SIZES), sum(SIZES), 2 * SIZES[0]} - {0})
STATEMENTS = {name: value for name, value in vars(queries).items() if isinstance(value, Bulk)}


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Kept]:
    with Kept(lambda: SqliteStore(tmp_path / "shard.db", allow_network_disk=True)) as kept:
        kept.claim()
        yield kept


def rows_of(name: str, count: int) -> list[Row]:
    """Return ``count`` rows of each table, of ids that begin with ``name``."""
    made: list[Row] = []
    for n in range(count):
        id = f"{name}-{n:04}"
        made += [
            run_row(id), task_row(id), HistoryRow(id, 1, 1, b"page"), ParkedRow(id, 0, b"event"),
            AttemptRow(namespace="default", task_id=id, lease=1, attempt=1, outcome="succeeded"),
            AttemptRow(namespace="default", task_id=id, lease=1, attempt=1, outcome="succeeded", late=1),
            TimerRow(n + 1, id, "run_timer", id), DedupRow("default", "start", id, id, "", 1, 1),
            MessageRow(1, 0, len(name), n, b"message"),
        ]  # fmt: skip
    return made


def write_and_move(kept: Kept, rows: list[Row]) -> None:
    """Commit ``rows``, and then moves of all that can move."""
    kept.write(*rows)
    kept.move(*(row for row in rows if isinstance(row, RunRow | TaskRow)))


def cache_of(kept: Kept) -> dict[str, int]:
    """Return how the writer's statements were found."""
    store = kept.store
    assert isinstance(store, SqliteStore)
    return cast("dict[str, int]", cast("Any", store._writer).cache_stats())


@pytest.mark.parametrize("count", COUNTS)
def test_as_many_rows_move_as_were_written_of(sqlite: Kept, count: int) -> None:
    sqlite.write(*rows_of("a", count))
    sqlite.move(*(run_row(f"a-{n:04}", reason=f"run {n}") for n in range(count)))
    sqlite.move(*(task_row(f"a-{n:04}", reason=f"task {n}") for n in range(count)))

    assert [sqlite.read_run(f"a-{n:04}").reason for n in range(count)] == [f"run {n}" for n in range(count)]
    assert [sqlite.read_task(f"a-{n:04}").reason for n in range(count)] == [f"task {n}" for n in range(count)]


@pytest.mark.parametrize("count", [1, 2, 300])
def test_one_row_that_is_there_already_undoes_all_of(sqlite: Kept, count: int) -> None:
    sqlite.write(run_row(f"a-{count - 1:04}"))

    outcome = sqlite.commit(sqlite.next_batch(*rows_of("b", 3), *rows_of("a", count)))

    assert outcome is CommitOutcome.UNKNOWN
    assert sqlite.find_run("b-0000") is None
    assert sqlite.find_task("b-0000") is None
    sqlite.write(*rows_of("c", 1))  # the store goes on


def test_every_statement_of_a_commit_stays_prepared(sqlite: Kept) -> None:
    write_and_move(sqlite, rows_of("a", sum(SIZES)))
    before = cache_of(sqlite)

    write_and_move(sqlite, rows_of("bb", sum(SIZES)))

    after = cache_of(sqlite)
    assert after["too_big"] == 0
    assert after["misses"] == before["misses"]
    assert after["hits"] > before["hits"]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_the_text_of_every_size_is_short_enough_to_be_kept(name: str) -> None:
    most = apsw.Connection(":memory:").cache_stats()["max_cacheable_bytes"]
    assert all(len(sql) < most for _, sql in STATEMENTS[name]._statements)


def test_connections_use_their_own_memory_and_count_none(sqlite: Kept) -> None:
    sqlite.write(*rows_of("a", 10))

    store = sqlite.store
    assert isinstance(store, SqliteStore)
    used, _ = cast("Any", store._writer).status(apsw.SQLITE_DBSTATUS_LOOKASIDE_USED)
    assert used > 40  # what SQLite gives a connection by itself
    assert apsw.memory_used() == 0


def test_a_connection_that_is_open_already_is_left_alone() -> None:
    program = (
        "import apsw\n"
        "mine = apsw.Connection(':memory:')\n"
        "mine.execute('CREATE TABLE kept (a)')\n"
        "import outlast.store.sqlite.connection\n"
        "mine.execute('INSERT INTO kept VALUES (1)')\n"
        "assert mine.execute('SELECT a FROM kept').fetchall() == [(1,)]\n"
        "assert apsw.memory_used() > 0\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
