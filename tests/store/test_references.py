"""Which blobs rows name: in every column that holds payloads, packed or plain."""

import hashlib

import msgspec
import pytest

from outlast.core.payload import Payload
from tests.store.kept import Kept
from tests.store.rows import Row, page, parked, run_row, task_row

DIGEST = hashlib.sha256(b"data").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()
NAMING = msgspec.msgpack.encode((b"abc", Payload("json/plain", b"", None, DIGEST, 300_000)))


@pytest.mark.parametrize(
    "rows",
    [
        (run_row(fixed=NAMING),),
        (run_row(state=NAMING),),
        (run_row(outcome=NAMING),),
        (task_row(spec=NAMING),),
        (task_row(status=NAMING),),
        (run_row(), parked(blob=NAMING)),
        (run_row(), page(blob=NAMING)),
        (run_row(), page(blob=bytes(5_000) + NAMING)),
    ],
    ids=["fixed", "state", "outcome", "spec", "status", "parked", "history", "packed history"],
)
def test_a_blob_is_named_by_whichever_column_holds_its_payload(kept: Kept, rows: tuple[Row, ...]) -> None:
    kept.write(*rows)

    assert kept.run(kept.store.named_blobs({DIGEST, OTHER})) == {DIGEST}


def test_rows_of_many_slices_are_all_looked_at(kept: Kept) -> None:
    kept.write(*(task_row(f"task-{n:04}") for n in range(1_200)), task_row("task-9999", status=NAMING))

    assert kept.run(kept.store.named_blobs({DIGEST})) == {DIGEST}
