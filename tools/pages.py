"""Do what pages say, in order, as a reader would, and compare what they show with what is printed.

    python -m tools.pages docs/tutorial/*.md
    python -m tools.pages --draft PAGE       go on after what is not so, to see all that is printed

The pages are read in one folder, one after another. What a fence says after its language:

- ``python title=shop.py`` is written to the file; ``python into=shop.py`` puts each of its statements in the place of the one
  that makes the same name, or before ``if __name__``. Files of other kinds (``toml title=…``) are written as well.
- ``console`` holds commands after ``$ ``, typed in a terminal, and below each exactly what it prints; see ``tools.shown`` for
  what may differ. ``ends=1``: that is how the last command ends; all others must end with 0.
- ``terminal=NAME`` is another terminal in the same folder.
- ``runs``: the last command goes on; what is shown appears while it does. Below, a block of that terminal without ``$`` shows
  what is printed later, and a line ``^C`` in it presses Ctrl-C.
- ``soon``: a reader is slower than this program, so a command is given again until it prints what is shown, for a while.
- ``console as=README.md``: the commands stand in that page too, where another check runs them; here they are not.
- ``text``, ``http`` and a ``python``, ``toml`` or ``json`` without a title are for reading, or other checks'.

The port that pages name, 7070, is another one here, so that readings side by side do not meet.
"""

import argparse
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tools.readme import ROOT, Block, Untrue, blocks_of
from tools.shown import agree, plain
from tools.splice import splice
from tools.terminal import Late, Terminal

SECONDS_MAX: Final = 120.0  # of one command, and of one thing that is waited for
LOOK_AGAIN_SECONDS: Final = 0.3
DRAFT_SECONDS: Final = 20.0
PORT: Final = "127.0.0.1:7070"
READ_ONLY: Final = frozenset({"text", "http", "python", "toml", "json", "sql", "ini", "nginx", "yaml"})


@dataclass(slots=True, frozen=True)
class Step:
    """A command of a console block, or None for what a program that runs already prints; and what is shown below."""

    command: str | None
    shown: list[str] = field(default_factory=list[str])


def steps_of(text: str) -> list[Step]:
    """Return the steps of a console block; ``> `` goes on with the command above."""
    steps: list[Step] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:]))
        elif line == "^C":
            steps.append(Step("^C"))
        elif line.startswith("> ") and steps and steps[-1].command and not steps[-1].shown:
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}")
        else:
            if not steps:
                steps.append(Step(None))
            steps[-1].shown.append(line)
    for step in steps:
        while step.shown and not step.shown[-1].strip():
            step.shown.pop()
    return steps


