"""Single values as REST writes them: spans, instants, payloads, failures."""

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from outlast.core import limits
from outlast.core.errors import Invalid
from outlast.core.failure import Failure
from outlast.core.payload import SCHEMA, Payload, Payloads, is_withheld, reason_of
from outlast.core.units import SECOND
from outlast.protocol.opening import codecs_of, encoding_of, is_closed, key_of

JSON_PLAIN: Final = "json/plain"  # the encoding that every SDK reads
NULL: Final = "binary/null"  # no value at all
ERROR_TEXT_MAX: Final = 200  # characters of an error in a row of a list; the whole stands in the thing itself

_UNITS: Final = {"ms": SECOND // 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}
_NUMBER: Final = r"(\d{1,18}(?:\.\d{1,9})?)"
_SHORT: Final = re.compile(rf"{_NUMBER}(ms|s|m|h|d)", re.ASCII)
_PLAIN: Final = re.compile(_NUMBER, re.ASCII)
_ISO: Final = re.compile(rf"P(?=\d|T\d)(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", re.ASCII)

Span = str | int | float


def span(value: Span, field: str, *, of_query: bool = False) -> int:
    """Return nanoseconds of "250ms", "10m", "3d", "PT10M", or of seconds as a number; at least one for a span above 0.

    Raises Invalid, with the place in the body or, ``of_query``, the name of the parameter.
    """
    nanoseconds = _of_text(value) if isinstance(value, str) else value * SECOND
    if nanoseconds is None or not 0 <= nanoseconds <= limits.SPAN_MAX:
        raise Invalid(
            "invalid_request",
            f'{field} is "{str(value)[:50]}".',
            remedy='Write seconds as a number, or "250ms", "10m", "3d", "PT10M"; at most 100 years.',
            **({"parameter": field} if of_query else {"pointer": "/" + field.replace(".", "/")}),
        )
    return int(nanoseconds) or (1 if nanoseconds else 0)  # 0 would mean that there is no bound


def _of_text(text: str) -> float | None:
    if found := _SHORT.fullmatch(text):
        return float(found[1]) * _UNITS[found[2]]
    if found := _PLAIN.fullmatch(text):
        return float(found[1]) * SECOND
    if found := _ISO.fullmatch(text):
        parts = zip(found.groups(), (_UNITS["d"], _UNITS["h"], _UNITS["m"], SECOND), strict=True)
        return sum(float(number) * unit for number, unit in parts if number)
    return None


def span_out(nanoseconds: int) -> str | None:
    """Return a span as ISO 8601, in seconds; None for none."""
    if not nanoseconds:
        return None
    whole, rest = divmod(nanoseconds, SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"PT{whole}{fraction}S"


def instant(nanoseconds: int) -> str | None:
    """Return RFC 3339 in UTC with milliseconds; None for not yet."""
    if not nanoseconds:
        return None
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def payloads(values: tuple[msgspec.Raw, ...], field: str = "input") -> Payloads:
    """Return JSON values as payloads, one each. Raises Invalid for one that no worker could read."""
    return tuple(Payload(JSON_PLAIN, _readable(bytes(value), field, place)) for place, value in enumerate(values))


def _readable(data: bytes, field: str, place: int) -> bytes:
    """Return ``data``. What stays raw while a body is decoded was only skipped over: text that is no UTF-8 passes there."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Invalid(
            "malformed_body",
            f"The value at {field}[{place}] cannot be read: {why}.",
            remedy="Send JSON in UTF-8, with numbers that fit into 64 bits.",
            pointer=f"/{field}/{place}",
        ) from None
    return data


def attributes_of(values: dict[str, str | int | float | bool] | None) -> dict[str, Payload] | None:
    """Return search attributes as payloads, None for none."""
    if not values:
        return None
    return {name: Payload(JSON_PLAIN, msgspec.json.encode(value)) for name, value in values.items()}


def value_of(payload: Payload) -> Any:
    """Return the JSON value of a payload, or what is known of it where it is no JSON, is coded or is kept apart."""
    if payload.encoding == JSON_PLAIN and not payload.blob and _is_json(payload.data):
        return msgspec.Raw(payload.data)
    form: dict[str, Any] = {"encoding": payload.encoding}
    if is_closed(payload):
        form |= {"of": encoding_of(payload), "codecs": codecs_of(payload), "key": key_of(payload)}
    if why := reason_of(payload)[1]:
        form["why"] = why
    if payload.blob:
        form |= {"size": payload.size, "blob": payload.blob}
    elif is_withheld(payload):
        form |= {"size": payload.size}
    elif payload.encoding != NULL:
        form |= {"size": len(payload.data), "data": base64.b64encode(payload.data).decode()}
    else:
        return None
    return form


def told(payload: Payload) -> str:
    """Return a payload for people: its JSON, or in words what it is and why it is not shown."""
    value = value_of(payload)
    if not isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    size = f"{payload.size or len(payload.data):,} bytes"
    if is_closed(payload):
        key = key_of(payload)
        return f"encrypted with key {key}, {size}" if key else f"coded by {' '.join(codecs_of(payload))}, {size}"
    lost = reason_of(payload)[0]
    where = ", not shown" if is_withheld(payload) else ", lost" if lost else ", kept apart" if payload.blob else ""
    return f"{payload.encoding}, {size}{where}"


def told_with_schema(payload: Payload) -> str:
    """Return a payload for people, and the hash of the schema that it was written with."""
    said = (payload.metadata or {}).get(SCHEMA, b"").decode(errors="replace")
    return told(payload) + (f"  (schema {said})" if said else "")


def _is_json(data: bytes) -> bool:
    """Say whether ``data`` is one JSON value: a worker says what it likes, and what is none would change the answer."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def values_of(payloads: Payloads) -> tuple[Any, ...]:
    """Return the JSON values of payloads."""
    return tuple(value_of(payload) for payload in payloads)


def plain(value: Any) -> Any:
    """Return any field of any event as JSON, payloads as values where they are."""
    if isinstance(value, Payload):
        return value_of(value)
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any field of any event
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] - as above
    return value


def error_line(failure: Failure | None) -> str:
    """Return the first line of a failure, short; "" for none."""
    if failure is None:
        return ""
    first = failure.message.splitlines()[0] if failure.message else ""
    return f"{failure.type}: {first}"[:ERROR_TEXT_MAX]
