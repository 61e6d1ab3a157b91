"""Whether a row matches a predicate: what the stores without a query language of their own use, and what the others equal."""

import operator
from collections.abc import Callable, Mapping
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
)

Labels = Mapping[str, tuple[Value, ...]]

_TESTS: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQUAL: operator.eq,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def matches(predicate: Predicate, row: object, labels: Labels) -> bool:
    """Say whether ``row`` is wanted. ``labels`` are its tags and search attributes, with all values of each."""
    match predicate:
        case All():
            return all(matches(item, row, labels) for item in predicate.items)
        case Some():
            return any(matches(item, row, labels) for item in predicate.items)
        case Not():
            return not matches(predicate.item, row, labels)
        case Compare():
            test = _TESTS[predicate.operator]
            found = _values(predicate.field, row, labels)
            return any(_alike(value, predicate.value) and test(value, predicate.value) for value in found)
        case OneOf():
            found = _values(predicate.field, row, labels)
            return any(_alike(value, one) and value == one for value in found for one in predicate.values)
        case Prefix():
            found = _values(predicate.field, row, labels)
            return any(isinstance(value, str) and value.startswith(predicate.prefix) for value in found)
        case Exists():
            found = _values(predicate.field, row, labels)
            return any(value != "" for value in found) if predicate.field.kind is not Kind.LABEL else bool(found)
        case _:
            assert_never(predicate)


def _values(field: Field, row: object, labels: Labels) -> tuple[Value, ...]:
    if field.kind is Kind.LABEL:
        return labels.get(field.column, ())
    if field.column == "events":
        return (getattr(row, "next_event_id") - 1,)  # noqa: B009 - the row's type is the caller's
    value: Value = getattr(row, field.column)
    return () if field.kind is Kind.INSTANT and value == 0 else (value,)


def _alike(one: Value, other: Value) -> bool:
    """Text, numbers and truth values compare with their own kind only."""
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool)
    return isinstance(one, str) == isinstance(other, str)
