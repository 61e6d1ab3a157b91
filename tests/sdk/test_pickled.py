"""Pickle is for who asks for it by name; everybody else refuses to read one, and says the way out."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from outlast import App, Encrypt, KeyRing, Pickle
from outlast.core.payload import Payload
from outlast.gateway.values import value_of
from outlast.protocol.opening import opener_of
from outlast.sdk.converter import PICKLE, Converter
from outlast.sdk.errors import NotReadable, NotSerializable
from outlast.sdk.misuse import BadDeclaration

RAN: list[str] = []


class Opaque:
    """A value without a JSON form."""

    def __init__(self, number: int) -> None:
        self.number = number


class Bomb:
    """What runs code when a pickle of it is read."""

    def __reduce__(self) -> Any:
        return RAN.append, ("boom",)


def shop(store: str, **options: Any) -> tuple[App, Any]:
    app = App(store, **options)

    @app.task(max_attempts=1)
    def grow(value: Any) -> Any:
        value.number += 1
        return value

    return app, grow


def test_an_app_that_asks_for_it_passes_what_has_no_json_form(tmp_path: Path) -> None:
    ring = KeyRing({"a": bytes(32)}, current="a")
    for options in ({}, {"codecs": [Encrypt(ring)]}):
        app, grow = shop(f"sqlite:///{tmp_path}/{len(options)}.db", converter=Pickle(i_understand=True), **options)
        with app:
            assert grow.enqueue(Opaque(1)).result(timeout="10s").number == 2


def test_what_has_a_json_form_is_json_all_the_same() -> None:
    assert Pickle(i_understand=True).to_payload({"a": 1}, path="v").encoding == "json/plain"


@pytest.mark.parametrize("words", [{}, {"i_understand": False}, {"i_understand": "yes"}])
def test_pickle_is_refused_to_who_does_not_say_that_it_is_understood(words: dict[str, Any]) -> None:
    with pytest.raises(BadDeclaration, match="runs what they like") as raised:
        Pickle(**words)
    assert raised.value.code == "pickle_not_understood"
    assert raised.value.remedy


def test_an_app_without_it_writes_none_and_reads_none() -> None:
    written = Payload(PICKLE, pickle.dumps(Bomb()))

    with pytest.raises(NotSerializable, match="no JSON form"):
        Converter().to_payload(Opaque(1), path="value")
    with pytest.raises(NotReadable, match="written by pickle, which this app does not read") as raised:
        Converter().from_payload(written, Any, path="value")
    assert "i_understand=True" in raised.value.remedy
    assert RAN == []


def test_no_server_and_no_command_reads_one() -> None:
    written = Payload(PICKLE, pickle.dumps(Bomb()))

    shown = value_of(opener_of(("zstd",), None).open(written))

    assert (shown["encoding"], shown["size"]) == (PICKLE, len(written.data))
    assert RAN == []


def test_what_even_pickle_cannot_write_fails_in_the_caller() -> None:
    with pytest.raises(NotSerializable, match="neither as JSON nor by pickle") as raised:
        Pickle(i_understand=True).to_payload(lambda: 1, path="handler")
    assert raised.value.path == "handler"


def test_a_pickle_that_cannot_be_read_says_so() -> None:
    with pytest.raises(NotReadable, match="value cannot be read by pickle"):
        Pickle(i_understand=True).from_payload(Payload(PICKLE, b"\x80\x05damaged"), path="value")
