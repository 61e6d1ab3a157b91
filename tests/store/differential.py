"""The same operations on every store, drawn from seeds, must give the same answers.

python -m tests.store.differential [--lists 1000] [--seed 0]
"""

import argparse
import itertools
import logging
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from outlast.core.replies import TaskState
from outlast.core.units import Fence
from outlast.core.writes import (
    Batch,
    CommitOutcome,
    LoadKeys,
    LoadLeasedTasks,
    LoadReadyRuns,
    LoadReadyTasks,
    LoadTimers,
    RunRow,
    TaskRow,
    run_after,
    task_after,
)
from outlast.store.base import RunFilter, StoreError, TaskFilter
from outlast.store.memory.store import MemoryStore
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from tests.store.cluster import Cluster
from tests.store.kept import Kept
from tests.store.rows import attempt, dedup, page, parked, put, run_row, task_row, timer

LISTS_A_SEED = 10
OPERATIONS = 15
COMPARED = 0.4  # of the operations are followed by a look at everything
IDS = 12  # few, so that operations meet


def assert_same(answers: Sequence[object]) -> None:
    """Say that all stores answered as the first."""
    for answer in answers[1:]:
        assert answer == answers[0]


def forget(batch: Batch, id: str) -> None:
    """Take out what ``batch`` holds of a run or a task."""
    for rows in (batch.runs, batch.run_moves, batch.tasks, batch.task_moves):
        rows.pop(id, None)


