"""Finds the part of a value that would not come back the same, and says where it is.

It walks only values that have failed to encode, or whose JSON shows that something may have been lost on the way.
"""

import dataclasses
import datetime as dt
import enum
import math
import types
import typing
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Final, cast

from outlast.sdk.errors import NotSerializable

DEPTH_MAX: Final = 200
WHOLE_BITS_MAX: Final = 4096  # of a whole number
PLAIN: Final = (str, int, float, bool, type(None))
OPEN: Final = "open"  # nothing tells the reader what type it has
KNOWN: Final = "known"  # something does


def check(value: Any, path: str, *, declared: Any) -> None:
    """Raise NotSerializable for the first part of ``value`` that ``declared`` does not bring back the same."""
    _walk(value, path, declared, 0)


def explain(value: Any, path: str, error: Exception) -> NotSerializable:
    """Return the error for a value that failed to encode, with the path of the part that did."""
    try:
        _walk(value, path, KNOWN, 0)
    except NotSerializable as found:
        return found
    return NotSerializable(
        f"{path} cannot be written as JSON: {error}", path=path, remedy="Pass data: numbers, text, lists, dataclasses."
    )


def _walk(value: Any, path: str, declared: Any, depth: int) -> None:
    kind: type = value.__class__
    if kind is str:
        _text(value, path)
    elif kind is float:
        if not math.isfinite(value):
            raise NotSerializable(
                f"{path} is {value}: JSON has no such number.", path=path, remedy="Pass None, or a text, for it."
            )
    elif kind is int or kind is bool or value is None:
        _whole(value, path)
    elif depth > DEPTH_MAX:
        raise NotSerializable(
            f"{path[:200]}… is nested more than {DEPTH_MAX} deep, or holds itself.",
            path=path[:200],
            remedy="Pass ids instead of objects that refer to each other.",
        )
    elif isinstance(value, dict):
        _mapping(cast("dict[object, object]", value), path, _narrowed(declared), depth)
    elif isinstance(value, list | tuple) and not hasattr(kind, "_fields"):
        items: list[Any] = list(cast("list[Any]", value))
        declared_items = _item_types(_narrowed(declared), len(items))
        for place, part in enumerate(items):
            _walk(part, f"{path}[{place}]", declared_items[min(place, len(declared_items) - 1)], depth + 1)
    elif isinstance(value, set | frozenset):
        _unordered(cast("set[Any]", value), path, _narrowed(declared), depth)
    else:
        _object(value, path, _narrowed(declared), depth)


def _narrowed(declared: Any) -> Any:
    """Return OPEN if nothing is said of the type, the one real member of an optional, else ``declared``."""
    if declared in (Any, object):
        return OPEN
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(declared) if member is not type(None)]
        return _narrowed(members[0]) if len(members) == 1 else KNOWN
    if typing.get_origin(declared) is typing.Annotated:
        return _narrowed(typing.get_args(declared)[0])
    return declared


def _item_types(declared: Any, length: int) -> tuple[Any, ...]:
    if declared is OPEN or declared in (list, tuple):
        return (Any,)
    args = typing.get_args(declared)
    if not args:
        return (KNOWN,)
    if typing.get_origin(declared) is tuple and len(args) == length and Ellipsis not in args:
        return args
    return (args[0],)


def _text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise NotSerializable(
            f"{path} has half a character (U+{ord(value[error.start]):04X}, place {error.start}): no UTF-8 can hold it.",
            path=path,
            remedy='Clean it: text.encode("utf-8", "replace").decode().',
        ) from None


def _whole(value: int | None, path: str) -> None:
    if value is not None and value.bit_length() > WHOLE_BITS_MAX:
        raise NotSerializable(
            f"{path} is a number of {value.bit_length():,} bits: more than {WHOLE_BITS_MAX:,} are not read back everywhere.",
            path=path,
            remedy="Pass it as text or bytes.",
        )


def _mapping(value: dict[object, object], path: str, declared: Any, depth: int) -> None:
    plain = declared is OPEN or declared is dict
    args = typing.get_args(declared)
    inner = Any if plain else args[1] if len(args) == 2 else KNOWN  # noqa: PLR2004
    for key, part in value.items():
        if isinstance(key, str):
            _text(key, f"{path} (a key)")
            _walk(part, f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]", inner, depth + 1)
            continue
        if plain or (args and args[0] in (str, Any)):
            raise NotSerializable(
                f"{path} has the key {key!r}, a {type(key).__name__}: it would come back as text.",
                path=path,
                remedy="Annotate the parameter, for example dict[int, str], or make the keys text.",
            )
        _walk(part, f"{path}[{key!r}]", inner, depth + 1)


def _unordered(value: "set[Any]", path: str, declared: Any, depth: int) -> None:
    base = typing.get_origin(declared) or declared
    if declared is not KNOWN and not (isinstance(base, type) and issubclass(base, AbstractSet)):
        raise NotSerializable(
            f"{path} is a set: not declared as one it would come back as a list, in another order each time.",
            path=path,
            remedy="Annotate it as set[…], or pass sorted(…).",
        )
    args = typing.get_args(declared)
    for part in value:
        _walk(part, f"{path}{{…}}", args[0] if args else KNOWN, depth + 1)


def _object(value: Any, path: str, declared: Any, depth: int) -> None:
    if isinstance(value, enum.Enum):
        _walk(value.value, path, KNOWN, depth + 1)
        return
    if isinstance(value, PLAIN):
        return
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        raise NotSerializable(
            f"{path} is {value.isoformat(sep=' ')}, which has no zone: another machine would take it for another instant.",
            path=path,
            remedy="Give it one: datetime.now(UTC), or value.replace(tzinfo=ZoneInfo(…)).",
        )
    if declared is OPEN and isinstance(value, bytes | bytearray | memoryview):
        raise NotSerializable(
            f"{path} is binary: without an annotation it would come back as text.",
            path=path,
            remedy="Annotate it as bytes, or pass text.",
        )
    fields = _fields(value)
    if fields is None:
        if not _known(value):
            raise NotSerializable(
                f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which has no JSON form.",
                path=path,
                remedy="Pass data: numbers, text, lists, dataclasses, models; or what it takes to make the object again.",
            )
        return
    hints = _hints(value.__class__)
    for name, part in fields:
        _walk(part, f"{path}.{name}", hints.get(name, KNOWN), depth + 1)


@lru_cache(maxsize=1024)
def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError):
        return {}


def _known(value: Any) -> bool:
    import decimal  # noqa: PLC0415 - loaded only when a value has failed
    import pathlib  # noqa: PLC0415
    import uuid  # noqa: PLC0415

    return isinstance(
        value,
        dt.datetime | dt.date | dt.time | dt.timedelta | bytes | bytearray | memoryview
        | decimal.Decimal | uuid.UUID | pathlib.PurePath,
    )  # fmt: skip


def _class_of(value: object) -> type:
    return type(value)


def _fields(value: object) -> Iterator[tuple[str, Any]] | None:
    cls: Any = _class_of(value)
    if dataclasses.is_dataclass(cls):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(cls))
    names = getattr(cls, "__struct_fields__", None) or getattr(cls, "_fields", None)
    if names is not None:
        return ((name, getattr(value, name)) for name in names)
    if hasattr(cls, "model_fields"):
        return ((name, part) for name, part in value.__dict__.items())
    attributes = getattr(cls, "__attrs_attrs__", None)
    if attributes is not None:
        return ((attribute.name, getattr(value, attribute.name)) for attribute in attributes)
    return None
