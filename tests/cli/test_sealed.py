"""Encrypted values on the command line: opened by who has the keys, named by their key for who has not."""

from pathlib import Path

import pytest

from outlast import App, Encrypt, KeyRing
from outlast.sdk.errors import OutlastError
from tests.cli.conftest import Command

KEY = bytes(range(32))
RING = KeyRing({"2026-11": KEY}, current="2026-11")
CODECS = "OUTLAST_PAYLOADS__CODECS"
KEYS = "OUTLAST_PAYLOADS__KEYS"


@pytest.fixture
def sealed(folder: Path) -> str:
    """The id of a task in a store whose values are encrypted; ``keys`` beside it opens them."""
    (folder / "keys").write_text(f"2026-11 {KEY.hex()}\n")
    (folder / "keys").chmod(0o600)
    app = App("sqlite:///outlast.db", codecs=[Encrypt(RING)])

    @app.task
    def charge(card: str) -> str:
        return f"{card} paid"

    with app:
        handle = charge.enqueue("visa-4242")
        handle.result(timeout="10s")
    return handle.id


def test_who_has_the_keys_sees_values(sealed: str, outlast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CODECS, "encrypt")
    monkeypatch.setenv(KEYS, "file:keys")

    assert outlast("task", "result", sealed) == (0, '"visa-4242 paid"\n', "")
    assert '"visa-4242 paid"' in outlast("task", "list")[1]
    assert '"visa-4242 paid"' in outlast("task", "show", sealed)[1]


@pytest.mark.parametrize("codecs", ["", "encrypt"])
def test_who_has_no_key_sees_which_one_it_is(
    sealed: str, outlast: Command, monkeypatch: pytest.MonkeyPatch, codecs: str
) -> None:
    monkeypatch.setenv(CODECS, codecs)

    for words in (("task", "list"), ("task", "show", sealed)):
        assert "encrypted with key 2026-11" in outlast(*words)[1]
    code, out, err = outlast("task", "result", sealed)
    assert (code, out) == (4, "")
    assert "encrypted with key 2026-11" in err
    assert "[payload_locked]" in err
    assert '"key":"2026-11"' in outlast("task", "result", sealed, "--json")[1]


def test_a_wrong_key_is_said_to_be_one(sealed: str, outlast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("wrong").write_text(f"2026-11 {bytes(32).hex()}\n")
    monkeypatch.setenv(CODECS, "encrypt")
    monkeypatch.setenv(KEYS, "file:wrong")

    code, _, err = outlast("task", "result", sealed)

    assert code == 4
    assert 'cannot be decrypted with key "2026-11"' in err
    assert "[payload_unreadable]" in err


@pytest.mark.usefixtures("sealed")
def test_a_value_is_not_sent_in_the_clear_where_values_are_encrypted(
    outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODECS, "encrypt")
    refused = outlast("task", "enqueue", "charge", '"visa-1"')
    monkeypatch.setenv(KEYS, "file:keys")
    sent = outlast("task", "enqueue", "charge", '"visa-1"')

    assert refused[0] == 4
    assert "payloads.keys" in refused[2]
    assert sent[0] == 0, sent[2]
    for file in Path().glob("outlast.db*"):
        assert not file.is_file() or b"visa-1" not in file.read_bytes()


@pytest.mark.usefixtures("sealed")
def test_no_command_shows_a_key(outlast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CODECS, "encrypt")
    monkeypatch.setenv("SHOP_KEYS", f"2026-11 {KEY.hex()}")
    for keys in ("file:keys", "env:SHOP_KEYS", KEY.hex()):
        monkeypatch.setenv(KEYS, keys)
        for words in (("config", "show", "--origin"), ("config", "check"), ("doctor",), ("task", "list")):
            _, out, err = outlast(*words)
            assert KEY.hex() not in out + err


@pytest.mark.usefixtures("sealed")
def test_doctor_finds_keys_that_others_can_read_and_keys_that_are_nowhere(
    outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODECS, "encrypt")
    found: dict[tuple[str, int], str] = {}
    for keys, mode in (("", 0o600), ("file:keys", 0o600), ("file:keys", 0o644), ("file:nowhere", 0o600)):
        monkeypatch.setenv(KEYS, keys)
        Path("keys").chmod(mode)
        said = [line for line in outlast("doctor", "--json")[1].splitlines() if '"area":"payloads"' in line]
        found[keys, mode] = said[0].split('"code":"')[1].split('"')[0]

    assert list(found.values()) == ["keys_none", "payloads", "keys_open_to_all", "keys_missing"]


def test_texts_of_exceptions_are_for_who_has_the_keys(
    sealed: str, outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("sqlite:///outlast.db", codecs=[Encrypt(RING)])

    @app.task(max_attempts=1)
    def refund(card: str) -> str:
        raise ValueError(f"no refund to {card}")

    @app.workflow
    async def back(card: str) -> str:
        return await refund.execute(card)

    with app:
        task, run = refund.enqueue("visa-4242"), back.using(id="back-1").start("visa-4242")
        for handle in (task, run):
            with pytest.raises(OutlastError, match="visa-4242"):
                handle.result(timeout="10s")
    views = [("task", "list"), ("task", "show", task.id), ("task", "attempts", task.id), ("why", task.id)]
    views += [("workflow", "list"), ("workflow", "show", "back-1"), ("workflow", "history", "back-1"), ("feed",)]
    for words in [*views, *[(*view, "--json") for view in views]]:
        _, out, err = outlast(*words)
        assert "visa-4242" not in out + err
        assert "outlast/sealed" not in out + err
        assert words[0] == "feed" or "ValueError" in out
    monkeypatch.setenv(CODECS, "encrypt")
    monkeypatch.setenv(KEYS, "file:keys")
    for words in views:
        if words[:1] != ("feed",) and words[:2] != ("workflow", "history"):
            assert "no refund to visa-4242" in outlast(*words)[1]