class Stores:
    """Stores that are told the same, and asked whether they agree."""

    def __init__(self, stores: tuple[Kept, ...], chance: random.Random) -> None:
        self.stores = stores
        self.chance = chance
        self.runs: dict[str, RunRow] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.opened = 0
        self.owner = "a"
        self.pages: dict[str, int] = {}
        self.attempts: set[tuple[str, int]] = set()

    def id(self, kind: str) -> str:
        return f"{kind}-{self.chance.randrange(IDS)}"

    def draw_batch(self) -> Batch:
        """Return a batch that is mostly right, and in one of ten cases is not."""
        chance = self.chance
        number = self.stores[0].number + (1 if chance.random() < 0.95 else chance.choice([0, 2]))
        fence = self.stores[0].fence if chance.random() < 0.95 else Fence(1, chance.randrange(4))
        batch = Batch(0, fence, number, chance.randrange(1_000))
        for _ in range(chance.randrange(12)):
            chance.choice(DRAWS)(self, batch)
        if chance.random() < 0.05:
            batch.lease_until = chance.randrange(1_000)
        return batch

    def draw_run(self, batch: Batch) -> None:
        chance, run_id = self.chance, self.id("run")
        stored = self.runs.get(run_id)
        is_new = (stored is None) != (chance.random() < 0.02)
        self.opened += 1
        row = run_row(
            run_id,
            workflow_id=self.id("workflow") if stored is None else stored.workflow_id,
            opened_no=self.opened,
            namespace=chance.choice(["default", "other"]),
            type=chance.choice(["Order", "Mail"]),
            started_at=chance.randrange(20),
            ready_at=chance.choice([0, 0, chance.randrange(1, 9)]),
            state=chance.randbytes(chance.randrange(9)),
            fixed=b"" if stored is not None else chance.randbytes(3),
        )
        if chance.random() < 0.5:
            row.closed_at, row.status, row.ready_at = 9, chance.choice(["completed", "failed"]), 0
        if stored is not None and stored.closed_at:
            row.closed_at, row.status = stored.closed_at, stored.status
        forget(batch, run_id)
        put(batch, row, new=is_new)

    def draw_task(self, batch: Batch) -> None:
        chance, task_id = self.chance, self.id("task")
        is_new = (task_id not in self.tasks) != (chance.random() < 0.02)
        state = chance.choice(list(TaskState))
        row = task_row(
            task_id,
            namespace=chance.choice(["default", "other"]),
            queue=chance.choice(["main", "slow"]),
            state=state,
            ready=int(state is TaskState.ENQUEUED and chance.random() < 0.8),
            order_key=chance.randrange(-5, 5),
            enqueued_at=chance.randrange(20),
            run_id=chance.choice(["", "", task_id.split(":")[0]]),
            status=chance.randbytes(3),
        )
        forget(batch, task_id)
        put(batch, row, new=is_new)

    def draw_page(self, batch: Batch) -> None:
        run_id = self.id("run")
        if any(row.run_id == run_id for row in batch.history):
            return
        count = self.chance.randrange(1, 5)
        first = self.pages.get(run_id, 1) if self.chance.random() < 0.98 else 1
        batch.history.append(page(run_id, first, count, self.chance.randbytes(self.chance.choice([3, 2_000]))))

    def draw_parked(self, batch: Batch) -> None:
        run_id = self.id("run")
        if self.chance.random() < 0.4:
            batch.unparked[run_id] = None
        batch.parked.append(parked(self.chance.randrange(1_000), run_id, self.chance.randbytes(4)))

    def draw_attempt(self, batch: Batch) -> None:
        late = self.chance.randrange(2)
        batch.attempts.append(attempt(self.id("task"), self.chance.randrange(500), late=late))

    def draw_timer(self, batch: Batch) -> None:
        key = (self.chance.randrange(8), self.id("timer"))
        if self.chance.random() < 0.4:
            batch.dropped_timers[key] = None
        else:
            batch.timers[key] = timer(*key, kind=self.chance.choice(["run_timer", "task_due"]))

    def draw_dedup(self, batch: Batch) -> None:
        row = dedup(self.id("key"), period=self.chance.randrange(5), id=self.id("run"))
        batch.dedup[row.namespace, row.scope, row.key] = row

    def draw_counter(self, batch: Batch) -> None:
        batch.counters["default", self.id("counter")] = self.chance.randrange(100)
        batch.received[self.chance.randrange(3), 1] = self.chance.randrange(100)

    def commit(self) -> None:
        batch = self.draw_batch()
        outcomes = [kept.commit(batch) for kept in self.stores]
        assert len(set(outcomes)) == 1, [getattr(kept.store, "last_fault", "") for kept in self.stores]
        if outcomes[0] is not CommitOutcome.DONE:
            return
        for run_move in batch.run_moves.values():
            self.runs[run_move.run_id] = run_after(self.runs[run_move.run_id], run_move)
        for task_move in batch.task_moves.values():
            self.tasks[task_move.task_id] = task_after(self.tasks[task_move.task_id], task_move)
        self.runs |= batch.runs
        self.tasks |= batch.tasks
        for row in batch.history:
            self.pages[row.run_id] = max(self.pages.get(row.run_id, 1), row.first_event_id + row.count)

    def claim(self) -> None:
        self.claim_as(self.chance.choice("abc"))

    def claim_as(self, owner: str) -> None:
        now = self.chance.randrange(1_000)
        until = self.chance.choice([0, now + self.chance.randrange(100)])
        answers: list[object] = []
        for kept in self.stores:
            try:
                answers.append(kept.claim(owner, now=now, lease_until=until))
                self.owner = owner
            except StoreError as error:
                answers.append((error.code, error.fact))
        assert_same(answers)

    def release(self) -> None:
        for kept in self.stores:
            kept.run(kept.store.release(kept.fence))

    def forget(self) -> None:
        before = self.chance.randrange(5)
        forgotten = [kept.run(kept.store.forget_dedup(before_period=before)) for kept in self.stores]
        assert_same(forgotten)

    def reopen(self) -> None:
        for kept in self.stores:
            kept.reopen()
        self.claim_as(self.owner)  # who opens a store claims the shard before it writes

    def compare(self) -> None:
        """Ask both for everything, in pages of a drawn size."""
        limit = self.chance.choice([1, 2, 5, 100])
        loads = [
            LoadKeys(
                workflows=tuple(("default", self.id("workflow")) for _ in range(4)),
                runs=tuple(self.id("run") for _ in range(6)),
                tasks=tuple(self.id("task") for _ in range(6)),
                dedup=tuple(("default", "start", self.id("key")) for _ in range(4)),
            ),
            LoadReadyTasks(
                namespace=self.chance.choice(["default", "other"]), queue="main", type="send",
                after=(self.chance.randrange(-6, 5), self.id("task")), limit=limit,
            ),
            LoadTimers(after=(self.chance.randrange(8), self.id("timer")), limit=limit),
            LoadReadyRuns(after=(self.chance.randrange(9), self.id("run")), limit=limit),
            LoadLeasedTasks(after=self.chance.choice(["", self.id("task")]), limit=limit),
        ]  # fmt: skip
        for load in loads:
            pages = [kept.load(load) for kept in self.stores]
            assert_same(pages)
        self.compare_reads(limit)

    def compare_reads(self, limit: int) -> None:
        run_id, first, most = self.id("run"), self.chance.randrange(-1, 30), self.chance.randrange(20)
        before = self.chance.choice([None, (self.chance.randrange(20), self.id("run"))])
        state = self.chance.choice(["", *TaskState])
        task_id = self.id("task")
        answers: list[object] = []
        for kept in self.stores:
            store, run = kept.store, kept.run
            status = "" if limit % 2 else "failed"
            answers.append((
                run(store.read_history(run_id, first_event_id=first, events_max=most)),
                run(store.read_attempts(task_id)),
                run(store.list_runs(RunFilter(namespace="default", status=status, before=before, limit=limit))).rows,
                run(store.list_tasks(TaskFilter(namespace="other", state=state, before=before, limit=limit))).rows,
            ))  # fmt: skip
        assert_same(answers)


