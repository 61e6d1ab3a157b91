"""An engine with a bug planted in it, for a harness to find: the same command line as ``outlast``.

PLANT=ack_before_commit python -m tests.end_to_end.planted serve …
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from outlast.cli import main
from outlast.core.shard.gate import Gate
from outlast.core.shard.outputs import Answer
from outlast.core.writes import Batch, CommitOutcome
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore

COMMIT_DELAY = 0.05  # seconds: makes the gap between answer and commit wide enough to be hit


def ack_before_commit() -> None:
    """Answers leave at once; what they tell of is committed a little later, or never."""

    def answer(_gate: Gate, outputs: list[Any], ticket: object, reply: Any, *, saw: int) -> None:
        del saw
        outputs.append(Answer(ticket, reply))

    Gate.answer = answer  # type: ignore[method-assign]
    SqliteStore.commit = late(SqliteStore.commit)  # type: ignore[method-assign]
    PostgresStore.commit = late(PostgresStore.commit)  # type: ignore[method-assign]


def late(commit: Callable[[Any, Batch], Awaitable[CommitOutcome]]) -> Any:
    """Return ``commit`` as one that takes its time to begin."""

    async def commit_late(store: Any, batch: Batch) -> CommitOutcome:
        await asyncio.sleep(COMMIT_DELAY)
        return await commit(store, batch)

    return commit_late


PLANTS: dict[str, Callable[[], None]] = {"ack_before_commit": ack_before_commit}

if __name__ == "__main__":
    PLANTS[os.environ["PLANT"]]()
    sys.exit(main())
