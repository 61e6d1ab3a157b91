"""Durable tasks and workflows in Python: acknowledged work survives anything.

The module is lazy: a name is loaded when it is first used, so that ``import outlast`` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outlast.protocol.codecs import Encrypt, Zstd
    from outlast.protocol.keys import KeyRing
    from outlast.sdk import workflow
    from outlast.sdk.app import App
    from outlast.sdk.context import TaskContext
    from outlast.sdk.errors import Fatal, RetryableError, TaskError, WorkflowFailed
    from outlast.sdk.feed import CommittedEvent
    from outlast.sdk.handle import Handle, TaskHandle, WorkflowHandle
    from outlast.sdk.misuse import Misuse
    from outlast.sdk.options import Retry
    from outlast.sdk.pickled import Pickle
    from outlast.sdk.recorded import HistoryEvent
    from outlast.sdk.signals import Signal
    from outlast.sdk.task import Task, task
    from outlast.sdk.workflows import Workflow

_HOMES: Final[dict[str, str]] = {
    "App": "outlast.sdk.app",
    "CommittedEvent": "outlast.sdk.feed",
    "Encrypt": "outlast.protocol.codecs",
    "Fatal": "outlast.sdk.errors",
    "Handle": "outlast.sdk.handle",
    "HistoryEvent": "outlast.sdk.recorded",
    "KeyRing": "outlast.protocol.keys",
    "Misuse": "outlast.sdk.misuse",
    "Pickle": "outlast.sdk.pickled",
    "Retry": "outlast.sdk.options",
    "RetryableError": "outlast.sdk.errors",
    "Signal": "outlast.sdk.signals",
    "Task": "outlast.sdk.task",
    "TaskContext": "outlast.sdk.context",
    "TaskError": "outlast.sdk.errors",
    "TaskHandle": "outlast.sdk.handle",
    "Workflow": "outlast.sdk.workflows",
    "WorkflowFailed": "outlast.sdk.errors",
    "WorkflowHandle": "outlast.sdk.handle",
    "Zstd": "outlast.protocol.codecs",
    "task": "outlast.sdk.task",
    "workflow": "outlast.sdk",
}

__all__ = [
    "App",
    "CommittedEvent",
    "Encrypt",
    "Fatal",
    "Handle",
    "HistoryEvent",
    "KeyRing",
    "Misuse",
    "Pickle",
    "Retry",
    "RetryableError",
    "Signal",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskHandle",
    "Workflow",
    "WorkflowFailed",
    "WorkflowHandle",
    "Zstd",
    "task",
    "workflow",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    import importlib

    if name == "workflow":
        value: Any = importlib.import_module("outlast.sdk.workflow")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
