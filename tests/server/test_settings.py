"""Settings: where they come from, and which are refused."""

from pathlib import Path

import pytest

from outlast.core.errors import Invalid
from outlast.server.settings import TABLE, read_settings
from outlast.server.stores import path_of


def test_a_flag_beats_the_environment_which_beats_the_default() -> None:
    environ = {"OUTLAST_HTTP__LISTEN": "127.0.0.1:1111", "OUTLAST_STORE": "sqlite:///env.db"}

    settings = read_settings({"http.listen": "127.0.0.1:2222"}, environ)

    assert (settings.port, settings.store) == (2222, "sqlite:///env.db")
    assert read_settings({}, {}).store == "sqlite:///outlast.db"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "example.com", "[::]"], ids=str)
def test_a_public_address_needs_a_token(host: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_settings({"http.listen": f"{host}:7070"}, {})

    assert "OUTLAST_TOKEN" in refused.value.remedy
    assert read_settings({"http.listen": f"{host}:7070"}, {"OUTLAST_TOKEN": "x"}).token == "x"


def test_a_token_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")

    assert read_settings({}, {"OUTLAST_TOKEN_FILE": str(file)}).token == "s3cret"
    with pytest.raises(Invalid) as refused:
        read_settings({}, {"OUTLAST_TOKEN_FILE": str(tmp_path / "none")})
    assert "OUTLAST_TOKEN_FILE" in refused.value.fact


@pytest.mark.parametrize("listen", ["7070", "127.0.0.1:", "127.0.0.1:70707", "127.0.0.1:-1", "127.0.0.1:x"], ids=str)
def test_an_address_to_listen_on_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_settings({"http.listen": listen}, {})

    assert listen in refused.value.fact


@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite:///", "sqlite://x.db", "mysql:///x", "x.db", "/x.db"], ids=str)
def test_a_store_address_that_is_none_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        path_of(url)

    assert "sqlite:///" in refused.value.remedy


def test_a_store_address_gives_its_file(tmp_path: Path) -> None:
    assert path_of("sqlite:///outlast.db") == "outlast.db"
    assert path_of(f"sqlite:///{tmp_path}/x.db") == f"{tmp_path}/x.db"


def test_every_setting_has_a_sentence_and_names_of_its_own() -> None:
    assert all(setting.sentence.endswith(".") for setting in TABLE)
    flags = [setting.flag for setting in TABLE if setting.flag]
    assert len({setting.env for setting in TABLE}) == len(TABLE)
    assert len(set(flags)) == len(flags)
