"""A database from before the freshness mark learns it when its schema is brought up."""

from pathlib import Path
from typing import cast

import apsw
import pytest

from outlast.core.shard.freshness import rank_of, time_of
from outlast.store.sqlite.connection import Connection
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept
from tests.store.rows import Row, dedup, run_row, task_row

OLD = "01890a5d-ac96-774b-bcce-b302099a8057"
NEW = "0198F3C2-7b1f-7abc-8def-0123456789ab"


def mark_of(path: Path, *rows: Row) -> int | None:
    """Store ``rows``, take the database back to before the mark, and return what opening it again finds."""
    with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
        kept.claim()
        kept.write(*rows)
    connection = cast("Connection", apsw.Connection(str(path)))
    connection.execute("DELETE FROM migrations WHERE number >= 3; DELETE FROM counters WHERE name = 'freshest'")
    connection.execute(
        "DROP TABLE standing; DROP TABLE intake; DROP TABLE feed; DROP TABLE feed_floors; DELETE FROM meta WHERE key = 'identity'"
    )
    connection.close()
    with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
        return kept.claim().counters.get(("", "freshest"))


@pytest.mark.parametrize(
    "row",
    [
        run_row(NEW, workflow_id="w"),
        run_row("r", workflow_id=f"w-{NEW}"),
        task_row(NEW),
        dedup(NEW),
    ],
    ids=["run", "workflow made from a key", "task", "request"],
)
def test_the_mark_is_the_highest_rank_of_what_is_stored(tmp_path: Path, row: Row) -> None:
    assert mark_of(tmp_path / "old.db", task_row(OLD), row) == time_of(rank_of(NEW))


def test_names_of_other_shapes_make_no_mark(tmp_path: Path) -> None:
    assert mark_of(tmp_path / "old.db", task_row("by hand"), dedup("zzzzzzzz-zzzz-7zzz-zzzz-zzzzzzzzzzzz")) is None
