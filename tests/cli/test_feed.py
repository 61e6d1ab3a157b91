"""``outlast feed``: what was committed, one event a line, from the file or through an engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.end_to_end.processes import Program, command, serving, wait_until


def lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_a_file_that_nobody_runs_tells_all_that_was_committed(kept: Path, outlast: Command) -> None:
    code, out, _ = outlast("feed", "--json")

    told = lines(out)
    assert code == 0
    assert [event["task_id"] for event in told if event["kind"] == "TaskEnqueued"] == ["t-done", "t-failed", "t-waits"]
    assert {event["task_id"]: event["fields"]["state"] for event in told if event["kind"] == "TaskClosed"} == {
        "t-done": "succeeded",
        "t-failed": "failed",
    }
    assert [event["workflow_id"] for event in told if event["kind"] == "WorkflowExecutionStarted"] == [
        "order-1",
        "order-2",
        "order-3",
    ]
    assert [event["commit"] for event in told] == sorted(event["commit"] for event in told)


def test_reading_goes_on_behind_a_cursor(kept: Path, outlast: Command) -> None:
    _, out, _ = outlast("feed", "--json")
    _, some, _ = outlast("feed", "--json", "--limit", "4")
    _, rest, _ = outlast("feed", "--json", "--after", lines(some)[-1]["cursor"])

    assert lines(some) + lines(rest) == lines(out)
    assert len(lines(some)) == 4


def test_people_are_told_how_to_go_on(kept: Path, outlast: Command) -> None:
    _, out, err = outlast("feed", "--limit", "3")
    cursor = err.strip().rpartition(" ")[2]
    _, rest, _ = outlast("feed", "--after", cursor)
    _, whole, _ = outlast("feed")

    assert out + rest == whole
    assert "TaskEnqueued" in out
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    ("given", "said"), [(("--after", "nonsense"), "which no feed gave"), (("--limit", "-1"), "--limit is -1")]
)
def test_what_is_asked_wrongly_is_told(kept: Path, outlast: Command, given: tuple[str, str], said: str) -> None:
    code, out, err = outlast("feed", *given)

    assert code != 0
    assert (out, said in err) == ("", True)


@pytest.mark.slow
def test_a_watch_prints_what_is_committed_over_a_kill_of_the_engine(kept: Path) -> None:
    with serving(kept, name="first") as (engine, address):
        port = address.rpartition(":")[2]
        watch = Program(kept, "-m", "outlast.cli", "feed", "--watch", "--json", "--server", address, name="watch")
        try:
            watch.until_said("order-3")
            engine.kill()
            with serving(kept, "--port", port, name="second"):
                command(kept, "workflow", "start", "order", "--id", "order-4", "--server", address)
                watch.until_said("order-4")
                _wait_for_lines(kept, watch, address)
                whole = command(kept, "feed", "--json", "--server", address).stdout
        finally:
            watch.kill()

    assert lines(watch.out.read_text()) == lines(whole)


def _wait_for_lines(folder: Path, watch: Program, address: str) -> None:
    wanted = len(lines(command(folder, "feed", "--json", "--server", address).stdout))
    wait_until(lambda: len(watch.out.read_text().splitlines()) >= wanted, watch.said)
