"""List the acceptance cases of one scope: which are tested and by what, which come later and why.

    python -m tools.cases --scope spine          a table; ends with 1 when the registry is not true
    python -m tools.cases --scope spine --run    and runs the tests it names
    python -m tools.cases --scope spine --prove  and plants each bug into a copy, where a named test must then fail

The registry is tests/cases.toml. It is true when each case either names tests that exist and what makes them fail, or
says why it has none yet.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "tests" / "cases.toml"
TESTS_FAILED = 1  # how pytest ends when tests ran and some failed


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A bug to plant: in ``file`` the text ``old``, which is there once, becomes ``new``; ``test`` must then fail."""

    file: str
    old: str
    new: str
    test: str = ""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One entry of the registry; ``says`` is what must hold, in a line."""

    scope: str
    says: str
    status: Literal["tested", "later"]
    tests: tuple[str, ...] = ()
    plant: str | Bug = ""
    reason: str = ""


@dataclass(slots=True)
class Findings:
    """What is wrong with the registry, a sentence each."""

    faults: list[str] = field(default_factory=list[str])

    def note(self, case: str, fact: str) -> None:
        self.faults.append(f"{case}: {fact}")


def read_registry(path: Path, found: Findings) -> dict[str, Case]:
    """Return the cases of ``path``, in its order; what has the wrong shape is noted in ``found`` and left out."""
    cases: dict[str, Case] = {}
    for id, table in tomllib.loads(path.read_text()).items():
        try:
            cases[id] = msgspec.convert(table, Case)
        except msgspec.ValidationError as wrong:
            found.note(id, f"{wrong}.")
    return cases


def names_in(path: Path) -> set[str]:
    """Return the names of the tests in the file ``path``, those in classes as ``Class::name``."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            members = (m.name for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}::{name}" for name in members)
    return {name for name in names if name.split("::")[-1].startswith("test_")}


def check(id: str, case: Case, root: Path, found: Findings) -> None:
    """Note in ``found`` whatever makes the entry of ``case`` untrue."""
    if case.status == "tested" and not case.tests:
        found.note(id, "is said to be tested and names no test.")
    if case.status == "tested" and not case.plant:
        found.note(id, "does not say which planted bug or removed check makes its tests fail.")
    if case.status == "later" and not case.reason:
        found.note(id, "comes later and does not say why.")
    if isinstance(case.plant, Bug):
        file = root / case.plant.file
        times = file.read_text().count(case.plant.old) if file.is_file() else 0
        if times != 1:
            found.note(
                id, f"plants a bug where {case.plant.old!r} stands once; it stands {times} times in {case.plant.file}."
            )
        if case.plant.test and case.plant.test not in case.tests:
            found.note(id, f"plants a bug for {case.plant.test}, which is none of its tests.")
    for test in case.tests:
        path, _, name = test.partition("::")
        file = root / path
        if not file.is_file():
            found.note(id, f"names {test}; there is no file {path}.")
        elif name.split("[")[0] not in names_in(file):
            found.note(id, f"names {test}; there is no such test in the file.")


def show(cases: dict[str, Case]) -> None:
    """Print one block per case, and the sums."""
    for id, case in cases.items():
        print(f"{id:<7} {case.status:<7} {case.says}")
        for test in case.tests:
            print(f"{'':16}{test}")
        if isinstance(case.plant, Bug):
            print(f"{'':16}fails when {case.plant.file} says {case.plant.new!r} for {case.plant.old!r}")
        elif case.plant:
            print(f"{'':16}fails under: {case.plant}")
        if case.reason:
            print(f"{'':16}because: {case.reason}")
    tested = sum(case.status == "tested" for case in cases.values())
    print(f"\n{len(cases)} cases: {tested} tested, {len(cases) - tested} later")


def copy_of_checkout(target: Path) -> None:
    """Copy what is tracked, or is about to be, to ``target``."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def prove(id: str, case: Case, found: Findings) -> None:
    """Plant the bug of ``case`` into a copy of the checkout, and note in ``found`` when its test passes all the same."""
    if not isinstance(case.plant, Bug):
        return
    with tempfile.TemporaryDirectory(prefix="outlast-cases-") as scratch:
        root = Path(scratch)
        copy_of_checkout(root)
        file = root / case.plant.file
        file.write_text(file.read_text().replace(case.plant.old, case.plant.new))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            case.plant.test or case.tests[0],
        ]
        environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
        done = subprocess.run(command, cwd=root, env=environment, check=False, capture_output=True, text=True)
    failed = done.returncode == TESTS_FAILED
    print(f"{id:<7} {'the planted bug is found' if failed else 'NOT FOUND'}", flush=True)
    if not failed:
        found.note(id, f"its test does not fail under the planted bug (pytest ended with {done.returncode}).")


def main() -> int:
    parser = argparse.ArgumentParser(description="List the acceptance cases of a scope.")
    parser.add_argument("--scope", default="spine", help="which cases (default: spine)")
    parser.add_argument("--run", action="store_true", help="run the tests they name")
    parser.add_argument("--prove", action="store_true", help="plant each bug into a copy and see its test fail")
    parser.add_argument("--only", default="", help="only the case with this id")
    parser.add_argument("--registry", type=Path, default=REGISTRY, help="another registry than tests/cases.toml")
    options = parser.parse_args()

    found = Findings()
    registry = read_registry(options.registry, found)
    cases = {id: case for id, case in registry.items() if case.scope == options.scope and options.only in {"", id}}
    if not cases:
        found.note(options.scope, "no case of the registry has this scope.")
    for id, case in cases.items():
        check(id, case, ROOT, found)
    show(cases)
    if options.prove and not found.faults:
        for id, case in cases.items():
            prove(id, case, found)
    for fault in found.faults:
        print(f"cases: {fault}", file=sys.stderr)
    if found.faults:
        return 1
    tests = sorted({test for case in cases.values() for test in case.tests})
    if options.run and tests:
        return subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
