"""How the rows of a whole store stand in the tables: texts escaped, labels by kind of value, instants with their zone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

from outlast.store.postgres.text import MARK, NUL, escaped, unescaped
from outlast.store.postgres.writing import KIND_TEXT, KIND_TRUTH, kind_of
from outlast.store.whole import INTAKE, LABELS, Kind, Row

SHARD: Final = 0
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_LABEL_COLUMNS: Final = ("id", "name", "n", "kind", "text", "number", "namespace", "of", "at")
_LABEL_TEXTS: Final = (True, True, False, False, True, False, True, True, False)
_ENTERED: Final = INTAKE.place_of("entered_at")
_OFFERED: Final = INTAKE.place_of("offered_at")


@dataclass(slots=True, frozen=True)
class Form:
    """One kind of row: the columns that are written, what is read for them, where from, and the way between row and table."""

    source: str
    columns: tuple[str, ...]
    read: tuple[str, ...]
    given: Callable[[Row], Row]
    kept: Callable[[Row], Row]


@lru_cache
def form_of(kind: Kind) -> Form:
    """Return the form of a kind of row."""
    source = f"outlast.{kind.name} WHERE shard = {SHARD}"
    if kind == INTAKE:  # of no shard, and its texts are as callers gave them
        micros = "(extract(epoch FROM {}) * 1000000)::bigint"
        read = tuple(micros.format(name) if name.endswith("_at") else name for name in kind.columns)
        return Form("outlast.intake", kind.columns, read, tuple, _kept_intake)
    if kind == LABELS:
        columns = ("shard", *_LABEL_COLUMNS)
        return Form(source, columns, _quoted(_LABEL_COLUMNS), _given_label, lambda row: (SHARD, *_kept_label(row)))
    kept = _escaping(kind.texts)
    return Form(
        source,
        ("shard", *kind.columns),
        _quoted(kind.columns),
        _unescaping(kind.texts),
        lambda row: (SHARD, *kept(row)),
    )


def names(columns: Sequence[str]) -> str:
    """Return columns as they stand in a statement."""
    return ", ".join(_quoted(columns))


def _quoted(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f'"{column}"' for column in columns)


def _unescaping(texts: Sequence[bool]) -> Callable[[Row], Row]:
    places = [n for n, text in enumerate(texts) if text]

    def given(row: Row) -> Row:
        if MARK not in "".join([row[n] for n in places]):
            return row
        values = list(row)
        for n in places:
            values[n] = unescaped(values[n])
        return tuple(values)

    return given


def _escaping(texts: Sequence[bool]) -> Callable[[Row], Row]:
    places = [n for n, text in enumerate(texts) if text]

    def kept(row: Row) -> Row:
        whole = "".join([row[n] for n in places])
        if MARK not in whole and NUL not in whole:
            return row
        return tuple(escaped(value) if text else value for text, value in zip(texts, row, strict=True))

    return kept


_unescaped_label: Final = _unescaping(_LABEL_TEXTS)
_escaped_label: Final = _escaping(_LABEL_TEXTS)


def _given_label(row: Row) -> Row:
    id_, name, n, kind, text, number, *rest = _unescaped_label(row)
    value = text if kind == KIND_TEXT else bool(number) if kind == KIND_TRUTH else _number(number)
    return id_, name, n, value, *rest


def _number(number: Decimal) -> int | float:
    whole = number.is_finite() and number == number.to_integral_value() and -(2**63) <= number < 2**63
    return int(number) if whole else float(number)


def _kept_label(row: Row) -> Row:
    id_, name, n, value, *rest = row
    return _escaped_label((id_, name, n, *kind_of(value), *rest))


def _kept_intake(row: Row) -> Row:
    values = list(row)
    for n in (_ENTERED, _OFFERED):
        values[n] = None if values[n] is None else EPOCH + timedelta(microseconds=values[n])
    return tuple(values)
