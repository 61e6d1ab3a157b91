"""Statements over many rows at once.

apsw gives the interpreter's lock away around every step of a statement. A batch of a thousand rows, one step each, would ask a
busy event loop a thousand times for it, and wait each time; one statement over 256 rows asks once. It is also faster
when nothing else runs.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final

from outlast.store.sqlite.connection import Connection

SIZES: Final = (256, 64, 16, 4, 1)  # rows of one statement; few sizes, so that all of them stay prepared


class Bulk:
    """A statement with a list of rows in it, between ``head`` and ``tail``; each row has ``width`` values."""

    __slots__ = ("_statements",)

    def __init__(self, head: str, tail: str = "", *, width: int) -> None:
        row = f"({','.join('?' * width)})"
        self._statements = tuple((size, f"{head}{','.join([row] * size)}{tail}") for size in SIZES)

    def run(self, connection: Connection, rows: Iterable[Sequence[Any]]) -> None:
        """Run the statement for all ``rows``, in order."""
        waiting = list(rows)
        left = iter(waiting)
        count = len(waiting)
        for size, sql in self._statements:
            while count >= size:
                count -= size
                connection.execute(sql, tuple(chain.from_iterable(islice(left, size))))
