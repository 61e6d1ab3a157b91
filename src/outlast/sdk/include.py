"""Takes up ``@task`` functions of other modules into an app, when they are first needed: so modules need no app."""

import importlib
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, cast

from outlast.sdk.client import Home
from outlast.sdk.misuse import BadDeclaration
from outlast.sdk.registry import Registry, seek_with
from outlast.sdk.task import Task

_ALL: Final["weakref.WeakSet[Includes]"] = weakref.WeakSet()


class Includes:
    """The modules that one app includes."""

    def __init__(self, modules: Sequence[str | ModuleType], home: Home, registry: Registry) -> None:
        if isinstance(modules, str):
            raise BadDeclaration(
                "include_is_text", f"include is the text {modules!r}.", remedy=f"Give a list: include=[{modules!r}]."
            )
        self._waiting: list[str | ModuleType] = list(modules)
        self._home = weakref.ref(home)
        self._registry = registry
        _ALL.add(self)

    def names(self) -> list[str]:
        """Return the names of the modules that have not been taken up yet."""
        return [module if isinstance(module, str) else module.__name__ for module in self._waiting]

    def resolve(self) -> None:
        """Import what is named, and take up every unbound task in it.

        Raises:
            ImportError: there is no such module, or it cannot be imported.
            BadDeclaration: two tasks have one name.
        """
        while self._waiting:
            module = self._waiting[0]
            self._take_up(importlib.import_module(module) if isinstance(module, str) else module)
            self._waiting.pop(0)

    def _take_up(self, module: ModuleType) -> None:
        home = self._home()
        for value in list(vars(module).values()):
            if not isinstance(value, Task):
                continue
            task = cast("Task[..., Any]", value)
            if task.owner.home is None:
                task.owner.home = home
            if task.owner.home is home and self._registry.tasks.get(task.name) is not task:
                self._registry.add_task(task)


def _seek(module: str) -> None:
    for includes in list(_ALL):
        if module in includes.names():
            includes.resolve()


seek_with(_seek)
