"""``outlast config``: the settings as they are, with their origin, and the schema for editors."""

from pathlib import Path

import msgspec
import pytest

from outlast.server.settings import TABLE
from tests.cli.conftest import Command, rows


def test_each_value_is_shown_with_its_origin(folder: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "outlast.toml").write_text('[log]\nlevel = "error"\n[profile.prod]\nstore = "sqlite:///p.db"\n')
    monkeypatch.setenv("OUTLAST_TOKEN", "s3cret")
    monkeypatch.setenv("OUTLAST_PROFILE", "prod")

    code, out, _ = outlast("config", "show", "--origin", "--json", "--namespace", "shop")

    found = {row["name"]: row for row in rows(out)}
    assert code == 0
    assert found["namespace"]["origin"] == "flag --namespace"
    assert found["store"]["origin"] == "outlast.toml [profile.prod] store"
    assert found["log.level"] == {
        "name": "log.level", "value": "error", "origin": "outlast.toml log.level", "reloadable": True, "secret": False
    }  # fmt: skip
    assert found["token"]["origin"] == "environment OUTLAST_TOKEN"
    assert "s3cret" not in out


def test_the_schema_knows_every_setting(outlast: Command) -> None:
    _, out, _ = outlast("config", "show", "--schema")

    schema = msgspec.json.decode(out)
    names = {
        f"{table}.{name}" if name else table
        for table, body in schema["properties"].items()
        for name in (body.get("properties") or {"": 0})
    }
    assert {setting.name for setting in TABLE} <= names
    assert schema["properties"]["profile"]["additionalProperties"]["properties"]["http"]


def test_check_finds_what_is_wrong_before_it_is_used(
    folder: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outlast("config", "check")[0] == 0

    monkeypatch.setenv("OUTLAST_STOER", "sqlite:///x.db")
    code, _, err = outlast("config", "check")
    assert code == 7
    assert "OUTLAST_STORE" in err

    (folder / "outlast.toml").write_text('[http]\nlisten = "here"\n')
    code, _, err = outlast("config", "check")
    assert code == 2
    assert "outlast.toml http.listen" in err
