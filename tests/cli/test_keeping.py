"""move, backup, restore and migrate on the command line: what they print, how they end, and what they leave alone."""

from pathlib import Path

from outlast.server.embedded import start
from tests.cli.conftest import Command, rows
from tests.engine.doubles import a_task, run
from tests.store.filled import execute


def test_a_store_is_kept_while_an_engine_has_it_and_comes_back(kept: Path, outlast: Command) -> None:
    engine = start("sqlite:///outlast.db")
    try:
        code, out, err = outlast("backup", "monday.db")
    finally:
        engine.stop()

    assert code == 0, err
    assert out.startswith("kept outlast.db in monday.db\n  3 runs, ")
    run(lambda: _enqueue("t-later"))
    assert outlast("task", "count")[1] == "4\n"

    code, _, err = outlast("restore", "monday.db")
    assert code == 4
    assert "outlast.db holds work already: 3 runs, 4 tasks" in err
    assert "--replace" in err
    code, out, _ = outlast("restore", "monday.db", "--replace", "--json")
    assert code == 0
    (found,) = rows(out)
    assert (found["before"], found["verified"], found["dry_run"]) == ("outlast.db.before-restore-1", True, False)
    assert outlast("task", "count")[1] == "3\n"
    assert outlast("workflow", "cancel", "order-1")[0] == 0


async def _enqueue(task_id: str) -> None:
    engine = start("sqlite:///outlast.db", serve=False)
    await engine.transport.call(a_task(task_id=task_id))
    engine.stop()


def test_a_backup_is_read_and_not_worked_on(kept: Path, outlast: Command) -> None:
    outlast("backup", "monday.db")

    assert outlast("task", "count", "--store", "sqlite:///monday.db")[1] == "3\n"
    code, _, err = outlast("workflow", "cancel", "order-1", "--store", "sqlite:///monday.db")

    assert code == 4
    assert "monday.db is a backup of sqlite:///" in err
    assert "outlast restore monday.db" in err


def test_a_backup_that_is_missing_or_damaged_is_said_to_be_the_backup(kept: Path, outlast: Command) -> None:
    outlast("backup", "monday.db")
    (kept / "cut.db").write_bytes((kept / "monday.db").read_bytes()[:9_000])

    missing = outlast("restore", "nofile.db", "--store", "sqlite:///new.db")
    damaged = outlast("restore", "cut.db", "--store", "sqlite:///new.db")

    assert "There is no backup at nofile.db." in missing[2]
    assert "Take another backup; the store is as it was." in damaged[2]
    assert (missing[0] != 0, damaged[0] != 0, (kept / "new.db").exists()) == (True, True, False)


def test_work_is_moved_and_taken_back(kept: Path, outlast: Command) -> None:
    code, out, _ = outlast("move", "sqlite:///outlast.db", "sqlite:///new.db", "--dry-run")
    assert code == 0
    assert out.startswith("would have moved outlast.db to new.db\n  3 runs, ")
    assert not (kept / "new.db").exists()

    code, out, _ = outlast("move", "sqlite:///outlast.db", "sqlite:///new.db", "--reason", "a larger disk", "--json")
    assert code == 0
    (done,) = rows(out)
    assert (done["did"], done["rows"]["tasks"], done["dry_run"]) == ("move", 3, False)
    code, out, _ = outlast("move", "sqlite:///outlast.db", "sqlite:///new.db")
    assert code == 0
    assert "nothing to do" in out
    code, _, err = outlast("workflow", "cancel", "order-1")
    assert code == 4
    assert "was moved to sqlite:///" in err
    assert "a larger disk" in err
    code, out, err = outlast("task", "count")
    assert (code, out) == (0, "3\n")
    assert "What is shown is as it was then." in err
    assert outlast("workflow", "cancel", "order-1", "--store", "sqlite:///new.db")[0] == 0

    code, out, _ = outlast("move", "--take-back", "sqlite:///outlast.db")
    assert code == 0
    assert "takes work again" in out
    assert outlast("workflow", "cancel", "order-1")[0] == 0


def test_what_a_move_needs_is_asked_for(kept: Path, outlast: Command) -> None:
    assert outlast("move", "sqlite:///outlast.db")[0] == 2
    assert outlast("move", "sqlite:///outlast.db", "sqlite:///b.db", "--take-back")[0] == 2
    assert outlast("move", "sqlite:///outlast.db", "sqlite:///outlast.db")[0] == 2
    assert outlast("move", "memory:", "sqlite:///b.db")[0] == 2
    assert outlast("move", "sqlite:///nowhere.db", "sqlite:///b.db")[0] == 3
    assert outlast("move", "sqlite:///outlast.db", "postgresql://127.0.0.1:1/work")[0] == 5
    assert outlast("move", "--take-back", "sqlite:///outlast.db")[0] == 4
    assert outlast("workflow", "cancel", "order-1")[0] == 0


def test_a_store_that_is_half_filled_is_not_even_looked_at(kept: Path, outlast: Command) -> None:
    execute("outlast.db", "INSERT INTO standing VALUES (1, 'filling', 'monday.db', '', 1, 1, '', '')")

    code, _, err = outlast("task", "count")

    assert code == 4
    assert "has not been filled to its end" in err


def test_the_migrations_that_a_store_lacks_are_listed(kept: Path, outlast: Command) -> None:
    execute("outlast.db", "DROP TABLE standing; DROP TABLE intake; DELETE FROM migrations WHERE name = 'standing'")

    code, out, _ = outlast("migrate", "--plan")
    assert code == 0
    assert "would be brought from schema" in out
    assert "standing" in out
    assert "Whether the store may be worked on" in out
    code, out, _ = outlast("migrate", "--check", "--json")
    assert code == 7
    (found,) = rows(out)
    assert [one["name"] for one in found["pending"]] == ["standing"]
    assert found["copy"] == f"outlast.db.before-{found['after']}"
    assert not (kept / found["copy"]).exists()

    assert outlast("migrate")[0] == 0

    assert (kept / found["copy"]).exists()
    assert outlast("migrate", "--check")[:2] == (
        0,
        f"outlast.db has schema {found['after']}, the one of this version: nothing to do\n",
    )


def test_a_store_that_is_not_there_is_said_to_be_missing_and_leaves_no_trace(folder: Path, outlast: Command) -> None:
    for words in (
        ("backup", "b.db", "--store", "sqlite:///none.db"),
        ("move", "sqlite:///none.db", "sqlite:///new.db"),
    ):
        code, _, err = outlast(*words)
        assert (code, "There is no store at none.db." in err) == (3, True), err
    assert not list(folder.glob("none.db*"))
