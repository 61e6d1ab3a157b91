"""Values: whatever text, bytes and numbers a row may hold comes back the same."""

import pytest

from outlast.core.writes import LoadKeys
from outlast.store.base import RunFilter
from tests.store.kept import Kept
from tests.store.rows import dedup, parked, run_row, task_row, timer

TEXTS = {
    "empty": "",
    "space": " ",
    "quotes": "'; DROP TABLE runs; --\"`",
    "nul": "before\0after",
    "control": "\x01\x1f\r\n\t\x7f",
    "accents": "Zürich, Σίσυφος",
    "wide": "漢字 🧑‍🚀 e\u0301",
    "private": "\ue000\uffff\U0010ffff",
    "long": "x" * 100_000,
    "percent": "100%_*?[a]",
    "colon": "run:1;2",
}
BLOBS = {
    "empty": b"",
    "nul": b"\0",
    "all": bytes(range(256)),
    "large": b"\xff" * 1_000_000,
    "text": "grüße".encode(),
}
NUMBERS = [0, 1, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_in_a_run_comes_back(kept: Kept, text: str) -> None:
    row = run_row(workflow_id=text, type=text, queue=text, reason=text, identity=text, parent=text, principal=text)
    kept.write(row)

    assert kept.load(LoadKeys(workflows=(("default", text),))).runs == [row]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_is_a_key_of_a_run_or_a_task(kept: Kept, text: str) -> None:
    kept.write(run_row(text), task_row(text), parked(1, text), dedup(text), timer(9, text))

    found = kept.load(LoadKeys(runs=(text,), tasks=(text,), dedup=(("default", "start", text),)))

    assert (found.runs[0].run_id, found.tasks[0].task_id, found.parked[0].run_id) == (text, text, text)
    assert found.dedup[0].key == text


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_is_a_namespace_of_its_own(kept: Kept, text: str) -> None:
    kept.write(run_row(namespace=text), run_row("run-2", namespace=f"{text}."))

    found = kept.run(kept.store.list_runs(RunFilter(namespace=text))).rows

    assert [row.run_id for row in found] == ["run-1"]


@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS)
def test_any_bytes_come_back(kept: Kept, blob: bytes) -> None:
    run = run_row(fixed=blob, state=blob, outcome=blob, extra=blob)
    task = task_row(spec=blob, status=blob, extra=blob)
    kept.write(run, task, parked(blob=blob))

    found = kept.load(LoadKeys(runs=("run-1",), tasks=("task-1",)))

    assert (found.runs, found.tasks, found.parked) == ([run], [task], [parked(blob=blob)])


@pytest.mark.parametrize("number", NUMBERS)
def test_any_number_of_64_bits_comes_back(kept: Kept, number: int) -> None:
    run = run_row(opened_no=number, started_at=number, next_event_id=number, history_bytes=number)
    task = task_row(order_key=number, run_at=number, enqueued_at=number, lease=number)
    kept.write(run, task)

    found = kept.load(LoadKeys(runs=("run-1",), tasks=("task-1",)))

    assert (found.runs, found.tasks) == ([run], [task])


def test_keys_that_differ_in_one_character_are_different_rows(kept: Kept) -> None:
    ids = ["a", "A", "a ", " a", "a\0", "á", "a\u0301", "á "]
    kept.write(*(run_row(id, state=id.encode()) for id in ids))

    found = kept.load(LoadKeys(runs=tuple(ids)))

    assert [(row.run_id, row.state) for row in found.runs] == [(id, id.encode()) for id in ids]


def test_ids_are_ordered_by_their_characters_and_nothing_else(kept: Kept) -> None:
    ids = ["B", "a", "Z", "é", "z", "10", "9", "🧑", "\uffff", "\U0001f000"]
    kept.write(*(timer(5, id) for id in ids), *(run_row(id) for id in ids))

    found = kept.run(kept.store.list_runs(RunFilter(namespace="default", limit=99))).rows

    assert [row.run_id for row in found] == sorted(ids, reverse=True)
