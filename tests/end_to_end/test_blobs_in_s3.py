"""A server that keeps large values in S3: they come back, a lost one is told, and wrong settings keep it from starting."""

import hashlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import obstore
import pytest

from outlast import App
from outlast.sdk.errors import TaskError
from outlast.server.places import BlobPlace
from tests.end_to_end.processes import command, serving
from tests.store.s3 import objects_at, s3_place, s3_serving

LARGE = "x" * 400_000


@pytest.fixture
def place() -> Generator[BlobPlace]:
    """A bucket."""
    with s3_serving() as address:
        yield s3_place(address)


def settings(folder: Path, place: BlobPlace, **more: str) -> None:
    """Write what a server needs to use ``place``."""
    said = {"endpoint": place.endpoint, "access_key": place.access_key, "secret_key": place.secret_key, **more}
    lines = "".join(f'{name} = "{text}"\n' for name, text in said.items())
    (folder / "outlast.toml").write_text(f'blobs = "{place.url}"\n[s3]\n{lines}[log]\nformat = "line"\n')


def an_app(address: str) -> tuple[App, Any]:
    app = App(address, worker=True)

    @app.task(max_attempts=1)
    def twice(text: str) -> str:
        return text + text[:1]

    return app, twice


@pytest.mark.slow
def test_a_server_keeps_large_values_in_s3_and_tells_of_lost_ones(tmp_path: Path, place: BlobPlace) -> None:
    settings(tmp_path, place)
    with serving(tmp_path) as (_, address):
        app, twice = an_app(address)
        with app:
            assert twice.enqueue(LARGE).result(timeout="20s") == LARGE + "x"
        assert not list(tmp_path.glob("*.blobs/??"))

        app, _ = an_app(address)
        stored = f'"{LARGE}"'.encode()
        digest = hashlib.sha256(stored).hexdigest()
        idle = App(address, worker=False)

        @idle.task(max_attempts=1, name="twice")
        def later(text: str) -> str:
            return text

        with idle:
            handle = later.enqueue(LARGE)
        obstore.delete(objects_at(place), f"{digest[:2]}/{digest}")
        with app, pytest.raises(TaskError, match="is missing in s3://") as raised:
            app.get_task(handle.id).result(timeout="20s")
        assert raised.value.type == "ARGUMENTS_NOT_READABLE"
    looked = command(tmp_path, "doctor", "--json")
    assert '"code":"blobs"' in looked.stdout


@pytest.mark.slow
def test_a_server_whose_bucket_is_not_there_says_so_and_does_not_start(tmp_path: Path, place: BlobPlace) -> None:
    nowhere = BlobPlace("s3://no-such-bucket", place.endpoint, "", place.access_key, place.secret_key)
    settings(tmp_path, nowhere)

    ended = command(tmp_path, "serve", "--listen", "127.0.0.1:0")
    looked = command(tmp_path, "doctor", "--json")

    assert ended.returncode != 0
    assert "[store_misplaced]" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert place.secret_key not in ended.stderr
    assert '"code":"blobs_unusable"' in looked.stdout
