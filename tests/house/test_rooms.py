"""The import rule: what the core may use, which room may see which, and that the contracts can fail."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT, core_modules, tree_of

CORE_MAY_IMPORT = {
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "typing",
}

# One import per contract that breaks it: where it is planted, and what.
PLANTS = [
    pytest.param("core/units.py", "import asyncio", "pure", id="a loop in the core"),
    pytest.param("core/units.py", "from outlast.protocol import transport", "house", id="the core looks up"),
    pytest.param("engine/ports.py", "from outlast.sdk import definition", "sdk", id="the engine knows users"),
    pytest.param("engine/ports.py", "from outlast.store.memory import store", "choice", id="the engine picks a store"),
    pytest.param("store/sqlite/store.py", "from outlast.store import memory", "apart", id="stores know each other"),
    pytest.param(
        "gateway/app.py", "from outlast.engine.shard import shell", "door", id="the gateway takes a side door"
    ),
    pytest.param("gateway/app.py", "from outlast.core.shard import core", "heart", id="the gateway drives a shard"),
]


def imported_by(path: Path) -> set[str]:
    """Return the modules that ``path`` imports, by their full names."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Import():
                names.update(alias.name for alias in node.names)
            case ast.ImportFrom():
                names.add(node.module or "")
            case _:
                pass
    return names


def lint_imports(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Check the contracts on the package in ``root``/src."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache", *more]
    return subprocess.run(
        [*command, str(ROOT / "pyproject.toml")],
        cwd=root,
        env={"PYTHONPATH": str(root / "src"), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_core_imports_only_what_is_pure() -> None:
    wrong = [
        f"{path} imports {name}"
        for path in core_modules()
        for name in imported_by(path)
        if name.split(".")[0] not in CORE_MAY_IMPORT and not f"{name}.".startswith("outlast.core.")
    ]

    assert wrong == []


def test_each_room_imports_only_rooms_below() -> None:
    checked = lint_imports(ROOT)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("module", "line", "contract"), PLANTS)
def test_a_planted_import_breaks_its_contract(module: str, line: str, contract: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / "src" / "outlast" / module
    planted.write_text(f"{planted.read_text()}\n{line}\n")

    checked = lint_imports(tmp_path, "--contract", contract)

    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "BROKEN" in checked.stdout


@pytest.mark.slow
def test_a_room_that_nobody_placed_breaks_the_house(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "src" / "outlast" / "attic").mkdir()
    (tmp_path / "src" / "outlast" / "attic" / "__init__.py").write_text('"""A room."""\n')

    checked = lint_imports(tmp_path, "--contract", "house")

    assert checked.returncode == 1
    assert "attic" in checked.stdout + checked.stderr
