"""The feed: what each commit did, read in order from a place, and dropped from its beginning."""

import pytest

from outlast.core import limits
from outlast.core.admin import NamespaceInfo
from outlast.core.feed import Changes, Entry, Place, What, rows_of
from outlast.core.writes import Batch, CommitOutcome
from outlast.store.base import FeedFound
from tests.store.kept import Kept
from tests.store.rows import Row, attempt, page, run_row, task_row

START = Place(0)


def put(kept: Kept, *rows: Row, at: int = 100, **changes: Changes) -> Batch:
    """Commit ``rows`` and what they did, by namespace."""
    batch = kept.next_batch(*rows)
    batch.at = at
    batch.feed = rows_of(batch.number, at, changes)
    kept.commit(batch)
    return batch


def read(
    kept: Kept, after: Place = START, *, namespace: str = "default", events: int = 100, size: int = 1_000_000
) -> FeedFound:
    """Return a page of the feed."""
    return kept.run(kept.store.read_feed(namespace, after=after, events_max=events, bytes_max=size))


def forget(kept: Kept, *, before: int = 0, through: int = 0, rows: int = 100, namespace: str = "default") -> int:
    """Drop the beginning of the feed."""
    return kept.run(kept.store.forget_feed(namespace, before=before, through=through, rows_max=rows))


def enqueued(*task_ids: str) -> Changes:
    """Return that tasks have come."""
    return Changes(enqueued=list(task_ids))


def places(found: FeedFound) -> list[tuple[int, str]]:
    """Return which entries there are."""
    return [(entry.number, entry.id) for entry in found.entries]


def test_a_feed_without_commits_is_empty_and_says_who_it_is(kept: Kept) -> None:
    found = read(kept)

    assert (found.entries, found.more, found.last, found.floor) == ([], False, 0, Place(0))
    assert found.identity > 0
    assert found.incarnation == 1


def test_entries_come_with_the_rows_that_they_name(kept: Kept) -> None:
    run, task, activity = run_row(), task_row(), task_row("run-1:5", run_id="run-1", type="charge")
    put(
        kept,
        run,
        task,
        activity,
        page(count=2, blob=b"pages"),
        attempt(),
        default=Changes(
            history=[("run-1", 1, 2)],
            enqueued=["task-1"],
            tasks=[("task-1", 1, ""), ("task-1", 99, "succeeded")],
        ),
    )
    found = read(kept)

    assert list(found.entries) == [
        Entry(1, 0, 100, What.HISTORY, "run-1", 1, 2),
        Entry(1, 2, 100, What.ENQUEUED, "task-1"),
        Entry(1, 3, 100, What.ATTEMPT, "task-1", 1),
        Entry(1, 4, 100, What.CLOSED, "task-1", 99, 1, "succeeded"),
    ]
    assert found.history == {("run-1", 1): page(count=2, blob=b"pages")}
    assert found.attempts == {("task-1", 1): attempt()}
    assert found.tasks["task-1"].type == "send"
    assert found.runs == {"run-1": ("workflow of run-1", "Order")}
    assert not found.more


def test_the_run_of_an_activity_is_named_as_well(kept: Kept) -> None:
    put(kept, run_row(), task_row("run-1:5", run_id="run-1"))
    put(kept, attempt("run-1:5"), default=Changes(tasks=[("run-1:5", 1, "")]))
    found = read(kept)

    assert found.tasks["run-1:5"].run_id == "run-1"
    assert found.runs == {"run-1": ("workflow of run-1", "Order")}


def test_a_late_word_does_not_stand_for_the_end_of_its_lease(kept: Kept) -> None:
    put(kept, task_row(), attempt(outcome="worker_lost"), default=Changes(tasks=[("task-1", 1, "")]))
    put(kept, attempt(outcome="late_succeeded", late=1))

    assert read(kept).attempts["task-1", 1].outcome == "worker_lost"


def test_a_long_blob_comes_back_as_it_was(kept: Kept) -> None:
    ids = [f"task-{n}" for n in range(limits.FEED_ROW_ENTRIES)]
    put(kept, page(blob=b"long" * 10_000), default=Changes(history=[("run-1", 1, 1)], enqueued=ids))
    found = read(kept, events=5_000)

    assert found.history["run-1", 1].blob == b"long" * 10_000
    assert [entry.id for entry in found.entries] == ["run-1", *ids]


def test_reading_goes_on_behind_a_place_also_within_a_commit(kept: Kept) -> None:
    put(kept, default=enqueued("a", "b", "c"))
    put(kept, default=enqueued("d"))

    assert places(read(kept, Place(1, 0))) == [(1, "a"), (1, "b"), (1, "c"), (2, "d")]
    assert places(read(kept, Place(1, 2))) == [(1, "c"), (2, "d")]
    assert places(read(kept, Place(1, 3))) == [(2, "d")]
    assert places(read(kept, Place(2, 0))) == [(2, "d")]
    assert places(read(kept, Place(2, 1))) == []
    assert places(read(kept, Place(3, 0))) == []


def test_a_page_of_a_history_that_is_seen_in_part_comes_again(kept: Kept) -> None:
    put(kept, page(count=3), default=Changes(history=[("run-1", 1, 3)]))

    assert places(read(kept, Place(1, 2))) == [(1, "run-1")]
    assert places(read(kept, Place(1, 3))) == []


def test_a_page_has_as_many_events_as_were_asked_for_and_says_that_there_are_more(kept: Kept) -> None:
    put(kept, default=enqueued("a", "b"))
    put(kept, default=enqueued("c", "d"))
    first = read(kept, events=3)
    second = read(kept, first.entries[-1].end, events=3)

    assert (places(first), first.more) == ([(1, "a"), (1, "b"), (2, "c")], True)
    assert (places(second), second.more) == ([(2, "d")], False)


