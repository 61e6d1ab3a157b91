"""Where settings come from, what is said of a bad one, and that a fault in a file is found before it is used."""

from pathlib import Path

import pytest

from outlast.core.errors import Invalid, NotFound
from outlast.server.settings import TABLE, check_all, settings_from, sources_of, worker_settings_from
from outlast.server.sources import MASK, Sources, find_file


def given(
    folder: Path,
    text: str = "",
    *,
    profile: str = "",
    name: str = "outlast.toml",
    flags: dict[str, str | None] | None = None,
    environ: dict[str, str] | None = None,
) -> Sources:
    """Return the sources of a folder with one settings file."""
    (folder / name).write_text(text)
    return sources_of(flags or {}, environ or {}, find_file(folder, profile=profile, table=TABLE))


def test_flag_then_environment_then_file_then_default(tmp_path: Path) -> None:
    text = '[http]\nlisten = "127.0.0.1:3"\n[log]\nlevel = "error"\n'
    environ = {"OUTLAST_HTTP__LISTEN": "127.0.0.1:2"}

    by_flag = given(tmp_path, text, environ=environ, flags={"http.listen": "127.0.0.1:1"})
    by_environment = given(tmp_path, text, environ=environ)
    by_file = given(tmp_path, text)

    assert [found.find("http.listen").text[-1] for found in (by_flag, by_environment, by_file)] == ["1", "2", "3"]
    assert by_flag.find("http.listen").origin == "flag --listen"
    assert by_environment.find("http.listen").origin == "environment OUTLAST_HTTP__LISTEN"
    assert by_file.find("http.listen").origin.endswith("outlast.toml http.listen")
    assert by_file.find("store").origin == "default"
    assert settings_from(by_file).log_level == "error"


def test_a_profile_lies_over_the_rest_of_the_file(tmp_path: Path) -> None:
    text = 'store = "sqlite:///a.db"\nnamespace = "shop"\n[profile.prod]\nstore = "sqlite:///b.db"\nhttp.listen = "127.0.0.1:1"\n'

    plain, prod = given(tmp_path, text), given(tmp_path, text, profile="prod")

    assert (plain.text("store"), prod.text("store")) == ("sqlite:///a.db", "sqlite:///b.db")
    assert (prod.text("namespace"), prod.text("http.listen")) == ("shop", "127.0.0.1:1")
    assert "[profile.prod] store" in prod.find("store").origin


def test_a_project_file_has_its_part(tmp_path: Path) -> None:
    found = given(tmp_path, '[project]\nname = "x"\n[tool.outlast]\nstore = "sqlite:///p.db"\n', name="pyproject.toml")

    assert found.text("store") == "sqlite:///p.db"


def test_a_project_without_our_part_says_nothing(tmp_path: Path) -> None:
    assert given(tmp_path, '[project]\nname = "x"\n', name="pyproject.toml").find("store").origin == "default"


def test_lists_numbers_and_spans_have_their_own_forms(tmp_path: Path) -> None:
    text = '[worker]\nqueues = ["a", "b"]\nthreads = 8\n[engine]\ntask_lease = 5\n'

    found = given(tmp_path, text)

    assert worker_settings_from(found).queues == ("a", "b")
    assert worker_settings_from(found).threads == 8
    assert settings_from(found).task_lease == 5_000_000_000


BAD: list[tuple[str, str, str]] = [
    ('stor = "x"', "stor in ", "Did you mean store?"),
    ('[http]\nlistn = "x"', "http.listn", "Did you mean http.listen?"),
    ('[profile.dev]\nstroe = "x"', "[profile.dev] stroe", "Did you mean store?"),
    ("[http]\nlisten = 7070", "http.listen in ", "a text in quotes"),
    ("[worker]\nqueues = 3", "worker.queues", "a list of texts"),
    ("store = ", "is no TOML", "quotes"),
    ("profile = 3", "profile in ", "[profile.NAME]"),
    ('http = "x"', "http in ", ""),
]


@pytest.mark.parametrize(("text", "fact", "remedy"), BAD, ids=[text for text, _, _ in BAD])
def test_a_bad_file_is_refused_with_the_place_and_the_way_out(
    tmp_path: Path, text: str, fact: str, remedy: str
) -> None:
    with pytest.raises(Invalid) as refused:
        given(tmp_path, text)

    assert fact in refused.value.fact
    assert "outlast.toml" in refused.value.fact
    assert remedy in refused.value.remedy


def test_a_bad_value_is_said_with_its_source(tmp_path: Path) -> None:
    found = given(tmp_path, '[log]\nlevel = "loud"\n')

    with pytest.raises(Invalid) as refused:
        check_all(found)

    assert 'log.level is "loud"' in refused.value.fact
    assert "outlast.toml log.level" in refused.value.fact
    assert "warning" in refused.value.remedy


def test_a_profile_that_is_none_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        given(tmp_path, "[profile.production]\n", profile="prodution")

    assert "production" in refused.value.remedy


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        find_file(tmp_path, named="other.toml", table=TABLE)


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")

    by_file = given(tmp_path, environ={"OUTLAST_TOKEN_FILE": str(tmp_path / "token")}).find("token")
    by_environment = given(tmp_path, environ={"OUTLAST_TOKEN": "s3cret"}).find("token")

    assert (by_file.text, by_file.shown) == ("s3cret", MASK)
    assert (by_environment.text, by_environment.shown) == ("s3cret", MASK)
    assert "OUTLAST_TOKEN_FILE" in by_file.origin


def test_only_variables_that_look_like_ours_are_told(tmp_path: Path) -> None:
    environ = {"OUTLAST_STOER": "x", "OUTLAST_SERVICE_HOST": "10.0.0.1", "OUTLAST_PORT_7070_TCP_ADDR": "10.0.0.1"}

    assert given(tmp_path, environ=environ).strangers() == [("OUTLAST_STOER", "OUTLAST_STORE")]
