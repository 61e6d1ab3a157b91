"""Lengths of time in REST: what is above nothing stays so."""

import pytest

from outlast.core.errors import Invalid
from outlast.gateway.values import span


@pytest.mark.parametrize("written", ["0.0000001ms", 1e-12])
def test_a_span_shorter_than_a_nanosecond_is_one_and_not_the_lack_of_a_bound(written: str | float) -> None:
    assert span(written, "timeout") == 1


@pytest.mark.parametrize("written", ["0s", 0, 0.0, "PT0S"])
def test_a_span_of_nothing_stays_nothing(written: str | float) -> None:
    assert span(written, "timeout") == 0


@pytest.mark.parametrize("written", [1e308, -1e308, float("nan"), float("inf"), "-1s", "9" * 400 + "d"])
def test_a_span_that_no_instant_can_have_is_refused(written: str | float) -> None:
    with pytest.raises(Invalid, match="timeout is"):
        span(written, "timeout")
