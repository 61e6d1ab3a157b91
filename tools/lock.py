"""Write requirements/*.txt from pyproject.toml: every package pinned, with the hashes of all its files.

    python -m tools.lock            keep the pins that still fit
    python -m tools.lock --upgrade  take the newest that fit

The oldest Python that is served makes the pins, so that what only it needs is in them. No address of an index is
written: where packages come from is for pip's own settings to say.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
HEADER = "# Made by `make lock` from pyproject.toml. Do not edit.\n"
FLAGS = (
    "--generate-hashes",
    "--allow-unsafe",
    "--strip-extras",
    "--no-header",
    "--no-annotate",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--no-emit-options",
    "--quiet",
)


def inputs_of(project: dict[str, list[str]], groups: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what each file must hold, in the order in which they are made: each agrees with those before it."""
    run = project["dependencies"]
    return {"run": run, "dev": [*run, *groups["dev"]], "docs": [*run, *groups["docs"]]}


def compile_pins(name: str, wanted: list[str], *, agree_with: Path | None, upgrade: bool) -> str:
    """Return the text of requirements/``name``.txt.

    Raises:
        subprocess.CalledProcessError: No set of versions fits; pip-compile has said why.
    """
    target = ROOT / "requirements" / f"{name}.txt"
    lines = [*wanted, *([f"-c {agree_with}"] if agree_with else [])]
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "wanted.in"), Path(folder, "made.txt")
        source.write_text("\n".join(lines) + "\n")
        if target.exists():
            made.write_text(target.read_text())
        command = [sys.executable, "-m", "piptools", "compile", *FLAGS, "--output-file", str(made), str(source)]
        subprocess.run([*command, *(["--upgrade"] if upgrade else [])], check=True, cwd=folder)
        return HEADER + "".join(
            line for line in made.read_text().splitlines(keepends=True) if not line.lstrip().startswith("#")
        )


def main() -> int:
    if sys.version_info[:2] != OLDEST:
        wanted, found = ".".join(map(str, OLDEST)), ".".join(map(str, sys.version_info[:2]))
        print(f"Pins are made by Python {wanted}, this is {found}. Run `make clean setup lock PYTHON=python{wanted}`.")
        return 1
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    agree_with = None
    for name, wanted in inputs_of(data["project"], data["dependency-groups"]).items():
        text = compile_pins(name, wanted, agree_with=agree_with, upgrade="--upgrade" in sys.argv[1:])
        if address := re.search(r"https?://|--(index|extra-index|find-links)", text):
            print(f"requirements/{name}.txt would name an index ({address.group()}); nothing was written.")
            return 1
        target = ROOT / "requirements" / f"{name}.txt"
        target.write_text(text)
        agree_with = target
        print(f"requirements/{name}.txt: {text.count('==')} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
