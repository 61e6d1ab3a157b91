"""Backups hold one state of a store, and a store that is restored from one refuses whoever worked on it since."""

import asyncio
import hashlib
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from outlast.core.errors import Conflict, Invalid, NotFound
from outlast.core.inputs import CompleteTasks, Completion, TaskSucceeded, TaskToken
from outlast.core.replies import CompletionsReply, Refused, TaskState, Work
from outlast.protocol.transport import Transport
from outlast.server.embedded import start
from outlast.server.keeping import Kept, Restored, backup, plan_backup, plan_restore, restore
from outlast.server.places import BESIDE, BlobPlace
from outlast.store.base import StoreError
from outlast.store.blobs import FileBlobStore
from outlast.store.whole import TASKS
from tests.engine.doubles import a_poll, a_task
from tests.engine.doubles import run as run_within
from tests.server.test_moving import ignore, rows_at, takes_work
from tests.store.filled import PAYLOAD, execute, run

LEASE = TASKS.place_of("lease")
# Restores or backs up, and is killed behind the call that is named.
KILLED = """
import asyncio, os, signal, sys
from outlast.server import keeping
from outlast.server.places import BESIDE
from outlast.store.postgres.whole import PostgresWhole
from outlast.store.sqlite import whole
from outlast.store.sqlite.whole import SqliteWhole

act, name = sys.argv[3:]

def killing(call):
    async def called(*args, **options):
        await call(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    return called

def killing_at_once(call):
    def called(*args, **options):
        call(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    return called

if name in {"finish_backup"}:
    setattr(whole, name, killing_at_once(getattr(whole, name)))
elif name == "copy_to":
    SqliteWhole.copy_to = killing_at_once(SqliteWhole.copy_to)
else:
    for kind in (PostgresWhole, SqliteWhole):
        setattr(kind, name, killing(getattr(kind, name)))
said = {"say": lambda what, done: None}
if act == "restore":
    asyncio.run(keeping.restore(sys.argv[1], sys.argv[2], BESIDE, replace=False, **said))
else:
    asyncio.run(keeping.backup(sys.argv[1], sys.argv[2], BESIDE, **said))
"""


def kept(url: str, copy: Path, place: BlobPlace = BESIDE) -> Kept:
    """Back up, and return what was done."""
    return run(backup(url, str(copy), place, say=ignore))


def restored(copy: Path, url: str, *, replace: bool = False, place: BlobPlace = BESIDE) -> Restored:
    """Restore, and return what was done."""
    return run(restore(str(copy), url, place, replace=replace, say=ignore))


