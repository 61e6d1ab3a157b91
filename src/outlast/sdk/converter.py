"""Values to payloads and back.

What is written comes back equal through the same annotation, or it is refused where it was handed over, with the path of
the part that cannot be written. Without an annotation plain JSON comes back as plain JSON.

Encodings: ``json/plain`` (UTF-8 JSON), ``binary/plain`` (bytes) and ``binary/null`` (None). Beside a value of a type with fields
stands the hash of the type's schema.
"""

import enum
import inspect
import json
import types
import typing
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final, TypeVar, cast

import msgspec

from outlast.core import limits
from outlast.core.failure import Failure
from outlast.core.payload import SCHEMA, Payload, is_withheld, reason_of
from outlast.sdk.definition import Parameters
from outlast.sdk.errors import BadArguments, NotReadable, PayloadTooLarge
from outlast.sdk.lossless import check, explain
from outlast.sdk.schema import beside_of, hash_of_named

JSON: Final = "json/plain"
BYTES: Final = "binary/plain"
NULL: Final = "binary/null"
PICKLE: Final = "binary/pickle"  # read by who asked for it only
NULL_PAYLOAD: Final = Payload(NULL)
KWARGS: Final = {"kwargs": b"1"}
Stored = TypeVar("Stored")

CUT_AT: Final = 120  # characters of a value shown in an error
UNFIT: Final = (
    "If the call was wrong, end it and call anew. If the code has changed, keep the parameters that recorded calls have, or "
    "add a new function beside this one."
)

BINARY: Final = (Any, object, bytes, bytearray, memoryview)
CONTAINERS: Final = (dict, list, tuple, set, frozenset)

_PLAIN_LEAVES: Final = frozenset({str, int, bool})


def _hook(value: Any) -> Any:
    dump: Any = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(type(value).__qualname__)


