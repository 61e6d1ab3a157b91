"""Timers, dedup rows, counters, marks, attempts: set, replaced, dropped."""

import pytest

from outlast.core.writes import CommitOutcome, LoadKeys, LoadTimers, TimerRow
from tests.store.kept import Kept
from tests.store.rows import attempt, dedup, timer


def timers(kept: Kept) -> list[TimerRow]:
    """Return all timers."""
    return kept.load(LoadTimers(after=(0, ""), limit=1_000)).timers


def test_a_dropped_timer_is_gone(kept: Kept) -> None:
    kept.write(timer(5, "a"), timer(6, "b"))
    batch = kept.next_batch()
    batch.dropped_timers[5, "a"] = None
    kept.commit(batch)

    assert timers(kept) == [timer(6, "b")]


def test_dropping_a_timer_that_is_not_there_is_fine(kept: Kept) -> None:
    batch = kept.next_batch()
    batch.dropped_timers[5, "a"] = None

    assert kept.commit(batch) is CommitOutcome.DONE


def test_a_timer_is_dropped_by_its_instant_and_its_id(kept: Kept) -> None:
    kept.write(timer(5, "a"), timer(6, "a"), timer(5, "b"))
    batch = kept.next_batch()
    batch.dropped_timers[5, "a"] = None
    kept.commit(batch)

    assert timers(kept) == [timer(5, "b"), timer(6, "a")]


def test_a_timer_moves_to_another_instant_in_one_batch(kept: Kept) -> None:
    kept.write(timer(5, "a"))
    batch = kept.next_batch(timer(9, "a"))
    batch.dropped_timers[5, "a"] = None
    kept.commit(batch)

    assert timers(kept) == [timer(9, "a")]


def test_a_timer_dropped_and_set_in_one_batch_is_set(kept: Kept) -> None:
    kept.write(timer(5, "a", "run_timer"))
    batch = kept.next_batch(timer(5, "a", "task_due"))
    batch.dropped_timers[5, "a"] = None
    kept.commit(batch)

    assert timers(kept) == [timer(5, "a", "task_due")]


def test_a_timer_set_again_replaces_the_stored_one(kept: Kept) -> None:
    kept.write(timer(5, "a", target="run-1"))
    kept.write(timer(5, "a", target="run-2"))

    assert timers(kept) == [timer(5, "a", target="run-2")]


@pytest.mark.parametrize("count", [1, 5, 63, 64, 300])
def test_any_count_of_timers_is_dropped_at_once(kept: Kept, count: int) -> None:
    kept.write(*(timer(n, f"timer-{n}") for n in range(1, count + 2)))
    batch = kept.next_batch()
    batch.dropped_timers = {(n, f"timer-{n}"): None for n in range(1, count + 1)}
    kept.commit(batch)

    assert timers(kept) == [timer(count + 1, f"timer-{count + 1}")]


def test_a_dedup_row_is_found_by_namespace_scope_and_key(kept: Kept) -> None:
    kept.write(dedup("key", scope="start", id="one"), dedup("key", scope="signal", id="two"))

    found = kept.load(LoadKeys(dedup=(("default", "signal", "key"), ("other", "start", "key"))))

    assert [row.id for row in found.dedup] == ["two"]


def test_a_dedup_row_comes_whole(kept: Kept) -> None:
    kept.write(dedup("key", period=7))

    assert kept.load(LoadKeys(dedup=(("default", "start", "key"),))).dedup == [dedup("key", period=7)]


def test_a_later_dedup_row_replaces_the_earlier(kept: Kept) -> None:
    kept.write(dedup("key", id="one", period=1))
    kept.write(dedup("key", id="two", period=2))

    assert kept.load(LoadKeys(dedup=(("default", "start", "key"),))).dedup == [dedup("key", id="two", period=2)]


