"""SQLite: what becomes of a commit when the disk or another program gets in its way."""

import logging
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from outlast.core.writes import CommitOutcome
from outlast.store.base import RunFilter, StoreError
from outlast.store.sqlite.connection import Connection
from outlast.store.sqlite.store import SqliteStore
from tests.end_to_end.cut_disk import CutDisk, CutVfs, OpenFile, Tally
from tests.store.kept import Kept
from tests.store.rows import page, run_row

LARGE = random.Random(3).randbytes(100_000)


@pytest.fixture
def kept(tmp_path: Path) -> "Any":
    """An open, claimed store in a file."""
    with Kept(lambda: SqliteStore(tmp_path / "shard.db", allow_network_disk=True)) as under_test:
        under_test.claim()
        yield under_test


def writer_of(kept: Kept) -> Connection:
    """Return the store's own writing connection."""
    store = kept.store
    assert isinstance(store, SqliteStore)
    assert store._writer is not None
    return store._writer


def fill(kept: Kept) -> int:
    """Let the database have no page more than it has; return the bound it had."""
    rows = writer_of(kept).execute("PRAGMA max_page_count").fetchall()
    writer_of(kept).execute("PRAGMA max_page_count = 1").fetchall()
    return int(rows[0][0])


def test_a_full_database_keeps_nothing_of_the_batch(kept: Kept) -> None:
    kept.write(run_row())
    fill(kept)

    outcome = kept.commit(kept.next_batch(run_row("run-2"), *(page("run-2", n, blob=LARGE) for n in range(1, 30))))

    assert outcome is CommitOutcome.FULL
    assert kept.find_run("run-2") is None
    assert kept.run(kept.store.read_history("run-2", first_event_id=1, events_max=9)) == []
    assert kept.find_run("run-1") is not None


def test_a_store_that_was_full_goes_on_when_there_is_room_again(kept: Kept) -> None:
    bound = fill(kept)
    batch = kept.next_batch(run_row("run-2"), *(page("run-2", n, blob=LARGE) for n in range(1, 30)))
    for _ in range(3):
        assert kept.commit(batch) is CommitOutcome.FULL

    writer_of(kept).execute(f"PRAGMA max_page_count = {bound}").fetchall()

    assert kept.commit(batch) is CommitOutcome.DONE
    assert len(kept.run(kept.store.read_history("run-2", first_event_id=1, events_max=99))) == 29


def test_a_full_database_is_logged_once_in_a_while(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    fill(kept)
    batch = kept.next_batch(run_row("run-2"), *(page("run-2", n, blob=LARGE) for n in range(1, 30)))

    with caplog.at_level(logging.DEBUG, "outlast.store"):
        for _ in range(20):
            kept.commit(batch)

    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is None
    store = kept.store
    assert isinstance(store, SqliteStore)
    assert "full" in store.last_fault


LIMITED = """
import asyncio, resource, sys
from outlast.core.units import Fence
from outlast.store.sqlite.store import SqliteStore
from tests.store.rows import batch_of, page, run_row

async def main():
    store = SqliteStore(sys.argv[1], allow_network_disk=True)
    await store.open()
    claim = await store.claim(owner="a", now=1, lease_until=0)
    print(await store.commit(batch_of(run_row(), fence=claim.fence, number=1)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    pages = [page("run-1", n, blob=__import__("os").urandom(100_000)) for n in range(1, 40)]
    batch = batch_of(*pages, fence=claim.fence, number=2)
    print(await store.commit(batch))
    print(len(await store.read_history("run-1", first_event_id=1, events_max=99)))
    print(await store.commit(batch_of(run_row("small"), fence=claim.fence, number=2)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    batch.number = 3
    print(await store.commit(batch))
    await store.close()

asyncio.run(main())
"""


def test_a_file_that_may_not_grow_is_a_full_disk_and_the_store_goes_on_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"

    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )

    assert done.stdout.split() == ["done", "full", "0", "done", "done"]
    with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
        assert kept.claim().last_number == 3
        assert len(kept.run(kept.store.read_history("run-1", first_event_id=1, events_max=99))) == 39


def test_a_writer_that_another_program_keeps_out_has_surely_not_written(kept: Kept, tmp_path: Path) -> None:
    writer_of(kept).execute("PRAGMA busy_timeout = 20").fetchall()
    other = cast("Connection", apsw.Connection(str(tmp_path / "shard.db")))
    other.execute("BEGIN IMMEDIATE").fetchall()

    outcome = kept.commit(kept.next_batch(run_row()))

    assert outcome is CommitOutcome.LOCKED
    other.execute("ROLLBACK").fetchall()
    other.close()
    kept.write(run_row())
    assert kept.read_run().run_id == "run-1"


