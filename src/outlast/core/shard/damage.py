"""Rows that were read and cannot be opened: each is left out as damaged, refused by name, and left as it is; the rest is served.

What is damaged is known by its id alone. It is never written, so that a version that can read it finds it whole.
"""

from typing import Final

import msgspec

from outlast.core import limits
from outlast.core.errors import NotFound
from outlast.core.run import Run
from outlast.core.shard.gather import run_of, task_of
from outlast.core.shard.state import Shard
from outlast.core.task import Task
from outlast.core.writes import ParkedRow, RunRow, TaskRow

UNREADABLE: Final = (msgspec.MsgspecError, ValueError)  # bytes of another form, or a word that is no state


def open_task(shard: Shard, row: TaskRow) -> Task | None:
    """Return what ``row`` says; None when it cannot be opened, and is left out."""
    try:
        return task_of(row)
    except UNREADABLE as error:
        _note_damaged(shard, row.task_id, error)
        return None


def open_run(shard: Shard, row: RunRow, parked: list[ParkedRow]) -> Run | None:
    """Return what ``row`` and what is parked for it say; None when they cannot be opened, and are left out."""
    try:
        return run_of(row, parked)
    except UNREADABLE as error:
        _note_damaged(shard, row.run_id, error)
        return None


def _note_damaged(shard: Shard, id: str, error: Exception) -> None:
    if id not in shard.damaged and len(shard.damaged) >= limits.DAMAGED_MAX:
        raise error  # it is no row here and there: the store is not one that this version can serve
    shard.damaged[id] = str(error)


def stands_still(shard: Shard, task: Task) -> bool:
    """Return whether ``task`` is an activity of a damaged run: nothing can be told that run, so it stays as it is."""
    return task.run_id in shard.damaged


def require_whole(shard: Shard, id: str, *, what: str) -> None:
    """Refuse what is damaged.

    Raises:
        NotFound: code "store_damaged", with what was wrong.
    """
    why = shard.damaged.get(id)
    if why is not None:
        raise NotFound(
            "store_damaged",
            f"The row of {what} {id} cannot be read: {why}.",
            remedy="All else is served. Use the version that wrote it, or restore the store from its copy: outlast doctor",
        )
