"""What workflow code may call: ``from outlast import workflow``. Everything here speaks for the run the code is in."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar, cast
from uuid import UUID

from outlast.sdk import classes, guard
from outlast.sdk.definition import TaskDefinition
from outlast.sdk.durations import Duration, seconds_of
from outlast.sdk.errors import UnsupportedHere
from outlast.sdk.runtime import CURRENT
from outlast.sdk.unawaited import to_await
from outlast.sdk.verbs import EPOCH, LOGGER

if TYPE_CHECKING:
    from outlast.sdk.workflows import Workflow

P = ParamSpec("P")
T = TypeVar("T")

# Marks for the methods of a workflow class.
signal = classes.signal
query = classes.query
update = classes.update

# Read as attributes: workflow.id, workflow.random, … (see __getattr__ below).
id: str
workflow_id: str
run_id: str
original_run_id: str
attempt: int
random: Random
should_continue_as_new: bool
history_length: int
cancel_requested: bool
last_result: Any


def run(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> "Workflow[P, T]":
    """Mark the method of a workflow class that is the run: ``Cart.shop.start(…)`` begins one."""
    return cast("Workflow[P, T]", classes.run(function))


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Who this run is."""

    namespace: str  # the world that it is in
    workflow_id: str  # the name that its starter gave it
    run_id: str  # the id of this run alone
    original_run_id: str  # the same over resets and retries of it
    type: str  # the workflow's name
    queue: str  # the task queue whose workers run its code
    attempt: int  # from 1
    started_at: datetime  # in UTC, by the engine's clock
    history_length: int  # events so far
    tags: dict[str, str]  # those that it was started with


def info() -> Info:
    """Return who this run is."""
    run = _run("info()")
    return Info(
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        original_run_id=run.original_run_id,
        type=run.definition.name,
        queue=run.queue,
        attempt=run.attempt,
        started_at=_instant_of(run.started_ns),
        history_length=run.history_length,
        tags=dict(run.tags),
    )


def now() -> datetime:
    """Return the instant of the current turn, in UTC: the same on each replay. It moves only while the code waits."""
    return cast("datetime", _run("now()").instant())


def time() -> float:
    """Return the instant of the current turn as seconds since 1970."""
    return float(_run("time()").now_ns / 1_000_000_000)


def uuid() -> UUID:
    """Return a new UUID that each replay repeats."""
    return cast("UUID", _run("uuid()").uuid())


@to_await
async def sleep(duration: Duration) -> None:
    """Wait ``duration`` by a durable timer that holds no worker; raises InvalidDuration if it is negative."""
    await _run("sleep(…)").sleep(seconds_of(duration, name="sleep"))


@to_await
async def wait_until(holds: Callable[[], object], timeout: Duration | None = None) -> None:
    """Wait until ``holds()`` is true; it is asked again after each event of the run.

    Raises:
        TimeoutError: ``timeout`` has passed first.
    """
    await _run("wait_until(…)").wait_until(holds, None if timeout is None else seconds_of(timeout, name="timeout"))


@to_await
async def wait_for_signal(name: str, timeout: Duration | None = None, *, type: Any = Any) -> Any:
    """Return the next signal ``name``, in order of arrival; raises TimeoutError when ``timeout`` has passed first."""
    seconds = None if timeout is None else seconds_of(timeout, name="timeout")
    return await _run("wait_for_signal(…)").receive_signal(name, type, seconds)


def side_effect(function: Callable[[], T]) -> T:
    """Call ``function`` once in the life of the run and return what it returned, on each replay again.

    It may read the clock or chance. It must be quick and must not fail half way: for anything else write a task.
    """
    return cast("T", _run("side_effect(…)").side_effect(function))


def patched(identity: str) -> bool:
    """Return True where the new code is to run: in new runs, and in those that came here with it before."""
    return bool(_run("patched(…)").patched(identity))


def deprecate_patch(identity: str) -> None:
    """Put it in place of ``patched`` once no run of the old code is open; later remove it."""
    _run("deprecate_patch(…)").patched(identity, deprecated=True)


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run and start the next of the chain with these arguments and a fresh history."""
    _run("continue_as_new(…)").continue_as_new(args, kwargs)
    raise AssertionError("unreachable")


def set_search_attributes(**attributes: Any) -> None:
    """Set fields by which the run is found."""
    _run("set_search_attributes(…)").set_search_attributes(attributes)


def publish(name: str, value: Any) -> None:
    """Have ``handle.published(name)`` tell ``value`` from now on, also while no worker runs and after the end.

    It is in the run's row: at most 4 KiB as JSON, under at most 64 names.
    """
    _run("publish(…)").publish(name, value)


def note(text: str) -> None:
    """Write a line for people into the run's timeline."""
    _run("note(…)").note(text)