class Reader:
    """Somebody who reads pages in one folder with some terminals; the context ends whatever still runs in them."""

    def __init__(
        self,
        folder: Path,
        *,
        say: bool = False,
        patience: float = SECONDS_MAX,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """``variables`` are in the reader's environment beforehand, beside those of this process."""
        self._folder = folder
        self._say = say
        self._patience = patience
        self._terminals: dict[str, Terminal] = {}
        self._known: dict[str, str] = {}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = f"127.0.0.1:{free.getsockname()[1]}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OUTLAST", "PYTEST"))}
        self._environment = kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OUTLAST_HTTP__LISTEN": self._port,
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **(variables or {}),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for terminal in self._terminals.values():
            terminal.__exit__(kind, error, trace)

    def read(self, page: Path) -> Iterator[str]:
        """Do what the next block of ``page`` says; yield what is not so, with the line of the block, or nothing."""
        for block in blocks_of(page.read_text()):
            try:
                self._do(block)
            except Untrue as fault:
                yield f"{page}:{block.line} {fault}"

    def _do(self, block: Block) -> None:
        if "title" in block.words:
            path = self._folder / block.words["title"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif "into" in block.words:
            path = self._folder / block.words["into"]
            path.write_text(splice(path.read_text(), block.text))
        elif block.kind == "console" and "as" in block.words:
            self._stands_in(block, ROOT / block.words["as"])
        elif block.kind == "console":
            self._console(block)
        elif block.kind not in READ_ONLY:
            raise Untrue(f"a block of kind {block.kind!r} cannot be proven; see tools/pages.py for the kinds.")

    def _stands_in(self, block: Block, page: Path) -> None:
        there = {step.command for other in blocks_of(page.read_text()) for step in steps_of(other.text)}
        for step in steps_of(block.text):
            if step.command not in there:
                raise Untrue(f"`{step.command}` does not stand in {page.name}, so nothing runs it.")

    def _console(self, block: Block) -> None:
        name = block.words.get("terminal", "")
        terminal = self._terminals.get(name)
        if terminal is None:
            terminal = self._terminals[name] = Terminal(self._folder, self._environment)
            terminal.wait(self._patience)
        steps = steps_of(block.text)
        for step in steps:
            last = step is steps[-1]
            if step.command is None or (last and "runs" in block.words):
                self._begin(terminal, step)
                self._appears(terminal, step)
            else:
                status = int(block.words.get("ends", "0")) if last else 0
                self._does(terminal, step, status=status, seconds=self._patience / 3 if "soon" in block.words else 0)

    def _begin(self, terminal: Terminal, step: Step) -> None:
        if step.command == "^C":
            terminal.interrupt()
        elif step.command is not None:
            self._idle(terminal)
            command = self._real(step.command)
            if self._say:
                print(f"$ {command}", flush=True)
            terminal.type(command)
        elif not terminal.busy and not terminal.unread:
            raise Untrue("shows what is printed by a program, but none runs in that terminal.")

    def _idle(self, terminal: Terminal) -> None:
        """Wait until what ran in the terminal has ended; what it printed last was not shown, so is nobody's matter."""
        if terminal.busy:
            try:
                terminal.wait(self._patience)
            except Late as late:
                raise Untrue(f"a program still runs in that terminal. It printed:\n{late.printed}") from None
        terminal.take()

    def _does(self, terminal: Terminal, step: Step, *, status: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while True:
            self._begin(terminal, step)
            try:
                self._ends(terminal, step, status=status)
            except Untrue:
                if time.monotonic() > ends:
                    raise
                time.sleep(LOOK_AGAIN_SECONDS)
            else:
                return

    def _ends(self, terminal: Terminal, step: Step, *, status: int) -> None:
        try:
            printed = terminal.wait(self._patience)
        except Late as late:
            raise Untrue(
                f"`{step.command}` did not end within {self._patience:.0f} s. It printed:\n{late.printed}"
            ) from None
        if step.command != "^C" and terminal.status != status:
            raise Untrue(f"`{step.command}` ended with {terminal.status}, not {status}. It printed:\n{printed}")
        if agree(step.shown, self._shown(printed), self._known, whole=True) is None:
            raise Untrue(f"`{step.command}` did not print what the page shows, but:\n{plain(self._shown(printed))}")

    def _appears(self, terminal: Terminal, step: Step) -> None:
        ends = time.monotonic() + self._patience
        while True:
            end = agree(step.shown, terminal.unread, self._known, whole=False)
            if end is not None:
                terminal.take(end)
                return
            if not terminal.busy or time.monotonic() > ends:
                what = f"`{step.command}`" if step.command else "The program in that terminal"
                raise Untrue(f"{what} did not print what the page shows, but:\n{self._shown(terminal.take())}")
            terminal.read()

    def _real(self, command: str) -> str:
        """Return the command with what the page calls ids, processes and the port replaced by what they are here."""
        for shown, real in self._known.items():
            command = command.replace(shown, real)
        command = command.replace(PORT, self._port)
        if command.startswith("outlast worker start") and "--server" not in command:
            command += f" --server http://{self._port}"
        return command

    def _shown(self, printed: str) -> str:
        return printed.replace(self._port, PORT)


def main() -> int:
    parser = argparse.ArgumentParser(description="Do what pages say, and compare.")
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGE")
    parser.add_argument("--draft", action="store_true", help="wait for less, and go on after what is not so")
    given = parser.parse_args()
    pages: list[Path] = given.pages
    faults = 0
    with (
        tempfile.TemporaryDirectory(prefix="outlast-pages-") as folder,
        Reader(Path(folder), say=True, patience=DRAFT_SECONDS if given.draft else SECONDS_MAX) as reader,
    ):
        for fault in (fault for page in pages for fault in reader.read(page)):
            print(f"pages: {fault}", file=sys.stderr, flush=True)
            faults += 1
            if not given.draft:
                break
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
