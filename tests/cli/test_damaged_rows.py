"""A row of the store that cannot be opened: shown as that, found by the doctor, and no hindrance to anything else."""

from pathlib import Path
from typing import cast

import apsw

from outlast.store.sqlite.connection import Connection
from tests.cli.conftest import Command, rows


def spoil(folder: Path) -> None:
    """Make two rows unreadable: of a task and of a run."""
    with apsw.Connection(str(folder / "outlast.db")) as opened:
        connection = cast("Connection", opened)
        connection.execute("UPDATE tasks SET status = x'c1' WHERE task_id = 't-waits'")
        connection.execute("UPDATE runs SET state = x'c1' WHERE workflow_id = 'order-2'")


def test_the_doctor_names_rows_that_cannot_be_opened(kept: Path, outlast: Command) -> None:
    spoil(kept)

    code, out, _ = outlast("doctor", "--json")

    found = [row["fact"] for row in rows(out) if row["code"] == "store_row_damaged"]
    assert code == 7
    assert found[0] == "1 tasks cannot be read: t-waits"
    assert found[1].startswith("1 runs cannot be read: ")


def test_lists_show_them_beside_the_others(kept: Path, outlast: Command) -> None:
    spoil(kept)

    _, listed, _ = outlast("task", "list", "--json")
    _, runs, _ = outlast("workflow", "list", "--json")
    _, why, _ = outlast("why", "t-waits")

    reasons = {row["id"]: row["reason"] for row in rows(listed)}
    assert set(reasons) == {"t-done", "t-failed", "t-waits"}
    assert reasons["t-waits"] == "damaged"
    assert {row["id"]: row["why"][:28] for row in rows(runs)}["order-2"] == "nothing that comes: its row "
    assert "its row cannot be read" in why


def test_changes_of_the_others_go_on(kept: Path, outlast: Command) -> None:
    spoil(kept)

    refused, _, err = outlast("workflow", "cancel", "order-2")
    code, out, _ = outlast("workflow", "terminate", "order-1")
    _, listed, _ = outlast("workflow", "list", "--json")

    assert refused != 0
    assert "store_damaged" in err
    assert (code, out) == (0, "terminated order-1\n")
    assert {row["id"]: row["status"] for row in rows(listed)}["order-1"] == "terminated"