def without_leases(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return rows without the numbers of leases, which a restore raises."""
    return {**rows, TASKS.name: [(*row[:LEASE], *row[LEASE + 1 :]) for row in rows[TASKS.name]]}


@pytest.fixture
def copy(filled: str, tmp_path: Path) -> Path:
    """A backup of it."""
    kept(filled, tmp_path / "copy.db")
    return tmp_path / "copy.db"


@pytest.mark.slow
def test_a_store_is_kept_and_restored_with_everything_in_it(filled: str, empty: str, tmp_path: Path) -> None:
    made = kept(filled, tmp_path / "copy.db")
    done = restored(tmp_path / "copy.db", empty)

    assert (made.payloads, done.payloads, done.verified) == (1, 1, True)
    assert made.size == (tmp_path / "copy.db").stat().st_size
    assert without_leases(rows_at(empty)) == without_leases(rows_at(filled))
    assert takes_work(empty)
    again = kept(empty, tmp_path / "again.db")
    assert again.rows == made.rows
    assert again.payloads == 1
    assert not {path.name for path in tmp_path.iterdir() if ".part" in path.name}


@pytest.mark.slow
def test_a_backup_made_while_work_goes_on_is_one_state_of_the_store(tmp_path: Path, empty: str) -> None:
    engine = start(empty, serve=False)
    states: list[dict[str, list[Any]]] = []

    async def work() -> None:
        sending = asyncio.create_task(_enqueue_many(engine.transport))
        for n in range(3):
            await asyncio.sleep(0.1)
            await backup(empty, str(tmp_path / f"copy-{n}.db"), BESIDE, say=ignore)
        await sending

    run_within(work)
    engine.stop()
    for n in range(3):
        restored(tmp_path / f"copy-{n}.db", f"sqlite:///{tmp_path}/restored-{n}.db")
        states.append(rows_at(f"sqlite:///{tmp_path}/restored-{n}.db"))

    # A task that a commit enqueued is there if and only if the commit's row in the feed and that of its request id are.
    for state in states:
        assert len(state["tasks"]) == len(state["dedup"]) == sum(row[3] for row in state["feed"])
    counts = [len(state["tasks"]) for state in states]
    assert counts == sorted(counts)


@pytest.mark.parametrize("moment", ["before the rows", "behind the rows"])
def test_a_payload_that_is_swept_while_a_backup_is_made_does_it_no_harm(
    filled: str, tmp_path: Path, moment: str
) -> None:
    sweeping = Sweeping(tmp_path / "outlast.db.blobs", late=moment == "behind the rows")

    done = run(backup(filled, str(tmp_path / "copy.db"), BESIDE, say=sweeping.say))

    assert len(sweeping.swept) == 1
    left = {path.name for path in (tmp_path / "copy.db.blobs").glob("??/*")}
    assert done.payloads == len(left)
    assert not sweeping.swept & left
    assert restored(tmp_path / "copy.db", f"sqlite:///{tmp_path}/target.db").verified


def test_a_payload_that_a_row_names_and_that_vanishes_fails_the_backup(filled: str, tmp_path: Path) -> None:
    spec = "".join(Sweeping.names).encode().hex()
    execute(tmp_path / "outlast.db", f"UPDATE tasks SET spec = x'{spec}' WHERE task_id = 'task-ready'")
    sweeping = Sweeping(tmp_path / "outlast.db.blobs", late=False)

    with pytest.raises(StoreError, match="were removed while they were copied") as refused:
        run(backup(filled, str(tmp_path / "copy.db"), BESIDE, say=sweeping.say))

    assert refused.value.code == "store_damaged"
    assert not (tmp_path / "copy.db").exists()


class Sweeping:
    """Puts two payloads, ``late`` when rows are copied already, and removes one as soon as the other was copied."""

    data: ClassVar = {hashlib.sha256(data).hexdigest(): data for data in (b"one", b"two")}
    names = tuple(sorted(data))

    def __init__(self, folder: Path, *, late: bool) -> None:
        self._paths = [folder / name[:2] / name for name in self.names]
        self.swept: set[str] = set()
        self._late = late
        if not late:
            self._put()

    def _put(self) -> None:
        for path in self._paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.data[path.name])

    def say(self, what: str, _done: int) -> None:
        if what == "verify tasks" and self._late:
            self._put()
            self._late = False
        elif what == "copy payloads" and not self._late and not self.swept:
            self._paths[1].unlink()
            self.swept.add(self._paths[1].name)


async def _enqueue_many(transport: Transport) -> None:
    for n in range(300):
        assert not isinstance(await transport.call(a_task(task_id=f"t-{n}")), Refused)


@pytest.mark.slow
def test_a_worker_of_the_past_is_refused_after_a_restore(tmp_path: Path, empty: str) -> None:
    engine = start(empty, serve=False)
    held: list[TaskToken] = []

    async def lease() -> None:
        await engine.transport.call(a_task(task_id="t-1"))
        await engine.transport.call(a_task(task_id="t-2", queue="later"))
        held.extend(await _leased(engine.transport, "w1", "default"))
        await backup(empty, str(tmp_path / "copy.db"), BESIDE, say=ignore)
        held.extend(await _leased(engine.transport, "w1", "later"))  # a lease of which the backup knows nothing

    async def report() -> None:
        held.extend(await _leased(engine.transport, "w2", "later"))
        assert len({token.lease for token in held if token.task_id == "t-2"}) == 2
        for token in held[:2]:
            done = CompleteTasks(worker="w1", items=(Completion(token=token, outcome=TaskSucceeded()),))
            reply = await engine.transport.call(done)
            assert isinstance(reply, CompletionsReply)
            (item,) = reply.items
            assert isinstance(item, Refused)
            assert item.code == "lease_lost"
        found = await engine.transport.list_tasks()
        assert {task.state for task in found.tasks} == {TaskState.LEASED}

    run_within(lease)
    engine.stop()
    restored(tmp_path / "copy.db", empty, replace=True)
    engine = start(empty, serve=False)
    run_within(report)
    engine.stop()


async def _leased(transport: Transport, worker: str, queue: str) -> list[TaskToken]:
    polled = await transport.call(a_poll(worker=worker, queues=(queue,)))
    assert isinstance(polled, Work)
    assert len(polled.tasks) == 1
    return [task.token for task in polled.tasks]


@pytest.mark.slow
def test_two_restores_of_one_backup_have_no_fence_and_no_lease_in_common(copy: Path, tmp_path: Path) -> None:
    first = restored(copy, f"sqlite:///{tmp_path}/a.db")
    second = restored(copy, f"sqlite:///{tmp_path}/b.db")

    assert second.incarnation > first.incarnation > 1
    leases = [{row[LEASE] for row in rows_at(f"sqlite:///{tmp_path}/{name}.db")["tasks"]} for name in "ab"]
    assert not leases[0] & leases[1]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["begin", "write", "settle", "open_up"])
def test_a_restore_that_is_killed_is_said_again(copy: Path, empty: str, filled: str, point: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(copy), empty, "restore", point], check=False, capture_output=True, text=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr

    assert takes_work(empty) is (point == "open_up")
    restored(copy, empty, replace=point == "open_up")

    assert without_leases(rows_at(empty)) == without_leases(rows_at(filled))
    assert takes_work(empty)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["copy_to", "finish_backup"])
def test_a_backup_that_is_killed_has_not_its_name_and_is_said_again(filled: str, tmp_path: Path, point: str) -> None:
    copy = tmp_path / "copy.db"
    process = subprocess.run(
        [sys.executable, "-c", KILLED, filled, str(copy), "backup", point], check=False, capture_output=True, text=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr

    assert not copy.exists()
    assert kept(filled, copy).payloads == 1
    assert restored(copy, f"sqlite:///{tmp_path}/target.db").verified


@pytest.mark.slow
def test_a_store_with_work_is_replaced_only_when_that_is_said(copy: Path, filled: str, tmp_path: Path) -> None:
    engine = start(filled, serve=False)
    run_within(lambda: _send(engine.transport))
    engine.stop()

    with pytest.raises(Conflict, match="holds work already") as refused:
        restored(copy, filled)
    with pytest.raises(Conflict, match="holds work already"):
        run(plan_restore(str(copy), filled, replace=False, say=ignore))
    assert "t-later" in {row[1] for row in rows_at(filled)["tasks"]}
    done = restored(copy, filled, replace=True)

    assert refused.value.code == "store_not_empty"
    assert "t-later" not in {row[1] for row in rows_at(filled)["tasks"]}
    assert done.before == f"{tmp_path}/outlast.db.before-restore-1"
    assert "t-later" in {row[1] for row in rows_at(f"sqlite:///{done.before}")["tasks"]}
    assert takes_work(filled)


async def _send(transport: Transport) -> None:
    await transport.call(a_task(task_id="t-later"))


def test_a_store_that_an_engine_has_is_not_restored(copy: Path, filled: str) -> None:
    engine = start(filled, serve=False)
    try:
        with pytest.raises(StoreError, match="is held by process"):
            restored(copy, filled, replace=True)
    finally:
        engine.stop()


def flip(copy: Path) -> None:
    """Change one byte of a row's data, which SQLite has no checksum of."""
    data = bytearray(copy.read_bytes())
    data[data.index(b"s" * 250) + 100] = 0
    copy.write_bytes(data)


def change(copy: Path) -> None:
    """Take a row away."""
    execute(copy, "DELETE FROM timers WHERE timer_id = 'timer-1'")


def cut(copy: Path) -> None:
    """Lose the second half of the file."""
    with copy.open("r+b") as file:
        file.truncate(copy.stat().st_size // 2)


def lose_payload(copy: Path) -> None:
    """Lose a payload."""
    Path(f"{copy}.blobs", PAYLOAD[:2], PAYLOAD).unlink()
    run(FileBlobStore(f"{copy}.blobs").put(hashlib.sha256(b"another").hexdigest(), b"another"))


def change_payload(copy: Path) -> None:
    """Have a payload say something else."""
    Path(f"{copy}.blobs", PAYLOAD[:2], PAYLOAD).write_bytes(b"other")


@pytest.mark.parametrize("harm", [flip, change, cut, lose_payload, change_payload], ids=lambda harm: harm.__name__)
def test_a_backup_that_is_not_what_it_was_is_refused_before_anything_is_changed(
    copy: Path, filled: str, harm: Callable[[Path], None]
) -> None:
    before = rows_at(filled)
    harm(copy)

    with pytest.raises((StoreError, Conflict)) as refused:
        restored(copy, filled, replace=True)

    assert refused.value.code == "store_damaged"
    assert refused.value.remedy
    assert rows_at(filled) == before
    assert takes_work(filled)


def gone(path: Path) -> None:
    """Lose the file; its lock file stays."""
    path.unlink()


def behind(path: Path) -> None:
    """Put an older copy in the place of the file."""
    older = path.read_bytes()
    engine = start(f"sqlite:///{path}", serve=False)
    run_within(lambda: _send(engine.transport))
    engine.stop()
    path.write_bytes(older)


@pytest.mark.parametrize("harm", [cut, gone, behind], ids=lambda harm: harm.__name__)
def test_a_file_that_no_engine_starts_on_makes_room_for_its_backup(
    copy: Path, filled: str, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    before = rows_at(filled)
    start(filled, serve=False).stop()
    harm(tmp_path / "outlast.db")
    with pytest.raises(StoreError) as refused:
        start(filled, serve=False)
    assert refused.value.code == "store_damaged"
    assert "outlast restore" in refused.value.remedy

    if harm is not gone:
        with pytest.raises(StoreError, match="--replace"):
            restored(copy, filled)
    planned = run(plan_restore(str(copy), filled, replace=True, say=ignore))
    done = restored(copy, filled, replace=harm is not gone)

    kept_as = "" if harm is gone else f"{tmp_path}/outlast.db.before-restore-1"
    assert planned.before == done.before == kept_as
    assert without_leases(rows_at(filled)) == without_leases(before)
    assert takes_work(filled)


def test_a_backup_of_an_older_schema_is_brought_to_the_newest(filled: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    kept(filled, old)
    execute(old, "DROP TABLE standing; DROP TABLE intake; DELETE FROM migrations WHERE name = 'standing'")
    made = old.read_bytes()

    done = restored(old, f"sqlite:///{tmp_path}/target.db")

    assert not done.verified  # what made it said nothing of what must be in it
    assert without_leases(rows_at(f"sqlite:///{tmp_path}/target.db")) == without_leases(rows_at(filled))
    assert old.read_bytes() == made


def test_payloads_in_a_place_of_their_own_are_kept_with_the_backup(filled: str, tmp_path: Path) -> None:
    place = BlobPlace(f"file://{tmp_path}/payloads")
    other = hashlib.sha256(b"elsewhere").hexdigest()
    run(FileBlobStore(tmp_path / "payloads").put(other, b"elsewhere"))

    made = kept(filled, tmp_path / "copy.db", place)
    restored(tmp_path / "copy.db", f"sqlite:///{tmp_path}/target.db", place=BlobPlace(f"file://{tmp_path}/new"))

    assert made.payloads == 1
    assert run(FileBlobStore(f"{tmp_path}/copy.db.blobs").names()) == {other}
    assert run(FileBlobStore(tmp_path / "new").get(other)) == b"elsewhere"


def test_plans_say_what_would_be_done_and_do_nothing(filled: str, copy: Path, tmp_path: Path) -> None:
    before = {path.name for path in tmp_path.iterdir()}

    made = run(plan_backup(filled, str(tmp_path / "other.db"), BESIDE))
    done = run(plan_restore(str(copy), f"sqlite:///{tmp_path}/target.db", replace=False, say=ignore))
    over = run(plan_restore(str(copy), filled, replace=True, say=ignore))

    assert made.rows == done.rows == over.rows
    assert (made.payloads, done.payloads, done.verified) == (1, 1, True)
    assert over.before.endswith("outlast.db.before-restore-1")
    assert {path.name for path in tmp_path.iterdir()} == before
    assert takes_work(filled)


def test_a_backup_goes_into_a_new_file_of_a_folder_that_is_there(filled: str, copy: Path, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="There is .* already"):
        kept(filled, copy)
    with pytest.raises(NotFound, match="There is no folder"):
        kept(filled, tmp_path / "nowhere" / "copy.db")
    with pytest.raises(NotFound):
        restored(tmp_path / "nowhere.db", filled)
    with pytest.raises(Invalid, match="is the store itself"):
        restored(tmp_path / "outlast.db", filled, replace=True)


def test_a_backup_is_for_its_maker_alone(filled: str, copy: Path) -> None:
    restored(copy, filled, replace=True)

    for path in (copy, copy.with_name("outlast.db.before-restore-1")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
