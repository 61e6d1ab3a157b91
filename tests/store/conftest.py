"""The stores that the one suite runs on."""

from collections.abc import Generator
from pathlib import Path

import pytest

from outlast.store.memory.store import MemoryStore
from outlast.store.memory.tables import Tables
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Kept]:
    """An open store whose shard has been claimed by "a"."""
    tables = Tables()
    makers = {
        "memory": lambda: MemoryStore(tables=tables),
        "sqlite": lambda: SqliteStore(tmp_path / "shard.db", allow_network_disk=True),
    }
    with Kept(makers[request.param]) as under_test:
        under_test.claim()
        yield under_test
