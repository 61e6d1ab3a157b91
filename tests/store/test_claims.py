"""Taking a shard over: epochs that only grow, leases, and what a new owner is told."""

import pytest

from outlast.core.units import Fence
from outlast.core.writes import CommitOutcome
from outlast.store.base import StoreError
from tests.store.kept import Kept
from tests.store.rows import run_row


def test_the_first_claim_begins_epoch_one_of_incarnation_one(kept: Kept) -> None:
    assert kept.fence == Fence(1, 1)


def test_every_claim_raises_the_epoch(kept: Kept) -> None:
    fences = [kept.claim(owner).fence for owner in ("a", "b", "b", "c", "a")]

    assert fences == [Fence(1, epoch) for epoch in (2, 3, 4, 5, 6)]


def test_a_claim_tells_the_shard_and_the_last_commit(kept: Kept) -> None:
    kept.write(at=70)
    kept.write(at=90)

    claim = kept.claim("b")

    assert (claim.shard, claim.last_number, claim.last_at) == (0, 2, 90)


def test_the_instant_of_the_last_commit_never_goes_back(kept: Kept) -> None:
    kept.write(at=90)
    kept.write(at=40)

    assert kept.claim().last_at == 90


def test_numbers_go_on_under_the_next_owner(kept: Kept) -> None:
    kept.write(run_row())
    kept.claim("b")

    assert kept.number == 1
    kept.write(run_row("run-2"))
    assert kept.claim("c").last_number == 2


def test_a_lease_keeps_other_owners_out_until_it_ends(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)

    for now in (10, 30, 49):
        with pytest.raises(StoreError) as caught:
            kept.claim("b", now=now, lease_until=100)
        assert caught.value.code == "not_owner"
        assert "a" in caught.value.fact
    assert kept.claim("b", now=50, lease_until=100).fence == Fence(1, 3)


def test_a_claim_that_is_refused_changes_nothing(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)

    with pytest.raises(StoreError):
        kept.run(kept.store.claim(owner="b", now=11, lease_until=100))

    assert kept.commit(kept.next_batch(run_row())) is CommitOutcome.DONE
    assert kept.claim("b", now=50, lease_until=100).fence == Fence(1, 3)


def test_an_owner_may_claim_again_while_its_own_lease_runs(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)

    assert kept.claim("a", now=11, lease_until=60).fence == Fence(1, 3)


def test_an_owner_without_a_lease_is_followed_at_once(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=0)

    assert kept.claim("b", now=10, lease_until=0).fence == Fence(1, 3)


def test_a_batch_renews_the_lease(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)
    batch = kept.next_batch()
    batch.lease_until = 80
    kept.commit(batch)

    with pytest.raises(StoreError):
        kept.claim("b", now=79, lease_until=200)
    assert kept.claim("b", now=80, lease_until=200).fence == Fence(1, 3)


def test_a_batch_that_says_nothing_of_the_lease_leaves_it(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)
    kept.write()

    with pytest.raises(StoreError):
        kept.claim("b", now=49, lease_until=200)
    assert kept.claim("b", now=50, lease_until=200)


def test_a_refused_batch_does_not_renew_the_lease(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)
    batch = kept.next_batch()
    batch.number, batch.lease_until = 9, 80
    assert kept.commit(batch) is CommitOutcome.REFUSED

    assert kept.claim("b", now=50, lease_until=200)


def test_a_released_shard_may_be_claimed_at_once(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)

    kept.run(kept.store.release(kept.fence))

    assert kept.claim("b", now=11, lease_until=60).fence == Fence(1, 3)


def test_a_release_under_an_old_fence_changes_nothing(kept: Kept) -> None:
    old = kept.fence
    kept.claim("a", now=10, lease_until=50)

    kept.run(kept.store.release(old))

    with pytest.raises(StoreError):
        kept.claim("b", now=11, lease_until=60)


def test_a_released_owner_is_fenced_once_the_next_one_has_claimed(kept: Kept) -> None:
    old = kept.next_batch(run_row())
    kept.run(kept.store.release(kept.fence))
    kept.claim("b")

    assert kept.run(kept.store.commit(old)) is CommitOutcome.REFUSED


def test_epochs_and_numbers_outlive_closing(kept: Kept) -> None:
    kept.write(at=55)
    kept.reopen()

    claim = kept.claim("b")

    assert (claim.fence, claim.last_number, claim.last_at) == (Fence(1, 2), 1, 55)


def test_a_lease_outlives_closing(kept: Kept) -> None:
    kept.claim("a", now=10, lease_until=50)
    kept.reopen()

    with pytest.raises(StoreError):
        kept.claim("b", now=49, lease_until=90)
    assert kept.claim("b", now=50, lease_until=90)


def test_a_closed_store_takes_nothing(kept: Kept) -> None:
    batch = kept.next_batch()
    kept.run(kept.store.close())

    for work in (kept.store.claim(owner="a", now=1, lease_until=0), kept.store.commit(batch)):
        with pytest.raises(StoreError) as caught:
            kept.run(work)
        assert caught.value.code == "unavailable"
    kept.reopen()


def test_closing_twice_is_the_same_as_once(kept: Kept) -> None:
    kept.run(kept.store.close())
    kept.run(kept.store.close())
    kept.reopen()

    assert kept.claim().fence == Fence(1, 2)