def is_replaying() -> bool:
    """Return whether what the code does now has been recorded already."""
    return bool(_run("is_replaying()").replaying)


@to_await
async def execute_activity(task: Any, *args: Any, **kwargs: Any) -> Any:
    """Run ``task`` as an activity and return its result: what ``await task.execute(…)`` does.

    Raises:
        TaskError: It has failed for good.
    """
    definition = getattr(task, "definition", task)
    if not isinstance(definition, TaskDefinition):
        raise UnsupportedHere(
            f"{task!r} is not a task.", remedy="Declare it with @app.task and write: await name.execute(…)."
        )
    options = getattr(task, "options", None) or definition.options
    return await _run("execute_activity(…)").execute_activity(definition, args, kwargs, options)


async def execute_local_activity(task: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
    """Always raises UnsupportedHere: a turn that runs a task in place cannot be retried, timed or watched as tasks are."""
    raise UnsupportedHere(
        f"Local activities are not offered ({getattr(task, '__name__', task)!s}).",
        remedy="Write await task.execute(…); for a quick value that needs no retry, workflow.side_effect(fn).",
    )


async def start_child_workflow(workflow: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
    """Always raises UnsupportedHere: children come with a later release."""
    raise UnsupportedHere(
        f"A workflow cannot start another one yet ({getattr(workflow, '__name__', workflow)!s}).",
        remedy="Start it in a task: await start_it.execute(…), with workflow.start(…) in the task's body.",
    )


async def execute_child_workflow(workflow: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Always raises UnsupportedHere: children come with a later release."""
    await start_child_workflow(workflow, *args, **kwargs)
    raise AssertionError("unreachable")


def shield(awaitable: Awaitable[T] | None = None) -> Any:
    """Keep a cancel away from clean-up.

    ``async with workflow.shield():`` holds a cancel of the run back until the block is left;
    ``await workflow.shield(undo.execute(…))`` lets one operation go on although its caller is cancelled.
    """
    run = _run("shield()")
    return _Shield(run) if awaitable is None else asyncio.shield(awaitable)


class _Shield:
    __slots__ = ("_run",)

    def __init__(self, run: Any) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._run.shields += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.shields -= 1
        if self._run.shields == 0 and self._run.cancel_waiting and not self._run.disposed:
            self._run.cancel_waiting = False
            self._run.cancel_main()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __await__(self) -> Generator[Any, None, None]:
        raise UnsupportedHere(
            "workflow.shield() was awaited.", remedy="Write async with workflow.shield(): …, or give it what to await."
        )


class WorkflowLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that says each line once: nothing while replaying, and with the run's ids beside it."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's own name
        run: Any = CURRENT.get()
        if run is not None and run.replaying:
            return False
        return self.logger.isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        run: Any = CURRENT.get()
        if run is not None:
            extra = {"workflow_id": run.workflow_id, "run_id": run.run_id, "workflow_type": run.definition.name}
            kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.isEnabledFor(level):
            return
        msg, kwargs = self.process(msg, kwargs)  # type: ignore[assignment]
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        # What a handler does with the line decides nothing in the workflow: it may read clocks and open files.
        with guard.lifted():
            self.logger.log(level, msg, *args, **kwargs)


logger: Final = WorkflowLogger(LOGGER)

_ATTRIBUTES: Final[dict[str, str]] = {
    "id": "workflow_id",
    "workflow_id": "workflow_id",
    "run_id": "run_id",
    "original_run_id": "original_run_id",
    "attempt": "attempt",
    "random": "random",
    "should_continue_as_new": "suggest_continue_as_new",
    "history_length": "history_length",
    "cancel_requested": "cancel_requested",
}


def __getattr__(name: str) -> Any:
    attribute = _ATTRIBUTES.get(name)
    if attribute is not None:
        return getattr(_run(name), attribute)
    if name == "last_result":
        raise UnsupportedHere(
            "workflow.last_result is for scheduled runs, which come with a later release.",
            remedy="Hand the value on with workflow.continue_as_new(…).",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _run(what: str) -> Any:
    run = CURRENT.get()
    if run is None:
        raise UnsupportedHere(
            f"workflow.{what} was used outside workflow code.",
            remedy="It speaks for the run whose code is executing: use it in an @app.workflow function.",
        )
    return run


def _instant_of(nanos: int) -> datetime:
    return EPOCH + timedelta(microseconds=nanos // 1000)
