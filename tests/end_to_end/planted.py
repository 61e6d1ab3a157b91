"""An engine with a bug planted in it, for a harness to find: the same command line as ``outlast``.

PLANT=ack_before_commit python -m tests.end_to_end.planted serve …
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from outlast.cli import main
from outlast.core.shard.gate import Gate
from outlast.core.shard.outputs import Answer
from outlast.store.sqlite.store import SqliteStore

COMMIT_DELAY = 0.05  # seconds: makes the gap between answer and commit wide enough to be hit


def ack_before_commit() -> None:
    """Answers leave at once; what they tell of is committed a little later, or never."""

    def answer(_gate: Gate, outputs: list[Any], ticket: object, reply: Any, *, saw: int) -> None:
        del saw
        outputs.append(Answer(ticket, reply))

    commit = SqliteStore.commit

    async def commit_late(store: SqliteStore, batch: Any) -> Any:
        await asyncio.sleep(COMMIT_DELAY)
        return await commit(store, batch)

    Gate.answer = answer  # type: ignore[method-assign]
    SqliteStore.commit = commit_late  # type: ignore[method-assign]


PLANTS: dict[str, Callable[[], None]] = {"ack_before_commit": ack_before_commit}

if __name__ == "__main__":
    PLANTS[os.environ["PLANT"]]()
    sys.exit(main())
