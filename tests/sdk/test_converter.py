"""What is written comes back equal, or is refused with the path of the part that cannot be written."""

import dataclasses
import math
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core import limits
from outlast.core.payload import Payload
from outlast.sdk.converter import Converter
from outlast.sdk.declare import read_parameters
from outlast.sdk.definition import Parameters
from outlast.sdk.errors import BadArguments, NotReadable, NotSerializable, PayloadTooLarge

CONVERTER = Converter()


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class State(StrEnum):
    OPEN = "open"


class Point(NamedTuple):
    x: int
    y: float


class Address(TypedDict):
    street: str


class Model(pydantic.BaseModel):
    at: datetime
    day: date
    cents: Decimal
    key: uuid.UUID
    colour: Colour
    inner: "list[Model]" = []


class Frame(msgspec.Struct):
    name: str
    parts: dict[str, Model] = {}


@dataclasses.dataclass
class Item:
    price: float
    at: datetime | None = None


@dataclasses.dataclass
class Order:
    id: str
    items: list[Item]
    labels: set[str] = dataclasses.field(default_factory=set[str])
    more: Any = None


MODEL = Model(
    at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2))),
    day=date(2026, 1, 2),
    cents=Decimal("1.50"),
    key=uuid.UUID(int=7),
    colour=Colour.RED,
)

ROUND_TRIPS: list[tuple[Any, Any]] = [
    (None, Any),
    (True, Any),
    (2**63, Any),
    (-(10**400), int),
    (0.1, float),
    ("snow ☃ \0 end", str),
    (b"\0\xff", bytes),
    ({"a": [1, None, {"b": "c"}]}, Any),
    ({"a": b"raw"}, dict[str, bytes]),
    ({1: "one"}, dict[int, str]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ({"b", "a"}, set[str]),
    (frozenset({3, 1}), frozenset[int]),
    (datetime(2026, 1, 2, 3, 4, 5, 999999, tzinfo=UTC), datetime),
    (date(2026, 1, 2), date),
    (timedelta(days=-1, microseconds=7), timedelta),
    (Decimal("1.10"), Decimal),
    (uuid.UUID(int=5), uuid.UUID),
    (Colour.RED, Colour),
    (Level.HIGH, Level),
    (State.OPEN, State),
    (Point(1, 2.5), Point),
    ({"street": "Elm"}, Address),
    (PurePosixPath("/a/b"), PurePosixPath),
    ("red", Literal["red", "blue"]),
    (5, int | None),
    (None, int | None),
    (MODEL, Model),
    ([MODEL], list[Model]),
    (Frame("f", {"m": MODEL}), Frame),
    (Order("o", [Item(1.5, datetime(2026, 1, 2, tzinfo=UTC))], {"x"}), Order),
    ({"orders": [Order("o", [])]}, dict[str, list[Order]]),
]


@pytest.mark.parametrize(("value", "declared"), ROUND_TRIPS, ids=[str(n) for n in range(len(ROUND_TRIPS))])
def test_what_is_written_comes_back_equal_and_of_its_type(value: Any, declared: Any) -> None:
    payload = CONVERTER.to_payload(value, path="value", declared=declared)

    back = CONVERTER.from_payload(payload, declared)

    assert back == value
    assert type(back) is type(value)


REFUSED: list[tuple[Any, Any, str]] = [
    (math.nan, Any, "order"),
    (math.inf, float, "order"),
    ([1, {"a": -math.inf}], Any, "order[1].a"),
    (Order("o", [Item(1.0), Item(math.nan)]), Order, "order.items[1].price"),
    (Order("o", [], more={1, 2}), Order, "order.more"),
    (Order("o", [], more={"x": {1}}), Order, "order.more.x"),
    ("half \ud800", str, "order"),
    ({"x": ["\udc00"]}, Any, "order.x[0]"),
    ({1, 2}, Any, "order"),
    ({"a": {1}}, dict[str, Any], "order.a"),
    ([{1}], list[Any], "order[0]"),
    ({1: 2}, Any, "order"),
    ([{1: 2}], list[Any], "order[0]"),
    (object(), Any, "order"),
    ({"a": [print]}, Any, "order.a[0]"),
    ({"a": b"x"}, Any, "order.a"),
    (10**5000, Any, "order"),
    ({"odd key": math.nan}, Any, "order['odd key']"),
]


@pytest.mark.parametrize(("value", "declared", "path"), REFUSED, ids=[f"{n}" for n in range(len(REFUSED))])
def test_what_would_be_lost_is_refused_with_its_path(value: Any, declared: Any, path: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        CONVERTER.to_payload(value, path="order", declared=declared)

    assert caught.value.path == path
    assert caught.value.remedy
    assert caught.value.code == "invalid_request"


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append({"again": ring})

    with pytest.raises(NotSerializable, match="holds itself"):
        CONVERTER.to_payload(ring, path="ring")


def test_a_value_over_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        CONVERTER.to_payload("x" * limits.PAYLOAD_BYTES_MAX, path="order.text", declared=str)

    assert caught.value.path == "order.text"
    assert caught.value.size == limits.PAYLOAD_BYTES_MAX + 2
    assert caught.value.limit == limits.PAYLOAD_BYTES_MAX


def test_sets_are_written_sorted() -> None:
    payload = CONVERTER.to_payload({"c", "a", "b"}, path="v", declared=set[str])

    assert payload.data == b'["a","b","c"]'


def test_each_payload_names_its_encoding() -> None:
    encodings = [CONVERTER.to_payload(value, path="v").encoding for value in (1, b"1", None)]

    assert encodings == ["json/plain", "binary/plain", "binary/null"]


@pytest.mark.parametrize(
    ("payload", "declared", "path"),
    [
        (Payload("json/plain", b'{"id":"o","items":[{"price":"x"}]}'), Order, "order.items[0].price"),
        (Payload("json/plain", b"{"), int, "order"),
        (Payload("json/zip", b""), int, "order"),
        (Payload("json/plain", b'{"at":"yesterday"}'), Model, "order"),
    ],
)
def test_what_does_not_have_the_type_is_not_readable(payload: Payload, declared: Any, path: str) -> None:
    with pytest.raises(NotReadable) as caught:
        CONVERTER.from_payload(payload, declared, path="order")

    assert caught.value.path == path
    assert caught.value.remedy


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**60), 10**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(plain)
def test_plain_json_comes_back_as_plain_json(value: Any) -> None:
    payload = CONVERTER.to_payload(value, path="value")

    assert CONVERTER.from_payload(payload) == value


anything = st.recursive(
    st.none() | st.floats() | st.text() | st.integers() | st.frozensets(st.integers(), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=12,
)


@given(anything)
def test_nothing_is_lost_without_a_word(value: Any) -> None:
    try:
        payload = CONVERTER.to_payload(value, path="value")
    except NotSerializable:
        return

    assert CONVERTER.from_payload(payload) == value


def parameters_of(function: Callable[..., Any]) -> Parameters:
    return read_parameters(function, what="task")[0]


def plain_function(order: Order, count: int = 1) -> None:
    del order, count


def with_keywords(order: Order, *, note: str, urgent: bool = False) -> None:
    del order, note, urgent


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "payloads"),
    [
        (plain_function, (Order("o", []), 2), {}, 2),
        (plain_function, (Order("o", []),), {}, 1),
        (plain_function, (), {"order": Order("o", [])}, 1),
        (plain_function, (Order("o", []),), {"count": 5}, 2),
        (with_keywords, (Order("o", []),), {"note": "n"}, 2),
        (with_keywords, (), {"order": Order("o", []), "note": "n", "urgent": True}, 2),
    ],
)
def test_arguments_travel_and_call_the_function_the_same(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], payloads: int
) -> None:
    parameters = parameters_of(function)

    written = CONVERTER.arguments_to_payloads(parameters, args, kwargs)
    back_args, back_kwargs = CONVERTER.payloads_to_arguments(parameters, written)

    assert len(written) == payloads
    bound = dict(zip(parameters.names, args, strict=False)) | kwargs
    assert dict(zip(parameters.names, back_args, strict=False)) | back_kwargs == bound
    function(*back_args, **back_kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, r"^plain_function\(\) requires 1 arguments and 0 were given; missing: order"),
        ((1, 2, 3), {}, r"^3 positional arguments were given; plain_function\(\) takes 2"),
        ((1,), {"order": 2}, r'^Argument "order" of plain_function\(\) was given twice'),
        ((1,), {"nope": 2}, r'^plain_function\(\) has no parameter "nope"'),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(BadArguments, match=text):
        CONVERTER.arguments_to_payloads(parameters_of(plain_function), args, kwargs)


