"""SQLite: one process owns a file, the others are told who and where."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.core.units import Fence
from outlast.store.base import StoreError
from outlast.store.sqlite.lock import FileLock, Holder, lock_path_of, read_holder
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept
from tests.store.rows import run_row

HOLD = """
import asyncio, sys
from outlast.store.sqlite.store import SqliteStore

async def hold():
    store = SqliteStore(sys.argv[1], allow_network_disk=True)
    await store.open()
    claim = await store.claim(owner="other", now=1, lease_until=0)
    store.announce("http://127.0.0.1:7777")
    print(claim.fence.epoch, flush=True)
    sys.stdin.read()

asyncio.run(hold())
"""


def hold(path: Path) -> "subprocess.Popen[str]":
    """Return a process that has ``path`` open and claimed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "1"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    """Kill the process as hard as it goes, and wait for its end."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def opened(path: Path) -> Kept:
    """Return an open store."""
    return Kept(lambda: SqliteStore(path, allow_network_disk=True))


def test_a_second_process_is_told_who_has_the_file_and_where(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    process = hold(path)

    with pytest.raises(StoreError) as caught:
        opened(path)

    holder = read_holder(str(path))
    end(process)
    assert caught.value.code == "store_locked"
    assert str(process.pid) in caught.value.fact
    assert "http://127.0.0.1:7777" in caught.value.fact
    assert caught.value.remedy
    assert holder is not None
    assert (holder.pid, holder.address) == (process.pid, "http://127.0.0.1:7777")


def test_a_killed_holder_leaves_the_file_free_and_its_epoch_behind(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    end(hold(path))

    with opened(path) as kept:
        assert kept.claim("next").fence == Fence(1, 2)


def test_a_link_to_the_file_is_another_name_of_one_store_and_not_another_store(tmp_path: Path) -> None:
    path, link = tmp_path / "shard.db", tmp_path / "link.db"
    link.symlink_to(path)
    with Kept(lambda: SqliteStore(link, allow_network_disk=True)):
        assert path.exists()
        for name in (path, link):
            holder = read_holder(str(name))
            assert holder is not None
            assert holder.pid == os.getpid()
            with pytest.raises(StoreError) as caught:
                Kept(lambda name=name: SqliteStore(name, allow_network_disk=True))
            assert caught.value.code == "store_locked"


def test_a_second_store_in_one_process_is_refused_too(tmp_path: Path) -> None:
    with opened(tmp_path / "shard.db") as kept:
        with pytest.raises(StoreError) as caught:
            opened(tmp_path / "shard.db")
        assert caught.value.code == "store_locked"
        kept.claim()
        kept.write(run_row())


def test_nobody_holds_a_file_that_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with opened(path):
        assert read_holder(str(path)) is not None

    assert read_holder(str(path)) is None
    assert read_holder(str(tmp_path / "none.db")) is None


def test_looking_at_the_holder_does_not_take_the_lock_away(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with opened(path) as kept:
        for _ in range(20):
            assert read_holder(str(path)) is not None
        kept.claim()
        with pytest.raises(StoreError):
            opened(path)


def test_a_forked_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from outlast.store.sqlite.lock import FileLock; "
        "lock = FileLock(sys.argv[1]); lock.acquire(); child = os.fork(); "
        "print(child, flush=True) if child else time.sleep(60)"
    )
    path = tmp_path / "shard.db"
    parent = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.wait()

    lock = FileLock(str(path))
    lock.acquire()
    lock.release()

    os.kill(child, signal.SIGKILL)
    parent.stdout.close()


def test_a_lock_file_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        opened(tmp_path / "no folder" / "shard.db")

    assert caught.value.code == "unavailable"
    assert "folder" in caught.value.remedy


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"pid": "x"}', b"\0" * 512])
def test_a_lock_file_with_other_content_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shard.db"
    Path(lock_path_of(str(path))).write_bytes(content)

    lock = FileLock(str(path))
    before = lock.acquire()
    lock.release()

    assert before == Holder()


def test_the_lock_file_tells_how_far_the_database_went(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with opened(path) as kept:
        kept.claim()
        kept.write(run_row())
        kept.write(run_row("run-2"))

    lock = FileLock(str(path))
    before = lock.acquire()
    lock.release()

    assert (before.database, before.incarnation, before.number) == (True, 1, 2)


def test_a_store_that_may_lose_commits_does_not_vouch_for_them(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with Kept(lambda: SqliteStore(path, synchronous="NORMAL", allow_network_disk=True)) as kept:
        kept.claim()
        kept.write(run_row())

    lock = FileLock(str(path))
    before = lock.acquire()
    lock.release()

    assert (before.database, before.number) == (True, 0)
