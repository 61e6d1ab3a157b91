"""Tags and search attributes as plain values by name: what lists are filtered by.

Search attributes are the one kind of user data that the engine opens: that is what they are set for. What is no plain JSON
value, or a list of them, is kept and shown but cannot be found by.
"""

from typing import Any, Final

import msgspec

from outlast.core import limits
from outlast.core.payload import Payload

JSON: Final = "json/plain"
WHOLE: Final = range(-(2**63), 2**63)

Value = str | int | float | bool
Items = tuple[tuple[str, Value], ...]

_decode: Final = msgspec.json.Decoder(str | int | float | bool | list[Any] | dict[str, Any] | None).decode


def labels_of(tags: dict[str, str] | None, attributes: dict[str, Payload] | None) -> Items:
    """Return the labels of a run or a task: each value of a list by itself, and none twice."""
    found: list[tuple[str, Value]] = [(f"tag.{name}", value) for name, value in (tags or {}).items()]
    for name, payload in (attributes or {}).items():
        found += [(f"attr.{name}", value) for value in _values(payload)]
    return tuple(found)


def _values(payload: Payload) -> list[Value]:
    if payload.encoding != JSON or payload.blob:
        return []
    try:
        value = _decode(payload.data)
    except (msgspec.DecodeError, RecursionError):
        return []
    items: list[Any] = value if isinstance(value, list) else [value]
    # True equals 1, and is another value.
    plain = {(isinstance(item, bool), item): item for item in items[: limits.LABEL_VALUES_MAX] if _is_plain(item)}
    return list(plain.values())


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= limits.LABEL_BYTES_MAX
    if isinstance(value, bool | float):
        return True
    return isinstance(value, int) and value in WHOLE
