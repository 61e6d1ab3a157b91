"""How long a policy holds: what was let in under it and lasts, ends with it, so that it is asked for under the next one."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

Tell = Callable[[], object]


class Term:
    """The time for which one policy holds."""

    __slots__ = ("_told", "over")

    def __init__(self) -> None:
        self.over = False
        self._told: dict[object, Tell] = {}

    def end(self) -> None:
        """Let it be over, and tell everybody who lasts."""
        self.over = True
        for tell in tuple(self._told.values()):
            tell()

    @contextmanager
    def lasting(self, tell: Tell) -> Generator[None]:
        """Have ``tell`` called when the term ends; at once when it is over."""
        me = object()
        self._told[me] = tell
        try:
            if self.over:
                tell()
            yield
        finally:
            del self._told[me]
