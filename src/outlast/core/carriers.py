"""Finds the payloads in requests, replies and events without looking at what cannot hold one."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

import msgspec

from outlast.core.payload import SCHEMA, Payload

Value = TypeVar("Value")

_FIELDS: Final[dict[type, tuple[str, ...]]] = {}


@cache
def carriers(kind: type[msgspec.Struct], wanted: tuple[type, ...] = (Payload,)) -> tuple[str, ...]:
    """Return the names of the fields of ``kind`` that may hold a payload, or what else is ``wanted``, at any depth."""
    return tuple(name for name, hint in _hints(kind).items() if _may_hold(hint, wanted, frozenset()))


def payloads_in(value: object) -> Iterator[Payload]:
    """Yield every payload in ``value``: a struct, or tuples, lists and mappings of them."""
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is Payload:
            yield cast("Payload", item)
        elif kind is tuple or kind is list:
            stack.extend(cast("tuple[object, ...]", item))
        elif kind is dict:
            stack.extend(cast("dict[str, object]", item).values())
        else:
            for name in _fields_of(kind):
                inner = getattr(item, name)
                if inner:
                    stack.append(inner)


def with_payloads(value: Value, change: Callable[[Payload], Payload]) -> Value:
    """Return ``value`` with ``change`` applied to every payload in it; what has none is returned as it is."""
    return cast("Value", _changed(value, (Payload,), change))


def with_parts(value: Value, wanted: tuple[type, ...], change: Callable[[Any], object]) -> Value:
    """Return ``value`` with ``change`` applied to every part of a ``wanted`` type; what has none is returned as it is."""
    return cast("Value", _changed(value, wanted, change))


def place_of(value: object, wanted: Payload) -> str:
    """Return where ``wanted`` stands in ``value``, as ``items[3].input[0]``; empty when it is not there."""
    return next((place for place, payload in _places(value, "") if payload is wanted), "")


def schemas_in(value: object) -> dict[str, str]:
    """Return the hashes of the schemas that values in ``value`` were written with, by their places."""
    if not any(payload.metadata and SCHEMA in payload.metadata for payload in payloads_in(value)):
        return {}
    beside = ((place, (payload.metadata or {}).get(SCHEMA, b"")) for place, payload in _places(value, ""))
    return {place: said.decode(errors="replace") for place, said in beside if said}


def _changed(value: object, wanted: tuple[type, ...], change: Callable[[Any], object]) -> object:
    if isinstance(value, wanted):
        return change(value)
    if isinstance(value, msgspec.Struct):
        moved: dict[str, Any] = {}
        for name in carriers(type(value), wanted):
            inner = getattr(value, name)
            if inner:
                after = _changed(inner, wanted, change)
                if after is not inner:
                    moved[name] = after
        return msgspec.structs.replace(value, **moved) if moved else value
    if isinstance(value, tuple):
        before = cast("tuple[object, ...]", value)
        items = tuple(_changed(item, wanted, change) for item in before)
        return items if any(a is not b for a, b in zip(items, before, strict=True)) else before
    if isinstance(value, dict):
        mapping = cast("dict[str, object]", value)
        fields = {key: _changed(item, wanted, change) for key, item in mapping.items()}
        return fields if any(fields[key] is not mapping[key] for key in mapping) else mapping
    return value


def _places(value: object, place: str) -> Iterator[tuple[str, Payload]]:
    if isinstance(value, Payload):
        yield place, value
    elif isinstance(value, msgspec.Struct):
        for name in carriers(type(value)):
            yield from _places(getattr(value, name), f"{place}.{name}" if place else name)
    elif isinstance(value, tuple):
        for n, item in enumerate(cast("tuple[object, ...]", value)):
            yield from _places(item, f"{place}[{n}]")
    elif isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            yield from _places(item, f"{place}[{key!r}]")


def _fields_of(kind: type) -> tuple[str, ...]:
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = carriers(kind) if issubclass(kind, msgspec.Struct) else ()
    return fields


def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def _may_hold(hint: object, wanted: tuple[type, ...], visiting: frozenset[type]) -> bool:
    if any(hint is kind for kind in wanted):
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint in visiting:
            return False
        return any(_may_hold(inner, wanted, visiting | {hint}) for inner in _hints(hint).values())
    return any(_may_hold(inner, wanted, visiting) for inner in get_args(hint))
