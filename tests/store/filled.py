"""A store with something of every kind of row, odd texts and numbers among them, and how it is read as a whole."""

import asyncio
import hashlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from outlast.core.admin import NamespaceInfo, NamespaceSettings
from outlast.core.feed import Changes, rows_of
from outlast.core.replies import TaskState
from outlast.core.writes import LabelsRow, TaskRow
from outlast.store.base import Store
from outlast.store.sqlite.connection import Connection
from outlast.store.sqlite.store import SqliteStore
from outlast.store.whole import KINDS, Row, WholeStore
from tests.store.kept import Kept
from tests.store.rows import (
    attempt,
    dedup,
    leased_task,
    message,
    page,
    parked,
    ready_task,
    run_row,
    task_row,
    timer,
)

T = TypeVar("T")
NUL = "a\0b\x01c\x01\x02"  # what PostgreSQL cannot hold as it is
ODD: tuple[str | int | float | bool, ...] = (
    NUL, "é", 0.1, 2.0, -7, 2**63 - 1, 1e300, 5e-324, True, False, 1,
)  # fmt: skip
PAYLOAD = hashlib.sha256(b"large").hexdigest()  # of what lies beside a file that was filled


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives."""
    with asyncio.Runner() as runner:
        return runner.run(work)


def fill(kept: Kept) -> None:
    """Commit something of every kind."""
    tasks: list[TaskRow] = [
        ready_task("task-ready", run_at=7),
        leased_task("task-leased", identity=NUL),
        *(task_row(f"task-{state}", state=state, closed_at=9) for state in TaskState if state.value != "leased"),
        *(task_row(f"task-{n:04}", enqueued_at=n, spec=b"s" * n) for n in range(300)),
    ]
    batch = kept.next_batch(
        run_row("run-open", ready_at=5),
        run_row("run-failed", closed_at=9, status="failed", outcome=b"\0\xff"),
        run_row("run-odd", workflow_id=NUL, reason="\x01"),
        page("run-open", 1, 3, b"x" * 5_000), page("run-open", 4), page("run-failed"),
        parked(1, "run-open"), parked(2, "run-open"),
        *tasks,
        attempt("task-failed", 1), attempt("task-failed", 1, late=1, outcome="late"), attempt("task-failed", 2),
        timer(), timer(9, NUL), dedup(), dedup(NUL, period=2), message(), message(2),
    )  # fmt: skip
    batch.counters = {("", "freshest"): 2**60, ("default", NUL): -1}
    batch.received = {(1, 1): 7, (2, 3): 8}
    batch.labels = {
        "run-open": LabelsRow(
            id="run-open", namespace="default", of="run", at=100,
            items=tuple((f"attr.n{n}", value) for n, value in enumerate(ODD)),
        )
    }  # fmt: skip
    batch.namespaces = {
        name: NamespaceInfo(name=name, created_at=3, settings=NamespaceSettings(description=NUL))
        for name in ("default", "other")
    }
    changes = Changes(
        history=[("run-open", 1, 3), ("run-open", 4, 1)],
        enqueued=[f"task-{n:04}" for n in range(300)],
        tasks=[("task-failed", 1, ""), ("task-failed", 9, "failed")],
    )
    batch.feed = rows_of(batch.number, 100, {"default": changes, "other": Changes(enqueued=["task-other"])})
    assert kept.commit(batch).value == "done", getattr(kept.store, "last_fault", "")
    assert kept.run(kept.store.forget_feed("other", before=10_000, through=0, rows_max=10)) == 1


async def all_rows(store: WholeStore) -> dict[str, list[Row]]:
    """Return every row by kind, as it is carried."""
    return {kind.name: [row async for rows in store.rows(kind) for row in rows] for kind in KINDS}


def filled_file(path: Path) -> Path:
    """Make a SQLite store at ``path`` that holds something of every kind."""
    with Kept(lambda: file_at(path)) as kept:
        kept.claim()
        fill(kept)
        kept.run(kept.store.release(kept.fence))
    return path


def execute(path: Path | str, sql: str) -> list[Row]:
    """Run statements on a file that nobody has; return the rows of the last."""
    connection = cast("Connection", apsw.Connection(str(path)))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def file_at(path: Path) -> Store:
    """Return the store at ``path``."""
    return SqliteStore(path, allow_network_disk=True)
