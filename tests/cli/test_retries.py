"""``outlast task retry``: by ids, by a pipe and by a filter, with what it would do told first."""

from pathlib import Path

import pytest

from tests.cli.conftest import Command, rows


def state_of(outlast: Command, id_: str) -> str:
    _, out, _ = outlast("task", "show", id_, "--json")
    return str(rows(out)[0]["task"]["state"])


def test_a_dry_run_says_what_would_come_back_and_does_nothing(kept: Path, outlast: Command) -> None:
    code, out, _ = outlast("task", "retry", "t-failed", "t-done", "--dry-run")

    assert code == 0
    assert "would bring back t-failed" in out
    assert "nothing to do: t-done" in out
    assert state_of(outlast, "t-failed") == "failed"


def test_a_failed_task_is_brought_back_with_its_reason(kept: Path, outlast: Command) -> None:
    code, out, err = outlast("task", "retry", "t-failed", "--reason", "the bank is back")
    _, attempts, _ = outlast("task", "attempts", "t-failed")

    assert (code, err.count("refused")) == (0, 0)
    assert "brought back t-failed" in out
    assert state_of(outlast, "t-failed") == "enqueued"
    assert "retried" in attempts
    assert "the bank is back" in attempts


def test_what_has_succeeded_is_refused_by_its_code(kept: Path, outlast: Command) -> None:
    code, _, err = outlast("task", "retry", "t-done")

    assert code == 4
    assert "has succeeded" in err


def test_a_filter_finds_what_failed(kept: Path, outlast: Command) -> None:
    code, out, _ = outlast("task", "retry", "--query", "closed > 1h ago", "--json")
    again, _, err = outlast("task", "retry", "--state", "failed")

    assert code == 0
    assert [(row["id"], row["changed"]) for row in rows(out)] == [("t-failed", True)]
    assert again == 0
    assert "nothing to do" in err


def test_ids_come_from_a_pipe_too(kept: Path, outlast: Command) -> None:
    _, listed, _ = outlast("task", "list", "--state", "failed", "-o", "id")

    code, out, _ = outlast("task", "retry", "-", stdin=listed)

    assert code == 0
    assert "brought back t-failed" in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "Neither ids nor a filter"),
        (["t-failed", "--type", "charge"], "Ids and a filter"),
        (["--type", "charge", "--limit", "0"], "--limit is 0"),
        (["--state", "succeeded"], "succeeded"),
    ],
    ids=["nothing", "both", "no limit", "no such state"],
)
def test_a_wrong_request_is_refused_before_anything_is_done(
    kept: Path, outlast: Command, argv: list[str], said: str
) -> None:
    code, _, err = outlast("task", "retry", *argv)

    assert code == 2
    assert said in err
