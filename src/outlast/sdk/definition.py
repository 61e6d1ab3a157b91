"""What ``@app.task`` and ``@app.workflow`` make of a function: its name, its types and its options, resolved once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlast.core.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How a task is run. Spans in nanoseconds, 0 for none; None means: not chosen, the default applies."""

    queue: str = "default"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    start_to_close: int | None = None
    schedule_to_start: int = 0
    schedule_to_close: int = 0
    heartbeat: int = 0
    priority: int = 3
    delay: int = 0
    tags: dict[str, str] | None = None
    id: str = ""  # of the task to be made
    key: str = ""  # idempotency key of an enqueue; operation key of an activity
    fairness_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowOptions:
    """How a workflow is started and run. Spans in nanoseconds, 0 for none."""

    queue: str = "default"
    id: str = ""
    key: str = ""  # request id of the start
    if_open: str = "fail"
    if_closed: str = "allow"
    run_timeout: int = 0
    task_timeout: int = 0
    delay: int = 0
    tags: dict[str, str] | None = None
    memo: dict[str, Any] | None = None
    build: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The arguments a function takes, as they are written to payloads: one each, in order, then the keyword-only ones."""

    names: tuple[str, ...]
    types: tuple[Any, ...]
    required: int  # how many of them have no default
    keyword_only: frozenset[str] = frozenset()
    variadic: bool = False
    result: Any = None  # annotation of what is returned; Any when there is none
    function: str = "the function"  # what errors call it


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    parameters: Parameters
    options: TaskOptions
    place: str = ""  # "file:line" of the function


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDefinition:
    """A method of a workflow class that signals or queries call."""

    name: str
    function: Callable[..., Any]
    parameters: Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    name: str
    function: Callable[..., Any]
    parameters: Parameters
    options: WorkflowOptions
    place: str = ""
    fail_on_nondeterminism: bool = False
    create: Callable[[], Any] | None = None  # of a class: makes the object whose methods are called
    signals: Mapping[str, MethodDefinition] = field(default_factory=dict[str, MethodDefinition])
    queries: Mapping[str, MethodDefinition] = field(default_factory=dict[str, MethodDefinition])
