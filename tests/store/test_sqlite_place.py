"""SQLite: a file that is removed, renamed or replaced under a running engine takes no acknowledged work with it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.core.units import Fence
from outlast.core.writes import CommitOutcome
from outlast.store.base import StoreError
from outlast.store.sqlite.place import Place
from outlast.store.sqlite.store import SqliteStore
from tests.store.kept import Kept
from tests.store.rows import run_row


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def replace(path: Path) -> None:
    rename(path)
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [remove, rename, replace])
@pytest.mark.parametrize("ending", ["", "-wal"], ids=["database", "log"])
def test_nothing_is_acknowledged_into_a_file_that_lost_its_name(
    tmp_path: Path, harm: Callable[[Path], None], ending: str
) -> None:
    path = tmp_path / "shard.db"
    with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
        kept.claim()
        kept.write(run_row("run-1"))
        harm(Path(f"{path}{ending}"))

        outcome = kept.commit(kept.next_batch(run_row("run-2")))

        assert outcome is CommitOutcome.UNKNOWN
        with pytest.raises(StoreError) as caught:
            kept.claim()
        assert caught.value.code == "unavailable"
        assert f"{path}{ending}" in caught.value.fact
        assert "back" in caught.value.remedy


def test_a_claim_into_a_file_that_lost_its_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shard.db"
    with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
        kept.claim()
        rename(path)

        with pytest.raises(StoreError, match="removed or renamed"):
            kept.claim()

        assert kept.fence == Fence(1, 1)


def test_a_store_whose_file_was_put_back_goes_on_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    path, away = tmp_path / "shard.db", tmp_path / "away.db"
    with Kept(lambda: SqliteStore(path, allow_network_disk=True)) as kept:
        kept.claim()
        kept.write(run_row("run-1"))
        path.rename(away)
        assert kept.commit(kept.next_batch(run_row("run-2"))) is CommitOutcome.UNKNOWN
        kept.run(kept.store.close())
        with pytest.raises(StoreError, match="missing|not there|gone"):
            kept.run(kept.store.open())
        away.rename(path)

        kept.run(kept.store.open())
        kept.claim()

        assert kept.find_run("run-1") is not None
        kept.write(run_row("run-3"))


def test_a_file_that_cannot_be_looked_at_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(str(tmp_path / "a"))
    (tmp_path / "a").touch()
    place.note()

    def refuse(_name: str) -> os.stat_result:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refuse)

    assert place.fault() == ""
