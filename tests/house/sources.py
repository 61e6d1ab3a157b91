"""The files that the house rules are about, read once."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("src", "tests", "tools", "examples", "benchmarks")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file that is in the repository or about to be, relative to its root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(sorted(Path(name) for name in set(listed.split("\0")) if name and (ROOT / name).is_file()))


@cache
def modules() -> tuple[Path, ...]:
    """Return every Python file of the project, relative to its root."""
    return tuple(path for path in tracked_files() if path.suffix == ".py" and path.parts[0] in FOLDERS)


def core_modules() -> tuple[Path, ...]:
    """Return the modules of the core."""
    return tuple(path for path in modules() if path.parts[:3] == ("src", "outlast", "core"))


@cache
def text_of(path: Path) -> str:
    """Return the text of a file; what is not text is empty."""
    try:
        return (ROOT / path).read_text()
    except UnicodeDecodeError:
        return ""


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(text_of(path), filename=str(path))


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Give every function of a module, inner ones too."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def names_of(path: Path) -> Iterator[tuple[int, str]]:
    """Give every name that a module makes, with its line: the module's own, classes, functions, arguments, variables."""
    yield 1, path.stem
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case _:
                pass


def words_of(name: str) -> list[str]:
    """Return the words of a name, whether it is written with underscores or capitals."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def lines_with(pattern: str, *, besides: tuple[str, ...] = ()) -> list[str]:
    """Return ``file:line text`` for each line of the repository in which ``pattern`` is found."""
    wanted = re.compile(pattern)
    return [
        f"{path}:{number} {line.strip()[:100]}"
        for path in tracked_files()
        if str(path) not in besides
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if wanted.search(line)
    ]
