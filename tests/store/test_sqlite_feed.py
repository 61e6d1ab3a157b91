"""The feed in a file: it begins with the migration, outlives the process, and belongs to its file."""

import shutil
from pathlib import Path
from typing import cast

import apsw

from outlast.core.feed import Changes, Place, rows_of
from outlast.store.base import FeedFound
from outlast.store.sqlite.connection import Connection
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept
from tests.store.rows import page, run_row, task_row


def opened(path: Path) -> Kept:
    """Return the store at ``path``, claimed."""
    kept = Kept(lambda: SqliteStore(path, allow_network_disk=True))
    kept.claim()
    return kept


def feed_of(kept: Kept) -> FeedFound:
    """Return the whole feed of the default namespace."""
    return kept.run(kept.store.read_feed("default", after=Place(0), events_max=100, bytes_max=10**6))


def enqueue(kept: Kept, task_id: str) -> None:
    """Commit a task with what the feed tells of it."""
    batch = kept.next_batch(task_row(task_id))
    batch.feed = rows_of(batch.number, batch.at, {"default": Changes(enqueued=[task_id])})
    kept.commit(batch)


def test_the_feed_of_an_older_file_begins_with_the_first_commit_after_its_migration(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with opened(path) as kept:
        kept.write(run_row(), page())
    connection = cast("Connection", apsw.Connection(str(path)))
    connection.execute("DELETE FROM migrations WHERE number >= 4; DROP TABLE feed; DROP TABLE feed_floors")
    connection.execute("DROP TABLE standing; DROP TABLE intake")
    connection.execute("DELETE FROM meta WHERE key = 'identity'")
    connection.close()
    with opened(path) as kept:
        before = feed_of(kept)
        enqueue(kept, "task-1")
        after = feed_of(kept)

    assert (before.entries, before.last, before.floor) == ([], 1, Place(0))
    assert [(entry.number, entry.id) for entry in after.entries] == [(2, "task-1")]
    assert before.identity == after.identity > 0


def test_the_feed_and_its_floor_are_there_after_the_file_was_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with opened(path) as kept:
        for n in range(3):
            enqueue(kept, f"task-{n}")
        kept.run(kept.store.forget_feed("default", before=0, through=1, rows_max=10))
        here = feed_of(kept)
    with opened(path) as kept:
        again = feed_of(kept)

    assert again == here
    assert again.floor == Place(1, 1)


def test_two_files_are_told_apart_and_a_copy_is_not(tmp_path: Path) -> None:
    with opened(tmp_path / "one.db") as kept:
        one = feed_of(kept).identity
    shutil.copyfile(tmp_path / "one.db", tmp_path / "copy.db")
    with opened(tmp_path / "two.db") as kept:
        two = feed_of(kept).identity
    with opened(tmp_path / "copy.db") as kept:
        copy = feed_of(kept).identity

    assert one == copy != two
