"""``outlast doctor``: each fault is found by its code, with a way out, and the exit code says so."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never, cast

import pytest

from outlast.cli import main
from outlast.cli.doctor import of_workers
from outlast.core.admin import DescribeWorkers, WorkerInfo, WorkersInfo
from outlast.server import looking
from outlast.store.base import StoreError
from outlast.store.postgres.vacuum import Holder
from tests.cli.conftest import Command, rows
from tests.end_to_end.processes import command, serving
from tests.store.filled import execute


def findings(outlast: Command, *argv: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = outlast("doctor", "--json", *argv)
    return code, {row["code"]: row for row in rows(out)}


def test_a_sound_store_has_no_problem_but_says_that_nothing_runs(kept: Path, outlast: Command) -> None:
    code, found = findings(outlast)

    assert code == 0
    assert {"python", "store", "disk", "clock", "runs", "server_none", "tasks_failed"} <= set(found)
    assert "integrity ok" in found["store"]["fact"]
    assert found["setting_default"]["fact"].startswith("default, not chosen: store")


def test_without_a_store_there_is_nothing_to_complain_of(folder: Path, outlast: Command) -> None:
    code, found = findings(outlast)

    assert (code, found["store_missing"]["level"]) == (0, "note")
    assert list(folder.iterdir()) == []
    assert outlast("doctor")[2] == "0 problems, 2 notes\n"


def _damage(kept: Path, _: pytest.MonkeyPatch) -> None:
    file = kept / "outlast.db"
    file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 8192 + file.read_bytes()[12288:])


def _lose_the_file(kept: Path, _: pytest.MonkeyPatch) -> None:
    (kept / "outlast.db").unlink()


def _put_an_older_copy_back(kept: Path, _: pytest.MonkeyPatch) -> None:
    older = (kept / "outlast.db").read_bytes()
    assert main(["task", "enqueue", "resize", "--store", "sqlite:///outlast.db"]) == 0
    (kept / "outlast.db").write_bytes(older)


def _age(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.server.looking.schema_known", lambda: 99)


def _open_to_all(kept: Path, _: pytest.MonkeyPatch) -> None:
    (kept / "outlast.db").chmod(0o666)


def _move_away(kept: Path, _: pytest.MonkeyPatch) -> None:
    execute(kept / "outlast.db", "INSERT INTO standing VALUES (1, 'moved', 'sqlite:///new.db', '', 1, 1, '', '')")


def _leave_half_filled(kept: Path, _: pytest.MonkeyPatch) -> None:
    execute(kept / "outlast.db", "INSERT INTO standing VALUES (1, 'filling', 'sqlite:///old.db', '', 1, 1, '', '')")


def _fill_disk(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.server.checkup.DISK_BYTES_MIN", 1 << 62)
    monkeypatch.setattr("outlast.server.checkup.DISK_BYTES_OUT", 1 << 62)


def _grow_wal(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.server.checkup.WAL_BYTES_MAX", -1)


def _misspell(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_STOER", "x")


def _turn_back_clock(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.cli.doctor.CLOCK_OFF", -(1 << 62))


def _lose_server(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_SERVER", "http://127.0.0.1:1")
    monkeypatch.setattr("outlast.sdk.http.ANSWER_TIMEOUT", 0.3)


FAULTS: list[tuple[str, Callable[[Path, pytest.MonkeyPatch], None]]] = [
    ("store_damaged", _damage),
    ("store_damaged", _lose_the_file),
    ("store_damaged", _put_an_older_copy_back),
    ("store_moved", _move_away),
    ("store_set_aside", _leave_half_filled),
    ("store_schema_old", _age),
    ("store_open_to_all", _open_to_all),
    ("disk_low", _fill_disk),
    ("store_wal_large", _grow_wal),
    ("setting_unknown", _misspell),
    ("clock_behind", _turn_back_clock),
    ("server_unreachable", _lose_server),
]


@pytest.mark.parametrize(("code", "plant"), FAULTS, ids=[f"{code} {plant.__name__}" for code, plant in FAULTS])
def test_a_fault_is_found_with_a_way_out(
    kept: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch, code: str, plant: Any
) -> None:
    plant(kept, monkeypatch)

    exit_code, found = findings(outlast)

    assert exit_code == 7
    assert found[code]["level"] == "problem"
    assert found[code]["remedy"]


@pytest.mark.slow
def test_tasks_that_nobody_polls_for_are_found_on_a_server(kept: Path) -> None:
    with serving(kept) as (_, address):
        by_file = command(kept, "doctor")
        by_server = command(kept, "doctor", "--server", address)

    assert 'none polls queue "images" for "resize"; 1 of them waits' in by_file.stdout
    assert "outlast worker start APP --queue images" in by_server.stdout
    assert f"{address} answers" in by_server.stdout


class OneWorker:
    """An engine that knows one worker."""

    address = "http://127.0.0.1:7070"

    def __init__(self, worker: WorkerInfo) -> None:
        self._worker = worker

    async def send(self, request: DescribeWorkers) -> WorkersInfo:
        del request
        return WorkersInfo(items=(self._worker,))


async def codes_of(worker: WorkerInfo) -> list[str]:
    return [finding.code async for finding in of_workers(cast("Any", OneWorker(worker)))]


def test_a_worker_of_before_that_left_a_lease_is_not_said_to_poll_for_nothing() -> None:
    assert asyncio.run(codes_of(WorkerInfo(worker="gone", leases=1))) == []


def test_a_worker_that_polls_for_nothing_is_found() -> None:
    assert asyncio.run(codes_of(WorkerInfo(worker="idle", queues=("default",)))) == ["worker_idle"]


def test_one_look_that_fails_does_not_hide_what_another_has_found(
    folder: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sound(_: str) -> tuple[str, list[str]]:
        return "the database", []

    async def set_aside(_: str) -> tuple[int, str]:
        return 3, "no such: x"

    async def lost(_: str) -> Never:
        raise StoreError("unavailable", "The database has gone.", remedy="Start it.")

    monkeypatch.setattr(looking, "weak_points_of", sound)
    monkeypatch.setattr(looking, "set_aside_in", set_aside)
    monkeypatch.setattr(looking, "vacuum_held_in", lost)

    _, found = findings(outlast, "--store", "postgresql://me@127.0.0.1:1/work")

    assert found["intake_set_aside"]["fact"].endswith("3 could not be taken; the first: no such: x")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("prepared", "COMMIT PREPARED 'it''s \"mine\"', or ROLLBACK PREPARED 'it''s \"mine\"'"),
        ("slot", "SELECT pg_drop_replication_slot('it''s \"mine\"')"),
    ],
)
def test_what_is_to_be_typed_into_sql_is_quoted_as_sql_is(
    kind: str, said: str, folder: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sound(_: str) -> tuple[str, list[str]]:
        return "the database", []

    async def nothing(_: str) -> tuple[int, str]:
        return 0, ""

    async def held(_: str) -> tuple[list[Holder], int]:
        return [Holder(kind, 'it\'s "mine"', 7, "me", "", "", 1, 1)], 5

    monkeypatch.setattr(looking, "weak_points_of", sound)
    monkeypatch.setattr(looking, "set_aside_in", nothing)
    monkeypatch.setattr(looking, "vacuum_held_in", held)

    _, found = findings(outlast, "--store", "postgresql://me@127.0.0.1:1/work")

    assert found["vacuum_held_back"]["remedy"].endswith(said)
