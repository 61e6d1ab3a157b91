"""A shard with hardly any memory and one with plenty end in the same rows."""

from typing import Any

import msgspec
from hypothesis import given, settings

from outlast.core.codec import decode_events
from outlast.core.shard.config import ShardConfig
from outlast.store.memory.tables import Tables
from tests.core.scripts import Move, Player, calm_scripts
from tests.core.world import World

TINY = ShardConfig(
    runs_cached_max=2, tasks_cached_max=2, window_max=2, window_low=1, page_rows=2, dedup_cached_max=2
)  # fmt: skip
OF_BATCHES = {"commit_no", "opened_no", "history_bytes"}  # how inputs fall into batches is no promise


def rows_of(tables: Tables) -> dict[str, Any]:
    """Return everything that is stored, without what depends on how inputs fell into batches."""

    def plain(row: msgspec.Struct) -> dict[str, object]:
        return {name: value for name, value in msgspec.structs.asdict(row).items() if name not in OF_BATCHES}

    return {
        "runs": {run_id: plain(row) for run_id, row in tables.runs.items()},
        "order of runs": [row.run_id for row in sorted(tables.runs.values(), key=lambda row: row.opened_no)],
        "history": {
            run_id: [timed for page in pages for timed in decode_events(page.blob)]
            for run_id, pages in tables.history.items()
        },
        "parked": {run_id: [row.blob for row in rows.values()] for run_id, rows in tables.parked.items() if rows},
        "tasks": {task_id: plain(row) for task_id, row in tables.tasks.items()},
        "attempts": {task_id: [plain(row) for row in rows.values()] for task_id, rows in tables.attempts.items()},
        "timers": sorted(tables.timers),
        "dedup": tables.dedup,
        "counters": {key: value for key, value in tables.counters.items() if value},
    }


def played(script: list[Move], config: ShardConfig) -> dict[str, Any]:
    world = World(config=config)
    Player(world, one_by_one=True).play(script)
    return rows_of(world.tables)


@settings(max_examples=60, deadline=None)
@given(calm_scripts)
def test_little_memory_changes_nothing_that_is_stored(script: list[Move]) -> None:
    assert played(script, TINY) == played(script, ShardConfig())
