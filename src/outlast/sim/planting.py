"""How a bug is planted: as a patch for the life of one run, taken back afterwards."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

Patch = Callable[["Patches"], None]


class Patches:
    """What one plant has changed, so that it can be changed back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute and return what was there."""
        before: Any = getattr(owner, name)
        self._before.append((owner, name, before))
        setattr(owner, name, value)
        return before

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._before:
            owner, name, value = self._before.pop()
            setattr(owner, name, value)


@dataclass(frozen=True, slots=True)
class Plant:
    """One bug: what it is in words, and how to plant it."""

    name: str
    text: str
    patch: Patch


PLANTS: Final[dict[str, Plant]] = {}


def plant(text: str) -> Callable[[Patch], Patch]:
    """Have the patch below be one of PLANTS, under its name."""

    def declare(patch: Patch) -> Patch:
        name = patch.__name__.removeprefix("_")
        PLANTS[name] = Plant(name, text, patch)
        return patch

    return declare


@contextmanager
def planted(name: str) -> Generator[None]:
    """Run with the named bug in place; an empty name means none."""
    patches = Patches()
    try:
        if name:
            PLANTS[name].patch(patches)
        yield
    finally:
        patches.undo()
