"""Queries and bodies into the shapes of the table; every fault names its place."""

import re
from difflib import get_close_matches
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from outlast.core.errors import Invalid
from outlast.gateway.taken import WirePage

Shape = TypeVar("Shape", bound=msgspec.Struct)

# What decoding raises for bytes that are no request; UnicodeDecodeError comes from names of fields that are not UTF-8.
UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
FIELDS_MAX: Final = 50  # of one query

_ARGUMENTS: Final = frozenset({"args", "arguments"})  # what others call the input; the nearest word would be "tags"

_PLACE: Final = re.compile(r" - at `(\$|key in \$)(.*)`$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")


def read_query(query_string: bytes, shape: type[Shape]) -> Shape:
    """Return the query as ``shape``. Raises Invalid for a field that is not known, given twice, or not what it must be."""
    if not query_string:
        return shape()
    return _converted(_fields(query_string, shape.__struct_fields__), shape)


def read_list(query_string: bytes, shape: type[Shape]) -> tuple[Shape, WirePage]:
    """Return the query as ``shape`` and which page of it. Raises as ``read_query``."""
    fields = _fields(query_string, shape.__struct_fields__ + WirePage.__struct_fields__)
    page = {name: fields.pop(name) for name in WirePage.__struct_fields__ if name in fields}
    return _converted(fields, shape), _converted(page, WirePage)


def _fields(query_string: bytes, known: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a query; an empty value is one that was left out: forms and generated clients send them."""
    fields: dict[str, str] = {}
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise Invalid("invalid_request", f"The query cannot be read: {error}.", remedy="Encode it as UTF-8.") from None
    for name, value in pairs:
        if name not in known:
            raise Invalid(
                "unknown_field", f'The query has "{name[:100]}".', remedy=_nearest(name, known), parameter=name[:100]
            )
        if name in fields:
            raise Invalid("invalid_request", f'The query has "{name}" twice.', remedy="Give it once.", parameter=name)
        fields[name] = value
    return {name: value for name, value in fields.items() if value}


def _converted(given: dict[str, str], shape: type[Shape]) -> Shape:
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        name = pointer_of(str(error)).strip("/")
        raise Invalid(
            "invalid_request",
            f'{name} is "{given.get(name, "")[:50]}": {_what(str(error))}.',
            remedy=f"Give {name} as the reference says, or leave it out.",
            parameter=name,
        ) from None


def read_body(body: bytes, shape: type[Shape], *, under: str = "") -> Shape:
    """Return the JSON ``body`` as ``shape``. Raises Invalid with the place; ``under`` is where the body itself stands."""
    try:
        return msgspec.json.decode(body, type=shape)
    except UNREADABLE as error:
        raise malformed(error, known=shape.__struct_fields__, under=under) from None


def malformed(error: Exception, *, known: tuple[str, ...] = (), under: str = "") -> Invalid:
    """Return the refusal of a body that cannot be decoded, saying where."""
    if isinstance(error, RecursionError):
        return Invalid("malformed_body", "The body is nested too deeply.", remedy="Send flatter data.", pointer=under)
    if isinstance(error, UnicodeDecodeError):
        return Invalid("malformed_body", "The body is not UTF-8.", remedy="Encode it as UTF-8.", pointer=under)
    text = str(error)
    pointer = under + pointer_of(text)
    if found := _UNKNOWN.search(_PLACE.sub("", text)):
        at_top = _PLACE.search(text) is None
        return Invalid(
            "unknown_field",
            f"The body cannot be decoded: {text}.",
            remedy=_nearest(found[1], known) if at_top and known else "Leave that field out.",
            pointer=f"{pointer}/{_escaped(found[1])}"[:500],
        )
    return Invalid(
        "malformed_body",
        f"The body cannot be decoded: {text}.",
        remedy="Correct it at the place named.",
        pointer=pointer,
    )


def pointer_of(text: str) -> str:
    """Return the JSON pointer of the place that a decoder's message names; "" for the whole."""
    found = _PLACE.search(text)
    if found is None:
        return ""
    steps = (name or index for name, index in _STEP.findall(found[2]))
    # "[...]" is some entry of a mapping: the pointer ends at the mapping.
    return "".join(f"/{_escaped(step)}" for step in steps if step != "...")


def _what(text: str) -> str:
    return _PLACE.sub("", text).replace("`", "")


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _nearest(name: str, known: tuple[str, ...]) -> str:
    if name in _ARGUMENTS and "input" in known:
        return 'Did you mean "input"? It is the list of arguments.'
    if near := get_close_matches(name, known, n=1):
        return f'Did you mean "{near[0]}"?'
    return f"Use: {', '.join(known)}." if known else "Leave it out: nothing is asked here."
