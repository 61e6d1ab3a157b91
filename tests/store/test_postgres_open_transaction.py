"""A transaction that somebody leaves open: no version of a row is removed, and commits do not look at more and more of them."""

import asyncio
from collections.abc import Generator

import asyncpg
import pytest

from outlast.core.admin import NamespaceInfo
from outlast.core.writes import Batch, CommitOutcome
from outlast.store.postgres.store import PostgresStore
from tests.store.cluster import Cluster
from tests.store.kept import Kept

COMMITS = 300
SCANS = """
    SELECT relname, idx_scan FROM pg_stat_user_tables WHERE schemaname = 'outlast' AND relname IN ('shards', 'counters')
"""


@pytest.fixture
def url(cluster: Cluster) -> Generator[str]:
    """The address of a database in which nothing is, and in which somebody has a transaction open."""
    with cluster.database() as address, asyncio.Runner() as runner:
        session = runner.run(asyncpg.connect(address))
        runner.run(session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
        runner.run(session.execute("SELECT count(*) FROM outlast.tasks"))
        yield address
        runner.run(session.close())


@pytest.fixture
def owner(url: str) -> Generator[Kept]:
    """A store whose shard has been claimed."""
    with Kept(lambda: PostgresStore(url, allow_weak=True)) as kept:
        kept.claim()
        yield kept


def counting(kept: Kept, value: int) -> Batch:
    """Return a batch that moves two counters."""
    batch = kept.next_batch()
    batch.counters = {("", "freshest"): value, ("default", "tasks"): value}
    return batch


def scans(kept: Kept) -> dict[str, int]:
    """Return how often rows were looked up by an index, by table, up to the last commit."""
    assert isinstance(kept.store, PostgresStore)
    assert kept.store._owner is not None
    session = kept.store._owner.session
    kept.run(session.execute("SELECT pg_stat_force_next_flush()"))
    return {row["relname"]: row["idx_scan"] for row in kept.run(session.fetch(SCANS))}


def value_of(kept: Kept, name: str) -> int:
    """Return a counter as it is stored."""
    return kept.run(kept.store.read_counters("default"))[name]


def test_the_rows_that_all_commits_change_are_found_where_they_lie(owner: Kept) -> None:
    assert owner.commit(counting(owner, 0)) is CommitOutcome.DONE
    before = scans(owner)

    for value in range(1, COMMITS):
        assert owner.commit(counting(owner, value)) is CommitOutcome.DONE

    assert value_of(owner, "tasks") == COMMITS - 1
    assert scans(owner) == before


def test_a_counter_of_a_namespace_that_is_made_again_begins_anew(owner: Kept) -> None:
    assert owner.commit(counting(owner, 7)) is CommitOutcome.DONE
    dropped, made = owner.next_batch(), {"default": NamespaceInfo(name="default", created_at=1)}
    dropped.namespaces = {"default": None}
    assert owner.commit(dropped) is CommitOutcome.DONE
    batch = counting(owner, 8)
    batch.namespaces = dict(made)

    assert owner.commit(batch) is CommitOutcome.DONE
    assert value_of(owner, "tasks") == 8


def test_an_owner_whose_rows_were_moved_in_the_tables_writes_nothing_until_it_claims_again(
    cluster: Cluster, url: str, owner: Kept
) -> None:
    for value in range(3):
        assert owner.commit(counting(owner, value)) is CommitOutcome.DONE
    name = url.split("/")[3].split("?", maxsplit=1)[0]
    cluster.run("VACUUM FULL outlast.counters", "VACUUM FULL outlast.shards", database=name)

    assert owner.commit(counting(owner, 9)) is not CommitOutcome.DONE
    owner.claim()
    assert owner.commit(counting(owner, 10)) is CommitOutcome.DONE
    assert value_of(owner, "tasks") == 10
