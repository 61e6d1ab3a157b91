"""Columns of rows as the parameters of a statement, and the FROM item that has them back as rows.

A driver that encodes an array does so value by value, which takes longer than all else a commit does here. So each column is
one value: texts joined by a character that none of them has, numbers as an array's literal, bytes one behind the other with
their places beside them.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

from outlast.store.postgres.text import MARK, NUL, escaped

BETWEEN: Final = "\x1f"
"""Stands between the texts of a column, unless one of them has it."""
CHARACTERS: Final = 0xD800  # before those that are no text by themselves; a batch cannot hold all of them

_LENGTHS: Final = {"bytea": 3}  # parameters of a column; others have one


class Separated(Exception):
    """A text has the character that is to stand between texts."""


def character_between(columns: Iterable[Sequence[str]]) -> str:
    """Return the first character that no text of ``columns`` has, nor what is written for those that cannot be stored."""
    used = {NUL, *escaped(NUL + MARK)}.union(*(set("".join(column)) for column in columns))
    return next(found for found in map(chr, range(CHARACTERS)) if found not in used)


def packed(kind: str, column: Sequence[Any], between: str) -> tuple[Any, ...]:
    """Return ``column``, of one type, as parameters; a "count" as it is. Raises Separated when ``between`` is in a text."""
    match kind:
        case "text":
            return (_texts(column, between),)
        case "bytea":
            return _bytes(column)
        case "bigint":
            return (_numbers(column),)
        case "count":
            return tuple(column)
        case _:
            return ("{" + ",".join(map(str, column)) + "}",)


def rows_from(kinds: Sequence[str], taken: int, between: int) -> tuple[str, int]:
    """Return a FROM item without its alias, which gives the rows again, and the number of its last parameter.

    ``taken`` parameters come before its own: the count of rows, then those of each column. That of number ``between`` is
    the character between texts.
    """
    taken += 1
    series, values = [f"generate_series(1, ${taken}::integer)"], list[str]()
    names = ["n"]
    for kind in kinds:
        first, taken = taken + 1, taken + _LENGTHS.get(kind, 1)
        name = f"c{first}"
        names.append(name)
        match kind:
            case "text":
                # One text that is empty is no text to the function.
                series.append(f"unnest(string_to_array(${first}::text, ${between}::text))")
                values.append(f"coalesce({name}, '')")
            case "bytea":
                series += [f"unnest(${number}::text::integer[])" for number in (first + 1, first + 2)]
                names.append(f"{name}s")
                values.append(f"substr(${first}::bytea, {name}, {name}s)")
            case _:
                series.append(f"unnest(${first}::text::{kind}[])")
                values.append(name)
    columns = ", ".join(f"{value} AS c{n}" for n, value in enumerate(values, 1))
    return f"(SELECT {columns} FROM ROWS FROM ({', '.join(series)}) AS s ({', '.join(names)}))", taken


def _texts(column: Sequence[str], between: str) -> str:
    whole = between.join(column)
    if MARK in whole or NUL in whole:
        whole = between.join([escaped(text) for text in column])
    if whole.count(between) != max(len(column) - 1, 0):
        raise Separated
    return whole


def _numbers(column: Sequence[int]) -> str:
    """Return the literal of an array. Columns of one number, many of one another, are no work."""
    count = len(column)
    if count and column.count(column[0]) == count:
        return "{" + (f"{column[0]:d}," * count)[:-1] + "}"
    return "{" + (("%d," * count) % tuple(column))[:-1] + "}"


def _bytes(column: Sequence[bytes]) -> tuple[bytes, str, str]:
    lengths = list(map(len, column))
    if column and column.count(column[0]) == len(column):
        return column[0], _numbers([1] * len(column)), _numbers(lengths)
    return b"".join(column), _numbers(list(accumulate(lengths[:-1], initial=1)) if lengths else []), _numbers(lengths)
