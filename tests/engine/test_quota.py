"""Rates: what a bucket gives, what it owes, and what a clock cannot make it give twice."""

from hypothesis import assume, given
from hypothesis import strategies as st

from outlast.core.units import SECOND
from outlast.engine.quota import SLACK, Bucket


def test_a_batch_may_owe_what_it_takes_over_the_burst() -> None:
    bucket = Bucket(5.0, 0)

    assert bucket.take(8, rate=1.0, burst=5.0, now=0) == 0
    assert bucket.take(1, rate=1.0, burst=5.0, now=0) == 4
    assert bucket.take(1, rate=1.0, burst=5.0, now=4 * SECOND) == 0


def test_a_clock_that_goes_back_gives_no_second_twice() -> None:
    bucket = Bucket(0.0, 0)
    bucket.take(10, rate=1.0, burst=10.0, now=5 * SECOND)
    bucket.take(10, rate=1.0, burst=10.0, now=0)

    assert bucket.take(10, rate=1.0, burst=10.0, now=5 * SECOND) == 5


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3 * SECOND)), max_size=40))
def test_a_bucket_never_gives_more_than_its_burst_and_what_came_since(asked: list[tuple[int, int]]) -> None:
    bucket, now, given_out = Bucket(5.0, 0), 0, 0
    for wanted, passed in asked:
        now += passed
        if not bucket.take(wanted, rate=2.0, burst=5.0, now=now):
            given_out += wanted

    assert given_out <= 5 + 2 * now / SECOND + 2 * SLACK


@given(st.floats(0, 5), st.integers(1, 20))
def test_who_waits_as_long_as_was_said_is_served(left: float, wanted: int) -> None:
    bucket = Bucket(left, 0)
    seconds = bucket.take(wanted, rate=2.0, burst=5.0, now=0)
    assume(seconds)

    assert bucket.take(wanted, rate=2.0, burst=5.0, now=round(seconds * SECOND) + 1) == 0