def test_a_full_page_that_is_the_last_one_says_so(kept: Kept) -> None:
    put(kept, default=enqueued("a", "b"))

    assert not read(kept, events=2).more


def test_a_page_is_cut_where_its_rows_have_too_many_bytes(kept: Kept) -> None:
    pages = [page(first_event_id=n, blob=bytes([n]) * 1_000) for n in range(1, 6)]
    put(kept, *pages, default=Changes(history=[("run-1", n, 1) for n in range(1, 6)], enqueued=["a"]))
    seen: list[tuple[str, int]] = []
    after, rounds = START, 0
    while True:
        found = read(kept, after, size=2_500)
        seen += [(entry.id, entry.key) for entry in found.entries]
        rounds += 1
        assert all((entry.id, entry.key) in found.history for entry in found.entries if entry.what is What.HISTORY)
        if not found.more:
            break
        after = found.entries[-1].end

    assert seen == [*(("run-1", n) for n in range(1, 6)), ("a", 0)]
    assert rounds == 3


def test_one_row_larger_than_a_page_may_be_comes_alone(kept: Kept) -> None:
    put(kept, page(blob=b"x" * 5_000), default=Changes(history=[("run-1", 1, 1)], enqueued=["a"]))
    found = read(kept, size=100)

    assert places(found) == [(1, "run-1")]
    assert found.more


def test_a_large_commit_is_read_in_parts_without_gap_or_double(kept: Kept) -> None:
    ids = [f"task-{n}" for n in range(2 * limits.FEED_ROW_ENTRIES + 7)]
    batch = put(kept, default=enqueued(*ids))
    seen: list[str] = []
    after = START
    while (found := read(kept, after, events=700)).entries:
        seen += [entry.id for entry in found.entries]
        after = found.entries[-1].end

    assert len(batch.feed) == 3
    assert seen == ids
    assert after == Place(1, len(ids))


def test_namespaces_have_feeds_of_their_own(kept: Kept) -> None:
    put(kept, default=enqueued("a"), other=enqueued("x"))
    put(kept, other=enqueued("y"))

    assert places(read(kept)) == [(1, "a")]
    assert places(read(kept, namespace="other")) == [(1, "x"), (2, "y")]
    assert read(kept).last == read(kept, namespace="other").last == 2


def test_what_was_forgotten_is_missing_from_the_rows_but_not_from_the_entries(kept: Kept) -> None:
    put(kept, run_row(closed_at=5), page(), default=Changes(history=[("run-1", 1, 1)]))
    batch = kept.next_batch()
    batch.forgotten_runs["run-1"] = None
    kept.commit(batch)
    found = read(kept)

    assert places(found) == [(1, "run-1")]
    assert (found.history, found.runs) == ({}, {})


@pytest.mark.parametrize(("before", "through"), [(102, 0), (0, 2)])
def test_the_beginning_is_dropped_by_age_or_by_number_and_the_floor_tells(
    kept: Kept, before: int, through: int
) -> None:
    for n in range(4):
        put(kept, at=100 + n, default=enqueued(f"a{n}", f"b{n}"))

    assert forget(kept, before=before, through=through) == 2
    assert read(kept).floor == Place(2, 2)
    assert places(read(kept)) == [(3, "a2"), (3, "b2"), (4, "a3"), (4, "b3")]
    assert forget(kept, before=before, through=through) == 0
    assert read(kept).floor == Place(2, 2)


def test_the_beginning_is_dropped_in_slices_and_never_half_a_commit(kept: Kept) -> None:
    ids = [f"task-{n}" for n in range(2 * limits.FEED_ROW_ENTRIES)]
    put(kept, default=enqueued(*ids))
    for n in range(4):
        put(kept, default=enqueued(f"a{n}"))

    assert forget(kept, through=5, rows=1) == 2
    assert read(kept).floor == Place(1, len(ids))
    assert forget(kept, through=5, rows=3) == 3
    assert forget(kept, through=5, rows=3) == 1
    assert places(read(kept)) == []
    assert read(kept).floor == Place(5, 1)


def test_dropping_from_one_feed_leaves_the_others(kept: Kept) -> None:
    put(kept, default=enqueued("a"), other=enqueued("x"))
    forget(kept, through=1)

    assert places(read(kept, namespace="other")) == [(1, "x")]
    assert read(kept, namespace="other").floor == Place(0)


def test_a_namespace_that_goes_takes_its_feed_along(kept: Kept) -> None:
    put(kept, default=enqueued("a"), other=enqueued("x"))
    put(kept, default=enqueued("b"), other=enqueued("y"))
    forget(kept, through=1, namespace="other")
    batch = kept.next_batch()
    batch.namespaces["other"] = NamespaceInfo(name="other")
    kept.commit(batch)
    batch = kept.next_batch()
    batch.namespaces["other"] = None
    kept.commit(batch)
    found = read(kept, namespace="other")

    assert (found.entries, found.floor) == ([], Place(0))
    assert places(read(kept)) == [(1, "a"), (2, "b")]


def test_a_refused_batch_is_not_in_the_feed(kept: Kept) -> None:
    batch = kept.next_batch()
    batch.feed = rows_of(batch.number, 100, {"default": enqueued("a")})
    kept.claim("b", now=10**18)

    assert kept.commit(batch) is CommitOutcome.REFUSED
    assert places(read(kept)) == []
