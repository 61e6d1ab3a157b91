"""The hash of a type's JSON schema: stored beside a value, so that a type that has changed since can be told by both hashes.

Only types with fields or members of their own have one: what is plain says itself what it is. Titles, descriptions and examples
are no part of it, so that an edited docstring is no other type.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec

from outlast.core.payload import SCHEMA

DIGITS: Final = 16  # of the hash, hexadecimal: enough to tell the versions of one type
_WORDS: Final = frozenset({"title", "description", "examples", "$comment", "deprecated"})
_NAMED: Final = frozenset(
    {"properties", "$defs", "definitions", "patternProperties"}
)  # whose keys are names, not words


def beside_of(declared: Any) -> dict[str, bytes] | None:
    """Return the metadata that says the schema of ``declared``; None for a type that has no schema."""
    hashed = hash_of(declared)
    return {SCHEMA: hashed.encode()} if hashed else None


def hash_of(declared: Any) -> str:
    """Return the hash of the schema of ``declared``, "" where there is none."""
    try:
        if hasattr(declared, "model_json_schema"):
            schema = declared.model_json_schema()
        else:
            schema = msgspec.json.schema(declared, schema_hook=_schema_of_others)
    except Exception:  # noqa: BLE001 - a type without a schema is written and read all the same
        return ""
    return _hashed(_bare(schema))


def hash_of_named(names: Iterable[str], hash_by_name: Callable[[str], str]) -> str:
    """Return one hash for values that travel by name, "" where none has a schema."""
    parts = {name: hash_by_name(name) for name in sorted(names)}
    return _hashed(parts) if any(parts.values()) else ""


def _hashed(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:DIGITS]


def _schema_of_others(kind: type) -> dict[str, Any]:
    if hasattr(kind, "model_json_schema"):
        return cast("Any", kind).model_json_schema()  # type: ignore[no-any-return]
    return {"type": "string"}  # paths, as text


def _bare(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without its prose; with ``names`` the keys of this level are names of fields or types."""
    if isinstance(schema, dict):
        parts = cast("dict[str, Any]", schema)
        return {
            key: _bare(part, names=not names and key in _NAMED)
            for key, part in parts.items()
            if names or key not in _WORDS
        }
    if isinstance(schema, list):
        return [_bare(part) for part in schema]  # pyright: ignore[reportUnknownVariableType] - any JSON
    return schema
