"""The tasks and workflows that an app knows, by name."""

from collections.abc import Callable
from typing import Any, Protocol

from outlast.sdk.client import Client, Home
from outlast.sdk.definition import TaskDefinition, WorkflowDefinition
from outlast.sdk.misuse import BadDeclaration, NotBound


class DeclaredTask(Protocol):
    """A task as the registry sees it; its definition is read when it is first needed."""

    name: str
    place: str
    owner: "Owner"

    @property
    def definition(self) -> TaskDefinition: ...


class DeclaredWorkflow(Protocol):
    """A workflow as the registry sees it."""

    name: str
    place: str
    owner: "Owner"

    @property
    def definition(self) -> WorkflowDefinition: ...


class Owner:
    """Whose a declared task or workflow is: an app's, or nobody's yet. Shared by all that ``.using`` makes of it."""

    __slots__ = ("home", "module", "place", "what")

    def __init__(self, what: str, *, module: str, place: str, home: Home | None = None) -> None:
        self.what = what
        self.module = module
        self.place = place
        self.home = home

    def connect(self) -> Client:
        """Return the way to the engine of the app that owns it.

        Raises:
            NotBound: no app does.
            NotStarted: the app has no engine at the moment.
        """
        return self.bound().connect()

    def bound(self) -> Home:
        """Return the app that owns it, started or not. Raises NotBound."""
        if self.home is None:
            for look in _SEEKERS:
                look(self.module)
        if self.home is None:
            raise NotBound(
                "unbound",
                f"The {self.what} at {self.place} belongs to no app.",
                remedy=f"Add its module to one: App(include=[{self.module!r}]), or declare it with @app.{_kind(self.what)}.",
            )
        return self.home


_SEEKERS: list[Callable[[str], None]] = []


def seek_with(look: Callable[[str], None]) -> None:
    """Have ``look(module)`` called when something unbound of that module is used: an app may include it."""
    _SEEKERS.append(look)


def _kind(what: str) -> str:
    return what.split(" ", 1)[0]


class Registry:
    """Declared tasks and workflows by name. Names are unique within a kind."""

    def __init__(self) -> None:
        self.tasks: dict[str, DeclaredTask] = {}
        self.workflows: dict[str, DeclaredWorkflow] = {}
        self._task_definitions: dict[str, TaskDefinition] = {}
        self._workflow_definitions: dict[str, WorkflowDefinition] = {}

    def add_task(self, task: DeclaredTask) -> None:
        """Take up ``task``; raises BadDeclaration if another function has its name."""
        _check_free(self.tasks.get(task.name), task, "task")
        self.tasks[task.name] = task
        self._task_definitions.pop(task.name, None)

    def add_workflow(self, workflow: DeclaredWorkflow) -> None:
        """Take up ``workflow``; raises BadDeclaration if another function has its name."""
        _check_free(self.workflows.get(workflow.name), workflow, "workflow")
        self.workflows[workflow.name] = workflow
        self._workflow_definitions.pop(workflow.name, None)

    def task(self, name: str) -> TaskDefinition | None:
        """Return the definition of task type ``name``; None when there is none."""
        definition = self._task_definitions.get(name)
        if definition is None and (declared := self.tasks.get(name)) is not None:
            definition = self._task_definitions[name] = declared.definition
        return definition

    def workflow(self, name: str) -> WorkflowDefinition | None:
        """Return the definition of workflow type ``name``; None when there is none."""
        definition = self._workflow_definitions.get(name)
        if definition is None and (declared := self.workflows.get(name)) is not None:
            definition = self._workflow_definitions[name] = declared.definition
        return definition

    def check(self) -> None:
        """Read every definition now; raises BadDeclaration for one that cannot be read."""
        for name in [*self.tasks]:
            self.task(name)
        for name in [*self.workflows]:
            self.workflow(name)

    def queues(self) -> tuple[str, ...]:
        """Return the queues that the declarations name, and "default"."""
        names = {"default"}
        names.update(task.definition.options.queue for task in [*self.tasks.values()])
        names.update(workflow.definition.options.queue for workflow in [*self.workflows.values()])
        return tuple(sorted(names))


def _check_free(other: Any, new: Any, what: str) -> None:
    # The same place again is a module that was reloaded, or run as a program and imported as well.
    if other is not None and other.place != new.place:
        raise BadDeclaration(
            "name_taken",
            f"Two {what}s are named {new.name!r}: one at {other.place}, one at {new.place}.",
            remedy=f"Give one another name: @app.{what}(name=…).",
        )
