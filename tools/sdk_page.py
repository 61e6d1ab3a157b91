"""Make docs/reference/sdk.md: what users import, with signatures and docstrings as they stand in the code.

The shelves below say what is public and in which order it is shown. What is on one and has no docstring is refused.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import msgspec

import outlast
from outlast.core.admin import NamespaceInfo, NamespaceSettings, WorkerInfo
from outlast.core.replies import PendingActivity, PendingTimer, TaskInfo, WorkflowInfo
from outlast.protocol.transport import Attempt, Count, QueueInfo
from outlast.sdk import capacity, errors, lists, namespaces, options, workflow

# For the worker and for commands: nobody else need call them.
HIDDEN: Final = frozenset(
    {
        "App.connect", "App.start_worker", "App.worker", "Encrypt.decode", "Encrypt.encode", "Pickle.from_payload",
        "Pickle.to_payload", "Retry.policy", "Task.definition",
        "TaskContext.details", "TaskContext.drop_details", "TaskContext.tell_cancelled", "TaskContext.tell_lease_lost",
        "Workflow.definition", "Zstd.decode", "Zstd.encode", "workflow.time",
        "workflow.execute_local_activity", "workflow.start_child_workflow", "workflow.execute_child_workflow",
    }
)  # fmt: skip

SHELVES: Final[dict[str, tuple[Any, ...]]] = {
    "The app": (outlast.App,),
    "Tasks": (
        outlast.task,
        outlast.Task,
        options.TaskDeclaration,
        options.TaskUsing,
        outlast.Retry,
        outlast.TaskContext,
    ),
    "Workflows": (outlast.Workflow, options.WorkflowDeclaration, options.WorkflowUsing, outlast.Signal),
    "In workflow code": (workflow, workflow.Info),
    "Handles": (
        outlast.Handle,
        outlast.TaskHandle,
        outlast.WorkflowHandle,
        outlast.HistoryEvent,
    ),
    "What there is": (
        lists.Workflows,
        lists.Tasks,
        lists.Retried,
        capacity.Queues,
        capacity.Workers,
        namespaces.Namespaces,
        namespaces.NamespaceChange,
    ),
    "What is told": (
        WorkflowInfo,
        PendingActivity,
        PendingTimer,
        TaskInfo,
        Attempt,
        outlast.CommittedEvent,
        Count,
        QueueInfo,
        WorkerInfo,
        NamespaceInfo,
        NamespaceSettings,
    ),
    "Codecs": (outlast.Zstd, outlast.Encrypt, outlast.KeyRing, outlast.Pickle),
    "Errors": (
        outlast.Misuse,
        *(getattr(errors, name) for name in errors.__all__ if name not in {"exception_of", "failure_of"}),
    ),
}
MADE_BY_USERS: Final = frozenset(
    {outlast.App, outlast.Signal, outlast.Zstd, outlast.Encrypt, outlast.KeyRing, outlast.Pickle}
)
WIDTH: Final = 100


class Untold(Exception):
    """Something public has no docstring."""


def page() -> str:
    """Return the page. Raises Untold, naming what has no docstring."""
    lines = [
        "# Python\n\n",
        "What a program imports from `outlast`.\n",
        "A `Duration` is a number of seconds, a `timedelta`, or a text such as `250ms`, `10m`, `3d`.\n",
        "Methods that begin with `a` are for `await`; the others block.\n",
        "The options of a task or a workflow stand in the decorator, as defaults, and in `using(…)`, for one call.\n\n",
    ]
    for title, things in SHELVES.items():
        lines.append(f"## {title}\n\n")
        for thing in things:
            lines += _thing(thing)
    return "".join(lines).rstrip("\n") + "\n"


def _thing(thing: Any) -> Iterator[str]:
    if isinstance(thing, ModuleType):
        yield from _module(thing)
    elif inspect.isfunction(thing):
        yield from _function(_tree(thing), thing, owner="")
    elif issubclass(thing, BaseException):
        yield from _error(thing)
    else:
        yield from _class(thing)


def _module(module: ModuleType) -> Iterator[str]:
    yield f"{_prose(inspect.getdoc(module) or '')}\n\n"
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if f"workflow.{node.name}" not in HIDDEN:
            yield from _function(node, getattr(module, node.name), owner="workflow")


def _class(thing: type) -> Iterator[str]:
    tree = _tree(thing)
    assert isinstance(tree, ast.ClassDef)
    yield f"### {thing.__name__}\n\n"
    made = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    if made is not None and thing in MADE_BY_USERS:
        yield _code(_signature(made, name=thing.__name__, of_class=True))
    yield f"{_prose(_told(thing, thing.__name__))}\n\n"
    yield from _fields(thing, tree)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        if "overload" in decorators or f"{thing.__name__}.{node.name}" in HIDDEN:
            continue
        member = inspect.getattr_static(thing, node.name)
        yield from _function(node, member, owner=thing.__name__, is_property="property" in decorators)


def _fields(thing: type, tree: ast.ClassDef) -> Iterator[str]:
    """Give the table of a class that has fields: each with the comment beside it."""
    source = inspect.getsource(thing).splitlines()
    rows: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            why = source[(node.end_lineno or 1) - 1].partition("  # ")[2].strip()
            if not why and not issubclass(thing, msgspec.Struct):
                raise Untold(f"{thing.__name__}.{node.target.id} has no comment beside it.")
            default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
            kind = f"{ast.unparse(node.annotation)}{default}".replace("|", "\\|")
            rows.append(f"| `{node.target.id}` | `{kind}` | {why} |\n")
    if rows:
        yield "| | | |\n|---|---|---|\n"
        yield from rows
        yield "\n"


def _error(thing: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in thing.__bases__)
    yield f"### {thing.__name__}\n\n*{bases}.* {_prose(_told(thing, thing.__name__))}\n\n"


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, member: Any, *, owner: str, is_property: bool = False
) -> Iterator[str]:
    name = f"{owner}.{node.name}" if owner else node.name
    function = member.fget if is_property else getattr(member, "__func__", member)
    yield f"### {name}\n\n"
    if is_property:
        yield _code(f"{node.name}: {ast.unparse(node.returns) if node.returns else 'Any'}")
    else:
        yield _code(_signature(node, name=node.name, of_class=bool(owner) and owner != "workflow"))
    yield f"{_prose(_told(function, name))}\n\n"


def _told(thing: Any, name: str) -> str:
    said = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    if not said:
        raise Untold(f"{name} has no docstring.")
    return inspect.cleandoc(said)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, name: str, of_class: bool) -> str:
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    given = arguments.args
    if of_class:
        del (given.posonlyargs or given.args)[0]
    parts = [_spaced(part) for part in re.split(r", (?![^\[\(]*[\]\)])", ast.unparse(given)) if part]
    if parts[:1] == ["/"]:
        del parts[0]
    text = ", ".join(parts)
    kind = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    gives = f" -> {ast.unparse(node.returns).strip(chr(39))}" if node.returns and node.name != "__init__" else ""
    line = f"{kind}{name}({text}){gives}"
    if len(line) <= WIDTH:
        return line
    return f"{kind}{name}(\n{''.join(f'    {part},' + chr(10) for part in parts)}){gives}"


def _spaced(part: str) -> str:
    """Return a parameter as it is written by hand: blanks around the sign of a default that follows a type."""
    return part.replace("=", " = ", 1) if ": " in part.partition("=")[0] else part


def _tree(thing: Any) -> Any:
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    return body[0]


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n\n"


def _prose(text: str) -> str:
    """Return a docstring as Markdown, with what is raised as a list."""
    told, _, raised = text.partition("\nRaises:\n")
    if not raised:
        return _plain(told)
    items: list[str] = []
    for line in raised.splitlines():
        named = re.match(r" {4}(\w+): (.*)", line)
        if named is not None:
            items.append(f"- `{named[1]}`: {named[2]}")
        elif line.strip():
            items[-1] += f" {line.strip()}"
    return f"{_plain(told)}\n\nRaises:\n\n" + "\n".join(map(_plain, items))


def _plain(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", text.strip())