def _unhook(type_: Any, value: Any) -> Any:
    validate = getattr(type_, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(type_, type) and issubclass(type_, PurePath):
        return type_(value)
    raise TypeError(f"there is no way to make {type_} of it")


_ENCODE: Final = msgspec.json.Encoder(enc_hook=_hook).encode
_ENCODE_SORTED: Final = msgspec.json.Encoder(enc_hook=_hook, order="deterministic").encode


class Traits(msgspec.Struct, frozen=True):
    """What is known of a declared type beforehand: ``open`` means that anything may be inside."""

    open: bool
    sets: bool
    floats: bool
    instants: bool
    decode: Callable[[bytes], Any]
    model: Any = None
    beside: dict[str, bytes] | None = None  # the metadata of its values; shared, never changed


class Converter:
    """The default converter: annotations decide."""

    def opened(self, value: Stored) -> Stored:
        """Return what was read from the engine with its payloads as this converter wrote them, below any codec."""
        return value

    def sealed(self, failure: Failure) -> Failure:
        """Return ``failure`` as it may leave this program: its texts encrypted where values are."""
        return failure

    def logged(self, error: BaseException | str, failure: Failure) -> BaseException | str:
        """Return what a log may say of ``error``: nothing but its type where its text is to be encrypted."""
        del failure
        return error

    def to_payload(self, value: Any, *, path: str, declared: Any = Any) -> Payload:
        """Return ``value`` as a payload; ``path`` is the name by which an error calls it.

        Raises:
            NotSerializable: Some part would not come back the same; the error's ``path`` names it.
            PayloadTooLarge: It takes more than limits.PAYLOAD_BYTES_MAX bytes.
        """
        if value is None:
            return NULL_PAYLOAD
        if isinstance(value, bytes | bytearray | memoryview):
            return bounded(Payload(BYTES, bytes(cast("bytes", value))), path)
        data = encode(value, path=path, declared=declared)
        if len(data) > limits.PAYLOAD_BYTES_MAX:
            return bounded(Payload(JSON, data), path)
        if declared is Any or value.__class__ in _PLAIN_LEAVES:
            return Payload(JSON, data)
        return Payload(JSON, data, traits_of(declared).beside)

    def to_attribute(self, value: Any, *, path: str) -> Payload:
        """Return a search attribute as a payload that no codec has touched: runs are found by it. Raises as ``to_payload``."""
        return self.to_payload(value, path=path)

    def from_payload(self, payload: Payload, type: Any = Any, *, path: str = "value") -> Any:
        """Return the value in ``payload`` as ``type``.

        Raises:
            NotReadable: It does not have that type; the error's ``path`` names the part.
        """
        encoding = payload.encoding
        if payload.blob or is_withheld(payload):
            raise lost(payload, path)
        if encoding == JSON:
            try:
                return decode(payload.data, type, path=path)
            except NotReadable as error:
                name = getattr(type, "__name__", type)
                raise _with_schemas(error, payload, name, schema_of(type)) from None
        if encoding == NULL:
            return None
        if encoding == BYTES:
            return _bytes_as(payload.data, type, path)
        if encoding == PICKLE:
            raise NotReadable(
                f"{path} was written by pickle, which this app does not read.",
                path=path,
                remedy="Pickles run code. If all who can write here may do that: App(converter=Pickle(i_understand=True)).",
            )
        raise NotReadable(
            f"{path} has the encoding {encoding!r}, which this converter does not read.",
            path=path,
            remedy="Give the App the converter and codecs with which it was written.",
        )

    def arguments_to_payloads(
        self, parameters: Parameters, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Payload, ...]:
        """Bind the arguments to the signature and return them as payloads, keyword-only ones in a last one.

        Raises:
            BadArguments: They do not fit the signature.
            NotSerializable, PayloadTooLarge: As ``to_payload``; paths begin with the parameter's name.
        """
        if not kwargs and not parameters.keyword_only and len(args) == len(parameters.names):
            if len(args) == 1:
                return (self.to_payload(args[0], path=parameters.names[0], declared=parameters.types[0]),)
            return tuple(
                [
                    self.to_payload(value, path=name, declared=declared)
                    for value, name, declared in zip(args, parameters.names, parameters.types, strict=True)
                ]
            )
        positional, named = bind(parameters, args, kwargs)
        payloads = [self.to_payload(value, path=name, declared=declared) for value, name, declared in positional]
        if named:
            types_of = dict(zip(parameters.names, parameters.types, strict=True))
            parts = {
                name: msgspec.Raw(encode(value, path=name, declared=types_of.get(name, Any)))
                for name, value in named.items()
            }
            hashed = hash_of_named(named, lambda name: schema_of(types_of.get(name, Any)))
            metadata = {**KWARGS, SCHEMA: hashed.encode()} if hashed else KWARGS
            payloads.append(bounded(Payload(JSON, _ENCODE(parts), metadata=metadata), "keyword arguments"))
        return tuple(payloads)

    def payloads_to_arguments(
        self, parameters: Parameters, payloads: Sequence[Payload]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments that ``arguments_to_payloads`` wrote, as the types the signature now has.

        Raises:
            NotReadable: One does not have its parameter's type, or there are more or fewer than the signature takes.
        """
        named: dict[str, Any] = {}
        if payloads and payloads[-1].metadata and "kwargs" in payloads[-1].metadata:
            types_of = dict(zip(parameters.names, parameters.types, strict=True))
            parts = msgspec.json.decode(payloads[-1].data, type=dict[str, msgspec.Raw])
            try:
                named = {name: decode(bytes(raw), types_of.get(name, Any), path=name) for name, raw in parts.items()}
            except NotReadable as error:
                now = hash_of_named(parts, lambda name: schema_of(types_of.get(name, Any)))
                raise _with_schemas(error, payloads[-1], "the signature", now) from None
            payloads = payloads[:-1]
        names = parameters.names if not parameters.keyword_only else _positional(parameters)
        if len(payloads) + len(named) < parameters.required or (named and not parameters.variadic):
            _refuse_unfit(parameters, names[: len(payloads)], named)
        if len(payloads) == 1 and len(names) == 1:
            return (self.from_payload(payloads[0], parameters.types[0], path=names[0]),), named
        if len(payloads) > len(names) and not parameters.variadic:
            raise NotReadable(
                f"{len(payloads)} arguments were recorded; {parameters.function} now takes {len(names)}.",
                path="arguments",
                remedy=UNFIT,
            )
        args = [
            self.from_payload(
                payload,
                parameters.types[place] if place < len(names) else Any,
                path=names[place] if place < len(names) else f"args[{place}]",
            )
            for place, payload in enumerate(payloads)
        ]
        return tuple(args), named


def _refuse_unfit(parameters: Parameters, placed: Sequence[str], named: dict[str, Any]) -> None:
    """Raise NotReadable when recorded arguments lack a parameter, or have a name that is none."""
    strange = [name for name in named if name not in parameters.names or name in placed]
    if strange and not parameters.variadic:
        raise NotReadable(
            f'An argument "{strange[0]}" was recorded, which {parameters.function} does not take; '
            f"it takes {', '.join(parameters.names) or 'none'}.",
            path=strange[0],
            remedy=UNFIT,
        )
    given = {*placed, *named}
    if sum(name in given for name in parameters.names) < parameters.required:
        left = [name for name in parameters.names if name not in given]
        raise NotReadable(
            f"{len(given)} arguments were recorded; {parameters.function} requires {parameters.required}; "
            f"missing: {', '.join(left)}.",
            path="arguments",
            remedy=UNFIT,
        )


def _bytes_as(data: bytes, type_: Any, path: str) -> bytes | bytearray:
    if type_ is bytearray:
        return bytearray(data)
    if type_ in BINARY or isinstance(type_, typing.TypeVar) or any(part in BINARY for part in typing.get_args(type_)):
        return data
    raise NotReadable(
        f"{path} cannot be read as {getattr(type_, '__name__', type_)}: {len(data)} bytes were recorded.",
        path=path,
        remedy="Annotate it as bytes.",
    )


def encode(value: Any, *, path: str, declared: Any = Any) -> bytes:
    """Return ``value`` as JSON that reads back equal as ``declared``; raises NotSerializable."""
    kind: type = value.__class__
    if kind in _PLAIN_LEAVES:
        try:
            return _ENCODE(value)
        except Exception as error:  # noqa: BLE001 - which exception it is depends on the value; explain says what is wrong
            raise explain(value, path, error) from None
    traits = traits_of(declared)
    try:
        if traits.model is not None and kind is traits.model:
            data: bytes = value.model_dump_json(by_alias=True).encode()
        else:
            data = (_ENCODE_SORTED if traits.sets else _ENCODE)(value)
    except Exception as error:  # noqa: BLE001 - as above
        raise explain(value, path, error) from None
    # msgspec writes NaN and infinity as null. Only a value whose JSON has a null can hold one, and only a value whose
    # type says nothing can hold a set, a date or a key that would come back as something else.
    if traits.open or traits.instants or ((kind is set or kind is frozenset) and not traits.sets):
        check(value, path, declared=declared)
    elif traits.floats and b"null" in data and not _is_finite(value):
        check(value, path, declared=declared)
        raise explain(value, path, ValueError("it holds NaN or an infinity"))
    return data


def _is_finite(value: Any) -> bool:
    """Say whether no number in ``value`` is NaN or infinite: asked of two encoders in C, as a walk would be slow."""
    try:
        json.dumps(msgspec.to_builtins(value, enc_hook=_hook, str_keys=True), allow_nan=False)
    except ValueError:
        return False
    return True


def decode(data: bytes, type_: Any, *, path: str) -> Any:
    """Return the JSON ``data`` as ``type_``; raises NotReadable with the path of what does not fit."""
    try:
        return traits_of(type_).decode(data)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        text = str(error)
        place = text.rsplit("`$", 1)[1].rstrip("`") if "`$" in text else ""
        raise NotReadable(
            f"{path}{place} cannot be read as {getattr(type_, '__name__', type_)}: {text[:CUT_AT]}",
            path=path + place,
            remedy="If it was sent wrong, end this and send it anew. If the type has changed since, give new fields defaults, "
            "or take the old form too.",
        ) from None


def bind(
    parameters: Parameters, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[tuple[Any, str, Any]], dict[str, Any]]:
    """Return (value, name, declared type) of the positional arguments, and those that travel by name."""
    names = _positional(parameters)
    if len(args) > len(names) and not parameters.variadic:
        raise BadArguments(
            f"{len(args)} positional arguments were given; {parameters.function} takes {len(names)}: "
            f"{', '.join(names) or 'none'}.",
        )
    positional = [
        (
            value,
            names[place] if place < len(names) else f"args[{place}]",
            parameters.types[place] if place < len(names) else Any,
        )
        for place, value in enumerate(args)
    ]
    named = dict(kwargs)
    taken = set(names[: len(args)])
    for name in named:
        if name in taken:
            raise BadArguments(f'Argument "{name}" of {parameters.function} was given twice.')
        if name not in parameters.names and not parameters.variadic:
            raise BadArguments(
                f'{parameters.function} has no parameter "{name}".',
                remedy=f"The parameters are: {', '.join(parameters.names) or 'none'}.",
            )
    for place in range(len(args), len(names)):
        # In order while there is no hole: what could be given by position travels by position, whichever way it was given.
        if names[place] not in named:
            break
        positional.append((named.pop(names[place]), names[place], parameters.types[place]))
    given = {name for _, name, _ in positional} | named.keys()
    if sum(name in given for name in parameters.names) < parameters.required:
        left = [name for name in parameters.names if name not in given]
        raise BadArguments(
            f"{parameters.function} requires {parameters.required} arguments and {len(given)} were given; "
            f"missing: {', '.join(left)}.",
            remedy=f"The parameters are: {', '.join(parameters.names)}.",
        )
    return positional, named


def _positional(parameters: Parameters) -> tuple[str, ...]:
    if not parameters.keyword_only:
        return parameters.names
    return tuple(name for name in parameters.names if name not in parameters.keyword_only)


def bounded(payload: Payload, path: str, *, when: str = "") -> Payload:
    """Return ``payload``. Raises PayloadTooLarge for one that is over the limit ``when`` (" when it is coded") it is measured."""
    size = len(payload.data)
    if size > limits.PAYLOAD_BYTES_MAX:
        raise PayloadTooLarge(
            f"{path} takes {size:,} bytes{when}; a payload has at most {limits.PAYLOAD_BYTES_MAX:,}.",
            path=path,
            size=size,
            limit=limits.PAYLOAD_BYTES_MAX,
            remedy="Put the data in storage of your own and hand over its address.",
        )
    return payload


def schema_of(declared: Any) -> str:
    """Return the hash of the schema of ``declared``, "" where it has none."""
    return ((traits_of(declared).beside or {}).get(SCHEMA) or b"").decode()


def _with_schemas(error: NotReadable, payload: Payload, name: object, now: str) -> NotReadable:
    """Return ``error``, with both schemas where that of ``name`` was another one than ``now`` when the value was written."""
    written = (payload.metadata or {}).get(SCHEMA, b"").decode(errors="replace")
    if not written or written == now:
        return error
    here = f"{name} has schema {now} here" if now else f"{name} has no schema here"
    fact = f"{error.fact} It was written with schema {written[:CUT_AT]}; {here}."
    return NotReadable(fact, path=error.path, remedy=error.remedy)


def lost(payload: Payload, path: str) -> NotReadable:
    """Return the error for a payload that came without its data."""
    code, why = reason_of(payload)
    if is_withheld(payload):
        return NotReadable(f"{path} is not shown. {why}", path=path, code=code, remedy="Use a token that may.")
    return NotReadable(
        f"{path} cannot be read. {why or f'It is kept apart ({payload.size:,} bytes), and lists do not bring it.'}",
        path=path,
        code=code,
        remedy="Restore it where the engine keeps large payloads."
        if code
        else "Ask for the one thing: its handle reads it.",
    )


def traits_of(declared: Any) -> Traits:
    """Return what is known of ``declared``, from a cache; unhashable annotations are worked out each time."""
    try:
        return _traits(declared)
    except TypeError:
        return _traits.__wrapped__(declared)


@lru_cache(maxsize=4096)
def _traits(declared: Any) -> Traits:
    if declared is None or declared is type(None):
        return Traits(open=False, sets=False, floats=False, instants=False, decode=msgspec.json.Decoder(None).decode)
    try:
        decode = msgspec.json.Decoder(declared, dec_hook=_unhook).decode
    except (TypeError, NameError, RuntimeError):
        # A type msgspec has no rule for (a protocol, a union of classes it cannot tell apart): JSON as it is.
        return Traits(open=True, sets=False, floats=True, instants=True, decode=msgspec.json.Decoder().decode)
    model = declared if hasattr(declared, "model_validate_json") and hasattr(declared, "model_dump_json") else None
    if model is not None:
        decode = model.model_validate_json
    found = _scan(declared, set())
    return Traits(
        open="open" in found,
        sets="set" in found,
        floats="float" in found,
        instants="instant" in found,
        decode=decode,
        model=model,
        beside=beside_of(declared) if "fields" in found else None,
    )


def _scan(declared: Any, seen: set[int]) -> set[str]:
    """Return which of "open", "set", "float", "instant" and "fields" occur in a type, and in the fields of structured ones."""
    if id(declared) in seen:
        return set()
    seen.add(id(declared))
    if declared in (Any, object, typing.Hashable) or isinstance(declared, typing.TypeVar):
        return {"open"}
    if declared is float:
        return {"float"}
    if declared is datetime:
        return {"instant"}
    if hasattr(declared, "model_fields"):
        inner = [_scan(field.annotation, seen) for field in declared.model_fields.values()]
        return {"float", "fields", *({"instant"} if any("instant" in part for part in inner) else set[str]())}
    origin = typing.get_origin(declared)
    args = typing.get_args(declared)
    if origin is typing.Literal:
        return set()
    found: set[str] = set()
    base: Any = origin if isinstance(origin, type) else declared
    structured = hasattr(base, "__annotations__") and not isinstance(base, types.FunctionType)
    if inspect.isclass(base):
        if issubclass(cast("type", base), AbstractSet):
            found.add("set")
        if not args and not structured and issubclass(cast("type", base), CONTAINERS):
            found.add("open")
    if inspect.isclass(base) and issubclass(cast("type", base), enum.Enum):
        found.add("fields")
    inside: list[Any] = [arg for arg in args if arg is not Ellipsis and not isinstance(arg, str | int | bytes)]
    if structured:
        try:
            hints = typing.get_type_hints(base)
            inside.extend(hints.values())
            if hints:
                found.add("fields")
        except (NameError, TypeError):
            found.add("open")
    for part in inside:
        found |= _scan(part, seen)
    return found
