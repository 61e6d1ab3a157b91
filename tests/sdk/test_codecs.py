"""Codecs: what is written is read again, by whoever has the keys; everybody else learns nothing but lengths."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from outlast import App, Encrypt, KeyRing, Pickle, Zstd, workflow
from outlast.core.errors import Invalid
from outlast.core.limits import PAYLOAD_BYTES_MAX
from outlast.core.payload import Payload
from outlast.protocol.codecs import CODED, Chain, Unreadable
from outlast.protocol.opening import HIDING, opener_of
from outlast.sdk.converter import Converter
from outlast.sdk.errors import NotReadable, NotSerializable, PayloadTooLarge, TaskError

OLD = bytes(range(32))
NEW = bytes(range(32, 64))
RING = KeyRing({"old": OLD, "new": NEW}, current="new")


def plain(data: bytes) -> Payload:
    return Payload("json/plain", data)


@pytest.mark.parametrize("codecs", [[Zstd()], [Encrypt(RING)], [Zstd(), Encrypt(RING)]], ids=["zstd", "aes", "both"])
@given(data=st.binary(min_size=1, max_size=2000), metadata=st.sampled_from([None, {"kwargs": b"1"}]))
def test_what_is_coded_is_read_again(codecs: list[Any], data: bytes, metadata: dict[str, bytes] | None) -> None:
    payload = Payload("json/plain", data, metadata=metadata)
    chain = Chain(codecs)

    assert chain.decode(chain.encode(payload)) == payload


def test_the_same_value_is_the_same_bytes_so_that_replays_and_keys_agree() -> None:
    chain = Chain([Zstd(), Encrypt(RING)])

    assert chain.encode(plain(b'"tea"')) == chain.encode(plain(b'"tea"'))
    assert chain.encode(plain(b'"tea"')) != chain.encode(plain(b'"tee"'))


def test_nothing_of_the_value_is_in_what_is_sent() -> None:
    coded = Chain([Encrypt(RING)]).encode(plain(b'"the number of the card"'))

    assert coded.encoding == CODED
    assert b"card" not in coded.data


@pytest.mark.parametrize("place", [0, 4, 10, 20, -1])
def test_data_that_was_changed_is_not_read(place: int) -> None:
    chain = Chain([Encrypt(RING)])
    coded = chain.encode(plain(b'"tea and milk"'))
    changed = bytearray(coded.data)
    changed[place] ^= 1

    with pytest.raises(Unreadable):
        chain.decode(Payload(coded.encoding, bytes(changed), metadata=coded.metadata))


def test_a_value_cannot_be_passed_off_as_one_of_another_encoding() -> None:
    chain = Chain([Encrypt(RING)])
    coded = chain.encode(plain(b'"tea"'))

    with pytest.raises(Unreadable):
        chain.decode(
            Payload(coded.encoding, coded.data, metadata={**(coded.metadata or {}), "encoding": b"binary/plain"})
        )


def test_values_under_an_older_key_are_read_until_the_key_is_destroyed() -> None:
    written = Chain([Encrypt(KeyRing({"old": OLD}, current="old"))]).encode(plain(b"1"))

    assert Chain([Encrypt(RING)]).decode(written) == plain(b"1")
    with pytest.raises(Unreadable, match='key "old"'):
        Chain([Encrypt(KeyRing({"new": NEW}, current="new"))]).decode(written)


def test_values_from_before_the_codecs_are_read_as_they_are() -> None:
    assert Chain([Zstd(), Encrypt(RING)]).decode(plain(b"1")) == plain(b"1")


def test_small_values_are_not_compressed_and_damaged_ones_not_expanded() -> None:
    chain = Chain([Zstd()])
    big = chain.encode(plain(b'"' + b"a" * 5000 + b'"'))
    bomb = Payload(CODED, big.data[:6] + b"\xff" * 8 + big.data[14:], metadata=big.metadata)

    assert chain.encode(plain(b"1")) == plain(b"1")
    assert len(big.data) < 100
    with pytest.raises(Unreadable):
        chain.decode(bomb)


def test_a_small_piece_that_would_grow_over_the_bound_is_not_expanded() -> None:
    honest = Chain([Zstd()]).encode(plain(b'"' + b"a" * 5000 + b'"'))
    bomb = zstandard.ZstdCompressor().compress(bytes(PAYLOAD_BYTES_MAX + 1))

    with pytest.raises(Unreadable, match="says that it has"):
        Chain([Zstd()]).decode(Payload(CODED, bomb, metadata=honest.metadata))
    assert len(bomb) < 10_000


def test_a_missing_codec_is_named() -> None:
    coded = Chain([Encrypt(RING)]).encode(plain(b"1"))

    with pytest.raises(Unreadable, match="aes-256-gcm") as raised:
        Chain([Zstd()]).decode(coded)
    assert raised.value.code == "payload_locked"
    with pytest.raises(Unreadable, match='"zstd", which is not given') as raised:
        Chain([Encrypt(RING)]).decode(Chain([Zstd()]).encode(plain(b'"' + b"a" * 5000 + b'"')))
    assert "aes-256-gcm" in raised.value.remedy


@pytest.mark.parametrize(
    "text",
    ["", "only-an-id", "id zz", f"id {OLD.hex()[:-2]}", f"id {OLD.hex()}00"],
    ids=["empty", "id", "hex", "short", "long"],
)
def test_a_bad_key_file_is_refused_without_showing_keys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)

    with pytest.raises(Invalid) as raised:
        KeyRing.from_file(str(path))
    assert OLD.hex()[:20] not in str(raised.value)


def test_a_key_file_has_the_current_key_first(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of November\nnew {NEW.hex()}\nold {OLD.hex()}\n")

    keys = KeyRing.from_file(str(path))

    assert keys.current() == ("new", NEW)
    assert keys.find("old") == OLD
    assert NEW.hex() not in repr(keys)


@pytest.mark.parametrize("names", [("gzip",), ("zstd", "zstd")], ids=["unknown", "twice"])
def test_a_chain_that_cannot_be_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(Invalid) as raised:
        opener_of(names, None)
    assert raised.value.remedy


def shop(store: str, **options: Any) -> tuple[App, Any, Any]:
    app = App(store, **options)

    @app.task(max_attempts=1)
    def charge(card: str, *, cents: int) -> str:
        if cents < 0:
            raise ValueError("no such sum")
        return f"{card} paid {cents}"

    @app.workflow
    async def order(card: str) -> str:
        await workflow.sleep("10ms")
        return await charge.execute(card, cents=7)

    return app, charge, order


def test_a_store_of_an_app_with_codecs_has_no_value_in_the_clear(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    app, charge, order = shop(f"sqlite:///{path}", codecs=[Zstd(), Encrypt(RING)])
    with app:
        assert charge.enqueue("visa-4242", cents=3).result(timeout="10s") == "visa-4242 paid 3"
        assert order.using(id="o", key="k").start("visa-4242").result(timeout="10s") == "visa-4242 paid 7"
        again = order.using(id="o", key="k").start("visa-4242")
        assert again.result(timeout="10s") == "visa-4242 paid 7"
        with pytest.raises(TaskError):
            charge.enqueue("visa-4242", cents=-1).result(timeout="10s")

    with contextlib.closing(sqlite3.connect(path)) as copy:
        copy.execute("pragma wal_checkpoint")
    assert b"visa-4242" not in path.read_bytes()


def test_an_app_without_the_keys_says_what_is_missing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    app, charge, _ = shop(store, codecs=[Encrypt(RING)])
    with app:
        handle = charge.enqueue("visa-4242", cents=3)
        handle.result(timeout="10s")

    bare, _, _ = shop(store)
    with bare, pytest.raises(NotReadable, match="cannot be read|does not read") as raised:
        bare.get_task(handle.id).result(timeout="10s")
    assert raised.value.remedy


def test_what_only_codecs_make_too_large_is_refused_where_it_is_given() -> None:
    app, charge, _ = shop("memory:", codecs=[Encrypt(RING)])
    with app, pytest.raises(PayloadTooLarge):
        charge.enqueue("x" * (2 * 1024 * 1024 - 2), cents=1)


def test_what_an_app_with_the_keys_lists_describes_and_reads_is_opened(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    app, charge, order = shop(store, codecs=[Encrypt(RING)])
    with app:
        task = charge.enqueue("visa-4242", cents=3)
        run = order.using(id="o").start("visa-4242")
        task.result(timeout="10s")
        run.result(timeout="10s")
        said = [
            task.describe().result,
            run.describe().result,
            *(info.result for info in app.tasks.list(standalone=True)),
            *(info.result for info in app.workflows.list()),
        ]
        started = next(iter(run.history())).event
    assert {payload.data for result in said for payload in result} == {b'"visa-4242 paid 3"', b'"visa-4242 paid 7"'}
    assert getattr(started, "input")[0].data == b'"visa-4242"'  # noqa: B009 - one of many kinds

    bare, _, _ = shop(store)
    with bare:
        assert {info.result[0].encoding for info in bare.workflows.list()} == {CODED}


def test_keys_that_are_away_fail_in_the_caller_and_name_the_value() -> None:
    class Away:
        here = True

        def current(self) -> tuple[str, bytes]:
            if not self.here:
                raise ConnectionError("away")
            return RING.current()

        def find(self, key_id: str) -> bytes | None:
            return RING.find(key_id)

    keys = Away()
    app, charge, _ = shop("memory:", codecs=[Encrypt(keys)])
    with app:
        keys.here = False
        with pytest.raises(NotSerializable, match="card cannot be coded") as raised:
            charge.enqueue("visa", cents=1)
    assert raised.value.path == "card"


def test_search_attributes_that_code_sets_stay_findable(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/shop.db", codecs=[Zstd(), Encrypt(RING)])

    @app.workflow
    async def order(card: str) -> str:
        workflow.set_search_attributes(plan="pro")
        return card

    with app:
        run = order.using(id="o").start("visa-4242")
        run.result(timeout="10s")
        found = [info.workflow_id for info in app.workflows.list('attr.plan = "pro"')]
    assert found == ["o"]


@pytest.mark.parametrize("converter", [Converter(), Pickle(i_understand=True), App(codecs=[Encrypt(RING)]).converter])
def test_a_value_that_a_token_may_not_see_is_said_to_be_one(converter: Converter) -> None:
    withheld = HIDING.open(converter.to_payload({"card": "visa-4242"}, path="card"))

    assert withheld.data == b""
    with pytest.raises(NotReadable, match="^card is not shown. This token may not see values.") as error:
        converter.from_payload(withheld, path="card")
    assert error.value.code == "payload_locked"