def test_a_claim_that_another_program_keeps_out_says_so(kept: Kept, tmp_path: Path) -> None:
    writer_of(kept).execute("PRAGMA busy_timeout = 20").fetchall()
    other = cast("Connection", apsw.Connection(str(tmp_path / "shard.db")))
    other.execute("BEGIN IMMEDIATE").fetchall()

    with pytest.raises(StoreError) as caught:
        kept.claim("b")

    other.execute("ROLLBACK").fetchall()
    other.close()
    assert caught.value.code == "unavailable"
    assert "Another program" in caught.value.fact
    kept.write(run_row())


def test_readers_of_another_program_keep_nobody_out(kept: Kept, tmp_path: Path) -> None:
    kept.write(run_row())
    other = cast("Connection", apsw.Connection(str(tmp_path / "shard.db")))
    other.execute("BEGIN").fetchall()
    assert other.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]

    kept.write(run_row("run-2"))

    assert other.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
    other.execute("COMMIT").fetchall()
    other.close()


class FailingSync(OpenFile):
    """A file whose sync fails while ``broken`` is set on its class."""

    broken = False

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        if type(self).broken:
            error = apsw.IOError("the disk is gone")
            error.result, error.extendedresult = apsw.SQLITE_IOERR, apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
            raise error
        super().xSync(flags)


class FailingVfs(CutVfs):
    """A disk whose files may fail to sync."""

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        file = super().xOpen(name, flags)
        return FailingSync(file._disk, file._file)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_a_sync_that_failed_nothing_is_built_on_the_file_until_it_is_opened_again() -> None:
    disk = CutDisk(random.Random(1), Tally(), files={}, cut_at=-1)
    vfs = FailingVfs("failing-sync", disk)
    FailingSync.broken = False
    with Kept(lambda: SqliteStore("/disk/shard.db", vfs="failing-sync")) as kept:
        kept.claim()
        kept.write(run_row())
        FailingSync.broken = True

        assert kept.commit(kept.next_batch(run_row("run-2"))) is CommitOutcome.UNKNOWN

        FailingSync.broken = False
        assert kept.commit(kept.next_batch(run_row("run-2"))) is CommitOutcome.UNKNOWN
        with pytest.raises(StoreError) as caught:
            kept.claim("b")
        assert "sync" in caught.value.fact

        kept.reopen()
        claim = kept.claim("b")
        assert claim.last_number in {1, 2}
        kept.write(run_row("run-3"))
        assert len(kept.run(kept.store.list_runs(RunFilter(namespace="default"))).rows) == claim.last_number + 1
    vfs.unregister()


def test_a_store_over_a_vfs_reads_in_the_writers_thread() -> None:
    disk = CutDisk(random.Random(1), Tally(), files={}, cut_at=-1)
    vfs = CutVfs("plain", disk)
    with Kept(lambda: SqliteStore("/disk/shard.db", vfs="plain")) as kept:
        kept.claim()
        kept.write(run_row())

        assert kept.store.reads_inline is False
        assert kept.read_run().run_id == "run-1"
    vfs.unregister()


def test_the_wal_is_brought_into_the_file_before_it_grows_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with Kept(lambda: SqliteStore(path, allow_network_disk=True, checkpoint_pages=50)) as kept:
        kept.claim()
        for n in range(60):
            kept.write(run_row(f"run-{n}"), page(f"run-{n}", blob=LARGE))

        assert Path(f"{path}-wal").stat().st_size < 250 * 8_300
        assert len(kept.run(kept.store.list_runs(RunFilter(namespace="default", limit=99))).rows) == 60


def test_a_wal_under_load_begins_anew_while_a_reader_of_ours_looks_on(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with Kept(lambda: SqliteStore(path, allow_network_disk=True, checkpoint_pages=30)) as kept:
        kept.claim()
        for n in range(150):
            kept.write(run_row(f"run-{n}"), page(f"run-{n}", blob=LARGE))
            assert kept.read_run(f"run-{n}").run_id == f"run-{n}"

        written = sum(
            row.count
            for n in range(150)
            for row in kept.run(kept.store.read_history(f"run-{n}", first_event_id=1, events_max=9))
        )
        assert written == 150
        assert Path(f"{path}-wal").stat().st_size < 300 * 8_300 < path.stat().st_size


def test_a_read_that_takes_too_long_is_ended_with_a_reason(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.write(*(run_row(f"run-{n}", type="Order") for n in range(20_000)))
    monkeypatch.setattr("outlast.store.sqlite.store.READ_SECONDS_MAX", -1.0)

    with pytest.raises(StoreError) as caught:
        kept.run(kept.store.list_runs(RunFilter(namespace="default", status="completed")))

    monkeypatch.undo()
    assert caught.value.code == "limit_exceeded"
    assert kept.run(kept.store.list_runs(RunFilter(namespace="default", status="completed"))).rows == []


def test_an_orderly_end_leaves_one_file_with_everything_in_it(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
        kept.claim()
        kept.write(run_row())

    assert sorted(one.name for one in tmp_path.iterdir()) == ["shard.db", "shard.db.lock"]
