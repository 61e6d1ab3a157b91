"""A few cycles of the chaos run, and the run's own test: it finds a bug that is planted."""

import pytest

from tests.end_to_end import chaos

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_few_kills_lose_nothing_and_double_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = chaos.main(["--cycles", "3", "--seed", "1"])

    said = capsys.readouterr().out.splitlines()
    assert code == 0, "\n".join(said)
    assert said[-1] == "3 kills, 0 lost, 0 doubled"


def test_an_engine_that_acknowledges_before_it_commits_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    code = chaos.main(["--cycles", "20", "--seed", "1", "--plant", "ack_before_commit"])

    assert code == 1, capsys.readouterr().out


def test_kills_of_postgresql_too_lose_nothing_and_double_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = chaos.main(["--cycles", "4", "--seed", "3", "--store", "postgres"])

    said = capsys.readouterr().out.splitlines()
    assert code == 0, "\n".join(said)
    assert said[-1] == "4 kills, 0 lost, 0 doubled"
    assert not any(line.startswith("kills of PostgreSQL") and line.endswith(" 0") for line in said)
