"""A store's work is moved: all of it, once, whatever is killed on the way, and never open in two places."""

import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from threading import Thread
from typing import Any

import asyncpg
import pytest

from outlast import App, Signal
from outlast.core.errors import Conflict, Invalid, NotFound
from outlast.core.inputs import CompleteTasks, Completion, TaskSucceeded
from outlast.core.replies import Refused, TaskState, Work
from outlast.server.embedded import start
from outlast.server.moving import Moved, move, plan, take_back
from outlast.server.places import BESIDE, BlobPlace
from outlast.server.stores import open_stores
from outlast.server.wholes import looked_at
from outlast.store.base import StoreError
from outlast.store.blobs import FileBlobStore
from tests.engine.doubles import a_poll, a_task
from tests.engine.doubles import run as run_within
from tests.store.cluster import Cluster
from tests.store.filled import PAYLOAD, all_rows, filled_file, run

APPROVE = Signal("approve", int)
POINTS = ("begin", "write 1", "write 9", "settle", "stand 1", "stand 2", "open_up 1")
# Moves, and is killed behind the call that is named.
KILLED = """
import asyncio, os, signal, sys
from outlast.server import moving
from outlast.server.places import BESIDE
from outlast.store.postgres.whole import PostgresWhole
from outlast.store.sqlite.whole import SqliteWhole

name, _, left = sys.argv[3].partition(" ")
counted = [int(left or 1)]

def killing(call):
    async def called(*args, **options):
        await call(*args, **options)
        counted[0] -= 1
        if not counted[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return called

for whole in (PostgresWhole, SqliteWhole):
    setattr(whole, name, killing(getattr(whole, name)))
asyncio.run(moving.move(sys.argv[1], sys.argv[2], BESIDE, reason="", say=lambda what, done: None))
"""


def ignore(_what: str, _done: int) -> None:
    """Say nothing."""


def moved(source: str, target: str) -> Moved:
    """Move, and return what was done."""
    return run(move(source, target, BESIDE, reason="it grew", say=ignore))


def rows_at(url: str) -> dict[str, list[Any]]:
    """Return every row of a store."""

    async def read() -> dict[str, list[Any]]:
        store = await looked_at(url)
        found = await all_rows(store)
        await store.close()
        return found

    return run(read())


def takes_work(url: str) -> bool:
    """Say whether an engine may work on a store, as far as that is there."""

    async def attempt() -> bool:
        store = open_stores(url).store
        try:
            await store.open()
            await store.claim(owner="somebody", now=1, lease_until=0)
        except StoreError as error:
            if error.code not in {"store_moved", "store_set_aside"}:
                raise
            return False
        finally:
            await store.close()
        return True

    return run(attempt())


@pytest.mark.slow
def test_a_store_is_moved_and_the_source_says_where_to(filled: str, empty: str) -> None:
    before = rows_at(filled)

    done = moved(filled, empty)

    assert done.did == "move"
    assert rows_at(empty) == before
    assert done.rows == {name: len(rows) for name, rows in before.items()}
    assert done.payloads == 1
    assert takes_work(empty)
    with pytest.raises(StoreError, match="was moved to .*: it grew") as refused:
        start(filled, serve=False)
    assert refused.value.code == "store_moved"
    assert "--take-back" in refused.value.remedy


