"""Queues, workers and namespaces on the command line, with an engine and on the file alone."""

from pathlib import Path

import pytest

from outlast.cli.queue import _worker_row  # pyright: ignore[reportPrivateUsage]
from outlast.core.admin import WorkerInfo
from outlast.core.units import SECOND
from tests.cli.conftest import Command, rows
from tests.end_to_end.processes import Program, command, serving, wait_until

NOW = 1_796_000_000 * SECOND
APP = "from outlast import App\napp = App()\n@app.task(queue='images')\ndef resize() -> None: ...\n"


def test_queues_are_listed_with_what_waits_in_them(kept: Path, outlast: Command) -> None:
    code, out, _ = outlast("queue", "list", "--json")
    _, named, _ = outlast("queue", "list", "--queue", "images", "-o", "id")

    found = {row["name"]: row for row in rows(out)}
    assert code == 0
    assert (found["images"]["ready"], found["orders"]["turns"]) == (1, 3)
    assert [kind["type"] for kind in found["images"]["types"]] == ["resize"]
    assert named == "images\n"


def test_a_queue_is_shown_by_its_name_also_when_it_is_empty(kept: Path, outlast: Command) -> None:
    code, out, _ = outlast("queue", "show", "images", "--json")
    _, told, _ = outlast("queue", "show", "images")
    _, empty, _ = outlast("queue", "show", "nothing", "--json")

    assert code == 0
    assert (rows(out)[0]["name"], rows(out)[0]["ready"]) == ("images", 1)
    assert told.startswith("images\n")
    assert "resize 1" in told
    assert (rows(empty)[0]["name"], rows(empty)[0]["ready"]) == ("nothing", 0)


def test_who_polls_is_known_to_an_engine_only(kept: Path, outlast: Command) -> None:
    code, _, err = outlast("worker", "list")

    assert code == 5
    assert "only an engine knows" in err


@pytest.mark.slow
def test_workers_are_listed_and_one_that_is_missing_is_found(kept: Path) -> None:
    (kept / "app.py").write_text(APP)
    with serving(kept) as (_, address):
        worker = Program(kept, "-m", "outlast.cli", "worker", "start", "app.py", "--server", address, name="worker")
        try:
            where = ("--server", address, "--json")
            found = wait_until(
                lambda: rows(command(kept, "worker", "list", *where).stdout), worker.said, worker.process
            )
            wait_until(lambda: command(kept, "task", "count", "--state", "enqueued").stdout == "0\n")
        finally:
            worker.kill()

    assert found[0]["queues"] == ["default", "images"] or "images" in found[0]["queues"]
    assert found[0]["task_types"] == ["resize"]


def test_a_namespace_is_made_changed_and_deleted(kept: Path, outlast: Command) -> None:
    made, _, err = outlast("namespace", "create", "shop", "--retention", "7d", "--reason", "a new shop")
    assert made == 0, err
    assert outlast("namespace", "update", "shop", "--starts-per-second", "5")[0] == 0
    _, out, _ = outlast("namespace", "show", "shop", "--json")
    shop = rows(out)[0]
    settings = shop["settings"]
    assert (settings["retention"], settings["starts_per_second"], shop["version"]) == ("PT604800S", 5, 2)

    assert outlast("task", "enqueue", "resize", "--namespace", "shop")[0] == 0
    code, _, err = outlast("namespace", "delete", "shop", "--confirm", "shop")
    assert code == 4, err
    assert outlast("namespace", "delete", "shop", "--confirm", "shop", "--force")[0] == 0
    _, out, _ = outlast("namespace", "list", "--json")
    assert [row["name"] for row in rows(out) if row["state"] == "active"] == ["default"]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        pytest.param(["namespace", "show", "nope"], 3, "namespace_not_found", id="none of that name"),
        pytest.param(["namespace", "delete", "default"], 2, "--confirm default", id="not confirmed"),
        pytest.param(["namespace", "delete", "default", "--confirm", "default"], 4, "default", id="the default"),
        pytest.param(["namespace", "update", "default"], 2, "Nothing to change", id="nothing named"),
        pytest.param(["namespace", "create", "x", "--retention", "long"], 2, "--retention", id="no span"),
    ],
)
def test_a_change_of_a_namespace_that_cannot_be_is_refused(
    kept: Path, outlast: Command, argv: list[str], code: int, said: str
) -> None:
    found, out, err = outlast(*argv)

    assert found == code, err
    assert said in out + err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(["queue", "list"], "No queue has open work. One by its name", id="queues"),
        pytest.param(["task", "list"], 'There is no task in namespace "empty". Other namespaces:', id="tasks"),
        pytest.param(["task", "list", "--state", "held"], "All of them: outlast task list.", id="tasks of a state"),
        pytest.param(["workflow", "list"], 'There is no workflow in namespace "empty".', id="runs"),
        pytest.param(
            ["workflow", "list", "--tag", "plan=pro"], "All of them: outlast workflow list.", id="tagged runs"
        ),
        pytest.param(["feed"], "Nothing was committed yet.", id="events"),
    ],
)
def test_a_list_without_a_row_says_so_and_how_to_look_wider(
    kept: Path, outlast: Command, argv: list[str], said: str
) -> None:
    code, out, err = outlast(*argv, "--namespace", "empty")
    _, as_json, beside = outlast(*argv, "--namespace", "empty", "--json")
    _, _, quiet = outlast(*argv, "--namespace", "empty", "-q")

    assert (code, out) == (0, "")
    assert said in err
    assert (as_json, beside, quiet) == ("", "", "")


def test_a_task_that_was_never_in_hand_is_said_to_have_no_attempts(kept: Path, outlast: Command) -> None:
    code, out, err = outlast("task", "attempts", "t-waits")

    assert (code, out) == (0, "")
    assert "outlast why t-waits" in err


def test_a_worker_of_before_the_start_is_said_not_to_have_been_seen() -> None:
    gone = WorkerInfo(worker="w-1", identity="4711@shop", leases=1)

    assert _worker_row(gone, NOW) == ("4711@shop", "", "", "", "0 / 0", "1", "not since the start", "")
