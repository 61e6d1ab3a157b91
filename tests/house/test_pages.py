"""The pages: their links lead somewhere, their code runs, their commands exist, and the README is one screen."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.sources import ROOT, text_of, tracked_files
from tools.readme import blocks_of

README_LINES_MAX = 80
PAGES = [path for path in tracked_files() if path.suffix == ".md"]
BLOCKS = {
    f"{page}:{block.line}": block
    for page in PAGES
    if page.parts[0] == "docs"
    for block in blocks_of(text_of(page))
    if block.kind == "python" and not block.words  # those with a file are played in order: see test_played_pages.py
}
PROGRAMS = [place for place, block in BLOCKS.items() if "__main__" in block.text]
# Runs the block as a module that was imported: what it defines is defined, what it starts is not started.
AS_MODULE = "import sys; exec(compile(sys.argv[1], 'block', 'exec'), {'__name__': 'block'})"


def run_python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the interpreter of the tests in ``folder``."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


def links_of(page: Path) -> list[str]:
    """Return the files to which ``page`` links."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"```.*?```|`[^`]*`", "", text_of(page), flags=re.DOTALL))
    return [target for target in targets if "://" not in target]


def test_links_between_pages_lead_somewhere() -> None:
    dead = [
        f"{page}: {target}" for page in PAGES for target in links_of(page) if not (ROOT / page.parent / target).exists()
    ]

    assert not dead, "\n".join(dead)


def test_the_readme_is_about_one_screen() -> None:
    assert len(text_of(Path("README.md")).splitlines()) <= README_LINES_MAX


def test_commands_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of(Path("Makefile")), re.MULTILINE))
    named = {(str(page), name) for page in PAGES for name in re.findall(r"`make ([\w-]+)", text_of(page))}

    missing = [f"{page}: make {name}" for page, name in sorted(named) if name not in targets]

    assert not missing, "\n".join(missing)


@pytest.mark.slow
@pytest.mark.parametrize("place", BLOCKS)
def test_code_on_a_page_can_be_imported(place: str, tmp_path: Path) -> None:
    done = run_python("-c", AS_MODULE, BLOCKS[place].text, folder=tmp_path)

    assert done.returncode == 0, done.stderr


def beside(place: str) -> list[list[str]]:
    """Return the commands that a reader gives beside a program: those of the text block that follows it."""
    page, line = place.rsplit(":", 1)
    after = [block for block in blocks_of(text_of(Path(page))) if block.line > int(line)]
    lines = after[0].text.splitlines() if after and after[0].kind == "text" else []
    return [shlex.split(line)[1:] for line in lines if line.startswith("outlast ")]


def accepted(command: list[str], folder: Path) -> str:
    """Give ``command`` until it is accepted, as a reader would who is too early; return what it printed."""
    ends = time.monotonic() + 60
    while True:
        done = run_python("-m", "outlast.cli", *command, folder=folder)
        if done.returncode == 0:
            return done.stdout
        assert time.monotonic() < ends, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("place", PROGRAMS)
def test_a_program_on_a_page_runs_to_its_end(place: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(BLOCKS[place].text)
    program = subprocess.Popen(
        [sys.executable, "app.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        printed = [accepted(command, tmp_path) for command in beside(place)]
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()

    assert program.returncode == 0, err
    assert out
    assert all(printed)