DRAWS: list[Callable[[Stores, Batch], None]] = [
    Stores.draw_run, Stores.draw_run, Stores.draw_task, Stores.draw_task, Stores.draw_page, Stores.draw_parked,
    Stores.draw_attempt, Stores.draw_timer, Stores.draw_timer, Stores.draw_dedup, Stores.draw_counter,
]  # fmt: skip
OPERATION_KINDS: list[Callable[[Stores], None]] = [
    *[Stores.commit] * 40, *[Stores.claim] * 3, Stores.release, Stores.forget, Stores.reopen,
]  # fmt: skip


def play(seed: int, folder: Path, url: str, *, lists: int) -> int:
    """Play ``lists`` lists of operations, one after another, on all stores; return how many commits were done.

    Raises AssertionError where two stores differ.
    """
    memory = MemoryStore()
    with (
        Kept(lambda: memory) as one,
        Kept(lambda: SqliteStore(folder / f"{seed}.db", synchronous="OFF", allow_network_disk=True)) as two,
        Kept(lambda: PostgresStore(url, allow_weak=True)) as three,
    ):
        stores = Stores((one, two, three), random.Random(seed))
        stores.claim()
        for _ in range(lists * OPERATIONS):
            stores.chance.choice(OPERATION_KINDS)(stores)
            if stores.chance.random() < COMPARED:
                stores.compare()
        return one.number


def main() -> int:
    """Play as many lists as were asked for; return 0 if all stores agreed."""
    parser = argparse.ArgumentParser(prog="python -m tests.store.differential")
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each is of ten lists")
    chosen = parser.parse_args()
    logging.getLogger("outlast").setLevel(logging.CRITICAL)  # commits fail by design
    played = commits = 0
    with Cluster() as cluster, tempfile.TemporaryDirectory(prefix="outlast-differential-") as folder:
        for seed in itertools.count(chosen.seed):
            lists = min(LISTS_A_SEED, chosen.lists - played)
            if lists <= 0:
                break
            try:
                with cluster.database() as url:
                    commits += play(seed, Path(folder), url, lists=lists)
            except AssertionError:
                traceback.print_exc()
                print(f"seed {seed}: the stores differ")
                return 1
            played += lists
    print(f"{played} lists of {OPERATIONS} operations, {commits} commits: memory, SQLite and PostgreSQL are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
