"""The options users write in ``@app.task(…)``, ``@app.workflow(…)`` and ``.using(…)``, and what becomes of them."""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypedDict, cast

from outlast.core.inputs import IfClosed, IfOpen
from outlast.core.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, WORKFLOW_ID_BYTES_MAX
from outlast.core.retry import RetryPolicy
from outlast.sdk.definition import TaskOptions, WorkflowOptions
from outlast.sdk.durations import Duration, nanos_of
from outlast.sdk.misuse import UnknownOption

THREADS_PER_CORE: Final = 4
WORKFLOW_SLOTS: Final = 200
RUNS_CACHED: Final = 4000  # of about 10 KB each


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How attempts follow each other. ``max_attempts`` counts all tries, 0 for no bound; ``never_for`` ends at once."""

    max_attempts: int = 5  # all tries, from 1; 0 for no bound
    first: Duration = "1s"  # the pause after the first attempt
    factor: float = 2.0  # by which the pause grows, 1 to 1,000
    longest: Duration = "1h"  # beyond which no pause grows
    jitter: Literal["full", "none"] = "full"  # "full" draws each pause from 0 to that span
    never_for: Sequence[type[BaseException] | str] = ()  # exceptions that end the task at once, by class or name

    def policy(self) -> RetryPolicy:
        """Return the stored form.

        Raises:
            UnknownOption: a value is out of range.
        """
        if not is_whole(self.max_attempts) or self.max_attempts < 0:
            raise _bad("max_attempts", self.max_attempts, "Give the number of all tries, from 1; 0 for no bound.")
        if not isinstance(self.factor, int | float) or not 1.0 <= self.factor <= FACTOR_MAX:  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            raise _bad("factor", self.factor, f"Give a number from 1 to {FACTOR_MAX:g}.")
        if self.jitter not in {"full", "none"}:
            raise _bad("jitter", self.jitter, "Give 'full' or 'none'.")
        return RetryPolicy(
            attempts_max=self.max_attempts,
            first=nanos_of(self.first, name="first"),
            factor=float(self.factor),
            longest=nanos_of(self.longest, name="longest"),
            jitter=self.jitter == "full",
            final_types=tuple(_type_name(kind) for kind in self.never_for),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How much a worker takes on. ``queues`` empty: those that the declarations name, and "default"."""

    queues: tuple[str, ...] = ()
    threads: int = field(default_factory=lambda: THREADS_PER_CORE * (os.cpu_count() or 1))
    coroutines: int = 200
    workflow_slots: int = WORKFLOW_SLOTS
    runs_cached: int = RUNS_CACHED
    identity: str = ""
    build: str = ""


class TaskUsing(TypedDict, total=False):
    """Options of one enqueue or activity. ``timeout`` is start to close, for each attempt."""

    queue: str  # the task queue that workers poll; "default" if not given
    retry: Retry  # how attempts follow each other; 5 attempts if not given
    max_attempts: int  # short for the same in retry=; 1 for at most once, 0 for no bound
    timeout: Duration  # start to close of each attempt; 10 minutes if not given
    schedule_to_start: Duration  # how long it may wait for a worker; no bound if not given
    schedule_to_close: Duration  # all attempts and pauses together; no bound if not given
    heartbeat: Duration  # how long the handler may be silent; no bound if not given
    priority: int  # from 1, the first, to 5, the last; 3 if not given
    delay: Duration  # begin after this time; at once if not given
    tags: Mapping[str, str]  # texts by which it is found
    id: str  # the id of the task; a fresh one if not given
    key: str  # idempotency key: the same key enqueues once
    fairness_key: str  # whose work it is: those of one queue take turns
    tx: Any  # a connection or session: in its open transaction, there if that commits


class TaskDeclaration(TypedDict, total=False):
    """Options of ``@app.task``."""

    name: str  # the type's name; that of the function if not given
    executor: Literal[
        "auto", "process"
    ]  # only "auto": plain functions run in threads, coroutines on a loop of their own
    queue: str  # the task queue that workers poll; "default" if not given
    retry: Retry  # how attempts follow each other; 5 attempts if not given
    max_attempts: int  # short for the same in retry=; 1 for at most once, 0 for no bound
    timeout: Duration  # start to close of each attempt; 10 minutes if not given
    schedule_to_start: Duration  # how long it may wait for a worker; no bound if not given
    schedule_to_close: Duration  # all attempts and pauses together; no bound if not given
    heartbeat: Duration  # how long the handler may be silent; no bound if not given
    priority: int  # from 1, the first, to 5, the last; 3 if not given
    delay: Duration  # begin after this time; at once if not given
    tags: Mapping[str, str]  # texts by which it is found
    fairness_key: str  # whose work it is: those of one queue take turns


