"""The hash of a type's schema stands beside its values, and a value that no longer fits says both hashes."""

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from outlast import App
from outlast.core.payload import SCHEMA, Payload, told_apart
from outlast.protocol.codecs import Chain, Zstd
from outlast.sdk.coded import CodedConverter
from outlast.sdk.converter import Converter, schema_of
from outlast.sdk.definition import Parameters
from outlast.sdk.errors import NotReadable, NotSerializable
from outlast.sdk.schema import hash_of

CONVERTER = Converter()


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int


class Card(TypedDict):
    number: str


class Struct(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    name: str


@dataclass
class Order:
    """An order."""

    cents: int
    title: str = ""


def renamed_order(**fields: Any) -> type:
    """Return another class Order, with ``fields``."""
    made = type("Order", (), {"__annotations__": fields, "__doc__": "Another text."})
    return dataclass(made)


@pytest.mark.parametrize(
    "kind", [Order, Struct, Model, Card, Point, Colour, list[Order], Order | None, dict[str, Model]]
)
def test_a_type_with_fields_or_members_has_a_schema(kind: Any) -> None:
    assert len(schema_of(kind)) == 16
    assert schema_of(kind) == schema_of(kind)


@pytest.mark.parametrize("kind", [Any, object, int, str, bytes, None, list[int], dict[str, str], Path])
def test_a_plain_type_has_none_and_costs_nothing(kind: Any) -> None:
    assert schema_of(kind) == ""


def test_a_docstring_is_no_part_of_a_schema_and_a_field_is() -> None:
    same = renamed_order(cents=int, title=str)
    same.title = ""  # type: ignore[attr-defined]

    assert hash_of(Order) == hash_of(dataclass(type("Order", (), dict(vars(same)))))  # the words of the two differ
    assert hash_of(Order) != hash_of(renamed_order(cents=str, title=str))
    assert hash_of(renamed_order(title=str)) != hash_of(renamed_order(name=str)), "a field may be called title"


def test_the_hash_stands_beside_the_value_and_below_a_codec() -> None:
    plain = CONVERTER.to_payload(Order(7), path="o", declared=Order)
    coded = CodedConverter(CONVERTER, Chain([Zstd()])).to_payload(Order(7, "x" * 900), path="o", declared=Order)

    assert plain.metadata == {SCHEMA: schema_of(Order).encode()}
    assert (coded.metadata or {})[SCHEMA] == schema_of(Order).encode()
    assert told_apart((plain,)) == (Payload("json/plain", plain.data),)


def test_a_value_that_no_longer_fits_says_both_schemas() -> None:
    now = renamed_order(cents=str)
    written = CONVERTER.to_payload(Order(7), path="o", declared=Order)

    with pytest.raises(NotReadable, match="o.cents cannot be read as Order") as raised:
        CONVERTER.from_payload(written, now, path="o")

    assert raised.value.path == "o.cents"
    assert f"written with schema {schema_of(Order)}; Order has schema {schema_of(now)} here" in raised.value.fact


def test_a_value_of_the_same_schema_that_is_broken_says_none() -> None:
    written = Payload("json/plain", b'{"cents": "7"}', {SCHEMA: schema_of(Order).encode()})

    with pytest.raises(NotReadable) as raised:
        CONVERTER.from_payload(written, Order, path="o")
    assert "schema" not in raised.value.fact


def test_values_that_travel_by_name_have_one_hash_and_say_both() -> None:
    def parameters(kind: Any) -> Parameters:
        return Parameters(
            names=("o",), types=(kind,), required=1, keyword_only=frozenset({"o"}), variadic=False, result=None
        )

    payloads = CONVERTER.arguments_to_payloads(parameters(Order), (), {"o": Order(7)})
    with pytest.raises(NotReadable, match=r"o.cents .* written with schema [0-9a-f]{16}; the signature has schema"):
        CONVERTER.payloads_to_arguments(parameters(renamed_order(cents=str)), payloads)


def test_the_same_request_under_the_same_key_is_the_same_when_only_the_schema_is_another(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    ids: list[str] = []
    later: Any = renamed_order(cents=int, title=str)
    for kind, made in ((Order, Order(7)), (later, later(7, ""))):
        app = App(store)

        def pay(o: Any) -> int:
            return int(o.cents)

        pay.__annotations__["o"] = kind
        task: Any = app.task(pay)
        with app:
            ids.append(task.using(key="k").enqueue(made).id)

    assert ids[0] == ids[1]
    assert schema_of(Order) != schema_of(later)


@dataclass
class Visit:
    at: datetime


class Meeting(pydantic.BaseModel):
    visits: list[datetime]


@pytest.mark.parametrize(
    ("value", "declared", "path"),
    [
        (datetime(2026, 1, 1), datetime, "v"),  # noqa: DTZ001 - what is refused
        (Visit(datetime(2026, 1, 1)), Visit, "v.at"),  # noqa: DTZ001 - as above
        ({"a": [Visit(datetime(2026, 1, 1))]}, dict[str, list[Visit]], "v.a[0].at"),  # noqa: DTZ001 - as above
        (Meeting(visits=[datetime(2026, 1, 1)]), Meeting, "v.visits[0]"),  # noqa: DTZ001 - as above
        (datetime(2026, 1, 1), Any, "v"),  # noqa: DTZ001 - as above
    ],
)
def test_an_instant_without_a_zone_is_refused_where_it_is_given(value: Any, declared: Any, path: str) -> None:
    with pytest.raises(NotSerializable, match="has no zone") as raised:
        CONVERTER.to_payload(value, path="v", declared=declared)

    assert raised.value.path == path


def test_an_instant_with_a_zone_comes_back_as_it_was() -> None:
    visit = Visit(datetime(2026, 1, 1, tzinfo=UTC))

    assert CONVERTER.from_payload(CONVERTER.to_payload(visit, path="v", declared=Visit), Visit) == visit
