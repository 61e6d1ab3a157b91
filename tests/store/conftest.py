"""The stores that the one suite runs on."""

from collections.abc import Generator
from pathlib import Path

import pytest

from outlast.server.places import BlobPlace
from outlast.store.memory.store import MemoryStore
from outlast.store.memory.tables import Tables
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from tests.store.cluster import Cluster
from tests.store.kept import Kept
from tests.store.s3 import s3_place, s3_serving


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Kept]:
    """An open store whose shard has been claimed by "a"."""
    tables = Tables()
    match request.param:
        case "memory":
            yield from claimed(Kept(lambda: MemoryStore(tables=tables)))
        case "sqlite":
            yield from claimed(Kept(lambda: SqliteStore(tmp_path / "shard.db", allow_network_disk=True)))
        case _:
            cluster: Cluster = request.getfixturevalue("cluster")
            with cluster.database() as url:
                yield from claimed(Kept(lambda: PostgresStore(url, allow_weak=True)))


def claimed(under_test: Kept) -> Generator[Kept]:
    """Claim, lend and close a store."""
    with under_test:
        under_test.claim()
        yield under_test


@pytest.fixture
def s3(s3_server: str) -> BlobPlace:
    """A bucket of its own on an S3 server of this process."""
    return s3_place(s3_server)


@pytest.fixture(scope="session")
def s3_server() -> Generator[str]:
    """The address of an S3 server of this process, on loopback."""
    with s3_serving() as address:
        yield address
