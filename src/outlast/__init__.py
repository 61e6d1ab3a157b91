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
    from outlast.sdk.errors import (
        BadArguments,
        Canceled,
        Conflict,
        DirectCall,
        Fatal,
        HoldsRun,
        InvalidDuration,
        NeverAwaited,
        Nondeterminism,
        NotFound,
        NotPublished,
        NotReadable,
        NotSerializable,
        OutlastError,
        PayloadTooLarge,
        QueryFailed,
        RetryableError,
        SandboxViolation,
        TaskError,
        TimedOut,
        Unavailable,
        UnsupportedHere,
        WorkerLost,
        WorkflowCanceled,
        WorkflowFailed,
        WorkflowTerminated,
        WorkflowTimedOut,
    )
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
    "BadArguments": "outlast.sdk.errors",
    "Canceled": "outlast.sdk.errors",
    "CommittedEvent": "outlast.sdk.feed",
    "Conflict": "outlast.sdk.errors",
    "DirectCall": "outlast.sdk.errors",
    "Encrypt": "outlast.protocol.codecs",
    "Fatal": "outlast.sdk.errors",
    "Handle": "outlast.sdk.handle",
    "HistoryEvent": "outlast.sdk.recorded",
    "HoldsRun": "outlast.sdk.errors",
    "InvalidDuration": "outlast.sdk.errors",
    "KeyRing": "outlast.protocol.keys",
    "Misuse": "outlast.sdk.misuse",
    "NeverAwaited": "outlast.sdk.errors",
    "Nondeterminism": "outlast.sdk.errors",
    "NotFound": "outlast.sdk.errors",
    "NotPublished": "outlast.sdk.errors",
    "NotReadable": "outlast.sdk.errors",
    "NotSerializable": "outlast.sdk.errors",
    "OutlastError": "outlast.sdk.errors",
    "PayloadTooLarge": "outlast.sdk.errors",
    "Pickle": "outlast.sdk.pickled",
    "QueryFailed": "outlast.sdk.errors",
    "Retry": "outlast.sdk.options",
    "RetryableError": "outlast.sdk.errors",
    "SandboxViolation": "outlast.sdk.errors",
    "Signal": "outlast.sdk.signals",
    "Task": "outlast.sdk.task",
    "TaskContext": "outlast.sdk.context",
    "TaskError": "outlast.sdk.errors",
    "TaskHandle": "outlast.sdk.handle",
    "TimedOut": "outlast.sdk.errors",
    "Unavailable": "outlast.sdk.errors",
    "UnsupportedHere": "outlast.sdk.errors",
    "WorkerLost": "outlast.sdk.errors",
    "Workflow": "outlast.sdk.workflows",
    "WorkflowCanceled": "outlast.sdk.errors",
    "WorkflowFailed": "outlast.sdk.errors",
    "WorkflowHandle": "outlast.sdk.handle",
    "WorkflowTerminated": "outlast.sdk.errors",
    "WorkflowTimedOut": "outlast.sdk.errors",
    "Zstd": "outlast.protocol.codecs",
    "task": "outlast.sdk.task",
    "workflow": "outlast.sdk",
}

__all__ = [
    "App",
    "BadArguments",
    "Canceled",
    "CommittedEvent",
    "Conflict",
    "DirectCall",
    "Encrypt",
    "Fatal",
    "Handle",
    "HistoryEvent",
    "HoldsRun",
    "InvalidDuration",
    "KeyRing",
    "Misuse",
    "NeverAwaited",
    "Nondeterminism",
    "NotFound",
    "NotPublished",
    "NotReadable",
    "NotSerializable",
    "OutlastError",
    "PayloadTooLarge",
    "Pickle",
    "QueryFailed",
    "Retry",
    "RetryableError",
    "SandboxViolation",
    "Signal",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskHandle",
    "TimedOut",
    "Unavailable",
    "UnsupportedHere",
    "WorkerLost",
    "Workflow",
    "WorkflowCanceled",
    "WorkflowFailed",
    "WorkflowHandle",
    "WorkflowTerminated",
    "WorkflowTimedOut",
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
