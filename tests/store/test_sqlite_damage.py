"""SQLite: a file that is damaged, gone, older, newer or somebody else's is refused with a reason, and left as it is."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import apsw
import pytest

from outlast.store.base import StoreError
from outlast.store.migrate import Migration, migrate, migrations_in
from outlast.store.sqlite import opening
from outlast.store.sqlite.connection import Connection, connect
from outlast.store.sqlite.opening import Schema, file_system_of, refuse_network_disk
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept
from tests.store.rows import page, run_row


def opened(path: Path) -> Kept:
    """Return an open store."""
    return Kept(lambda: SqliteStore(path, allow_network_disk=True))


def looked_at(path: Path) -> object:
    """Return a connection that only reads."""
    return opening.look_at(str(path))


def refusal_of(path: Path) -> StoreError:
    """Return why ``path`` cannot be opened."""
    with pytest.raises(StoreError) as caught:
        opened(path)
    assert caught.value.remedy
    return caught.value


def connect_plainly(path: Path) -> Connection:
    """Return a connection with SQLite's own settings."""
    return cast("Connection", apsw.Connection(str(path)))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A closed database of about 2 MB with three commits."""
    path = tmp_path / "shard.db"
    with opened(path) as kept:
        kept.claim()
        for n in range(3):
            rows = [run_row(f"run-{n}-{m}", started_at=n) for m in range(100)]
            kept.write(*rows, *(page(row.run_id, blob=os.urandom(3_000)) for row in rows))
    return path


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A database whose process died: three commits are in its -wal file only, and the lock file knows of them."""
    live = tmp_path / "live"
    live.mkdir()
    with opened(live / "shard.db") as kept:
        kept.claim()
        for n in range(3):
            kept.write(run_row(f"run-{n}"), page(f"run-{n}"))
        store = kept.store
        assert isinstance(store, SqliteStore)
        store._note()
        left = tmp_path / "left"
        shutil.copytree(live, left)
    return left / "shard.db"


def test_a_crashed_database_opens_with_everything_in_it(crashed: Path) -> None:
    assert Path(f"{crashed}-wal").stat().st_size > 0

    with opened(crashed) as kept:
        assert kept.claim().last_number == 3
        assert kept.find_run("run-2") is not None


def test_a_wal_file_that_was_removed_is_noticed(crashed: Path) -> None:
    Path(f"{crashed}-wal").unlink()

    refusal = refusal_of(crashed)

    assert refusal.code == "store_damaged"
    assert "-wal" in refusal.fact
    assert refusal_of(crashed).code == "store_damaged", "asking again does not make it good"


def test_a_wal_file_that_was_cut_is_noticed(crashed: Path) -> None:
    wal = Path(f"{crashed}-wal")
    os.truncate(wal, wal.stat().st_size // 2)

    assert refusal_of(crashed).code == "store_damaged"


def test_an_older_copy_in_the_files_place_is_noticed(database: Path, tmp_path: Path) -> None:
    shutil.copyfile(database, tmp_path / "older")
    with opened(database) as kept:
        kept.claim()
        kept.write(run_row("newer"))
    shutil.copyfile(tmp_path / "older", database)

    refusal = refusal_of(database)

    assert refusal.code == "store_damaged"
    assert "outlast restore" in refusal.remedy


def test_an_older_copy_is_taken_once_the_lock_file_was_removed_on_purpose(database: Path, tmp_path: Path) -> None:
    shutil.copyfile(database, tmp_path / "older")
    with opened(database) as kept:
        kept.claim()
        kept.write(run_row("newer"))
    shutil.copyfile(tmp_path / "older", database)
    Path(f"{database}.lock").unlink()

    with opened(database) as kept:
        assert kept.claim().last_number == 3


def test_a_missing_file_is_not_replaced_by_an_empty_one(database: Path) -> None:
    database.unlink()

    refusal = refusal_of(database)

    assert refusal.code == "store_damaged"
    assert "is missing" in refusal.fact
    assert not database.exists()


def test_an_empty_file_where_data_was_is_left_alone(database: Path) -> None:
    database.write_bytes(b"")

    refusal = refusal_of(database)

    assert refusal.code == "store_damaged"
    assert "is empty" in refusal.fact
    assert database.stat().st_size == 0


@pytest.mark.parametrize("look", [False, True], ids=["opened", "looked at"])
@pytest.mark.parametrize("empty", [False, True], ids=["missing", "empty"])
def test_a_log_without_its_database_is_left_alone_by_whoever_opens_it(
    crashed: Path, *, empty: bool, look: bool
) -> None:
    log, lock = Path(f"{crashed}-wal"), Path(f"{crashed}.lock")
    lock.unlink()
    crashed.unlink()
    if empty:
        crashed.touch()
    before = log.read_bytes()
    assert before

    if look:
        with pytest.raises(StoreError) as caught:
            opening.look_at(str(crashed))
        refusal = caught.value
    else:
        refusal = refusal_of(crashed)

    assert refusal.code == "store_damaged"
    assert f"left in {log}" in refusal.fact
    assert log.read_bytes() == before
    assert crashed.exists() == empty


@pytest.mark.parametrize("opens", [opened, looked_at])
def test_a_file_with_a_second_name_is_refused_under_both(database: Path, opens: Callable[[Path], object]) -> None:
    second = database.with_name("second.db")
    second.hardlink_to(database)

    for path in (database, second):
        with pytest.raises(StoreError, match=r"2 names \(hard links\)"):
            opens(path)
    second.unlink()
    with opened(database) as kept:
        assert kept.claim().last_number == 3


def test_a_new_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "shard.db").touch()

    with opened(tmp_path / "shard.db") as kept:
        assert kept.claim().last_number == 0


