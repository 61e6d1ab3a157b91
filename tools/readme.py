"""Run every block of a Markdown page in a fresh environment, in the order of the page.

    python -m tools.readme README.md [--measure]

``--measure`` then takes the time of a newcomer's first minute in that environment, and says whether it is as wanted; a busy
machine may miss it, so the exit code is that of the blocks.

A new environment is given the pinned dependencies and is first on the path; the blocks run in an empty folder, beside a
clean copy of the checkout named ``outlast``, which the page installs as a reader would.

- ```` ```python title=app.py ```` is written to app.py.
- ```` ```console ```` holds commands after ``$ ``, run by bash; the lines below a command are what it must print, where
  ``...`` stands for anything.
- ```` ```console in=checkout ```` runs in the copy of the checkout instead.
- ```` ```bash ```` is one script.
- ```` ```text ```` is for reading.

A block of another kind is refused, so that nothing on the page goes unproven.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.first_minute import figures_of

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
COMMAND_SECONDS_MAX = 300
MEASURED_TIMES = 5


class Untrue(Exception):
    """The page says what is not so."""


@dataclass(slots=True, frozen=True)
class Block:
    kind: str
    line: int
    text: str
    words: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True, frozen=True)
class Place:
    """Where blocks run: an empty folder, a copy of the checkout, and the environment of both."""

    folder: Path
    checkout: Path
    environment: dict[str, str]


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of ``page`` in order, with the line on which each begins."""
    found: list[Block] = []
    for match in FENCE.finditer(page):
        words = {name: value for name, _, value in (word.partition("=") for word in match[2].split())}
        found.append(Block(match[1], page.count("\n", 0, match.start()) + 1, match[3], words))
    return found


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of a console block with the lines that it must print."""
    commands: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:].split("  #")[0].strip(), []))
        elif line.strip() and commands:
            commands[-1][1].append(line)
        elif line.strip():
            raise Untrue(f"{line!r} stands before the first command.")
    return commands


def has_lines(printed: str, wanted: list[str]) -> bool:
    """Say whether ``wanted`` stands in ``printed``, in order; ``...`` stands for any text, also over lines."""
    pattern = ".*".join(re.escape(part.strip()) for part in "\n".join(wanted).split("..."))
    return re.search(pattern, printed, re.DOTALL) is not None


def run(command: str, *, folder: Path, environment: dict[str, str]) -> str:
    """Return what ``command`` prints.

    Raises:
        Untrue: It fails, or does not end in time.
    """
    print(f"  $ {command}", flush=True)
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Untrue(f"`{command}` did not end within {COMMAND_SECONDS_MAX} s.") from late
    print("".join(f"    {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
    if done.returncode:
        raise Untrue(f"`{command}` ended with {done.returncode}.")
    return done.stdout


def play(block: Block, place: Place) -> None:
    """Do what ``block`` says.

    Raises:
        Untrue: It cannot be done, or gives something else.
    """
    folder = place.checkout if block.words.get("in") == "checkout" else place.folder
    match block.kind:
        case "python" if "title" in block.words:
            (folder / block.words["title"]).write_text(block.text)
            print(f"  wrote {block.words['title']}", flush=True)
        case "python":
            (folder / "block.py").write_text(block.text)
            run("python block.py", folder=folder, environment=place.environment)
        case "bash":
            run(block.text, folder=folder, environment=place.environment)
        case "console":
            for command, wanted in commands_of(block.text):
                printed = run(command, folder=folder, environment=place.environment)
                if not has_lines(printed, wanted):
                    raise Untrue(f"`{command}` did not print what the page shows:\n" + "\n".join(wanted))
        case "text":
            pass
        case _:
            raise Untrue(f"a block of kind {block.kind!r} cannot be proven; see tools/readme.py for the kinds.")


def make_place(scratch: Path) -> Place:
    """Make the environment with the pinned packages, and a copy of the checkout without what is not tracked."""
    venv, folder, checkout = (scratch / name for name in ("venv", "empty", "outlast"))
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {
        "PATH": f"{venv / 'bin'}{os.pathsep}{environment['PATH']}",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_QUIET": "1",
        "PYTHONUNBUFFERED": "1",
    }
    run(f"{sys.executable} -m venv {venv}", folder=scratch, environment=environment)
    pins = ROOT / "requirements" / "run.txt"
    run(f"python -m pip install --require-hashes --requirement {pins}", folder=scratch, environment=environment)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    return Place(folder, checkout, environment)


def measure(place: Place) -> None:
    """Print the figures of the first minute, taken in an environment that has only what a user installs."""
    python = shutil.which("python", path=place.environment["PATH"]) or sys.executable
    for figure in figures_of(python, place.environment, times=MEASURED_TIMES):
        wanted = f"wanted {figure.wish}: {'met' if figure.is_met else 'missed'}"
        print(f"  {figure.name:<54}{figure.shown:>14}   {wanted}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every block of a Markdown page in a fresh environment.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--measure", action="store_true", help="take the time of a newcomer's first minute as well")
    chosen = parser.parse_args()
    page = chosen.page
    blocks = blocks_of(page.read_text())
    if not blocks:
        print(f"{page} has no block of code.")
        return 1
    with tempfile.TemporaryDirectory(prefix="outlast-readme-") as scratch:
        try:
            place = make_place(Path(scratch))
            for block in blocks:
                print(f"{page}:{block.line} {block.kind}", flush=True)
                play(block, place)
        except Untrue as fault:
            print(f"readme: {fault}", file=sys.stderr)
            return 1
        print(f"{len(blocks)} blocks of {page} ran")
        if chosen.measure:
            measure(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
