"""Payloads in object storage: what is wrong there is told from what is damaged; only what is old is swept."""

import asyncio
import hashlib
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from outlast.core.errors import Invalid
from outlast.core.units import DAY
from outlast.server.places import BlobPlace, blobs_at, place_from
from outlast.server.settings import sources_of
from outlast.store.base import StoreError
from outlast.store.objects import ObjectBlobStore
from tests.store.s3 import objects_at

T = TypeVar("T")
DATA = b"a large order" * 30_000
DIGEST = hashlib.sha256(DATA).hexdigest()
KEY = f"{DIGEST[:2]}/{DIGEST}"
NOTHING: set[str] = set()


async def us() -> str:
    """Return the id of the store whose the blobs are."""
    return "us"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives."""
    return asyncio.run(work)


def refused(work: Coroutine[Any, Any, Any]) -> StoreError:
    """Return the error that ``work`` ends with."""
    with pytest.raises(StoreError) as caught:
        run(work)
    return caught.value


def at(place: BlobPlace, folder: Path) -> ObjectBlobStore:
    """Return the blobs of a place, for the store that has ``folder`` beside it."""
    found = blobs_at(place, beside=str(folder), owner=us)
    assert isinstance(found, ObjectBlobStore)
    return found


def changed(place: BlobPlace, **fields: str) -> BlobPlace:
    """Return ``place`` with something else in it."""
    names = ("url", "endpoint", "region", "access_key", "secret_key", "session_token")
    return BlobPlace(**{**{name: getattr(place, name) for name in names}, **fields})


def test_a_bucket_that_is_not_there_is_said_by_its_name(s3: BlobPlace, tmp_path: Path) -> None:
    blobs = at(changed(s3, url="s3://no-such-bucket/x"), tmp_path)

    for work in (blobs.put(DIGEST, DATA), blobs.get(DIGEST), blobs.check(), blobs.sweep(NOTHING, now=0)):
        error = refused(work)
        assert error.code == "store_misplaced"
        assert "no bucket of s3://no-such-bucket/x" in error.fact
        assert "s3.endpoint" in error.remedy


def test_a_place_that_does_not_answer_is_no_damage(
    s3: BlobPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.server.places.RETRIES", 0)
    error = refused(at(changed(s3, endpoint="http://127.0.0.1:9"), tmp_path).get(DIGEST))

    assert error.code == "unavailable"
    assert "Debug source" not in error.fact
    assert "s3.endpoint" in error.remedy


def test_credentials_that_are_refused_are_said_to_be_and_not_shown(s3: BlobPlace, tmp_path: Path) -> None:
    with_fault = ObjectBlobStore(MemoryStore(), place="s3://shop", owner=us)
    error = with_fault._said(obstore.exceptions.PermissionDeniedError("403 lovelace"))

    assert error.code == "store_misplaced"
    assert "s3.secret_key" in error.remedy
    assert "lovelace" not in str(error)
    assert "lovelace" not in repr(s3)


def test_an_object_whose_content_changed_is_damage(s3: BlobPlace, tmp_path: Path) -> None:
    blobs = at(s3, tmp_path)
    run(blobs.put(DIGEST, DATA))
    obstore.put(objects_at(s3), KEY, DATA[:-1])

    assert refused(blobs.get(DIGEST)).code == "store_damaged"
    run(blobs.put(DIGEST, DATA))
    assert run(blobs.get(DIGEST)) == DATA


def test_an_object_that_is_gone_is_damage_until_it_is_put_again(s3: BlobPlace, tmp_path: Path) -> None:
    blobs = at(s3, tmp_path)
    run(blobs.put(DIGEST, DATA))
    obstore.delete(objects_at(s3), KEY)

    error = refused(blobs.get(DIGEST))
    assert error.code == "store_damaged"
    assert s3.url in error.fact
    run(blobs.put(DIGEST, DATA))
    assert run(blobs.get(DIGEST)) == DATA


def test_what_is_old_and_nothing_refers_to_is_swept_by_its_owner(s3: BlobPlace, tmp_path: Path) -> None:
    blobs = at(s3, tmp_path)
    run(blobs.put(DIGEST, DATA))
    put_at = int(obstore.head(objects_at(s3), KEY)["last_modified"].timestamp() * 1e9)
    later = put_at + DAY + 1

    assert run(blobs.aged(now=put_at + DAY)) == set()
    assert run(blobs.aged(now=later)) == {DIGEST}
    assert run(blobs.sweep({DIGEST}, now=later)) == 0
    assert run(blobs.sweep(NOTHING, now=later)) == 1
    assert refused(blobs.get(DIGEST)).code == "store_damaged"


def test_objects_that_are_no_payloads_are_left_alone(tmp_path: Path) -> None:
    objects = LocalStore(tmp_path)
    obstore.put(objects, "readme.txt", b"of somebody")
    blobs = ObjectBlobStore(objects, place="files", owner=us)

    run(blobs.put(DIGEST, DATA))

    assert run(blobs.sweep(NOTHING, now=2**62)) == 1
    assert (tmp_path / "readme.txt").read_bytes() == b"of somebody"
    assert run(blobs.owner()) == "us"


def test_an_old_blob_put_again_is_young_again(tmp_path: Path) -> None:
    first = ObjectBlobStore(LocalStore(tmp_path), place="files", owner=us)
    run(first.put(DIGEST, DATA))
    os.utime(tmp_path / KEY, (1, 1))

    again = ObjectBlobStore(LocalStore(tmp_path), place="files", owner=us)  # the next life, which knows nothing
    run(again.put(DIGEST, DATA))

    assert run(again.sweep(NOTHING, now=2 * DAY)) == 0
    assert run(again.get(DIGEST)) == DATA


def test_a_blob_that_was_put_lately_does_not_travel_again(s3: BlobPlace, tmp_path: Path) -> None:
    blobs = at(s3, tmp_path)
    run(blobs.put(DIGEST, DATA))
    before = obstore.head(objects_at(s3), KEY)["last_modified"]
    obstore.put(objects_at(s3), KEY, b"x" * len(DATA))  # of the same size, so that writing it again would show

    run(blobs.put(DIGEST, DATA))

    assert bytes(obstore.get(objects_at(s3), KEY).bytes())[:1] == b"x"
    assert before is not None


@pytest.mark.parametrize(
    ("blobs", "more"),
    [
        ("http://bucket", {}),
        ("s3://", {}),
        ("s3://ada:lovelace@bucket/x", {}),
        ("file:///", {}),
        ("/var/blobs", {}),
        ("s3://bucket", {"OUTLAST_S3__ENDPOINT": "minio:9000"}),
        ("s3://bucket", {"OUTLAST_S3__ACCESS_KEY": "ada"}),
    ],
)
def test_a_place_that_cannot_be_is_refused_without_its_secrets(blobs: str, more: dict[str, str]) -> None:
    with pytest.raises(Invalid) as raised:
        place_from(sources_of({}, {"OUTLAST_BLOBS": blobs, **more}))

    assert raised.value.remedy


def test_a_missing_extra_is_named_with_what_to_install(
    s3: BlobPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "outlast.store.objects", None)

    with pytest.raises(Invalid, match="obstore") as raised:
        blobs_at(s3, beside=str(tmp_path), owner=us)
    assert "outlast[s3]" in raised.value.remedy
