"""Stores to be moved, kept and restored: one with something of everything, and places in which nothing is."""

from collections.abc import Generator
from pathlib import Path

import pytest

from outlast.store.blobs import FileBlobStore
from tests.store.cluster import Cluster
from tests.store.filled import PAYLOAD, filled_file, run


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """The address of a file with something of every kind, and a payload beside it."""
    path = filled_file(tmp_path / "outlast.db")
    run(FileBlobStore(f"{path}.blobs").put(PAYLOAD, b"large"))
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Generator[str]:
    """The address of a place for a store in which nothing is."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/target.db"
        return
    name = cluster.empty_database()
    yield f"{cluster.url(name)}&allow_weak_durability=yes"
    cluster.drop(name)
