"""Tables fit the terminal, and colours are for terminals only."""

import pytest

from outlast.cli.printing import colours, paint_state
from outlast.cli.text import columns, cut, table


class Terminal:
    def __init__(self, *, is_one: bool) -> None:
        self._is_one = is_one

    def isatty(self) -> bool:
        return self._is_one


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_table_fits_its_width(width: int) -> None:
    rows = [("order-" + "7" * 60, "order", "running", "a signal " * 20), ("o", "o", "failed", "漢字" * 40)]

    lines = table(("WORKFLOW", "TYPE", "STATUS", "WAITS FOR"), rows, width=width).splitlines()

    assert max(columns(line) for line in lines) <= width


@pytest.mark.parametrize("width", [30, 80])
def test_the_id_of_a_task_is_never_cut_since_half_of_it_names_nothing(width: int) -> None:
    id = "01a22c4c-8a04-75a0-8a83-72d5588bb25d:12"
    rows = [(id, "charge", "default", "retry_wait", "10 of 100", "18 s ago", "ConnectionError: the bank is closed")]

    lines = table(
        ("TASK", "TYPE", "QUEUE", "STATE", "ATTEMPT", "ENQUEUED", "LAST ERROR"), rows, width=width
    ).splitlines()

    assert lines[1].startswith(f"{id}  ")
    assert lines[1].endswith("…")


def test_a_narrow_terminal_takes_from_the_widest_column_first() -> None:
    text = table(("ID", "NOTE"), [("short", "x" * 100)], width=30)

    assert "short" in text
    assert text.splitlines()[1].endswith("x…")


def test_without_a_terminal_nothing_is_cut() -> None:
    assert "x" * 500 in table(("A", "B"), [("x" * 500, "y")])


def test_a_wide_sign_takes_two_columns() -> None:
    assert columns("漢字") == 4
    assert cut("漢字漢字", 5) == "漢字…"


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colours(Terminal(is_one=True))
    assert not colours(Terminal(is_one=False))

    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours(Terminal(is_one=True))


def test_only_states_are_coloured_and_their_width_stays() -> None:
    assert paint_state("STATUS", "failed ") == "\x1b[31mfailed \x1b[0m"
    assert paint_state("WORKFLOW", "failed") == "failed"
