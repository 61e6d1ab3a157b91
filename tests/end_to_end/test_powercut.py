"""The power-cut harness: what the default keeps, and that it would notice if it did not."""

import asyncio

import pytest

from tests.end_to_end.powercut import Report, run


def report_of(cuts: int, synchronous: str) -> Report:
    """Cut, without the noise of a disk that answers nothing."""
    return asyncio.run(run(cuts, 7, synchronous))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_power_cut_loses_nothing_that_was_acknowledged() -> None:
    report = report_of(30, "FULL")

    assert report.acked > 50
    assert (report.lost, report.lost_claims, report.faults) == (0, 0, [])
    assert report.tally.dropped > 100
    assert report.tally.noise > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_harness_sees_the_losses_of_a_store_that_does_not_sync() -> None:
    report = report_of(30, "NORMAL")

    assert report.lost > 0
    assert report.faults == []
