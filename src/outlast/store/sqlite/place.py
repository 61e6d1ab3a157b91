"""Whether the files that are open still lie where their names say: what is written to a file without a name is lost."""

import os
from typing import Final

FILES: Final = ("", "-wal")  # what a database's commits are in, by what follows its name


class Place:
    """The identity of a database's files as they were opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, tuple[int, int]] = {}

    def note(self) -> None:
        """Take the files that lie there now for those that are open."""
        self._known = {name: found for name in self._names() if (found := _identity(name)) is not None}

    def fault(self) -> str:
        """Return what has become of a file that no longer lies where it was opened, empty when all do."""
        for name in self._names():
            try:
                found = _identity(name)
            except OSError:
                continue  # it cannot be looked at: that proves nothing
            known = self._known.get(name)
            if known is None and found is not None:
                self._known[name] = found  # it was made meanwhile
            elif known is not None and found is None:
                return f"The file {name} was removed or renamed while the engine had it open."
            elif found != known:
                return f"The file {name} was replaced by another while the engine had it open."
        return ""

    def _names(self) -> list[str]:
        return [self._path + ending for ending in FILES]


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - once per commit: a Path costs more than the look itself
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
