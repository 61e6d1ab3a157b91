"""Histories: pages in order, from any event on, whatever their size."""

import random

import pytest

from outlast.store.base import StoreError
from outlast.store.compression import COMPRESS_FROM, pack, unpack
from tests.store.kept import Kept
from tests.store.rows import page, run_row


def firsts(kept: Kept, first_event_id: int, events_max: int = 10_000, run_id: str = "run-1") -> list[int]:
    """Return where the pages that come back begin."""
    pages = kept.run(kept.store.read_history(run_id, first_event_id=first_event_id, events_max=events_max))
    return [row.first_event_id for row in pages]


@pytest.fixture
def three_pages(kept: Kept) -> Kept:
    """A run with pages of events 1-3, 4-4 and 5-9, in three commits."""
    kept.write(run_row(), page("run-1", 1, 3, b"a"))
    kept.write(page("run-1", 4, 1, b"b"))
    kept.write(page("run-1", 5, 5, b"c"))
    return kept


def test_a_history_comes_whole_and_in_order(three_pages: Kept) -> None:
    pages = three_pages.run(three_pages.store.read_history("run-1", first_event_id=1, events_max=100))

    assert pages == [page("run-1", 1, 3, b"a"), page("run-1", 4, 1, b"b"), page("run-1", 5, 5, b"c")]


@pytest.mark.parametrize(
    ("first", "expected"),
    [(1, [1, 4, 5]), (2, [1, 4, 5]), (3, [1, 4, 5]), (4, [4, 5]), (5, [5]), (7, [5]), (9, [5]), (10, []), (99, [])],
)
def test_reading_begins_with_the_page_that_holds_the_event(three_pages: Kept, first: int, expected: list[int]) -> None:
    assert firsts(three_pages, first) == expected


@pytest.mark.parametrize(
    ("first", "events_max", "expected"),
    [
        (1, 1, [1]), (1, 3, [1]), (1, 4, [1, 4]), (1, 5, [1, 4, 5]), (3, 1, [1]), (3, 2, [1, 4]), (4, 1, [4]), (4, 2, [4, 5]),
        (1, 0, []), (1, -1, []),
    ],
)  # fmt: skip
def test_reading_ends_when_enough_events_are_covered(
    three_pages: Kept, first: int, events_max: int, expected: list[int]
) -> None:
    assert firsts(three_pages, first, events_max) == expected


def test_reading_from_before_the_first_event_begins_with_it(three_pages: Kept) -> None:
    assert firsts(three_pages, 0) == [1, 4, 5]
    assert firsts(three_pages, -7) == [1, 4, 5]


def test_an_unknown_run_has_no_history(kept: Kept) -> None:
    assert firsts(kept, 1) == []


def test_histories_of_two_runs_stay_apart(three_pages: Kept) -> None:
    three_pages.write(run_row("run-2"), page("run-2", 1, 2, b"other"))

    assert firsts(three_pages, 1, run_id="run-2") == [1]
    assert firsts(three_pages, 1) == [1, 4, 5]


def test_several_pages_of_one_run_may_be_in_one_batch(kept: Kept) -> None:
    kept.write(run_row(), page("run-1", 1, 2), page("run-1", 3, 1), page("run-1", 4, 7))

    assert firsts(kept, 1) == [1, 3, 4]


def test_pages_written_out_of_order_are_read_in_order(kept: Kept) -> None:
    kept.write(run_row(), page("run-1", 4, 7), page("run-1", 1, 3))

    assert firsts(kept, 1) == [1, 4]


SIZES = [0, 1, COMPRESS_FROM - 1, COMPRESS_FROM, COMPRESS_FROM + 1, 40_000, 3_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_a_page_that_compresses_comes_back_as_it_was(kept: Kept, size: int) -> None:
    written = page(blob=b"x" * size)
    kept.write(run_row(), written)

    assert kept.run(kept.store.read_history("run-1", first_event_id=1, events_max=1)) == [written]


@pytest.mark.parametrize("size", SIZES)
def test_a_page_that_does_not_compress_comes_back_as_it_was(kept: Kept, size: int) -> None:
    written = page(blob=random.Random(size).randbytes(size))
    kept.write(run_row(), written)

    assert kept.run(kept.store.read_history("run-1", first_event_id=1, events_max=1)) == [written]


def test_what_compresses_well_is_stored_smaller() -> None:
    assert len(pack(b"again " * 1_000)) < 200


def test_what_does_not_compress_costs_five_bytes() -> None:
    blob = random.Random(2).randbytes(5_000)

    assert len(pack(blob)) == 5_005


@pytest.mark.parametrize(
    "stored", [b"", b"\x01", b"\x01abc", b"\x07" + pack(b"data")[1:], pack(b"again " * 1_000)[:-1]]
)
def test_a_stored_blob_that_is_damaged_is_refused(stored: bytes) -> None:
    with pytest.raises(StoreError) as caught:
        unpack(stored)

    assert caught.value.code == "store_damaged"
    assert caught.value.remedy


@pytest.mark.parametrize("blob", [b"small", b"again " * 1_000])
def test_every_single_flipped_bit_of_a_stored_blob_is_noticed(blob: bytes) -> None:
    stored = pack(blob)

    missed: list[int] = []
    for bit in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << (bit % 8)
        try:
            unpack(bytes(damaged))
        except StoreError:
            continue
        missed.append(bit)

    assert missed == []
