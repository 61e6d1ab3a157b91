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

Condition = tuple[str, list[Any]]

EVENTS: Final = "(r.next_event_id - 1)"
ID_OF: Final = {"run": "r.run_id", "task": "r.task_id"}


def condition(predicate: Predicate, of: str) -> Condition:
    """Return the condition on a row of ``of`` ("run" or "task") under the alias ``r``. It is never NULL."""
    match predicate:
        case All():
            return _joined(" AND ", predicate.items, of)
        case Some():
            return _joined(" OR ", predicate.items, of)
        case Not():
            text, values = condition(predicate.item, of)
            return f"NOT {text}", values
        case Compare():
            return _on(predicate.field, of, _compared(predicate.operator, predicate.value))
        case OneOf():
            return _on(predicate.field, of, _one_of(predicate.values))
        case Prefix():
            return _on(predicate.field, of, _begins(predicate.prefix))
        case Exists(field=field):
            return _on(field, of, ("1", []) if field.kind in {Kind.LABEL, Kind.INSTANT} else ("{} <> ''", []))
        case _:
            assert_never(predicate)


def stored(value: Value) -> str | int | float | bytes:
    """Return ``value`` as the table of labels holds it: truth values apart from numbers."""
    return bytes([value]) if isinstance(value, bool) else value


def _joined(word: str, items: tuple[Predicate, ...], of: str) -> Condition:
    parts = [condition(item, of) for item in items]
    return f"({word.join(text for text, _ in parts)})", [value for _, values in parts for value in values]


def _on(field: Field, of: str, test: Condition) -> Condition:
    """Return ``test``, in which ``{}`` stands for the value, as a condition on ``field``."""
    text, values = test
    if field.kind is Kind.LABEL:
        inner = text.replace("{}", "l.value")
        return f"EXISTS (SELECT 1 FROM labels l WHERE l.id = {ID_OF[of]} AND l.name = ? AND {inner})", [
            field.column,
            *values,
        ]
    column = EVENTS if field.column == "events" else f"r.{field.column}"
    inner = text.replace("{}", column)
    return (f"({column} <> 0 AND {inner})" if field.kind is Kind.INSTANT else f"({inner})"), values


def _compared(operator: Operator, value: Value) -> Condition:
    # Across types a database has an order of its own; here only values of one type compare.
    return f"(typeof({{}}) IN {_types(value)} AND {{}} {operator.value} ?)", [stored(value)]


def _one_of(values: tuple[Value, ...]) -> Condition:
    return f"{{}} IN ({', '.join('?' * len(values))})", [stored(value) for value in values]


def _begins(prefix: str) -> Condition:
    end = after_prefix(prefix)
    if not end:
        return "(typeof({}) = 'text' AND {} >= ?)", [prefix]
    return "(typeof({}) = 'text' AND {} >= ? AND {} < ?)", [prefix, end]


def _types(value: Value) -> str:
    if isinstance(value, bool):
        return "('blob')"
    return "('text')" if isinstance(value, str) else "('integer', 'real')"
