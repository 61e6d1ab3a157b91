"""List the acceptance cases of one scope: which are tested and by what, which come later and why.

    python -m tools.cases --scope spine          a table; ends with 1 when the registry is not true
    python -m tools.cases --scope spine --run    and runs the tests it names

The registry is tests/cases.toml. It is true when each case either names tests that exist and what makes them fail, or
says why it has none yet.
"""

import argparse
import ast
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "tests" / "cases.toml"


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One entry of the registry; ``says`` is what must hold, in a line."""

    scope: str
    says: str
    status: Literal["tested", "later"]
    tests: tuple[str, ...] = ()
    plant: str = ""
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
        if case.plant:
            print(f"{'':16}fails under: {case.plant}")
        if case.reason:
            print(f"{'':16}because: {case.reason}")
    tested = sum(case.status == "tested" for case in cases.values())
    print(f"\n{len(cases)} cases: {tested} tested, {len(cases) - tested} later")


def main() -> int:
    parser = argparse.ArgumentParser(description="List the acceptance cases of a scope.")
    parser.add_argument("--scope", default="spine", help="which cases (default: spine)")
    parser.add_argument("--run", action="store_true", help="run the tests they name")
    parser.add_argument("--registry", type=Path, default=REGISTRY, help="another registry than tests/cases.toml")
    options = parser.parse_args()

    found = Findings()
    registry = read_registry(options.registry, found)
    cases = {id: case for id, case in registry.items() if case.scope == options.scope}
    if not cases:
        found.note(options.scope, "no case of the registry has this scope.")
    for id, case in cases.items():
        check(id, case, ROOT, found)
    show(cases)
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
