"""What people type as values: JSON arguments, tags, spans, and ids from pipes."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from outlast.core.errors import Invalid
from outlast.core.limits import KEY_BYTES_MAX, WORKFLOW_ID_BYTES_MAX
from outlast.core.payload import Payload
from outlast.gateway.values import JSON_PLAIN

LINE_BYTES_MAX: Final = 4 * (WORKFLOW_ID_BYTES_MAX + KEY_BYTES_MAX)  # of one line of ids


def payload_of(text: str, *, what: str) -> Payload:
    """Return JSON as a payload. Raises Invalid, with what to type when it looks like plain text."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        quoted = msgspec.json.encode(text).decode()
        raise Invalid(
            "invalid_request",
            f"{what} is no JSON: {error}.",
            remedy=f"If it is a text, quote it twice: '{quoted[:80]}'",
        ) from None
    return Payload(JSON_PLAIN, msgspec.json.encode(value))


def tags_of(given: Sequence[str]) -> dict[str, str] | None:
    """Return NAME=VALUE pairs. Raises Invalid."""
    tags: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Invalid("invalid_request", f'--tag is "{text}".', remedy="Write --tag NAME=VALUE.")
        tags[name] = value
    return tags or None


def span_of(text: str, *, what: str) -> int:
    """Return "10m", "250ms" or a number of seconds in nanoseconds. Raises Invalid."""
    from outlast.sdk.durations import nanos_of
    from outlast.sdk.errors import InvalidDuration

    try:
        return nanos_of(float(text) if text.replace(".", "", 1).isdigit() else text, name=what)
    except InvalidDuration as error:
        raise Invalid("invalid_request", str(error).splitlines()[0], remedy=error.remedy) from None


def ids_of(given: Sequence[str]) -> list[str]:
    """Return ids in order, each once; ``-`` stands for the lines of stdin, which may be JSON objects with an id."""
    found: dict[str, None] = {}
    for text in given:
        for id in _lines() if text == "-" else (text,):
            found[id] = None
    return list(found)


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin, 1):
        text = line.strip("\r\n")
        if len(text) > LINE_BYTES_MAX and not text.startswith("{"):
            raise Invalid("invalid_request", f"Line {number} of stdin is no id.", remedy="Give one id a line.")
        if text.startswith("{"):
            text = _id_in(text, number)
        if text.strip():
            yield text


def _id_in(line: str, number: int) -> str:
    try:
        found = msgspec.json.decode(line, type=dict[str, object]).get("id")
    except msgspec.MsgspecError:
        return line  # an id may begin so
    if not isinstance(found, str):
        raise Invalid(
            "invalid_request", f'Line {number} of stdin has no "id".', remedy="Pipe a list: -o id, or --json."
        )
    return found