@pytest.mark.parametrize(
    "content", [b"not a database, but text\n" * 500, b"x", b"\0" * 8192, b"SQLite format 3\0" + b"x" * 9000]
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shard.db"
    path.write_bytes(content)

    refusal = refusal_of(path)

    assert refusal.code == "store_damaged"
    assert path.read_bytes() == content


def test_pages_overwritten_in_the_middle_are_noticed(database: Path) -> None:
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(os.urandom(16_384))
    content = database.read_bytes()

    refusal = refusal_of(database)

    assert refusal.code == "store_damaged"
    assert database.read_bytes() == content


def test_a_damaged_first_page_is_noticed(database: Path) -> None:
    with database.open("r+b") as file:
        file.write(b"\xff" * 4096)

    assert refusal_of(database).code == "store_damaged"


def test_a_cut_file_is_noticed(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2)

    assert refusal_of(database).code == "store_damaged"


def test_a_refusal_gives_the_lock_back(database: Path) -> None:
    content = database.read_bytes()
    database.write_bytes(b"garbage" * 1_000)
    refusal_of(database)

    database.write_bytes(content)

    with opened(database) as kept:
        assert kept.claim().last_number == 3


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    other = connect_plainly(path)
    other.execute("CREATE TABLE customers (name)").fetchall()
    other.close()

    refusal = refusal_of(path)

    assert refusal.code == "store_damaged"
    assert "another program" in refusal.fact
    again = connect_plainly(path)
    assert [row[0] for row in again.execute("SELECT name FROM sqlite_schema").fetchall()] == ["customers"]
    again.close()


def test_a_database_of_a_newer_version_is_left_alone(database: Path) -> None:
    connection = connect(str(database))
    connection.execute("INSERT INTO migrations VALUES (99, 'later', 'checksum', 0)")
    connection.close()

    refusal = refusal_of(database)

    assert refusal.code == "store_newer"
    assert "99" in refusal.fact
    assert str(len(migrations_in("outlast.store.sqlite"))) in refusal.fact


def test_a_database_made_by_other_migrations_is_refused(database: Path) -> None:
    connection = connect(str(database))
    connection.execute("UPDATE migrations SET checksum = 'other' WHERE number = 1")
    connection.close()

    assert refusal_of(database).code == "store_damaged"


def test_migrations_are_numbered_densely_from_one() -> None:
    numbers = [migration.number for migration in migrations_in("outlast.store.sqlite")]

    assert numbers == list(range(1, len(numbers) + 1))


def test_a_migration_copies_the_file_before_it_changes_it(database: Path) -> None:
    connection = connect(str(database))
    schema = Schema(connection, str(database))
    ours = migrations_in("outlast.store.sqlite")
    later = Migration(number=len(ours) + 1, name="later", sql="CREATE TABLE later (x INTEGER) STRICT")

    done = migrate(schema, [*ours, later], keep_copy=schema.keep_copy)

    connection.close()
    copy = connect(f"{database}.before-{later.number}")
    assert done == [later.number]
    assert copy.execute("SELECT count(*) FROM runs").fetchall() == [(300,)]
    assert copy.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'later'").fetchall() == [(0,)]
    copy.close()


def test_a_migration_that_fails_leaves_the_schema_as_it_was(database: Path) -> None:
    connection = connect(str(database))
    schema = Schema(connection, str(database))
    ours = migrations_in("outlast.store.sqlite")
    broken = Migration(
        number=len(ours) + 1, name="broken", sql="CREATE TABLE later (x INTEGER) STRICT; SELECT nonsense"
    )

    with pytest.raises(apsw.Error):
        migrate(schema, [*ours, broken])

    assert len(schema.applied()) == len(ours)
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'later'").fetchall() == [(0,)]
    connection.close()


MOUNTS = """\
/dev/root / ext4 rw 0 0
proc /proc proc rw 0 0
server:/export /mnt/share nfs4 rw 0 0
//server/share /mnt/win\\040dows cifs rw 0 0
/dev/sdb /mnt/share/local xfs rw 0 0
tmpfs /mnt/hidden tmpfs rw 0 0
host /mnt/hidden 9p rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/shard.db", "ext4"),
        ("/mnt/share/a/shard.db", "nfs4"),
        ("/mnt/shared/shard.db", "ext4"),
        ("/mnt/win dows/shard.db", "cifs"),
        ("/mnt/share/local/shard.db", "xfs"),
        ("/mnt/hidden/shard.db", "9p"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)

    assert file_system_of(path, mounts=str(mounts)) == kind


def test_a_network_file_system_is_refused_by_name(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)

    with pytest.raises(StoreError) as caught:
        refuse_network_disk("/mnt/share/shard.db", mounts=str(mounts))

    assert "nfs4" in caught.value.fact
    assert "allow_network_disk" in caught.value.remedy
    refuse_network_disk("/var/lib/shard.db", mounts=str(mounts))
    refuse_network_disk("/mnt/share/shard.db", mounts=str(tmp_path / "none"))
