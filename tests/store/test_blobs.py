"""Payloads beside the database: whole or damaged, never half; swept only when old and unreferenced."""

import asyncio
import errno
import hashlib
import os
import random
import resource
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from obstore.store import LocalStore, MemoryStore

import outlast.store.blobs
from outlast.core.errors import InvariantBroken
from outlast.core.units import DAY
from outlast.server.places import BlobPlace, blobs_at
from outlast.store.base import BlobStore, StoreError
from outlast.store.blobs import FileBlobStore
from outlast.store.memory.blobs import MemoryBlobStore
from outlast.store.objects import ObjectBlobStore
from outlast.store.owning import OWNER

T = TypeVar("T")
DATA = random.Random(5).randbytes(300_000)
NOTHING: set[str] = set()
DIGEST = hashlib.sha256(DATA).hexdigest()


async def us() -> str:
    """Return the id of the store whose the blobs are."""
    return "us"


def owned(folder: Path, owner: str) -> FileBlobStore:
    """Return the blobs in ``folder`` as the store with the id ``owner`` has them."""

    async def ours() -> str:
        return owner

    return FileBlobStore(folder, owner=ours)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives."""
    return asyncio.run(work)


@pytest.fixture(params=["memory", "files", "files elsewhere", "objects in memory", "objects in files", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """A blob store."""
    if request.param == "memory":
        return MemoryBlobStore()
    if request.param == "files":
        return FileBlobStore(tmp_path / "blobs")
    if request.param == "files elsewhere":
        return FileBlobStore(tmp_path / "blobs", owner=us)
    if request.param == "objects in memory":
        return ObjectBlobStore(MemoryStore(), place="memory", owner=us)
    if request.param == "objects in files":
        return ObjectBlobStore(LocalStore(tmp_path), place="files", owner=us)
    place: BlobPlace = request.getfixturevalue("s3")
    return blobs_at(place, beside=str(tmp_path / "beside"), owner=us)


@pytest.fixture
def files(tmp_path: Path) -> FileBlobStore:
    """A blob store of files."""
    return FileBlobStore(tmp_path / "blobs")


def path_of(files: FileBlobStore) -> Path:
    """Return where the blob of these tests is."""
    return files.folder / DIGEST[:2] / DIGEST


@pytest.mark.parametrize("data", [b"", b"\0", DATA], ids=["empty", "nul", "large"])
def test_a_blob_comes_back_as_it_was(blobs: BlobStore, data: bytes) -> None:
    digest = hashlib.sha256(data).hexdigest()

    run(blobs.put(digest, data))

    assert run(blobs.get(digest)) == data


def test_a_blob_may_be_put_twice(blobs: BlobStore) -> None:
    run(blobs.put(DIGEST, DATA))
    run(blobs.put(DIGEST, DATA))

    assert run(blobs.get(DIGEST)) == DATA


def test_a_blob_that_is_missing_is_damage(blobs: BlobStore) -> None:
    with pytest.raises(StoreError) as caught:
        run(blobs.get(DIGEST))

    assert caught.value.code == "store_damaged"


def test_data_under_another_hash_is_not_kept(blobs: BlobStore) -> None:
    with pytest.raises(InvariantBroken):
        run(blobs.put(DIGEST, b"other"))

    with pytest.raises(StoreError):
        run(blobs.get(DIGEST))


@pytest.mark.parametrize(
    "digest", ["", "../../etc/passwd", "a" * 63, DIGEST.upper(), f"{DIGEST}/", "é" * 64, f"{DIGEST}\n"]
)
def test_a_name_that_is_no_hash_finds_nothing(blobs: BlobStore, digest: str) -> None:
    run(blobs.put(DIGEST, DATA))

    with pytest.raises(StoreError) as caught:
        run(blobs.get(digest))

    assert caught.value.code == "store_damaged"


@pytest.mark.parametrize("content", [b"", DATA[:-1], DATA + b"x", DATA[:-1] + b"\0\0"[:1]])
def test_a_file_whose_content_changed_is_damage(files: FileBlobStore, content: bytes) -> None:
    run(files.put(DIGEST, DATA))
    path_of(files).write_bytes(content if content != DATA else content[::-1])

    with pytest.raises(StoreError) as caught:
        run(files.get(DIGEST))

    assert caught.value.code == "store_damaged"


def test_many_puts_of_one_blob_at_once_leave_it_whole(blobs: BlobStore) -> None:
    async def put_all() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(blobs.put(DIGEST, DATA))

    run(put_all())

    assert run(blobs.get(DIGEST)) == DATA


def test_what_is_young_or_referred_to_stays_whatever_keeps_it(blobs: BlobStore) -> None:
    run(blobs.put(DIGEST, DATA))

    assert run(blobs.sweep(NOTHING, now=0)) == 0
    assert run(blobs.sweep({DIGEST}, now=2**62)) == 0
    assert run(blobs.get(DIGEST)) == DATA


def test_putting_again_repairs_a_damaged_file(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))
    path_of(files).write_bytes(b"damaged")

    run(files.put(DIGEST, DATA))

    assert run(files.get(DIGEST)) == DATA


def test_only_whole_files_have_a_name(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))

    assert list(files.folder.glob("*/*")) == [path_of(files)]


def test_many_may_put_the_same_blob_at_once(files: FileBlobStore) -> None:
    async def put_all() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(files.put(DIGEST, DATA))

    run(put_all())

    assert run(files.get(DIGEST)) == DATA
    assert len(list(files.folder.glob("*/*"))) == 1


def test_a_blob_that_finds_no_room_leaves_nothing_behind(files: FileBlobStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StoreError) as caught:
            run(files.put(DIGEST, DATA))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.code == "store_full"
    assert list(files.folder.glob("*/*")) == []
    run(files.put(DIGEST, DATA))
    assert run(files.get(DIGEST)) == DATA


def age(files: FileBlobStore) -> int:
    """Return the instant at which the blob was put."""
    return path_of(files).stat().st_mtime_ns


def test_an_old_blob_that_nothing_refers_to_is_swept(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))

    assert run(files.sweep(NOTHING, now=age(files) + DAY + 1)) == 1
    assert not path_of(files).exists()


def test_a_young_blob_is_not_swept(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))

    assert run(files.sweep(NOTHING, now=age(files) + DAY)) == 0
    assert run(files.get(DIGEST)) == DATA


def test_a_blob_that_is_referred_to_is_not_swept(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))

    assert run(files.sweep({DIGEST}, now=age(files) + 400 * DAY)) == 0
    assert run(files.get(DIGEST)) == DATA


def test_a_blob_put_again_is_young_again(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))
    old = age(files) - 2 * DAY
    os.utime(path_of(files), ns=(old, old))

    run(files.put(DIGEST, DATA))

    assert run(files.sweep(NOTHING, now=old + DAY + 1)) == 0
    assert run(files.get(DIGEST)) == DATA


def test_what_a_crash_left_half_written_is_swept(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))
    part = path_of(files).with_name(f"{DIGEST}.1.0.part")
    part.write_bytes(b"half")

    assert run(files.sweep({DIGEST}, now=age(files) + 2 * DAY)) == 1
    assert not part.exists()


def test_the_blobs_that_are_old_enough_are_named(files: FileBlobStore) -> None:
    run(files.put(DIGEST, DATA))
    path_of(files).with_name(f"{DIGEST}.1.0.part").write_bytes(b"half")

    assert run(files.aged(now=age(files) + DAY)) == set()
    assert run(files.aged(now=age(files) + 2 * DAY)) == {DIGEST}


def test_a_store_is_unused_until_something_is_put(blobs: BlobStore) -> None:
    before = blobs.unused
    run(blobs.put(DIGEST, DATA))

    assert (before, blobs.unused) == (not isinstance(blobs, ObjectBlobStore), False)


def test_a_file_that_may_not_be_read_is_no_damage(files: FileBlobStore) -> None:
    path_of(files).mkdir(parents=True)

    with pytest.raises(StoreError) as caught:
        run(files.get(DIGEST))

    assert caught.value.code == "unavailable"


def test_every_folder_above_a_blob_is_synced_once_in_each_life(
    files: FileBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_of(files).parent.mkdir(parents=True)  # by a process that died before it synced them
    synced: list[Path] = []
    monkeypatch.setattr(outlast.store.blobs, "_sync_folder", synced.append)

    run(files.put(DIGEST, DATA))
    run(files.put(DIGEST, DATA))

    inside = path_of(files).parent
    assert synced == [files.folder, files.folder.parent, inside, inside]


def test_a_claim_that_is_just_being_written_is_not_taken_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / OWNER).touch()
    late = owned(tmp_path, "late")

    run(late.put(DIGEST, DATA))

    assert (tmp_path / OWNER).read_bytes() == b""
    assert run(late.sweep(NOTHING, now=2**62)) == 0
    assert "remove outlast-owner there and start this one again" in caplog.text


def test_of_stores_that_claim_a_folder_at_once_one_owns_it(tmp_path: Path) -> None:
    for number in range(20):
        stores = [owned(tmp_path / str(number), f"store-{place}") for place in range(6)]

        async def put_all(stores: list[FileBlobStore]) -> list[bool]:
            await asyncio.gather(*(store.put(DIGEST, DATA) for store in stores))
            return [await store.owns() for store in stores]

        assert run(put_all(stores)).count(True) == 1
        assert [path.name for path in stores[0].folder.iterdir() if path.is_file()] == [OWNER]


def test_a_folder_is_claimed_where_files_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    ours, others = owned(tmp_path, "ours"), owned(tmp_path, "others")

    run(ours.put(DIGEST, DATA))
    run(others.put(DIGEST, DATA))

    assert (run(ours.owns()), run(others.owns())) == (True, False)
