"""Workflow classes: state that others ask about. One method is the run, some take signals, some answer queries."""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import MethodType
from typing import Any, Concatenate, Final, Generic, NoReturn, ParamSpec, TypeVar, overload

from outlast.sdk.declare import check_name, place_of, read_parameters
from outlast.sdk.definition import MethodDefinition, WorkflowDefinition
from outlast.sdk.errors import UnsupportedHere
from outlast.sdk.misuse import BadDeclaration, NotYet

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

RUN: Final = "workflow.run"


class SignalMethod(Generic[P]):
    """A method that a signal calls, in the order in which signals arrive. On the class it names the signal."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__

    def __repr__(self) -> str:
        return f"<signal {self.function.__qualname__}>"

    @overload
    def __get__(self, instance: None, owner: type) -> "SignalMethod[P]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, Any]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else MethodType(self.function, instance)


class QueryMethod(Generic[P, R]):
    """A method that tells others something and changes nothing. On the class it names the query."""

    def __init__(self, function: Callable[..., R]) -> None:
        self.function = function
        self.name = function.__name__

    def __repr__(self) -> str:
        return f"<query {self.function.__qualname__}>"

    @overload
    def __get__(self, instance: None, owner: type) -> "QueryMethod[P, R]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else MethodType(self.function, instance)


class RunMethod:
    """The method that is the run, until ``@app.workflow`` takes the class up and puts a Workflow in its place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __getattr__(self, name: str) -> NoReturn:
        raise BadDeclaration(
            "class_not_declared",
            f"{self.function.__qualname__} ({place_of(self.function)}) has no {name!r}: no app has taken its class up.",
            remedy="Put @app.workflow above the class.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """What a workflow class is made of."""

    name: str
    create: Callable[[], Any]
    run: Callable[..., Any]
    attribute: str  # where the run stands in the class
    signals: dict[str, MethodDefinition]
    queries: dict[str, MethodDefinition]


def run(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Any:
    """Mark the method that is the run: ``Cart.shop.start(…)`` begins one."""
    return RunMethod(function)


def signal(function: Callable[Concatenate[Any, P], Any]) -> SignalMethod[P]:
    """Mark a method that a signal of its name calls: ``handle.signal(Cart.pay, 499)``."""
    return SignalMethod(function)


def query(function: Callable[Concatenate[Any, P], R]) -> QueryMethod[P, R]:
    """Mark a plain method that answers queries: ``handle.query(Cart.count)``. It must change nothing."""
    return QueryMethod(function)


def update(function: Callable[..., Any]) -> NoReturn:
    """Always raises NotYet: updates come with a later release."""
    raise NotYet(
        "update_not_yet",
        f"{function.__qualname__} is an update; those are for a later release.",
        remedy="Send a signal, and ask with a query what came of it.",
    )


def members_of(cls: type) -> Members:
    """Return what ``cls`` is made of.

    Raises:
        BadDeclaration: it has no run or several, takes arguments when it is made, or a method cannot be what it is marked as.
    """
    where = f"{cls.__qualname__} ({cls.__module__})"
    runs: dict[str, Callable[..., Any]] = {}
    signals: dict[str, MethodDefinition] = {}
    queries: dict[str, MethodDefinition] = {}
    for attribute in dir(cls):
        found = inspect.getattr_static(cls, attribute)
        if isinstance(found, RunMethod):
            runs[attribute] = found.function
        elif isinstance(found, SignalMethod):
            _take(signals, found.function, what="signal")
        elif isinstance(found, QueryMethod):
            function: Callable[..., Any] = found.function
            if inspect.iscoroutinefunction(function):
                raise BadDeclaration(
                    "query_async",
                    f"The query {function.__qualname__} ({place_of(function)}) is an `async def`.",
                    remedy="Write it as a plain `def`: a query tells what is there and waits for nothing.",
                )
            _take(queries, function, what="query")
    if len(runs) != 1:
        raise BadDeclaration(
            "class_without_run",
            f"The workflow class {where} has {len(runs)} methods marked with @workflow.run.",
            remedy="Mark exactly one: async def …(self, …).",
        )
    _check_made_of_nothing(cls, where)
    attribute, function = runs.popitem()
    return Members(name=cls.__name__, create=cls, run=function, attribute=attribute, signals=signals, queries=queries)


def _take(found: dict[str, MethodDefinition], function: Callable[..., Any], *, what: str) -> None:
    name = check_name(function.__name__, what=what, place=place_of(function))
    parameters, _ = read_parameters(function, what=what, of_object=True)
    found[name] = MethodDefinition(name=name, function=function, parameters=parameters)


def _check_made_of_nothing(cls: type, where: str) -> None:
    made_by: Callable[..., None] = inspect.getattr_static(cls, "__init__")
    if made_by is object.__init__:
        return
    needed = [
        parameter.name
        for parameter in list(inspect.signature(made_by).parameters.values())[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    ]
    if needed:
        raise BadDeclaration(
            "class_takes_arguments",
            f"The workflow class {where} takes {', '.join(needed)} when it is made.",
            remedy="Give __init__ no parameters: the run's arguments come to the method marked with @workflow.run.",
        )


def no_query(name: str, definition: WorkflowDefinition) -> UnsupportedHere:
    """Return the error for a query that the workflow has no method for."""
    known = ", ".join(sorted(definition.queries)) or "none"
    return UnsupportedHere(
        f"The workflow {definition.name!r} ({definition.place}) has no query {name!r}; it answers: {known}.",
        remedy="Ask one of those, mark a method of its class with @workflow.query, or have it call workflow.publish(…).",
    )
