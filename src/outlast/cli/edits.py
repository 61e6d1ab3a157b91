"""Notices that the code of an app has been edited."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOOKED_AT_MAX: Final = 5_000  # files: beyond them an edit may go unseen
LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "dist", "build", "venv"})
WATCHED: Final = (".py", ".toml")

Seen = dict[str, tuple[int, int]]


def folder_of(target: str) -> Path:
    """Return the folder in which the code of ``target`` is: the file's own, or the current one for a module."""
    name = target.partition(":")[0]
    return (Path(name).parent if name.endswith(".py") else Path()).resolve()


def look(folder: Path) -> Seen:
    """Return the instant and size of every file of code below ``folder``; hidden and installed folders are left out."""
    seen: Seen = {}
    for entry in _files(str(folder)):
        try:
            stat = entry.stat()
        except OSError:  # it has just gone
            continue
        seen[entry.path] = (stat.st_mtime_ns, stat.st_size)
        if len(seen) >= LOOKED_AT_MAX:
            break
    return seen


def edited(before: Seen, now: Seen, folder: Path) -> list[str]:
    """Return the files that are new, gone or not as they were, as seen from ``folder``."""
    paths = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    return [os.path.relpath(path, folder) for path in paths]


def _files(folder: str) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.name.startswith(".") or entry.name in LEFT_OUT:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        elif entry.name.endswith(WATCHED):
            yield entry
