"""The engine on a file that has no room: what the log says of it."""

import logging
from pathlib import Path

import pytest

from outlast.core.errors import StoreFull
from outlast.store.sqlite.store import SqliteStore
from tests.engine.doubles import a_task, json_of, run, running


def test_a_file_without_room_costs_one_line_without_a_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        store = SqliteStore(tmp_path / "a.db", allow_network_disk=True)
        async with running(store) as (_, transport):
            assert store._writer is not None
            store._writer.execute("PRAGMA max_page_count = 1").fetchall()
            with pytest.raises(StoreFull):
                await transport.call(a_task(input=(json_of(b'"' + b"x" * 200_000 + b'"'),)))

    with caplog.at_level(logging.INFO, "outlast"):
        run(work)

    assert [record.getMessage() for record in caplog.records] == [
        "the shard is not served: The store is full: nothing can be written."
    ]
    assert caplog.records[0].exc_info is None
