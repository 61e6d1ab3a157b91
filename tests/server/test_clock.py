"""The guarded clock: it leads through steps of the wall clock without going back and without a leap."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.units import HOUR, MILLISECOND, MINUTE, SECOND
from outlast.server.clock import CONFIRM, GUARD, GuardedClock


class Machine:
    """A wall clock and a monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000 * SECOND
        self.mono = 5 * SECOND

    def pass_(self, span: int) -> None:
        self.wall += span
        self.mono += span

    def step(self, span: int) -> None:
        self.wall += span

    def clock(self) -> GuardedClock:
        return GuardedClock(wall=lambda: self.wall, monotonic=lambda: self.mono)


def test_time_passes_as_on_the_wall() -> None:
    machine = Machine()
    clock = machine.clock()

    machine.pass_(3 * SECOND)

    assert clock.now() == machine.wall


def test_a_step_back_does_not_turn_time_back(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now()

    machine.step(-HOUR)
    instants: list[int] = []
    for _ in range(100):
        machine.pass_(100 * MILLISECOND)
        instants.append(clock.now())

    assert instants == sorted(instants)
    assert before + 9 * SECOND < instants[-1] < before + 10 * SECOND
    assert caplog.text.count("CLOCK_JUMP") == 1


def test_a_step_back_that_is_undone_leaves_time_as_it_was() -> None:
    machine = Machine()
    clock = machine.clock()

    machine.step(-HOUR)
    for _ in range(10):
        machine.pass_(SECOND)
        clock.now()
    machine.step(HOUR)
    for _ in range(200):
        machine.pass_(SECOND)
        clock.now()

    assert clock.now() == machine.wall


def test_a_step_ahead_is_followed_only_after_it_has_lasted(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now()

    machine.step(2 * HOUR)
    machine.pass_(10 * MILLISECOND)
    at_once = clock.now()
    for _ in range(CONFIRM // (100 * MILLISECOND) + 1):
        machine.pass_(100 * MILLISECOND)
        clock.now()

    assert at_once == before + 10 * MILLISECOND
    assert clock.now() == machine.wall
    assert caplog.text.count("CLOCK_JUMP") == 1


def test_a_step_ahead_that_is_taken_back_is_never_followed() -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now()

    machine.step(2 * HOUR)
    for _ in range(3):
        machine.pass_(SECOND)
        clock.now()
    machine.step(-2 * HOUR)
    machine.pass_(SECOND)

    assert clock.now() == before + 4 * SECOND


def test_a_small_drift_is_slewed_away(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()

    machine.step(SECOND)
    machine.pass_(SECOND)
    first = machine.wall - clock.now()
    for _ in range(30):
        machine.pass_(SECOND)
        clock.now()

    assert 900 * MILLISECOND < first < SECOND
    assert clock.now() == machine.wall
    assert "CLOCK_JUMP" not in caplog.text


@given(st.lists(st.tuples(st.integers(0, 10 * MINUTE), st.integers(-2 * HOUR, 2 * HOUR)), max_size=40))
def test_time_never_goes_back_whatever_the_wall_clock_does(moves: list[tuple[int, int]]) -> None:
    logging.getLogger("outlast.clock").setLevel(logging.ERROR)
    machine = Machine()
    clock = machine.clock()
    instants = [clock.now()]

    for passed, stepped in moves:
        machine.pass_(passed)
        machine.step(stepped)
        instants.append(clock.now())

    assert instants == sorted(instants)


@given(st.integers(GUARD + 1, 24 * HOUR), st.lists(st.integers(1, SECOND), min_size=1, max_size=50))
def test_a_step_alone_never_moves_time_by_more_than_what_has_passed(step: int, passed: list[int]) -> None:
    logging.getLogger("outlast.clock").setLevel(logging.ERROR)
    machine = Machine()
    clock = machine.clock()
    before = clock.now()
    machine.step(step)
    total = 0

    for span in passed:
        if total + span >= CONFIRM:
            break
        machine.pass_(span)
        total += span
        assert clock.now() == before + total


def test_the_offset_file_shifts_the_clock(tmp_path: Path) -> None:
    file = tmp_path / "offset"
    machine = Machine()
    file.write_text(str(500 * MILLISECOND))
    clock = GuardedClock(wall=lambda: machine.wall, monotonic=lambda: machine.mono, offset_file=str(file))
    first = clock.now()

    file.write_text("what is no number")
    machine.pass_(SECOND)

    assert first == machine.wall - SECOND + 500 * MILLISECOND
    assert clock.now() == machine.wall + 500 * MILLISECOND
