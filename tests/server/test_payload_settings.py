"""Codecs and keys in the settings: where keys may be, what is refused, and that no key is ever shown."""

from pathlib import Path

import pytest

from outlast.core.errors import Invalid
from outlast.core.payload import Payload
from outlast.protocol.codecs import CODED
from outlast.server.payloads import is_open_to_all, keys_at, opener_from
from outlast.server.settings import check_all, sources_of

KEY = bytes(range(32)).hex()


def chosen(codecs: str, keys: str = "") -> dict[str, str]:
    """Return an environment that says how values are coded."""
    return {"OUTLAST_PAYLOADS__CODECS": codecs, "OUTLAST_PAYLOADS__KEYS": keys}


def written_with(codecs: str, keys: str) -> Payload:
    """Return a value that was coded as the settings say."""
    return opener_from(sources_of({}, chosen(codecs, keys))).code(Payload("json/plain", b'"visa"'))


def test_keys_come_from_a_file_a_variable_or_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text(f"new {KEY}\n")
    monkeypatch.setenv("SHOP_KEYS", f"new {KEY}, old {KEY}")
    (tmp_path / "shop_keys.py").write_text(
        f"from outlast import KeyRing\nring = KeyRing({{'new': bytes.fromhex('{KEY}')}}, current='new')\n"
        "def made():\n    return ring\nclass Made:\n    current = ring.current\n    find = ring.find\n"
    )
    places = ("file:keys", "env:SHOP_KEYS", *(f"python:shop_keys:{name}" for name in ("ring", "made", "Made")))

    coded = [written_with("zstd,encrypt", place) for place in places]

    assert {payload.encoding for payload in coded} == {CODED}
    assert len({payload.data for payload in coded}) == 1


@pytest.mark.parametrize(
    ("codecs", "keys", "said"),
    [
        ("gzip", "", "zstd and encrypt"),
        ("zstd,zstd", "", "at most once"),
        ("zstd", "file:keys", "Nothing is encrypted"),
        ("encrypt", KEY, "do not belong into settings"),
        ("encrypt", "file:", "file:PATH"),
    ],
)
def test_what_cannot_be_is_refused_without_a_key_in_the_error(codecs: str, keys: str, said: str) -> None:
    with pytest.raises(Invalid) as raised:
        check_all(sources_of({}, chosen(codecs, keys)))

    assert said in raised.value.remedy
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "place",
    ["file:nowhere", "env:NOT_SET", "python:no_such_module:ring", "python:os:getcwd", "python:os", "python:os:x.y"],
)
def test_keys_that_are_not_where_they_should_be_are_refused_with_a_way_out(place: str) -> None:
    with pytest.raises(Invalid) as raised:
        keys_at(place)

    assert raised.value.remedy


def test_a_key_in_the_wrong_place_is_masked_like_any_secret() -> None:
    found = sources_of({}, chosen("encrypt", KEY)).find("payloads.keys")

    assert KEY not in found.shown
    assert sources_of({}, chosen("encrypt", "file:keys")).find("payloads.keys").shown == "file:keys"


def test_a_key_file_that_everybody_can_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"new {KEY}\n")
    path.chmod(0o644)
    before = is_open_to_all(f"file:{path}")
    path.chmod(0o600)

    assert (before, is_open_to_all(f"file:{path}"), is_open_to_all("env:SHOP_KEYS")) == (True, False, False)
