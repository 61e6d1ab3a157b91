"""A store taken as a whole: all of it is carried, in either direction, and none of it is worked on meanwhile."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from outlast.core.feed import Place as FeedPlace
from outlast.core.writes import LoadKeys, LoadLeasedTasks, LoadReadyRuns, LoadReadyTasks, LoadTimers
from outlast.query.predicate import Compare, Field, Kind, Operator
from outlast.store.base import RunFilter, Store, StoreError, TaskFilter
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.whole import DERIVED, PostgresWhole
from outlast.store.sqlite.whole import SqliteWhole
from outlast.store.standing import BACKUP, FILLING, MOVED, VERIFIED, Standing
from outlast.store.whole import INTAKE, KINDS, LABELS, WholeStore, carry, compare, summed
from tests.store.cluster import Cluster
from tests.store.filled import NUL, ODD, all_rows, execute, file_at, fill, run
from tests.store.kept import Kept

BOOKKEEPING = {"migrations", "meta", "shards", "standing"}


class Place:
    """Where a store is, of either kind."""

    def __init__(self, place: Path | str) -> None:
        self.place = place

    def make(self) -> Store:
        if isinstance(self.place, str):
            return PostgresStore(self.place, allow_weak=True)
        return file_at(self.place)

    async def hold(self) -> WholeStore:
        if isinstance(self.place, str):
            return await PostgresWhole.hold(f"{self.place}&allow_weak_durability=yes", make=True)
        return SqliteWhole.hold(str(self.place), make=True)

    async def look(self) -> WholeStore:
        if isinstance(self.place, str):
            return await PostgresWhole.look(f"{self.place}&allow_weak_durability=yes")
        return SqliteWhole.look(str(self.place))


def place_of(kind: str, cluster: Cluster, path: Path) -> Generator[Place]:
    """Give a place of that kind in which nothing is."""
    if kind == "sqlite":
        yield Place(path)
        return
    with cluster.database() as url:
        yield Place(url)


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Generator[Place]:
    """A store that holds something of every kind."""
    for place in place_of(request.param, cluster, tmp_path / "source.db"):
        with Kept(place.make) as kept:
            kept.claim()
            fill(kept)
            kept.run(kept.store.release(kept.fence))
        leave(place, cluster)
        yield place


def leave(place: Place, cluster: Cluster) -> None:
    """Leave something in the intake."""
    if isinstance(place.place, str):
        asked = [f"SELECT outlast.enqueue('mail', '[{n}]')" for n in range(3)]
        cluster.run(
            *asked,
            "UPDATE outlast.intake SET trouble = E'odd\\x01', offered_at = now() WHERE place % 2 = 0",
            database=database_in(place.place),
        )
    else:
        left = "(7, 'default', 'a', 'said', x'00ff', 1, NULL, ''), (9, 'default', 'b', 'said', x'', 1, 1234567890123456, 'odd')"
        execute(place.place, f"INSERT INTO intake VALUES {left}")


def database_in(url: str) -> str:
    """Return the name of the database in an address."""
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Generator[Place]:
    """A store in which nothing is."""
    yield from place_of(request.param, cluster, tmp_path / "target.db")


def ignore(_what: str, _done: int) -> None:
    """Say nothing."""


async def carry_over(source: Place, target: Place) -> None:
    """Bring all of one store to the other, and open that."""
    from_, to = await source.look(), await target.hold()
    await to.begin(Standing(FILLING))
    sums = await carry(from_, to, say=ignore)
    compare(sums, await summed(to, say=ignore), shown="it")
    await to.open_up(await from_.position())
    await from_.close()
    await to.close()


async def rows_at(place: Place) -> dict[str, Any]:
    """Return every row of a store."""
    store = await place.look()
    found = await all_rows(store)
    await store.close()
    return found


def answers_of(place: Place) -> list[object]:
    """Return what an engine reads of a store."""
    attr = [Compare(Field(f"n{n}", Kind.LABEL, f"attr.n{n}"), Operator.EQUAL, value) for n, value in enumerate(ODD)]
    with Kept(place.make) as kept:
        store = kept.store
        pages = [
            kept.load(load)
            for load in (
                LoadKeys(
                    workflows=(("default", NUL),),
                    runs=("run-open", "run-failed"),
                    tasks=("task-ready", "task-leased"),
                    dedup=(("default", "start", NUL),),
                ),
                LoadReadyTasks(namespace="default", queue="main", type="send", after=(-9, ""), limit=50),
                LoadTimers(after=(0, ""), limit=50),
                LoadReadyRuns(after=(0, ""), limit=50),
                LoadLeasedTasks(after="", limit=50),
            )
        ]
        lists = [
            kept.run(store.list_runs(RunFilter(namespace="default"))),
            kept.run(store.list_runs(RunFilter(namespace="default", status="failed"))),
            kept.run(store.list_tasks(TaskFilter(namespace="default", limit=400))),
            kept.run(store.list_tasks(TaskFilter(namespace="default", state="failed"))),
            *(kept.run(store.list_runs(RunFilter(namespace="default", where=where))) for where in attr),
        ]
        feeds = [
            kept.run(store.read_feed(name, after=FeedPlace(0), events_max=50, bytes_max=10**6))
            for name in ("default", "other")
        ]
        rest = [
            kept.run(store.read_history("run-open", first_event_id=1, events_max=9)),
            kept.run(store.read_attempts("task-failed")),
            kept.run(store.read_namespaces()),
            kept.run(store.read_waiting("default", "main")),
            kept.run(store.read_turns()),
            kept.claim("b").counters,
            kept.claim("b").received,
        ]
    assert all([row.run_id for row in found.rows] == ["run-open"] for found in lists[4:])
    return [*pages, *lists, *feeds, *rest]


@pytest.mark.slow
def test_every_row_is_the_same_in_the_other_store(source: Place, target: Place) -> None:
    before = run(rows_at(source))
    read = answers_of(source)

    run(carry_over(source, target))

    assert {name for name, rows in before.items() if not rows} == set(), "a kind of row is not tried"
    assert run(rows_at(target)) == before
    assert answers_of(target) == read
    assert len(before[LABELS.name]) == len(ODD)


@pytest.mark.slow
def test_what_was_carried_there_and_back_has_the_same_sums(source: Place, target: Place, tmp_path: Path) -> None:
    async def sums_at(place: Place) -> object:
        store = await place.look()
        found = await summed(store, say=ignore)
        await store.close()
        return found

    back = Place(tmp_path / "back.db")
    run(carry_over(source, target))
    run(carry_over(target, back))

    assert run(sums_at(back)) == run(sums_at(source))


def test_every_table_and_column_of_a_file_is_carried(tmp_path: Path) -> None:
    with Kept(Place(tmp_path / "x.db").make):
        pass
    tables = {row[0] for row in execute(tmp_path / "x.db", "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    columns = {
        kind.name: {row[1] for row in execute(tmp_path / "x.db", f"PRAGMA table_info({kind.name})")} for kind in KINDS
    }

    assert {name for name in tables if not name.startswith("sqlite_")} == {kind.name for kind in KINDS} | BOOKKEEPING
    assert columns == {kind.name: set(kind.columns) for kind in KINDS}


def test_every_table_and_column_of_a_database_is_carried(cluster: Cluster) -> None:
    with cluster.database() as url:
        found = cluster.run(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'outlast'",
            database=database_in(url),
        )
    columns: dict[str, set[str]] = {}
    for table, column in found:
        columns.setdefault(table, set()).add(column)

    assert set(columns) == {kind.name for kind in KINDS} | BOOKKEEPING | set(DERIVED) | {"blobs"}
    for kind in KINDS:
        wanted = {*kind.columns, "shard"}
        if kind is LABELS:
            wanted = {*wanted, "kind", "text", "number"} - {"value"}
        if kind is INTAKE:
            wanted = {*kind.columns}
        assert columns[kind.name] == wanted


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        (FILLING, "store_set_aside", "has not been filled to its end"),
        (VERIFIED, "store_set_aside", "has not been filled to its end"),
        (MOVED, "store_moved", "was moved to sqlite:///other.db"),
        (BACKUP, "store_set_aside", "is a backup of sqlite:///other.db"),
    ],
)
def test_a_store_that_may_not_be_worked_on_is_refused(target: Place, state: str, code: str, said: str) -> None:
    async def stand() -> None:
        store = await target.hold()
        await store.stand(Standing(state, place="sqlite:///other.db", at=10**18))
        await store.close()

    with Kept(target.make):
        pass
    run(stand())

    with pytest.raises(StoreError, match=said) as refused, Kept(target.make):
        pass
    assert refused.value.code == code
    assert refused.value.remedy


def test_an_engine_that_has_the_database_open_may_not_take_it_over_while_it_is_filled(cluster: Cluster) -> None:
    async def begin() -> None:
        store = await place.hold()
        await store.begin(Standing(FILLING))
        await store.close()

    with cluster.database() as url:
        place = Place(url)
        with Kept(place.make) as kept:
            run(begin())

            with pytest.raises(StoreError, match="has not been filled to its end") as refused:
                kept.claim()

    assert refused.value.code == "store_set_aside"


def test_an_owner_of_before_writes_nothing_while_the_database_is_held(cluster: Cluster) -> None:
    with cluster.database() as url:
        place = Place(url)
        with Kept(place.make) as kept:
            kept.claim()
            batch = kept.next_batch()
            held = kept.run(place.hold())

            outcome = kept.commit(batch)

            assert outcome.value in {"refused", "unknown"}
            kept.run(held.stand(None))  # nobody has taken it over
            kept.run(held.close())


def test_who_was_taken_over_from_may_not_stand(cluster: Cluster) -> None:
    with cluster.database() as url:
        place = Place(url)
        with Kept(place.make) as kept:
            held = kept.run(place.hold())
            cluster.run("UPDATE outlast.shards SET epoch = epoch + 1", database=database_in(url))

            with pytest.raises(StoreError, match="taken over") as refused:
                kept.run(held.stand(Standing(MOVED)))

            kept.run(held.close())
    assert refused.value.code == "not_owner"


def test_two_who_would_hold_one_store_do_not(target: Place) -> None:
    async def twice() -> None:
        first = await target.hold()
        try:
            second = await target.hold()
            await second.close()
        finally:
            await first.close()

    with Kept(target.make):
        pass
    with pytest.raises(StoreError) as refused:
        run(twice())

    assert refused.value.code == "store_locked"
