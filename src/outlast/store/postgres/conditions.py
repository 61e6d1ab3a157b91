"""Predicates as conditions of SQL. Only columns and operators of ours are written into the text; values are always bound."""

from typing import Any, Final, assert_never

from outlast.query.predicate import (
    All,
    Compare,
    Exists,
    Field,
    Kind,
    Not,
    OneOf,
    Operator,
    Predicate,
    Prefix,
    Some,
    Value,
    after_prefix,
)
from outlast.store.postgres.text import escaped
from outlast.store.postgres.writing import KIND_TEXT, kind_of

EVENTS: Final = "(r.next_event_id - 1)"
ID_OF: Final = {"run": "r.run_id", "task": "r.task_id"}


class Bound:
    """The parameters of a statement, in the order in which they are bound; the first is the shard."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def text(self, value: str) -> str:
        """Bind a text and return what stands for it."""
        return self._bind(escaped(value), "text")

    def whole(self, value: int) -> str:
        """Bind an integer of 64 bits."""
        return self._bind(value, "bigint")

    def number(self, value: float) -> str:
        """Bind a number of any size, exactly."""
        return self._bind(kind_of(value)[2], "numeric")

    def _bind(self, value: object, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values) + 1}::{kind}"


def condition(predicate: Predicate, of: str, bound: Bound) -> str:
    """Return the condition on a row of ``of`` ("run" or "task") under the alias ``r``. It is never NULL."""
    match predicate:
        case All():
            return _joined(" AND ", predicate.items, of, bound)
        case Some():
            return _joined(" OR ", predicate.items, of, bound)
        case Not():
            return f"NOT {condition(predicate.item, of, bound)}"
        case Compare(field=field, operator=operator, value=value):
            return _on(field, of, [(operator.value, value)], bound)
        case OneOf(field=field, values=values):
            return _on(field, of, [(Operator.EQUAL.value, value) for value in values], bound)
        case Prefix(field=field, prefix=prefix):
            return _begins(field, of, prefix, bound)
        case Exists(field=field):
            return _exists(field, of, bound)
        case _:
            assert_never(predicate)


def equal_label(value: Value, bound: Bound) -> str:
    """Return the condition that the label under the alias ``w`` has ``value``, for the index that leads there."""
    kind, _, _ = kind_of(value)
    if isinstance(value, str):
        return f"w.kind = {kind} AND w.text = {bound.text(value)}"
    # The index holds what is above 0: said as well, or it would not be seen to be of use.
    return f"w.kind > 0 AND w.kind = {kind} AND w.number = {bound.number(value)}"


def _joined(word: str, items: tuple[Predicate, ...], of: str, bound: Bound) -> str:
    return f"({word.join([condition(item, of, bound) for item in items])})"


def _on(field: Field, of: str, tests: list[tuple[str, Value]], bound: Bound) -> str:
    """Return the condition that one of ``tests``, an operator and a value each, is true of ``field``."""
    if field.kind is Kind.LABEL:
        return _labelled(field, of, " OR ".join([_label_test(word, value, bound) for word, value in tests]), bound)
    column = _column(field)
    text = " OR ".join([_column_test(field, column, word, value, bound) for word, value in tests])
    return f"({column} <> 0 AND ({text}))" if field.kind is Kind.INSTANT else f"({text})"


def _label_test(word: str, value: Value, bound: Bound) -> str:
    kind, _, _ = kind_of(value)
    if isinstance(value, str):
        return f"l.kind = {kind} AND l.text {word} {bound.text(value)}"
    return f"l.kind = {kind} AND l.number {word} {bound.number(value)}"


def _column_test(field: Field, column: str, word: str, value: Value, bound: Bound) -> str:
    if isinstance(value, bool) or isinstance(value, str) != (field.kind in {Kind.TEXT, Kind.CHOICE}):
        return "false"  # values of another type are neither the same nor before or after
    return f"{column} {word} {bound.text(value) if isinstance(value, str) else bound.number(value)}"


def _begins(field: Field, of: str, prefix: str, bound: Bound) -> str:
    end = after_prefix(prefix)
    if field.kind is Kind.LABEL:
        test = f"l.kind = {KIND_TEXT} AND l.text >= {bound.text(prefix)}"
        return _labelled(field, of, f"{test} AND l.text < {bound.text(end)}" if end else test, bound)
    if field.kind not in {Kind.TEXT, Kind.CHOICE}:
        return "false"
    test = f"{_column(field)} >= {bound.text(prefix)}"
    return f"({test} AND {_column(field)} < {bound.text(end)})" if end else f"({test})"


def _exists(field: Field, of: str, bound: Bound) -> str:
    match field.kind:
        case Kind.LABEL:
            return _labelled(field, of, "true", bound)
        case Kind.INSTANT:
            return f"({_column(field)} <> 0)"
        case Kind.NUMBER:
            return "true"
        case Kind.TEXT | Kind.CHOICE:
            return f"({_column(field)} <> '')"
        case _:
            assert_never(field.kind)


def _labelled(field: Field, of: str, test: str, bound: Bound) -> str:
    name = bound.text(field.column)
    return f"EXISTS (SELECT 1 FROM outlast.labels l WHERE l.shard = $1 AND l.id = {ID_OF[of]} AND l.name = {name} AND ({test}))"


def _column(field: Field) -> str:
    return EVENTS if field.column == "events" else f"r.{field.column}"
