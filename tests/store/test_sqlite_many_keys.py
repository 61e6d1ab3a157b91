"""Rows of many keys are found by one statement, as they are one by one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.core.writes import LoadKeys
from outlast.store.migrate import BOOKKEEPING, migrations_in
from outlast.store.sqlite import queries, reading
from outlast.store.sqlite.connection import Connection, connect

KEYS = [("default", "enqueue", f"k{n}") for n in range(20)] + [
    ("default", "enqueue", "nul\x00one"),
    ("default", "enqueue", 'quo"te'),
    ("default", "enqueue", "é∀😀"),
    ("default", "enqueue", "12"),
    ("default", "enqueue", "{}"),
]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    opened = connect(str(tmp_path / "a.db"))
    opened.execute(BOOKKEEPING)
    for migration in migrations_in("outlast.store.sqlite"):
        opened.execute(migration.sql)
    for key in KEYS:
        opened.execute("INSERT INTO dedup VALUES (?, ?, ?, ?, ?, 0, 0)", (*key, f"id of {key[2]}", ""))
    yield opened
    opened.close()


def test_many_keys_find_what_single_ones_find(connection: Connection) -> None:
    asked = (*reversed(KEYS), ("default", "enqueue", "missing"), ("other", "enqueue", "k1"), KEYS[0])
    page = reading.load(connection, LoadKeys(dedup=asked))
    assert [(row.namespace, row.scope, row.key) for row in page.dedup] == list(reversed(KEYS))
    assert [row.id for row in page.dedup] == [f"id of {key[2]}" for key in reversed(KEYS)]


def test_many_keys_without_a_nul_take_one_statement(connection: Connection) -> None:
    asked = tuple(key for key in KEYS if "\x00" not in key[2])
    page = reading.load(connection, LoadKeys(dedup=asked))
    assert [row.key for row in page.dedup] == [key[2] for key in asked]


@pytest.mark.parametrize("sql", [queries.RUNS_BY_ID, queries.TASKS_BY_ID, queries.DEDUP_BY_KEYS])
def test_many_keys_are_looked_up_by_their_index(connection: Connection, sql: str) -> None:
    plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("[]",)))
    assert "SEARCH" in plan
    assert "sqlite_autoindex" in plan or "PRIMARY KEY" in plan
