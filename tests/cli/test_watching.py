"""``--watch`` and ``--follow``: shown again when it has changed, and ended as the run ends."""

import asyncio
import time
from argparse import Namespace
from pathlib import Path
from typing import cast

import pytest

from outlast.cli import watch
from outlast.cli.reach import Look
from outlast.cli.text import ago
from outlast.cli.watching import Render, shown
from outlast.core.errors import Invalid
from outlast.core.events import WorkflowExecutionCompleted, WorkflowExecutionContinuedAsNew
from outlast.core.replies import RunStatus, WorkflowInfo
from outlast.core.units import SECOND
from outlast.protocol.transport import HistoryPage
from tests.cli.conftest import Command, rows
from tests.end_to_end.processes import Program, command, serving


def watched(texts: list[str], *, every: str = "50ms", watch: bool = True, since: int = 0) -> int:
    """Watch a look that gives one text after the other, and ends with 1 at the last."""

    async def look() -> tuple[Render, int | None]:
        text = texts.pop(0)
        return lambda now: f"{text} {ago(since, now)}\n" if since else text, None if texts else 1

    arguments = Namespace(watch=watch, every=every, json=False, output=None)
    return asyncio.run(shown(arguments, look))


def test_what_has_not_changed_is_not_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    code = watched(["one\n", "one\n", "two\n"])

    assert capsys.readouterr().out == "one\n\ntwo\n"
    assert code == 1


def test_an_age_that_grows_is_no_news_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    watched(["one", "one", "one", "two"], since=time.time_ns() - 5 * SECOND)

    told = capsys.readouterr().out
    assert [line.partition(" ")[0] for line in told.split("\n\n")] == ["one", "two"]
    assert told.count(" ago") == 2


def test_without_watch_there_is_one_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert watched(["one\n", "two\n"], watch=False) == 0
    assert capsys.readouterr().out == "one\n"


def test_a_look_too_often_is_refused() -> None:
    with pytest.raises(Invalid, match="--every"):
        watched(["one\n", "two\n"], every="1ms")


@pytest.mark.slow
def test_a_watch_and_a_follow_end_with_the_code_of_the_run(kept: Path) -> None:
    with serving(kept) as (_, address):
        where = ("--server", address, "--json")
        watch = Program(
            kept,
            "-m",
            "outlast.cli",
            "workflow",
            "show",
            "order-1",
            "--watch",
            "--every",
            "100ms",
            *where,
            name="watch",
        )
        follow = Program(kept, "-m", "outlast.cli", "workflow", "history", "order-1", "--follow", *where, name="follow")
        news = Program(kept, "-m", "outlast.cli", "watch", "order-1", *where, name="news")
        try:
            watch.until_said('"running"')
            follow.until_said("WorkflowExecutionSignaled")
            news.until_said("WorkflowExecutionSignaled")
            ended = command(kept, "workflow", "terminate", "order-1", "--server", address)
            codes = tuple(one.process.wait(timeout=20) for one in (watch, follow, news))
        finally:
            for one in (watch, follow, news):
                one.kill()

    assert ended.returncode == 0, ended.stderr
    assert codes == (1, 1, 1)
    assert rows(watch.out.read_text())[-1]["workflow"]["status"] == "terminated"
    ids = [row["event_id"] for row in rows(follow.out.read_text())]
    assert ids == list(range(1, len(ids) + 1))
    assert [row["event"]["event_id"] for row in rows(news.out.read_text())] == ids


def test_what_has_ended_is_shown_once_and_gives_its_code(kept: Path, outlast: Command) -> None:
    outlast("workflow", "terminate", "order-1")

    code, out, _ = outlast("watch", "order-1")
    _, news, _ = outlast("watch", "order-1", "--json")

    assert code == 1
    assert out.startswith("order-1  order  terminated")
    assert rows(news)[-1]["event"]["kind"] == "WorkflowExecutionTerminated"


def test_a_task_is_watched_by_its_id_too(kept: Path, outlast: Command) -> None:
    _, listed, _ = outlast("task", "list", "--queue", "images", "-o", "id")
    task_id = listed.split()[0]
    outlast("task", "cancel", task_id)

    code, out, _ = outlast("watch", task_id, "--json")

    assert code == 1
    assert [row["task"]["state"] for row in rows(out)] == ["canceled"]


@pytest.mark.parametrize(("typed", "code"), [("2\n", 0), ("yes\n", 2)], ids=["the number", "something else"])
def test_on_a_terminal_the_number_is_typed(kept: Path, outlast: Command, typed: str, code: int) -> None:
    found, out, err = outlast("workflow", "terminate", "order-1", "order-2", stdin=typed, terminal=True)

    assert found == code
    assert "This will terminate 2 workflows: order-1, order-2" in err
    assert out.count("terminated order-") == (2 if code == 0 else 0)


class Chained:
    """A look at a run that is read to its end while it is said to run, and goes on as another."""

    def __init__(self) -> None:
        self.looks = 0

    async def workflow(self, workflow_id: str, run_id: str = "") -> WorkflowInfo:
        self.looks += 1
        if run_id == "r-2":
            return _told(RunStatus.COMPLETED, run_id)
        return _told(RunStatus.CONTINUED_AS_NEW, "r-1")

    async def history(self, workflow_id: str, run_id: str, first_event_id: int = 1) -> HistoryPage:
        ended = (
            WorkflowExecutionContinuedAsNew(new_run_id="r-2", workflow_type="order", task_queue="default")
            if run_id == "r-1"
            else WorkflowExecutionCompleted()
        )
        return HistoryPage(workflow_id=workflow_id, run_id=run_id, first_event_id=first_event_id, events=((1, ended),))


def _told(status: RunStatus, run_id: str) -> WorkflowInfo:
    return WorkflowInfo(
        namespace="default",
        workflow_id="o-1",
        run_id=run_id,
        first_run_id="r-1",
        type="order",
        queue="default",
        status=status,
        build="",
        started_at=1,
        closed_at=0,
        events=1,
        history_bytes=1,
        cancel_requested=False,
    )


def test_a_watch_follows_a_chain_whose_last_event_came_before_the_word_that_it_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = asyncio.run(watch._events(cast("Look", Chained()), _told(RunStatus.RUNNING, "r-1")))

    assert code == 0
    assert [row["event"]["kind"] for row in rows(capsys.readouterr().out)] == [
        "WorkflowExecutionContinuedAsNew",
        "WorkflowExecutionCompleted",
    ]