class WorkflowUsing(TypedDict, total=False):
    """Options of one start. ``task_timeout`` bounds one turn of workflow code."""

    id: str  # the workflow id; a fresh one if not given
    key: str  # idempotency key: the same key starts once
    if_open: Literal[
        "fail", "return_existing", "terminate"
    ]  # what a start does while a run with its id is open; "fail" if not given
    if_closed: Literal[
        "allow", "allow_if_failed", "reject"
    ]  # whether the id of a run that has ended may be used again; "allow" if not given
    queue: str  # the task queue whose workers run its code; "default" if not given
    run_timeout: Duration  # longest life of the run; no bound if not given
    task_timeout: Duration  # longest turn of its code; 10 seconds if not given
    delay: Duration  # begin after this time; at once if not given
    tags: Mapping[str, str]  # texts by which it is found
    memo: Mapping[str, Any]  # values to be read with the run; its code does not see them
    tx: Any  # a connection or session: in its open transaction, there if that commits


class WorkflowDeclaration(TypedDict, total=False):
    """Options of ``@app.workflow``. ``fail_on_nondeterminism`` ends the run where otherwise it would be held."""

    name: str  # the type's name; that of the function or class if not given
    build: str  # which build of the code its runs are for, as text to look at
    fail_on_nondeterminism: bool  # end a run whose code changed, where otherwise it is held
    queue: str  # the task queue whose workers run its code; "default" if not given
    if_open: Literal[
        "fail", "return_existing", "terminate"
    ]  # what a start does while a run with its id is open; "fail" if not given
    if_closed: Literal[
        "allow", "allow_if_failed", "reject"
    ]  # whether the id of a run that has ended may be used again; "allow" if not given
    run_timeout: Duration  # longest life of the run; no bound if not given
    task_timeout: Duration  # longest turn of its code; 10 seconds if not given
    tags: Mapping[str, str]  # texts by which it is found


SPANS: Final[dict[str, str]] = {  # option -> field of TaskOptions and WorkflowOptions
    "timeout": "start_to_close",
    "schedule_to_start": "schedule_to_start",
    "schedule_to_close": "schedule_to_close",
    "heartbeat": "heartbeat",
    "delay": "delay",
    "run_timeout": "run_timeout",
    "task_timeout": "task_timeout",
}
FACTOR_MAX: Final = 1000.0
PRIORITIES: Final = range(1, 6)
BYTES_MAX: Final[dict[str, int]] = {
    "queue": NAME_BYTES_MAX,
    "id": WORKFLOW_ID_BYTES_MAX,
    "key": KEY_BYTES_MAX,
    "fairness_key": KEY_BYTES_MAX,
}
LATER: Final = frozenset({"rate_limit", "concurrency", "unique", "subject"})


def task_options(base: TaskOptions, chosen: Mapping[str, Any], *, where: str) -> TaskOptions:
    """Return ``base`` with what was ``chosen``. ``where`` begins the error for what cannot be.

    Raises:
        UnknownOption: there is no such option, or it cannot have that value.
    """
    fields = _fields(chosen, TaskUsing.__annotations__, where=where)
    retry = chosen.get("retry")
    if retry is not None and not isinstance(retry, Retry):
        raise _bad("retry", retry, "Give a Retry: retry=Retry(max_attempts=3).")
    policy = base.retry if retry is None else retry.policy()
    fields.pop("retry", None)
    attempts = fields.pop("max_attempts", None)
    if attempts is not None:
        whole = Retry(max_attempts=attempts).policy()
        policy = RetryPolicy(
            attempts_max=whole.attempts_max,
            first=policy.first,
            factor=policy.factor,
            longest=policy.longest,
            jitter=policy.jitter,
            final_types=policy.final_types,
        )
    if not is_whole(fields.get("priority", 3)) or fields.get("priority", 3) not in PRIORITIES:
        raise _bad("priority", fields["priority"], "Give 1 (first) to 5.")
    return replace(base, retry=policy, **fields)