@pytest.mark.slow
def test_saying_it_again_finds_nothing_to_do(filled: str, empty: str) -> None:
    moved(filled, empty)

    again = moved(filled, empty)

    assert again.did == "nothing"
    assert takes_work(empty)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_move_that_is_killed_is_said_again(filled: str, empty: str, point: str) -> None:
    before = rows_at(filled)
    process = subprocess.run(
        [sys.executable, "-c", KILLED, filled, empty, point], check=False, capture_output=True, text=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr

    opened = [takes_work(filled), takes_work(empty)]
    again = moved(filled, empty)

    assert opened != [True, True], "work could have gone on in both"
    assert again.did == {"stand 2": "finish", "open_up 1": "nothing"}.get(point, "move")
    found = rows_at(empty)
    assert found == before
    assert [takes_work(filled), takes_work(empty)] == [False, True]


@pytest.mark.slow
def test_work_that_went_on_after_a_kill_is_moved_with_the_rest(filled: str, empty: str) -> None:
    subprocess.run([sys.executable, "-c", KILLED, filled, empty, "stand 1"], check=False)
    engine = start(filled, serve=False)
    run_within(lambda: _send(engine.transport, a_task(task_id="t-later")))
    engine.stop()

    moved(filled, empty)

    assert "t-later" in {row[1] for row in rows_at(empty)["tasks"]}


async def _send(transport: Any, *requests: Any) -> None:
    for request in requests:
        reply = await transport.call(request)
        assert not isinstance(reply, Refused), reply


@pytest.mark.slow
def test_open_workflows_go_on_where_they_were_moved_to(tmp_path: Path, empty: str) -> None:
    source = f"sqlite:///{tmp_path}/outlast.db"
    app, order = shop(source)
    with app:
        open_ = [order.using(id=f"order-{n}").start(n) for n in range(3)]
        until(lambda: all("charged" in str(list(handle.history())) for handle in open_))
    moved(source, empty)

    app, order = shop(empty)
    with app:
        handles = [order.using(id=f"order-{n}", if_open="return_existing").start(n) for n in range(3)]
        assert [handle.run_id for handle in handles] == [handle.run_id for handle in open_]
        for n, handle in enumerate(handles):
            handle.signal(APPROVE, n * 10)
        results = [handle.result(timeout="30s") for handle in handles]

    assert results == ["charged 0, approved 0", "charged 1, approved 10", "charged 2, approved 20"]


@pytest.mark.slow
def test_a_task_whose_handler_still_runs_may_report_where_it_was_moved_to(tmp_path: Path, empty: str) -> None:
    source = f"sqlite:///{tmp_path}/outlast.db"
    tokens: list[Any] = []

    async def lease() -> None:
        await _send(engine.transport, a_task(task_id="t-1"))
        polled = await engine.transport.call(a_poll())
        assert isinstance(polled, Work)
        tokens.extend(task.token for task in polled.tasks)

    async def report() -> None:
        await _send(
            engine.transport, CompleteTasks(worker="w1", items=(Completion(token=tokens[0], outcome=TaskSucceeded()),))
        )
        found = await engine.transport.list_tasks()
        assert [task.state for task in found.tasks] == [TaskState.SUCCEEDED]

    engine = start(source, serve=False)
    run_within(lease)
    engine.stop()
    moved(source, empty)
    engine = start(empty, serve=False)
    run_within(report)
    engine.stop()


@pytest.mark.slow
def test_work_is_moved_back_into_the_store_that_it_came_from(filled: str, empty: str) -> None:
    moved(filled, empty)
    engine = start(empty, serve=False)
    run_within(lambda: _send(engine.transport, a_task(task_id="t-later")))
    engine.stop()

    done = moved(empty, filled)

    assert done.did == "move"
    assert "t-later" in {row[1] for row in rows_at(filled)["tasks"]}
    assert [takes_work(filled), takes_work(empty)] == [True, False]


@pytest.mark.slow
def test_a_store_that_is_taken_back_refuses_leases_and_fences_of_before(tmp_path: Path, empty: str) -> None:
    source = f"sqlite:///{tmp_path}/outlast.db"
    engine = start(source, serve=False)
    run_within(lambda: _send(engine.transport, a_task(task_id="t-1")))
    engine.stop()
    before = run(_position_of(source))
    there = moved(source, empty).incarnation

    done = run(take_back(source))

    assert done.incarnation > there > before.incarnation
    assert rows_at(source)["tasks"][0][10] > 10**9
    assert takes_work(source)
    with pytest.raises(Conflict, match="was not moved"):
        run(take_back(source))


async def _position_of(url: str) -> Any:
    store = await looked_at(url)
    found = await store.position()
    await store.close()
    return found


@pytest.mark.slow
def test_a_plan_says_what_would_be_moved_and_moves_nothing(filled: str, empty: str) -> None:
    done = run(plan(filled, empty, BESIDE))

    assert (done.did, done.payloads) == ("move", 1)
    assert done.rows["tasks"] > 300
    assert takes_work(filled)
    if empty.startswith("sqlite"):
        assert not Path(empty.removeprefix("sqlite:///")).exists()


def test_payloads_in_a_place_of_their_own_stay_there_and_change_their_owner(filled: str, tmp_path: Path) -> None:
    place = BlobPlace(f"file://{tmp_path}/payloads")
    run(open_stores(filled, place).blobs.put(PAYLOAD, b"large"))
    target = f"sqlite:///{tmp_path}/target.db"

    done = run(move(filled, target, place, reason="", say=ignore))

    blobs = open_stores(target, place).blobs
    assert isinstance(blobs, FileBlobStore)
    assert run(blobs.owns())
    assert run(blobs.get(PAYLOAD)) == b"large"
    assert done.payloads == 0
    assert not (tmp_path / "target.db.blobs").exists()


def test_a_store_with_work_takes_no_other_work(filled: str, tmp_path: Path) -> None:
    other = f"sqlite:///{filled_file(tmp_path / 'other.db')}"

    for act in (lambda: run(plan(filled, other, BESIDE)), lambda: moved(filled, other)):
        with pytest.raises(Conflict, match="holds work already") as refused:
            act()
        assert refused.value.code == "store_not_empty"

    assert takes_work(filled)
    assert takes_work(other)


def test_a_store_that_an_engine_has_is_not_moved(filled: str, tmp_path: Path) -> None:
    engine = start(filled, serve=False)
    try:
        for act in (plan(filled, f"sqlite:///{tmp_path}/b.db", BESIDE), _move(filled, f"sqlite:///{tmp_path}/b.db")):
            with pytest.raises(StoreError, match="is held by process") as refused:
                run(act)
            assert refused.value.code == "store_locked"
    finally:
        engine.stop()


async def _move(source: str, target: str) -> Moved:
    return await move(source, target, BESIDE, reason="", say=ignore)


def test_a_database_that_an_engine_has_is_not_moved(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.database() as url:
        source = f"{url}&allow_weak_durability=yes"
        engine = start(source, serve=False)
        try:
            with pytest.raises(StoreError, match="is held by") as refused:
                moved(source, f"sqlite:///{tmp_path}/b.db")
        finally:
            engine.stop()

    assert refused.value.code == "not_owner"


@pytest.mark.slow
def test_what_transactions_left_moves_to_a_database_and_nowhere_else(cluster: Cluster, tmp_path: Path) -> None:
    names = [cluster.empty_database() for _ in "ab"]
    here, there = [f"{cluster.url(name)}&allow_weak_durability=yes" for name in names]
    start(here, serve=False).stop()
    cluster.run("SELECT outlast.enqueue('mail', '[1]', id => 't-1')", database=names[0])

    with pytest.raises(Conflict, match="transactions left") as refused:
        moved(here, f"sqlite:///{tmp_path}/b.db")
    done = moved(here, there)

    assert "outlast.intake is empty" in refused.value.remedy
    assert done.rows["intake"] == 1
    with pytest.raises(asyncpg.PostgresError, match="was moved to"):
        cluster.run("SELECT outlast.enqueue('mail', '[2]')", database=names[0])
    cluster.run("SELECT outlast.enqueue('mail', '[3]', id => 't-3')", database=names[1])
    engine = start(there, serve=False)
    until(lambda: {task.task_id for task in _tasks_of(engine.transport)} == {"t-1", "t-3"})
    engine.stop()
    for name in names:
        cluster.drop(name)


def _tasks_of(transport: Any) -> Any:
    return run(transport.list_tasks()).tasks


@pytest.fixture
def database(cluster: Cluster) -> Generator[str]:
    """The name of a database that holds a task."""
    name = cluster.empty_database()
    engine = start(weak(cluster, name), serve=False)
    run_within(lambda: _send(engine.transport, a_task(task_id="t-1")))
    engine.stop()
    yield name
    cluster.drop(name)


def weak(cluster: Cluster, name: str) -> str:
    """Return the address of a database on a server that may lose commits."""
    return f"{cluster.url(name)}&allow_weak_durability=yes"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["copy tasks", "verify tasks"])
def test_a_transaction_that_commits_while_work_is_moved_is_not_lost(
    cluster: Cluster, database: str, tmp_path: Path, moment: str
) -> None:
    source, target = weak(cluster, database), f"sqlite:///{tmp_path}/target.db"
    entered: list[str] = []

    def late(what: str, done: int) -> None:
        if what != moment or entered:
            return
        entered.append(what)
        entering = Thread(
            target=cluster.run, args=("SELECT outlast.enqueue('mail', '[1]')",), kwargs={"database": database}
        )
        entering.start()
        entering.join()

    with pytest.raises((Conflict, StoreError), match="transactions"):
        run(move(source, target, BESIDE, reason="", say=late))

    assert [takes_work(source), takes_work(target)] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
def test_a_transaction_that_began_before_a_move_leaves_nothing_behind(
    cluster: Cluster, database: str, tmp_path: Path, isolation: Any
) -> None:
    async def enqueue() -> None:
        session = await asyncpg.connect(cluster.url(database))
        try:
            async with session.transaction(isolation=isolation):
                await session.fetch("SELECT 1")  # what it sees is from here on of this moment
                await _move(weak(cluster, database), f"sqlite:///{tmp_path}/target.db")
                await session.fetch("SELECT outlast.enqueue('mail', '[1]')")
        finally:
            await session.close()

    with pytest.raises(asyncpg.SerializationError, match="since the transaction began"):
        run(enqueue())

    assert cluster.run("SELECT count(*) FROM outlast.intake", database=database)[0][0] == 0
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="was moved to"):
        cluster.run("SELECT outlast.enqueue('mail', '[1]')", database=database)
    run(take_back(weak(cluster, database)))
    cluster.run("SELECT outlast.enqueue('mail', '[1]')", database=database)