def test_dedup_rows_of_periods_that_are_over_are_forgotten(kept: Kept) -> None:
    kept.write(*(dedup(f"key-{n}", period=n) for n in range(6)))

    forgotten = kept.run(kept.store.forget_dedup(before_period=4))

    keys = tuple(("default", "start", f"key-{n}") for n in range(6))
    assert forgotten == 4
    assert [row.key for row in kept.load(LoadKeys(dedup=keys)).dedup] == ["key-4", "key-5"]


def test_forgetting_nothing_forgets_nothing(kept: Kept) -> None:
    kept.write(dedup("key", period=3))

    assert kept.run(kept.store.forget_dedup(before_period=3)) == 0
    assert kept.run(kept.store.forget_dedup(before_period=0)) == 0


def test_more_dedup_rows_than_one_slice_are_forgotten(kept: Kept) -> None:
    kept.write(*(dedup(f"key-{n:05}", period=n % 2) for n in range(10_500)))

    assert kept.run(kept.store.forget_dedup(before_period=1)) == 5_250
    assert kept.run(kept.store.forget_dedup(before_period=2)) == 5_250


def test_forgetting_is_no_commit_of_the_shard(kept: Kept) -> None:
    kept.write(dedup("key", period=1))
    kept.run(kept.store.forget_dedup(before_period=9))

    assert kept.claim().last_number == 1


def test_counters_come_back_with_the_next_claim(kept: Kept) -> None:
    batch = kept.next_batch()
    batch.counters = {("default", "open_runs"): 5, ("other", "open_runs"): -2}
    kept.commit(batch)

    assert kept.claim("b").counters == {("default", "open_runs"): 5, ("other", "open_runs"): -2}


def test_a_counter_written_again_has_its_last_value(kept: Kept) -> None:
    for value in (5, 3, 2**62):
        batch = kept.next_batch()
        batch.counters[("default", "open_runs")] = value
        kept.commit(batch)

    assert kept.claim("b").counters == {("default", "open_runs"): 2**62}


def test_marks_of_what_was_received_come_back_with_the_next_claim(kept: Kept) -> None:
    for mark in (3, 8):
        batch = kept.next_batch()
        batch.received = {(2, 1): mark, (2, 2): 1}
        kept.commit(batch)

    assert kept.claim("b").received == {(2, 1): 8, (2, 2): 1}


def test_what_a_claim_tells_is_the_callers_own(kept: Kept) -> None:
    batch = kept.next_batch()
    batch.counters[("default", "open_runs")] = 5
    kept.commit(batch)

    kept.claim("b").counters.clear()

    assert kept.claim("b").counters == {("default", "open_runs"): 5}


def test_attempts_come_in_order_of_lease_and_late_word(kept: Kept) -> None:
    kept.write(attempt(lease=2), attempt(lease=1), attempt("task-2", lease=9))
    kept.write(attempt(lease=1, late=1, outcome="succeeded"), attempt(lease=3))

    found = kept.run(kept.store.read_attempts("task-1"))

    assert [(row.lease, row.late) for row in found] == [(1, 0), (1, 1), (2, 0), (3, 0)]


def test_of_two_late_words_of_one_lease_the_first_stays(kept: Kept) -> None:
    kept.write(attempt(late=1, outcome="succeeded"), attempt(late=1, outcome="failed"))
    kept.write(attempt(late=1, outcome="canceled"))

    assert [row.outcome for row in kept.run(kept.store.read_attempts("task-1"))] == ["succeeded"]


def test_an_attempt_comes_whole(kept: Kept) -> None:
    row = attempt(
        attempt=2, outcome="failed", worker="w", identity="i", build="b", started_at=5, ended_at=6, error_type="E",
        error_message="m", error_trace="t", commit_no=7, extra=b"x",
    )  # fmt: skip
    kept.write(row)

    assert kept.run(kept.store.read_attempts("task-1")) == [row]


def test_a_task_without_attempts_has_none(kept: Kept) -> None:
    assert kept.run(kept.store.read_attempts("none")) == []