def workflow_options(base: WorkflowOptions, chosen: Mapping[str, Any], *, where: str) -> WorkflowOptions:
    """Return ``base`` with what was ``chosen``; raises as ``task_options``."""
    fields = _fields(chosen, WorkflowUsing.__annotations__ | {"build": str}, where=where)
    for name, kinds in (("if_open", IfOpen), ("if_closed", IfClosed)):
        if name in fields and fields[name] not in set(kinds):
            raise _bad(name, fields[name], f"Give one of: {', '.join(kinds)}.")
    return replace(base, **fields)


def _fields(chosen: Mapping[str, Any], known: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in chosen.items():
        if name not in known:
            raise unknown(name, known, where=where)
        if name in SPANS:
            fields[SPANS[name]] = nanos_of(value, name=name)
        elif name in BYTES_MAX:
            fields[name] = check_text(name, value, BYTES_MAX[name])
        elif name == "tags":
            fields[name] = _tags(value)
        elif name == "memo":
            fields[name] = _memo(value)
        else:
            fields[name] = value
    return fields


def worker_options(queues: Sequence[str], *, threads: int | None, coroutines: int, build: str) -> WorkerOptions:
    """Return what an app's worker takes on. Raises UnknownOption."""
    if isinstance(queues, str):
        raise _bad("queues", queues, f"Give a list: queues=[{queues!r}].")
    names = tuple(check_text("queues", queue, NAME_BYTES_MAX) for queue in queues)
    for name, number in (("threads", threads), ("coroutines", coroutines)):
        if number is not None and (not is_whole(number) or number < 1):
            raise _bad(name, number, "Give a whole number from 1.")
    if build:
        check_text("build", build, NAME_BYTES_MAX)
    chosen = WorkerOptions(queues=names, coroutines=coroutines, build=build)
    return chosen if threads is None else replace(chosen, threads=threads)


def unknown(name: str, known: Mapping[str, Any], *, where: str) -> UnknownOption:
    """Return the error for an option that there is not, with the nearest one that there is."""
    if name in LATER:
        return UnknownOption(
            "option_not_yet",
            f"{where} has the option {name!r}, which this release does not have.",
            remedy="Leave it out.",
        )
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return UnknownOption(
        "unknown_option",
        f"{where} has the option {name!r}, which there is not.",
        remedy=f"{meant}There are: {', '.join(sorted(known))}.",
    )


def check_text(name: str, value: object, bytes_max: int) -> str:
    """Return ``value``, a text of 1 to ``bytes_max`` bytes. Raises UnknownOption."""
    if not isinstance(value, str) or not value:
        raise _bad(name, value, "Give a text that is not empty.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _bad(name, value, "It has half a character (a lone surrogate): give text that is valid Unicode.")
    if len(value.encode()) > bytes_max:
        raise _bad(name, value[:40] + "…", f"Give at most {bytes_max} bytes.")
    return value


def is_whole(value: object) -> bool:
    """Say whether ``value`` is a whole number and nothing that merely compares like one: True, 3.0."""
    return isinstance(value, int) and not isinstance(value, bool)


def _type_name(kind: object) -> str:
    if isinstance(kind, str):
        return kind
    if not isinstance(kind, type):
        raise _bad("never_for", kind, "Give types of exceptions, or their names.")
    return kind.__name__


def _memo(value: object) -> Mapping[str, Any]:
    pairs = cast("Mapping[object, Any]", value)
    if not isinstance(pairs, Mapping) or not all(isinstance(name, str) for name in pairs):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        raise _bad("memo", pairs, "Give values by name: memo={'customer': 'Ada'}.")
    return cast("Mapping[str, Any]", pairs)


def _tags(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _bad("tags", value, "Give texts by name: tags={'plan': 'pro'}.")
    tags: dict[str, str] = {}
    pairs: Mapping[object, object] = value  # pyright: ignore[reportUnknownVariableType]
    for key, text in pairs.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise _bad("tags", {key: text}, "Names and values of tags are texts.")
        tags[key] = text
    return tags


def _bad(name: str, value: object, remedy: str) -> UnknownOption:
    return UnknownOption("bad_option", f"{name} is {value!r}.", remedy=remedy)