def test_a_missing_keyword_is_refused() -> None:
    with pytest.raises(BadArguments, match="note"):
        CONVERTER.arguments_to_payloads(parameters_of(with_keywords), (Order("o", []),), {})


def test_more_arguments_than_the_function_takes_now_are_not_readable() -> None:
    written = (CONVERTER.to_payload(1, path="a"),) * 3

    with pytest.raises(NotReadable, match=r"3 arguments were recorded; plain_function\(\) now takes 2"):
        CONVERTER.payloads_to_arguments(parameters_of(plain_function), written)


def test_fewer_arguments_than_the_function_requires_now_are_not_readable() -> None:
    with pytest.raises(NotReadable, match=r"0 arguments were recorded; plain_function\(\) requires 1; missing: order"):
        CONVERTER.payloads_to_arguments(parameters_of(plain_function), ())


def test_a_recorded_name_that_is_no_parameter_now_is_not_readable() -> None:
    written = CONVERTER.arguments_to_payloads(parameters_of(other_names), (), {"size": 1})

    with pytest.raises(NotReadable, match=r'"size" was recorded, which plain_function\(\) does not take'):
        CONVERTER.payloads_to_arguments(
            parameters_of(plain_function), (CONVERTER.to_payload("a", path="order"), *written)
        )


def other_names(*, size: int) -> None:
    del size
