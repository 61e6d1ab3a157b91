"""The run that kills around transactions: nothing is without the other half, and it would be noticed if it were."""

import pytest

from tests.end_to_end.intake_kills import APART, PLACES, UNSYNCED, run


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", PLACES)
def test_kills_around_transactions_leave_no_orphan_and_no_ghost(place: str) -> None:
    report = run(4, 7, place)

    assert report.orders > 10
    assert report.good, str(report)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_harness_sees_the_orphans_of_a_shop_that_enqueues_after_its_commit() -> None:
    report = run(5, 7, "sqlite", plant=APART)

    assert report.orphans
    assert not report.ghosts


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_harness_sees_the_ghosts_of_commits_that_were_seen_and_then_lost() -> None:
    report = run(4, 7, "elsewhere", plant=UNSYNCED, database_killed=1.0, least=0.9)

    assert report.ghosts
    assert not report.orphans
