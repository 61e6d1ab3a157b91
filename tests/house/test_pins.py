"""The pinned requirements: complete, hashed, and silent about where packages come from."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.house.sources import ROOT, modules, text_of

FILES = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins_of(path: Path) -> dict[str, str]:
    """Return the version to which each package is pinned."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(), re.MULTILINE))


def names_in(dependencies: list[str]) -> set[str]:
    """Return the names of the packages that ``dependencies`` ask for."""
    return {re.split(r"[^\w.-]", dependency, maxsplit=1)[0] for dependency in dependencies}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pin_has_hashes_and_no_address(path: Path) -> None:
    text = path.read_text()

    entries = [line for line in text.replace("\\\n", " ").splitlines()[1:] if line]

    assert [
        entry
        for entry in entries
        if not re.fullmatch(r"[\w.-]+==\S+( ; [^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+", entry)
    ] == []
    assert re.search(r"https?:|--(index|extra|find|trusted)", text) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_pins_what_the_package_needs(path: Path) -> None:
    assert names_in(PROJECT["project"]["dependencies"]) - set(pins_of(path)) == set()


def test_the_developers_file_pins_every_tool() -> None:
    wanted = names_in(PROJECT["dependency-groups"]["dev"])

    assert wanted - set(pins_of(ROOT / "requirements" / "dev.txt")) == set()


def test_files_agree_on_every_version() -> None:
    run, dev, docs = (pins_of(ROOT / "requirements" / f"{name}.txt") for name in ("run", "dev", "docs"))

    assert {name: version for name, version in run.items() if dev[name] != version} == {}
    assert {name: version for name, version in dev.items() if docs.get(name, version) != version} == {}


def test_each_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    table = text[text.index("\ndependencies = [") : text.index("[project.scripts]")]

    entries = [line for line in table.splitlines() if line.lstrip().startswith('"')]

    assert [entry for entry in entries if "#" not in entry] == []


USED_BY_OTHERS = {"httptools"}  # uvicorn takes it when it is there: its parser at C speed


def test_each_dependency_is_used_by_the_package() -> None:
    source = "\n".join(text_of(path) for path in modules() if path.parts[0] == "src")

    unused = [
        name
        for name in names_in(PROJECT["project"]["dependencies"])
        if name not in USED_BY_OTHERS
        and not re.search(rf"\b(import|from) {name.replace('-', '_')}\b|\"{name}\"", source)
    ]

    assert unused == []
