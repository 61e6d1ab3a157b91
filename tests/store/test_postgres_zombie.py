"""An owner that was followed and does not know it, beside the new one: every order of their statements, on real connections.

Both are the store itself; only its session is held before each statement until the order says go on. A statement that waits
for a lock of the other is passed over, and goes on when it has the lock.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from outlast.core.units import SECOND, Fence
from outlast.core.writes import CommitOutcome
from outlast.store.postgres import claiming, parts
from outlast.store.postgres.connection import Opened
from outlast.store.postgres.store import PostgresStore
from tests.store.cluster import Cluster
from tests.store.rows import batch_of, run_row

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HELD = (claiming._END_OTHERS, f"{claiming._READ} FOR UPDATE", "COMMIT", "WITH")
"""What the statements begin with that the new owner is held before: the last is that of its own first commit."""
SAME = "incarnation = $2::bigint AND epoch = $3::bigint AND last_number = $4::bigint - 1"
READ_FIRST = f"""
    SELECT ctid FROM outlast.shards WHERE $8::text <> '' AND shard = $1::integer AND {SAME}), bump AS (
    UPDATE outlast.shards SET last_number = $4::bigint, last_at = $5::bigint, lease_until = $6::bigint
    WHERE shard = $1::integer AND EXISTS (SELECT FROM outlast.shards WHERE {SAME}) RETURNING 1
"""
"""A fence that is compared before the row is locked, and not again when it is."""
WAITS = "SELECT cardinality(pg_blocking_pids($1)) > 0"


class Stepped:
    """A session that waits for leave before statements. ``whole``: a commit is three: BEGIN, what it writes, COMMIT."""

    def __init__(self, session: Any, held: tuple[str, ...], *, apart: bool = False) -> None:
        self.session = session
        self.held = held
        self.apart = apart
        self._leave = asyncio.Semaphore(0)
        self.idle = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def go_on(self) -> None:
        """Give leave for one statement. It is busy from here on, not only from when its task runs next."""
        self.idle.clear()
        self._leave.release()

    async def pause(self) -> None:
        """Wait for leave."""
        self.idle.set()
        await self._leave.acquire()
        self.idle.clear()

    async def execute(self, sql: str, *values: Any) -> Any:
        return await self._run(self.session.execute, sql, values)

    async def fetch(self, sql: str, *values: Any) -> Any:
        return await self._run(self.session.fetch, sql, values)

    async def fetchval(self, sql: str, *values: Any) -> Any:
        return await self._run(self.session.fetchval, sql, values)

    async def fetchrow(self, sql: str, *values: Any) -> Any:
        if not self.apart:
            return await self._run(self.session.fetchrow, sql, values)
        await self.pause()
        await self.session.execute("BEGIN")
        await self.pause()
        row = await self.session.fetchrow(sql, *values)
        await self.pause()
        await self.session.execute("COMMIT")
        return row

    async def _run(self, run: Any, sql: str, values: tuple[Any, ...]) -> Any:
        if sql.startswith(self.held):
            await self.pause()
        return await run(sql, *values)


@dataclass(slots=True)
class Told:
    """What the two were told: by the run that each batch adds, and where the new owner began."""

    outcomes: dict[str, CommitOutcome] = field(default_factory=dict[str, CommitOutcome])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    began_behind: int = -1


async def commits(store: PostgresStore, name: str, fence: Fence, after: int, told: Told, *, count: int) -> None:
    """Commit batches, each of which adds one run, for as long as they are done."""
    for number in range(after + 1, after + 1 + count):
        run_id = f"{name}-{number}"
        told.numbers[run_id] = number
        batch = batch_of(run_row(run_id, workflow_id=run_id), fence=fence, number=number)
        told.outcomes[run_id] = await store.commit(batch)
        if told.outcomes[run_id] is not CommitOutcome.DONE:
            return


async def follow(store: PostgresStore, name: str, told: Told) -> None:
    """Take the shard over and commit once."""
    claim = await store.claim(owner=name, now=100 * SECOND, lease_until=0)
    told.began_behind = claim.last_number
    await commits(store, name, claim.fence, claim.last_number, told, count=1)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(url, allow_weak=True)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def step_by(store: PostgresStore, held: tuple[str, ...], *, apart: bool = False) -> Stepped:
    """Let the session of ``store`` wait for leave from now on."""
    at = store._owner or store._first
    assert at is not None
    stepped = Stepped(at.session, held, apart=apart)
    changed: Any = Opened(stepped, at.server, at.notices)  # type: ignore[arg-type]
    if store._owner is not None:
        store._owner = changed
    else:
        store._first = changed
    return stepped


async def play(url: str, order: str, *, old_statements: int, apart: bool, hidden: bool) -> list[str]:
    """Play one order of "o" (the old owner goes a statement further) and "n" (the new one); return what is wrong."""
    told = Told()
    async with opened(url) as old, opened(url) as new:
        watch = await asyncpg.connect(url)
        claim = await old.claim(owner="old", now=1, lease_until=0)
        if hidden:
            assert old._owner is not None
            await old._owner.session.execute("SET application_name = 'somebody'")
        sessions = {"o": step_by(old, ("WITH",), apart=apart), "n": step_by(new, HELD)}
        count = 1 if apart else old_statements
        tasks = {
            "o": asyncio.create_task(commits(old, "old", claim.fence, claim.last_number, told, count=count)),
            "n": asyncio.create_task(follow(new, "new", told)),
        }
        for who in order:
            sessions[who].go_on()
            await settle(watch, sessions, tasks)
        await asyncio.gather(*tasks.values())
        stored = {
            row["run_id"]: row["commit_no"] for row in await watch.fetch("SELECT run_id, commit_no FROM outlast.runs")
        }
        last = await watch.fetchval("SELECT last_number FROM outlast.shards")
        await watch.execute("DELETE FROM outlast.runs; DELETE FROM outlast.open_runs; DELETE FROM outlast.ready_runs")
        await watch.close()
    return wrong(told, set(stored), claim.last_number, last)


async def settle(watch: Any, sessions: dict[str, Stepped], tasks: dict[str, "asyncio.Task[None]"]) -> None:
    """Return when each has done what it may, has ended, or waits for a lock of the other.

    Each is looked at twice in a row: what one did last may have let the other go on.
    """
    still = 0
    while still < 2 * len(sessions):
        for who, session in sessions.items():
            if tasks[who].done() or session.idle.is_set() or await watch.fetchval(WAITS, session.get_server_pid()):
                still += 1
            else:
                still = 0
                await asyncio.sleep(0.001)


def wrong(told: Told, stored: set[str], before: int, last: int) -> list[str]:
    """Return how what is stored differs from one history that both were told the truth of."""
    numbers = sorted(told.numbers[run] for run in stored)
    found: list[str] = []
    if numbers != list(range(before + 1, before + 1 + len(numbers))) or last != before + len(numbers):
        found.append(f"the numbers {numbers} of what was written are not one sequence from {before} to {last}")
    for run, outcome in told.outcomes.items():
        if outcome is CommitOutcome.DONE and run not in stored:
            found.append(f"{run} was done and is not there")
        if outcome is CommitOutcome.REFUSED and run in stored:
            found.append(f"{run} was refused and is there")
    by_old = [told.numbers[run] for run in stored if run.startswith("old")]
    if by_old and max(by_old) > told.began_behind:
        found.append(f"the old owner wrote number {max(by_old)}, the new one began behind {told.began_behind}")
    if not any(run.startswith("new") for run in stored):
        found.append(f"the new owner could not write: {told.outcomes}")
    return found


def orders(old: int, new: int) -> Iterator[str]:
    """Give every order of so many steps of the two."""
    for places in itertools.combinations(range(old + new), old):
        yield "".join("o" if n in places else "n" for n in range(old + new))


@pytest.fixture
def url(cluster: Cluster) -> Generator[str]:
    """The address of a database in which nothing is."""
    with cluster.database() as address:
        yield address


def played(url: str, *, old_statements: int, apart: bool, hidden: bool) -> tuple[int, list[str]]:
    """Play every order; return how many there were, and what was wrong in which."""
    found: list[str] = []
    count = 0

    async def all_orders() -> None:
        nonlocal count
        for order in orders(old_statements, len(HELD)):
            count += 1
            faults = await play(url, order, old_statements=old_statements, apart=apart, hidden=hidden)
            found.extend(f"{order}: {fault}" for fault in faults)

    asyncio.run(all_orders())
    return count, found


@pytest.mark.parametrize("hidden", [False, True], ids=["its session can be ended", "its session cannot be found"])
@pytest.mark.parametrize(
    ("old_statements", "apart", "count"), [(1, False, 5), (2, False, 15), (3, True, 35)],
    ids=["a commit", "two commits", "a commit that stands before its end"],
)  # fmt: skip
def test_no_order_of_statements_forks_the_history(
    url: str, old_statements: int, count: int, *, apart: bool, hidden: bool
) -> None:
    assert played(url, old_statements=old_statements, apart=apart, hidden=hidden) == (count, [])


def test_a_fence_that_is_read_before_it_is_locked_is_found_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "FENCE", READ_FIRST)
    parts.statement_of.cache_clear()
    _, found = played(url, old_statements=1, apart=False, hidden=True)
    parts.statement_of.cache_clear()

    assert {fault.partition(":")[0] for fault in found if "the old owner wrote" in fault} == {"nnonn"}
