"""``outlast doctor``: each fault is found by its code, with a way out, and the exit code says so."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from outlast.cli.doctor import of_workers
from outlast.core.admin import DescribeWorkers, WorkerInfo, WorkersInfo
from tests.cli.conftest import Command, rows
from tests.end_to_end.processes import command, serving


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


def _age(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.server.looking.schema_known", lambda: 99)


def _open_to_all(kept: Path, _: pytest.MonkeyPatch) -> None:
    (kept / "outlast.db").chmod(0o666)


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
    ("store_schema_old", _age),
    ("store_open_to_all", _open_to_all),
    ("disk_low", _fill_disk),
    ("store_wal_large", _grow_wal),
    ("setting_unknown", _misspell),
    ("clock_behind", _turn_back_clock),
    ("server_unreachable", _lose_server),
]


@pytest.mark.parametrize(("code", "plant"), FAULTS, ids=[code for code, _ in FAULTS])
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
