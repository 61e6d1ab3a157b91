"""What is said of work that is started and that nobody polls for."""

import asyncio
import socket
from argparse import Namespace
from pathlib import Path
from typing import Any, cast

import pytest

from outlast.cli.unpolled import Wanted, tell_unpolled
from outlast.core.admin import DescribeWorkers, WorkerInfo, WorkersInfo
from outlast.core.errors import Denied
from tests.cli.conftest import Command, rows
from tests.end_to_end.processes import Program, command, serving, wait_until

LOUD = Namespace(quiet=False)


class Queue:
    """The workers of one queue, for who may see them."""

    def __init__(self, *workers: WorkerInfo, denied: bool = False) -> None:
        self._workers = workers
        self._denied = denied

    async def send(self, request: DescribeWorkers) -> WorkersInfo:
        if self._denied:
            raise Denied("denied", "Not for you.")
        return WorkersInfo(items=tuple(worker for worker in self._workers if request.queue in worker.queues))


def said(queue: Queue, *wanted: Wanted, capsys: pytest.CaptureFixture[str]) -> str:
    asyncio.run(tell_unpolled(LOUD, cast("Any", queue), set(wanted)))
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_type_that_the_workers_do_not_have_is_told_apart_from_a_missing_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = WorkerInfo(worker="w", queues=("default",), task_types=("resize", "mail"), polls=1)
    gone = WorkerInfo(worker="x", queues=("default",), task_types=("rezise",))

    wrong = said(Queue(there, gone), Wanted("task", "default", "rezise"), capsys=capsys)
    missing = said(Queue(gone), Wanted("workflow", "default", "order"), capsys=capsys)

    assert wrong == (
        'The workers of queue "default" have no task "rezise", but mail, resize. Did you mean "resize"? '
        "It waits for a worker that has it.\n"
    )
    assert missing == (
        'No worker polls queue "default" for workflow "order": it waits until one does.'
        "  outlast worker start APP --queue default\n"
    )


def test_who_may_not_see_workers_is_told_that_none_polls(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No worker polls" in said(Queue(denied=True), Wanted("task", "q", "t"), capsys=capsys)


def test_of_many_types_that_nobody_polls_for_a_few_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(Queue(), *(Wanted("task", "q", f"t{n}") for n in range(5)), capsys=capsys)

    assert told.count("No worker polls") == 3
    assert told.endswith("Nobody polls for 2 more types of the file either.\n")


@pytest.mark.parametrize(
    "argv", [("task", "enqueue", "nobody"), ("workflow", "start", "nobody")], ids=["task", "workflow"]
)
def test_work_is_taken_and_said_to_wait_for_a_worker(kept: Path, outlast: Command, argv: tuple[str, ...]) -> None:
    code, out, err = outlast(*argv, "--json")
    _, _, quiet = outlast(*argv, "-q")

    assert code == 0
    assert len(rows(out)) == 1
    assert f'No worker polls queue "default" for {argv[0]} "nobody"' in err
    assert "No worker polls" not in quiet


def test_a_file_of_tasks_says_of_each_type_once_that_nobody_polls_for_it(kept: Path, outlast: Command) -> None:
    lines = '{"type": "one"}\n{"type": "two"}\n' * 3

    _, _, err = outlast("task", "enqueue", "--file", "-", stdin=lines)

    assert err.count("No worker polls") == 2


APP = "from outlast import App\napp = App()\n@app.task\ndef resize() -> None: ...\n"


@pytest.mark.slow
def test_a_worker_says_that_it_waits_for_its_server_and_then_that_it_polls(kept: Path) -> None:
    (kept / "app.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}"
    worker = Program(kept, "-m", "outlast.cli", "worker", "start", "app.py", "--server", address, name="worker")
    try:
        worker.until_said(f"worker for app.py waits for {address}: Connection refused")
        assert "polls" not in worker.out.read_text()
        with serving(kept, "--port", port):
            worker.until_said(f"worker for app.py polls {address}")
            # Its first poll may be in a pause yet, since there was no server.
            wait_until(lambda: command(kept, "worker", "list", "--server", address, "-q").stdout, worker.said)
            known = command(kept, "task", "enqueue", "resize", "--server", address)
            unknown = command(kept, "task", "enqueue", "rezise", "--server", address)
    finally:
        worker.kill()

    assert known.stderr == ""
    assert 'Did you mean "resize"?' in unknown.stderr
    assert unknown.returncode == 0


@pytest.mark.slow
def test_dev_makes_no_store_for_a_file_without_an_app(folder: Path) -> None:
    (folder / "none.py").write_text("x = 1\n")

    done = command(folder, "dev", "none.py", "--port", "0")

    assert done.returncode == 2
    assert "none.py should have one app; found: none." in done.stderr
    assert "outlast dev:" not in done.stdout
    assert not list(folder.glob("*.db*"))
