"""Texts as PostgreSQL takes them: it knows no NUL, so NUL and the character that stands for it (1) are written as two.

NUL becomes 1 1, and 1 becomes 1 2: the order of texts stays what it was, and so does which begins with which.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

MARK: Final = "\x01"
NUL: Final = "\0"


def escaped(text: str) -> str:
    """Return ``text`` as it is stored."""
    if MARK in text:
        text = text.replace(MARK, "\x01\x02")
    return text.replace(NUL, "\x01\x01") if NUL in text else text


def unescaped(text: str) -> str:
    """Return what ``escaped`` was given."""
    if MARK not in text:
        return text
    return text.replace("\x01\x01", NUL).replace("\x01\x02", MARK)


class Rows:
    """Rows of the database as structs of one type, whose fields are the columns in order."""

    __slots__ = ("_texts", "_texts_of", "_type")

    def __init__(self, row: type[msgspec.Struct]) -> None:
        self._type = list[row]  # type: ignore[valid-type]
        self._texts = [n for n, field in enumerate(msgspec.structs.fields(row)) if _is_text(field.type)]
        self._texts_of = itemgetter(*self._texts)

    def read(self, records: Sequence[Any]) -> list[Any]:
        """Return one struct for each record."""
        rows: list[Any] = [tuple(record) for record in records]
        for n, row in enumerate(rows):
            if MARK in "".join(self._texts_of(row)):
                rows[n] = self._unescaped(row)
        return msgspec.convert(rows, self._type)

    def _unescaped(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for n in self._texts:
            values[n] = unescaped(values[n])
        return tuple(values)


def _is_text(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, str)
