"""A checked filter: which rows are wanted, with every name known and every value of the type of its field.

A predicate is true or false of a row, never unknown: what compares with something that a row does not have is false, and
``Not`` of it is true.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BEFORE_SURROGATES: Final = 0xD7FF
AFTER_SURROGATES: Final = 0xE000

Value = str | int | float | bool


class Kind(StrEnum):
    """What the values of a field are."""

    TEXT = "text"
    CHOICE = "choice"  # one of a closed list of words
    INSTANT = "instant"  # nanoseconds; 0 in a row means that it has not come
    NUMBER = "number"
    LABEL = "label"  # of any plain type, or not there


class Operator(StrEnum):
    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(slots=True, frozen=True)
class Field:
    """Something that rows are compared by. ``column`` names it in the row, or among the row's labels for a LABEL."""

    name: str
    kind: Kind
    column: str
    choices: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class Compare:
    """``field`` stands so to ``value``. Values of a label compare with those of their own type only."""

    field: Field
    operator: Operator
    value: Value


@dataclass(slots=True, frozen=True)
class OneOf:
    """``field`` has one of ``values``."""

    field: Field
    values: tuple[Value, ...]


@dataclass(slots=True, frozen=True)
class Prefix:
    """``field`` is a text that begins with ``prefix``."""

    field: Field
    prefix: str


@dataclass(slots=True, frozen=True)
class Exists:
    """The row has ``field``: a label that was set, an instant that has come, a text that is not empty."""

    field: Field


@dataclass(slots=True, frozen=True)
class Not:
    item: "Predicate"


@dataclass(slots=True, frozen=True)
class All:
    items: tuple["Predicate", ...]


@dataclass(slots=True, frozen=True)
class Some:
    items: tuple["Predicate", ...]


Predicate = Compare | OneOf | Prefix | Exists | Not | All | Some


def conjuncts(predicate: Predicate | None) -> tuple[Predicate, ...]:
    """Return what must all hold for ``predicate`` to hold."""
    if predicate is None:
        return ()
    if isinstance(predicate, All):
        return tuple(part for item in predicate.items for part in conjuncts(item))
    return (predicate,)


def equals(predicate: Predicate | None, column: str) -> str:
    """Return the text that ``column`` must have for ``predicate`` to hold; "" when it may have several."""
    for part in conjuncts(predicate):
        match part:
            case Compare(field=field, operator=Operator.EQUAL, value=str() as value) if field.column == column:
                return value
            case OneOf(field=field, values=(str() as value,)) if field.column == column:
                return value
            case _:
                continue
    return ""


def after_prefix(prefix: str) -> str:
    """Return the first text behind all that begin with ``prefix``, in order of code points; "" when there is none."""
    while prefix:
        last = ord(prefix[-1])
        prefix = prefix[:-1]
        if last < sys.maxunicode:
            # Between the two halves of the range lie the surrogates, which no valid text has.
            return prefix + chr(AFTER_SURROGATES if last == BEFORE_SURROGATES else last + 1)
    return ""
