"""Verbs that do nothing until they are awaited. Python only warns of one that never is, and the work would be lost."""

import inspect
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from outlast.sdk.exceptions import NeverAwaited
from outlast.sdk.runtime import CURRENT

P = ParamSpec("P")
R = TypeVar("R")

LOOKED_AT: Final = 32  # coroutines made since the last look, after which those that have begun are let go


class Unawaited:
    """The coroutines of verbs that one run's code has made, for as long as they have not begun."""

    __slots__ = ("_made", "_room")

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any, str, int]] = []
        self._room = LOOKED_AT

    def add(self, made: Coroutine[Any, Any, Any], owner: Any, file: str, line: int) -> None:
        """Take note of what ``owner`` made at a place in the code."""
        self._made.append((made, owner, file, line))
        if len(self._made) > self._room:
            self._made = self._idle()
            self._room = len(self._made) + LOOKED_AT

    def refuse(self) -> None:
        """Raise NeverAwaited, naming the first, when one has not begun: the code is at its end, and nobody can any more."""
        for made, owner, file, line in self._idle():
            is_method = "." in made.__qualname__
            call = f"{owner.name if is_method else 'workflow'}.{made.__name__}(…)"
            raise NeverAwaited(
                f"{call} was called at {file}:{line} and never awaited, so it has not been done.",
                remedy=f"Write: await {call}",
            )

    def clear(self) -> None:
        """Let go of all; Python is not to warn of them as well."""
        for made, *_ in self._idle():
            made.close()
        self._made = []

    def _idle(self) -> list[tuple[Any, Any, str, int]]:
        return [entry for entry in self._made if inspect.getcoroutinestate(entry[0]) == inspect.CORO_CREATED]


def to_await(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return ``verb``, which holds a run that ends without having awaited what it returns."""

    @wraps(verb)
    def made(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine = verb(*args, **kwargs)
        run: Any = CURRENT.get()
        if run is not None:
            frame = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line; inspect would walk the whole stack
            run.unawaited.add(coroutine, args[0] if args else None, frame.f_code.co_filename, frame.f_lineno)
        return coroutine

    return made
