"""Whose a place for payloads is: who writes there first; nobody else sweeps, and no copy of a store takes it."""

import asyncio
import hashlib
import logging
import os
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
import pytest

from outlast.core.units import DAY
from outlast.server.checkup import Finding, check_blobs
from outlast.server.places import BlobPlace
from outlast.server.settings import sources_of
from outlast.server.stores import Stores, open_stores, owner_of
from outlast.store.base import BlobStore
from outlast.store.blobs import FileBlobStore
from outlast.store.objects import ObjectBlobStore
from outlast.store.owning import OWNER
from tests.store.cluster import Cluster
from tests.store.s3 import objects_at

T = TypeVar("T")
DATA = b"a large order" * 30_000
DIGEST = hashlib.sha256(DATA).hexdigest()
KEY = f"{DIGEST[:2]}/{DIGEST}"
OTHER = b"another order" * 30_000
OTHER_DIGEST = hashlib.sha256(OTHER).hexdigest()
NOTHING: set[str] = set()
FAR = 2**62


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives."""
    return asyncio.run(work)


@pytest.fixture(params=["s3", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> BlobPlace:
    """A place that several stores can name."""
    if request.param == "folder":
        return BlobPlace(f"file://{tmp_path}/payloads")
    found: BlobPlace = request.getfixturevalue("s3")
    return found


def made(path: Path, place: BlobPlace) -> BlobStore:
    """Return the payloads of a store at ``path`` that has been opened once."""

    async def opened(stores: Stores) -> None:
        await stores.store.open()
        await stores.store.close()

    path.parent.mkdir(exist_ok=True)
    stores = open_stores(f"sqlite:///{path}", place)
    run(opened(stores))
    return stores.blobs


def kept_owner(place: BlobPlace) -> str:
    """Return what says there whose the place is, empty for nothing."""
    try:
        if place.url.startswith("file://"):
            return (Path(place.url.removeprefix("file://")) / OWNER).read_text()
        return bytes(obstore.get(objects_at(place), OWNER).bytes()).decode()
    except FileNotFoundError:
        return ""


def forget_owner(place: BlobPlace) -> None:
    """Remove what says whose the place is, as the warning tells."""
    if place.url.startswith("file://"):
        (Path(place.url.removeprefix("file://")) / OWNER).unlink()
    else:
        obstore.delete(objects_at(place), OWNER)


def test_a_place_is_passed_on_by_its_owner_alone(place: BlobPlace, tmp_path: Path) -> None:
    first, second = made(tmp_path / "a.db", place), made(tmp_path / "b.db", place)
    assert isinstance(first, FileBlobStore | ObjectBlobStore)
    assert isinstance(second, FileBlobStore | ObjectBlobStore)
    run(first.put(DIGEST, DATA))

    assert run(second.pass_on("somebody")) is False
    assert run(first.pass_on(owner_of(str(tmp_path / "b.db")))) is True

    assert run(second.owns())
    assert not run(first.owns())
    assert run(second.get(DIGEST)) == DATA


def test_who_puts_first_owns_a_place_and_nobody_else_sweeps_it(place: BlobPlace, tmp_path: Path) -> None:
    ours, others = made(tmp_path / "ours.db", place), made(tmp_path / "others.db", place)
    run(ours.put(DIGEST, DATA))
    run(others.put(OTHER_DIGEST, OTHER))

    assert run(others.aged(now=FAR)) == set()
    assert run(others.sweep(NOTHING, now=FAR)) == 0
    assert run(others.get(DIGEST)) == DATA
    assert run(others.get(OTHER_DIGEST)) == OTHER
    again = made(tmp_path / "ours.db", place)
    assert run(again.aged(now=FAR)) == {DIGEST, OTHER_DIGEST}, "the same store owns it in its next life"
    assert run(again.sweep(NOTHING, now=FAR)) == 2


def test_a_sweep_takes_no_place_and_removes_nothing_from_one_without_owner(place: BlobPlace, tmp_path: Path) -> None:
    ours, others = made(tmp_path / "ours.db", place), made(tmp_path / "others.db", place)
    run(ours.put(DIGEST, DATA))
    forget_owner(place)

    assert run(others.sweep(NOTHING, now=FAR)) == 0
    assert kept_owner(place) == ""
    assert run(ours.get(DIGEST)) == DATA


def test_a_place_whose_owner_was_removed_is_taken_by_the_next_payload(place: BlobPlace, tmp_path: Path) -> None:
    gone, ours = made(tmp_path / "gone.db", place), made(tmp_path / "ours.db", place)
    run(gone.put(DIGEST, DATA))
    run(ours.put(OTHER_DIGEST, OTHER))
    forget_owner(place)
    run(ours.sweep(NOTHING, now=FAR))
    run(ours.put(OTHER_DIGEST, OTHER))

    assert kept_owner(place) == owner_of(str(tmp_path / "ours.db"))
    assert run(ours.sweep({OTHER_DIGEST}, now=FAR)) == 1


def test_a_copy_of_a_stores_whole_folder_does_not_own_its_place(place: BlobPlace, tmp_path: Path) -> None:
    ours = made(tmp_path / "ours" / "outlast.db", place)
    run(ours.put(DIGEST, DATA))
    shutil.copytree(tmp_path / "ours", tmp_path / "copy")
    copy = made(tmp_path / "copy" / "outlast.db", place)

    run(copy.put(OTHER_DIGEST, OTHER))

    assert owner_of(str(tmp_path / "copy" / "outlast.db")) != owner_of(str(tmp_path / "ours" / "outlast.db"))
    assert run(copy.sweep(NOTHING, now=FAR)) == 0
    assert run(copy.get(DIGEST)) == DATA


def test_a_store_that_is_renamed_keeps_its_place(tmp_path: Path) -> None:
    place = BlobPlace(f"file://{tmp_path}/payloads")
    run(made(tmp_path / "a.db", place).put(DIGEST, DATA))
    (tmp_path / "a.db").rename(tmp_path / "b.db")

    assert run(made(tmp_path / "b.db", place).sweep(NOTHING, now=FAR)) == 1


def test_it_is_said_once_that_a_place_is_another_stores(
    place: BlobPlace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(made(tmp_path / "ours.db", place).put(DIGEST, DATA))
    others = made(tmp_path / "others.db", place)

    with caplog.at_level(logging.WARNING, "outlast.store"):
        run(others.put(OTHER_DIGEST, OTHER))
        run(others.aged(now=FAR))
        run(others.sweep(NOTHING, now=FAR))

    (said,) = [record.getMessage() for record in caplog.records if record.name == "outlast.store"]
    assert "another store's" in said
    assert OWNER in said


def test_the_folder_beside_another_store_is_not_swept_by_who_names_it(tmp_path: Path) -> None:
    beside = made(tmp_path / "ours.db", BlobPlace())
    run(beside.put(DIGEST, DATA))
    named = BlobPlace(f"file://{tmp_path}/ours.db.blobs")
    others = made(tmp_path / "others.db", named)
    run(others.put(OTHER_DIGEST, OTHER))

    assert run(others.sweep(NOTHING, now=FAR)) == 0
    assert run(made(tmp_path / "ours.db", named).sweep({OTHER_DIGEST}, now=FAR)) == 1, "its own folder, by its URL"


def test_the_folder_beside_a_store_needs_no_owner(tmp_path: Path) -> None:
    blobs = FileBlobStore(tmp_path / "outlast.db.blobs")
    run(blobs.put(DIGEST, DATA))
    os.utime(tmp_path / "outlast.db.blobs" / KEY, (1, 1))

    assert run(blobs.owner()) == ""
    assert run(blobs.sweep(NOTHING, now=2 * DAY)) == 1


def looked(place: BlobPlace, path: Path) -> Finding:
    """Return what doctor says of the place of the store at ``path``."""
    more = {} if place.url.startswith("file://") else {
        "OUTLAST_S3__ENDPOINT": place.endpoint,
        "OUTLAST_S3__ACCESS_KEY": place.access_key,
        "OUTLAST_S3__SECRET_KEY": place.secret_key,
    }  # fmt: skip
    (found,) = run(check_blobs(sources_of({}, {"OUTLAST_BLOBS": place.url, **more}), f"sqlite:///{path}"))
    return found


def test_doctor_takes_no_place_away(place: BlobPlace, tmp_path: Path) -> None:
    ours = made(tmp_path / "ours.db", place)
    others = made(tmp_path / "others.db", place)

    assert looked(place, tmp_path / "others.db").code == "blobs"
    assert kept_owner(place) == ""

    run(ours.put(DIGEST, DATA))
    assert looked(place, tmp_path / "ours.db").code == "blobs"
    assert run(others.sweep(NOTHING, now=FAR)) == 0


def test_doctor_says_whose_payloads_are_not_swept(place: BlobPlace, tmp_path: Path) -> None:
    run(made(tmp_path / "ours.db", place).put(DIGEST, DATA))
    made(tmp_path / "others.db", place)

    for name in ("others.db", "none-yet.db"):
        found = looked(place, tmp_path / name)
        assert found.code == "blobs_of_another"
        assert OWNER in found.remedy


def test_a_database_owns_a_place_and_its_copy_on_the_same_server_does_not(cluster: Cluster, tmp_path: Path) -> None:
    place = BlobPlace(f"file://{tmp_path}/payloads")

    async def put_and_sweep(url: str, digest: str, data: bytes) -> int:
        stores = open_stores(f"{url}&allow_weak_durability=yes", place)
        await stores.store.open()
        try:
            await stores.blobs.put(digest, data)
            return await stores.blobs.sweep({digest}, now=FAR)
        finally:
            await stores.store.close()

    with cluster.database() as url:
        assert run(put_and_sweep(url, DIGEST, DATA)) == 0
        name = urlsplit(url).path.removeprefix("/")
        copy = f"{name}_copy"
        cluster.run(f"CREATE DATABASE {copy} TEMPLATE {name} STRATEGY FILE_COPY")
        try:
            assert run(put_and_sweep(cluster.url(copy), OTHER_DIGEST, OTHER)) == 0
        finally:
            cluster.drop(copy)
        assert run(put_and_sweep(url, DIGEST, DATA)) == 1
        (found,) = run(check_blobs(sources_of({}, {"OUTLAST_BLOBS": place.url}), f"{url}&allow_weak_durability=yes"))
        assert found.code == "blobs"
