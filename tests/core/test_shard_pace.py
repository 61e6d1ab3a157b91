"""The time of a shard whose owner's clock is behind its last commit: it goes on, and the clock catches up with it."""

from hypothesis import given
from hypothesis import strategies as st

from outlast.core.shard.pace import SLEW, Pace
from outlast.core.units import HOUR, SECOND

NANOSECONDS = st.integers(0, 10**16)


def test_time_goes_on_from_the_last_commit_and_meets_the_clock_that_was_behind_it() -> None:
    pace = Pace(began=1000 * HOUR, ahead=HOUR)

    assert pace.time(1000 * HOUR) == 1001 * HOUR
    assert pace.time(1010 * HOUR) == 1010 * HOUR + HOUR // 2
    assert pace.time((1000 + SLEW) * HOUR) == (1000 + SLEW) * HOUR
    assert pace.time(2000 * HOUR) == 2000 * HOUR


def test_a_clock_that_is_not_behind_is_the_time() -> None:
    pace = Pace(began=5 * SECOND, ahead=0)

    assert [pace.time(at) for at in (0, 5 * SECOND, HOUR)] == [0, 5 * SECOND, HOUR]
    assert [pace.clock(at) for at in (0, 5 * SECOND, HOUR)] == [0, 5 * SECOND, HOUR]


@given(began=NANOSECONDS, ahead=NANOSECONDS, clock=NANOSECONDS, later=NANOSECONDS)
def test_time_never_goes_back_nor_faster_than_the_clock(began: int, ahead: int, clock: int, later: int) -> None:
    pace = Pace(began, ahead)

    assert 0 <= pace.time(clock + later) - pace.time(clock) <= later


@given(began=NANOSECONDS, ahead=NANOSECONDS, time=NANOSECONDS)
def test_an_alarm_rings_when_its_time_has_come_and_not_long_after(began: int, ahead: int, time: int) -> None:
    pace = Pace(began, ahead)
    clock = pace.clock(time)

    assert pace.time(clock) >= time
    assert pace.time(clock - 2) < time
