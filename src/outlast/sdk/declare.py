"""Reads a function that users declare: its parameters, its types, where it stands."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, Final

from outlast.core.limits import NAME_BYTES_MAX
from outlast.sdk.context import TaskContext
from outlast.sdk.definition import Parameters
from outlast.sdk.misuse import BadDeclaration

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def place_of(function: Callable[..., Any]) -> str:
    """Return "file:line" of ``function``."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def check_function(function: object, *, what: str) -> None:
    """Refuse what cannot be a ``what`` ("task" or "workflow").

    Raises:
        BadDeclaration: it is a class, a generator, a method, or nothing that can be called by name.
    """
    if inspect.isclass(function):
        raise BadDeclaration(
            "task_class",
            f"@{what} stands on the class {function.__name__}.",
            remedy=f"Write the {what} as a function.",
        )
    if not inspect.isfunction(function):
        raise BadDeclaration(
            "not_a_function",
            f"@{what} stands on {function!r}.",
            remedy=f"Put @app.{what} above a `def` or `async def`.",
        )
    where = f"{function.__qualname__} ({place_of(function)})"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadDeclaration(
            "generator", f"The {what} {where} yields.", remedy="Return a list, or save checkpoints as you go."
        )
    if what == "workflow" and not inspect.iscoroutinefunction(function):
        raise BadDeclaration(
            "workflow_not_async", f"The workflow {where} is a plain `def`.", remedy="Write it as `async def`."
        )


def check_name(name: object, *, what: str, place: str) -> str:
    """Return ``name`` if it can be the registered name of a ``what``; raises BadDeclaration."""
    if not isinstance(name, str) or not name.strip() or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise BadDeclaration(
            "bad_name",
            f"The {what} at {place} is to be named {name!r}.",
            remedy=f"A name is a text of 1 to {NAME_BYTES_MAX} bytes.",
        )
    return name


def read_parameters(function: Callable[..., Any], *, what: str, of_object: bool = False) -> tuple[Parameters, bool]:
    """Return what ``function`` takes and returns, and whether its first parameter is a TaskContext (then left out).

    ``of_object``: it is a method, whose first parameter is the object.

    Raises:
        BadDeclaration: an annotation cannot be resolved, or a parameter is of a kind that cannot be written down.
    """
    where = f"{function.__qualname__} ({place_of(function)})"
    parameters = list(inspect.signature(function).parameters.values())
    if of_object:
        if not parameters or parameters[0].kind not in _POSITIONAL:
            raise BadDeclaration("no_self", f"The {what} {where} takes no self.", remedy="Write it as a method.")
        del parameters[0]
    types = _types_of(function, where=f"{what} {where}")
    takes_context = bool(parameters) and types.get(parameters[0].name) is TaskContext
    if takes_context:
        del parameters[0]
    named: list[inspect.Parameter] = []
    keyword_only: list[inspect.Parameter] = []
    variadic = False
    for parameter in parameters:
        if parameter.kind in _POSITIONAL:
            named.append(parameter)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keyword_only.append(parameter)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            variadic = True
        else:
            raise BadDeclaration(
                "free_keywords",
                f"The {what} {where} takes **{parameter.name}.",
                remedy=f"Take one parameter for them: {parameter.name}: dict[str, …].",
            )
        if types.get(parameter.name) is TaskContext:
            raise BadDeclaration(
                "context_not_first",
                f"The {what} {where} takes a TaskContext as {parameter.name!r}.",
                remedy="Make it the first parameter of a task.",
            )
    if variadic and keyword_only:
        raise BadDeclaration(
            "free_arguments",
            f"The {what} {where} takes free arguments and keyword-only ones.",
            remedy="Take a list in place of the free arguments.",
        )
    ordered = [*named, *keyword_only]
    return (
        Parameters(
            names=tuple(parameter.name for parameter in ordered),
            types=tuple(_written(types.get(parameter.name, Any)) for parameter in ordered),
            required=sum(parameter.default is inspect.Parameter.empty for parameter in ordered),
            keyword_only=frozenset(parameter.name for parameter in keyword_only),
            variadic=variadic,
            result=_written(types.get("return", Any)),
            function=f"{function.__qualname__.rpartition('<locals>.')[2]}()",
        ),
        takes_context,
    )


def _written(annotation: Any) -> Any:
    return Any if annotation is object else annotation  # both say nothing about how a value is to be read


def _types_of(function: Callable[..., Any], *, where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError) as error:
        raise BadDeclaration(
            "annotation",
            f"An annotation of the {where} cannot be resolved: {error}.",
            remedy="Values are read by their annotations, so import what they name at the top of the module "
            "(not under TYPE_CHECKING) and declare no local classes in them.",
        ) from error
