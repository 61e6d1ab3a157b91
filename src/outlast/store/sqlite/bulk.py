"""Statements over many rows at once.

apsw gives the interpreter's lock away around every step of a statement. A batch of a thousand rows, one step each, would ask a
busy event loop a thousand times for it, and wait each time; one statement over 256 rows asks once. It is also faster
when nothing else runs: a statement costs about as much as two of its rows.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final

from outlast.store.sqlite.connection import Connection

# Rows of one statement. Few sizes, so that all of them stay prepared, and near enough that few statements make up any number.
# apsw does not keep statements of more than 16 KB of text, which ends it for rows of 25 values.
SIZES: Final = (256, 128, 64, 32, 16, 8, 4, 2, 1)


class Bulk:
    """A statement with a list of rows in it, between ``head`` and ``tail``; each row has ``width`` values.

    ``single`` is a cheaper statement that does the same for one row.
    """

    __slots__ = ("_statements",)

    def __init__(self, head: str, tail: str = "", *, width: int, single: str = "") -> None:
        row = f"({','.join('?' * width)})"
        many = tuple((size, f"{head}{','.join([row] * size)}{tail}") for size in SIZES[:-1])
        self._statements = (*many, (SIZES[-1], single or f"{head}{row}{tail}"))

    def run(self, connection: Connection, rows: Iterable[Sequence[Any]]) -> None:
        """Run the statement for all ``rows``, in order."""
        waiting = list(rows)
        left = iter(waiting)
        count = len(waiting)
        for size, sql in self._statements:
            while count >= size:
                count -= size
                connection.execute(sql, tuple(chain.from_iterable(islice(left, size))))