@pytest.mark.slow
def test_who_keeps_a_move_from_its_mark_is_named(
    cluster: Cluster, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.store.postgres.whole.MARK_MILLISECONDS", 100)

    async def keep() -> None:
        session = await asyncpg.connect(cluster.url(database), server_settings={"application_name": "shop"})
        try:
            async with session.transaction():
                await session.fetch("SELECT outlast.enqueue('mail', '[1]')")
                await _move(weak(cluster, database), f"sqlite:///{tmp_path}/target.db")
        finally:
            await session.close()

    with pytest.raises(StoreError, match=r"PID \d+ of outlast \(shop\), idle in transaction since"):
        run(keep())

    assert takes_work(weak(cluster, database))


def test_a_move_names_two_stores_of_which_the_first_is_there(filled: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="are the same store"):
        moved(filled, f"{filled.replace('outlast.db', '../')}{tmp_path.name}/outlast.db")
    with pytest.raises(NotFound):
        moved(f"sqlite:///{tmp_path}/nowhere.db", f"sqlite:///{tmp_path}/b.db")
    with pytest.raises(Invalid, match="in memory"):
        moved("memory:", f"sqlite:///{tmp_path}/b.db")


def test_a_store_that_was_moved_elsewhere_is_not_moved_again(filled: str, tmp_path: Path) -> None:
    moved(filled, f"sqlite:///{tmp_path}/b.db")

    for target in ("c.db", "d.db"):
        with pytest.raises(StoreError, match="b.db") as refused:
            moved(filled, f"sqlite:///{tmp_path}/{target}")
        assert refused.value.code == "store_moved"


def until(look: Any) -> None:
    """Wait until ``look`` returns what is true."""
    ends = time.monotonic() + 30
    while not look():
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.02)


def shop(url: str) -> tuple[App, Any]:
    """Return an app on the store at ``url``, and its workflow: a task, then a signal."""
    app = App(url)

    @app.task
    def charge(number: int) -> str:
        return f"charged {number}"

    @app.workflow
    async def order(number: int) -> str:
        charged = await charge.execute(number)
        return f"{charged}, approved {await APPROVE.receive()}"

    return app, order
