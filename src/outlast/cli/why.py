"""``outlast why``: what a workflow or a task waits for, where in the code, what came before, and what helps."""

import asyncio
import linecache
from collections import Counter
from pathlib import Path
from typing import Final, overload

import msgspec

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.failing import error_lines, line
from outlast.cli.printing import json_line, mode_of
from outlast.cli.reach import Look, reached
from outlast.cli.shapes import WhyShown
from outlast.cli.steps import Step, steps_of
from outlast.cli.text import VALUE_SHOWN, ago, clean, cut, instant, span
from outlast.cli.unpolled import Wanted, known_types, said_known
from outlast.cli.watching import STILL, Render, shown
from outlast.core.errors import NotFound
from outlast.core.replies import RunStatus, TaskInfo, TaskState, WorkflowInfo
from outlast.core.task import TERMINAL
from outlast.core.waiting import at_activities
from outlast.gateway.giving import why_task, why_workflow
from outlast.gateway.values import told_with_schema

BEFORE_SHOWN: Final = 6
EVENTS_READ: Final = 5_000
NO_ENGINE: Final = "none runs on the store, so nothing moves: outlast serve, outlast dev APP, or your own program"

_RUN_OPEN: Final = RunStatus.RUNNING
_TASK_OPEN: Final = frozenset(TaskState) - TERMINAL


def why(arguments: Arguments) -> int:
    """Print the answer for a workflow id or a task id."""
    return asyncio.run(_why(arguments))


async def _why(arguments: Arguments) -> int:
    async with reached(arguments) as look:

        async def once() -> tuple[Render, int | None]:
            info = await find(look, arguments.id)
            known = await _known(look, info)
            steps = await _steps(look, info) if isinstance(info, WorkflowInfo) else []
            ended = not arguments.watch or not is_open(info)
            return lambda now: _told(
                arguments, why_out(info, steps, now=now, known=known, served=bool(look.address or look.holder))
            ), exits.DONE if ended else None

        return await shown(arguments, once)


def _told(arguments: Arguments, answer: WhyShown) -> str:
    return json_line(answer) if mode_of(arguments) == "json" else "\n".join(answer.lines) + "\n"


async def find(look: Look, id: str) -> WorkflowInfo | TaskInfo:
    """An id is taken for a workflow's first, then for a task's."""
    try:
        return await look.workflow(id)
    except NotFound as missing:
        if missing.code != "workflow_not_found":
            raise
    try:
        return await look.task(id)
    except NotFound as missing:
        if missing.code != "task_not_found":
            raise
    raise NotFound(
        "workflow_not_found",
        f'There is no workflow or task "{clean(id)}".',
        remedy="List what there is: outlast workflow list",
    )


async def _steps(look: Look, info: WorkflowInfo) -> list[Step]:
    events: list[tuple[int, int, object]] = []
    following = 1
    while following and len(events) < EVENTS_READ:
        page = await look.history(info.workflow_id, info.run_id, following)
        events += [(page.first_event_id + n, at, event) for n, (at, event) in enumerate(page.events)]
        following = page.next_event_id
    return steps_of(events)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def _known(look: Look, info: WorkflowInfo | TaskInfo) -> tuple[str, ...]:
    """Return, for what nobody polls for, the types that the workers of its queue do poll for."""
    if not look.address or not is_open(info) or info.polled:
        return ()
    return await known_types(look, _wanted(info))


def _wanted(info: WorkflowInfo | TaskInfo) -> Wanted:
    return Wanted("workflow" if isinstance(info, WorkflowInfo) else "task", info.queue, info.type)


def helps_known(info: WorkflowInfo | TaskInfo, known: tuple[str, ...]) -> list[str]:
    """Return what is said of workers that are there, but not for this type."""
    return [said_known(_wanted(info), known)] if known else []


def lines_of_workflow(
    info: WorkflowInfo, steps: list[Step], *, now: int, known: tuple[str, ...] = (), served: bool = True
) -> list[str]:
    """Return the answer about a run, line by line; ``served``: an engine has told it, and not the store alone."""
    head = f"{clean(info.workflow_id)}  {clean(info.type)}  {_state_of(info)} {span((info.closed_at or now) - info.started_at)}"
    lines = [head + (f"   build {clean(info.build)}" if info.build else "")]
    if not is_open(info):
        if info.failure is not None:
            lines += error_lines("ended by", info.failure)
        lines.append(line("ended", instant(info.closed_at)))
        return lines + _before(steps)
    lines.append(line("waits for", waits_for(info, now=now)))
    lines += [] if served else [line("engine", NO_ENGINE)]
    lines += [
        line("at", _code_at(place, info.started_at)) for place in sorted(set((info.places or {}).values()))[:3] if place
    ]
    lines += _last_errors(info)
    if info.warning:
        lines.append(line("warning", info.warning))
    lines += _before(steps)
    if info.parked:
        lines.append(line("arrived", f"{info.parked} events that its code has not seen"))
    if info.cancel_requested:
        lines.append(line("asked", "to cancel; its code is told by a worker, and ends it when it has cleaned up"))
    lines += [line("helps" if n == 0 else "", text) for n, text in enumerate(helps(info, known))]
    return lines


def waits_for(info: WorkflowInfo, *, now: int) -> str:
    """Return what an open run waits for, in words."""
    text = with_why(info).why
    if info.task_state == "backoff" and info.task_failure is not None:  # which is told beside it
        text = text.partition(", the last with ")[0]
    if info.why_at > now:
        text += f", {'until' if 'signal' in text else 'due'} {instant(info.why_at)} ({ago(info.why_at, now)})"
    return text


def is_open(info: WorkflowInfo | TaskInfo) -> bool:
    """Say whether a run or a task has not ended."""
    return info.status is _RUN_OPEN if isinstance(info, WorkflowInfo) else info.state in _TASK_OPEN


@overload
def with_why(info: WorkflowInfo) -> WorkflowInfo: ...
@overload
def with_why(info: TaskInfo) -> TaskInfo: ...
def with_why(info: WorkflowInfo | TaskInfo) -> WorkflowInfo | TaskInfo:
    """Return ``info`` with what it waits for said from its rows, where no engine was there to say it."""
    if info.why or not is_open(info):
        return info
    said = _from_rows(info) if isinstance(info, WorkflowInfo) else _from_row(info)
    return msgspec.structs.replace(info, why=said)


def _from_row(info: TaskInfo) -> str:
    if info.state is TaskState.LEASED:
        return f"worker {info.worker_identity or info.worker}, attempt {info.attempt}"
    return f"{info.state.value.replace('_', ' ')}: queue {info.queue}"


def _from_rows(info: WorkflowInfo) -> str:
    if info.task_state == "backoff":
        failure = info.task_failure
        return f"another try of its code, which failed with {failure.type if failure else 'an error'}"
    if info.task_state:
        return f'a worker: queue "{info.queue}"'
    if info.activities:
        return at_activities(info.activities[0], len(info.activities))
    signals = sorted(key.removeprefix("signal:") for key in info.places or {} if key.startswith("signal:"))
    if signals:
        return f'signal "{signals[0]}"'
    if info.timers:
        return "a timer" if info.why_at else f"a timer, due {instant(min(timer.fire_at for timer in info.timers))}"
    return "a signal, or a cancel request"


def helps(info: WorkflowInfo, known: tuple[str, ...] = ()) -> list[str]:
    """Return commands that would move an open run on."""
    found: list[str] = helps_known(info, known) if info.task_state == "ready" else []
    name = _quoted(info.workflow_id)
    if info.task_state in {"ready", "backoff"} and not info.polled:
        found.append(f"outlast worker start APP --queue {_quoted(info.queue)}")
        if info.cancel_requested and info.task_state == "ready":
            found.append(f"outlast workflow terminate {name}   (ends it without its code)")
    found += [
        f"outlast worker start APP --queue {_quoted(activity.queue)}"
        for activity in info.activities[:1]
        if activity.state is TaskState.ENQUEUED
    ]
    found += [
        f"outlast why {_quoted(activity.task_id)}   (its worker and its lease)"
        for activity in info.activities[:1]
        if activity.state is TaskState.LEASED
    ]
    if info.task_state == "backoff":  # its code fails: a signal would wait behind what it fails at
        if info.task_failure is not None and info.task_failure.type == "Nondeterminism":
            found.append('put the old code back, or let both paths live: if workflow.patched("…"): …')
        elif info.task_failure is not None and info.task_failure.remedy:
            found.append(info.task_failure.remedy)
        elif not found:
            found.append("correct the code; the run then goes on from where it is")
        return [*found, f"outlast workflow terminate {name}   (ends it)"]
    found += [
        f"outlast workflow signal {name} {_quoted(key.removeprefix('signal:'))} 'JSON'"
        for key in sorted(info.places or {})
        if key.startswith("signal:")
    ]
    return found or [f"outlast workflow show {name}"]


def lines_of_task(info: TaskInfo, *, now: int, known: tuple[str, ...] = (), served: bool = True) -> list[str]:
    """Return the answer about a task, line by line; ``served``: an engine has told it, and not the store alone."""
    attempts = f"attempt {info.attempt}" + (f" of {info.attempts_max}" if info.attempts_max else "")
    state = info.state.value.replace("_", " ")
    lines = [
        f"{info.task_id}  {clean(info.type)}  {state} {span((info.closed_at or now) - info.enqueued_at)}   {attempts}"
    ]
    if not is_open(info):
        if info.failure is not None:
            lines += error_lines("ended by", info.failure)
            lines += [line("helps", info.failure.remedy)] if info.failure.remedy else []
        lines += [line("result", cut(told_with_schema(value), VALUE_SHOWN)) for value in info.result]
        lines.append(line("ended", instant(info.closed_at)))
        return lines
    lines.append(line("waits for", waits_for_task(info, now=now)))
    lines += [] if served else [line("engine", NO_ENGINE)]
    lines += _lease_of(info, now=now, served=served)
    if info.failure is not None:
        lines += error_lines("last error", info.failure)
    if info.workflow_id:
        lines.append(line("part of", f"workflow {info.workflow_id}"))
    lines += [line("helps" if n == 0 else "", text) for n, text in enumerate(helps_task(info, known))]
    return lines


def _lease_of(info: TaskInfo, *, now: int, served: bool) -> list[str]:
    """Say until when the lease of a task lasts and what comes then: its worker may be gone. No news is that it was renewed."""
    if info.state is not TaskState.LEASED or not info.expires_at or now == STILL:
        return []
    last = 0 < info.attempts_max <= info.attempt
    then = "the task fails: it was its last attempt" if last else "another attempt follows"
    if info.cancel_requested:
        then = "the task ends, as was asked"
    if info.expires_at <= now:
        ended = f"ended {instant(info.expires_at)} ({ago(info.expires_at, now)})"
        if served:
            return [line("lease", ended), line("then", then)]
        told = f"{ended}, as far as the store tells"
        return [line("lease", told), line("then", f"when an engine runs on the store, {then}")]
    until = f"until {instant(info.expires_at)} ({ago(info.expires_at, now)})"
    if info.heard_at:
        until += f"; the worker was last heard of {ago(info.heard_at, now)}"
    unless = "nothing is heard of the worker" if info.expires_at == info.lease_until else "the attempt does not end"
    return [line("lease", until), line("then", f"if {unless} by then, {then}")]


def waits_for_task(info: TaskInfo, *, now: int) -> str:
    """Return what an open task waits for, in words."""
    waits = with_why(info).why
    if info.run_at > now:
        waits += f", due {instant(info.run_at)} ({ago(info.run_at, now)})"
    return waits


def helps_task(info: TaskInfo, known: tuple[str, ...] = ()) -> list[str]:
    """Return commands that would move an open task on."""
    if info.state is TaskState.ENQUEUED and not info.polled:
        return [*helps_known(info, known), f"outlast worker start APP --queue {_quoted(info.queue)}"]
    return []


def why_out(
    info: WorkflowInfo | TaskInfo, steps: list[Step], *, now: int, known: tuple[str, ...] = (), served: bool = True
) -> WhyShown:
    """Return the answer for programs."""
    if isinstance(info, TaskInfo):
        return WhyShown(
            why=why_task(with_why(info)),
            at=(),
            before=(),
            helps=tuple(helps_task(info, known)) if is_open(info) else (),
            lines=tuple(lines_of_task(info, now=now, known=known, served=served)),
        )
    return WhyShown(
        why=why_workflow(with_why(info)),
        at=tuple(sorted(set((info.places or {}).values()))),
        before=tuple(step.name for step in steps if step.kind in {"activity", "timer"} and step.ended_at),
        helps=tuple(helps(info, known)) if is_open(info) else (),
        lines=tuple(lines_of_workflow(info, steps, now=now, known=known, served=served)),
    )


def _state_of(info: WorkflowInfo) -> str:
    if not is_open(info):
        return f"{info.status.value.replace('_', ' ')} after"
    if info.task_state == "backoff":
        return "held for"
    return "running" if info.task_state == "started" else "waiting"


def _before(steps: list[Step]) -> list[str]:
    done = [step for step in steps if step.kind in {"activity", "timer"} and step.ended_at]
    if not done:
        return []
    counts = Counter((step.name, step.state) for step in done)
    longest: dict[tuple[str, str], int] = {}
    for step in done:
        key = (step.name, step.state)
        longest[key] = max(longest.get(key, 0), step.ended_at - step.began_at)
    shown = list(counts.items())[-BEFORE_SHOWN:]
    texts = [
        f"{name}{f' ×{count}' if count > 1 else ''} {'✓' if state in {'done', 'fired'} else state} {span(longest[name, state])}"
        for (name, state), count in shown
    ]
    return [line("before", "   ".join(texts))]


def _last_errors(info: WorkflowInfo) -> list[str]:
    said: list[str] = []
    if info.task_failure is not None:
        said += error_lines("last error", info.task_failure)
    failing = [activity for activity in info.activities if activity.last_failure is not None]
    for activity in failing[:2]:
        assert activity.last_failure is not None
        said += error_lines("last error", activity.last_failure, of=activity.type)
    return said


def _code_at(place: str, since: int) -> str:
    """Return ``place`` with the line that stands there, unless the file was written after ``since``: it may be another."""
    file, _, number = place.rpartition(":")
    if file and Path(file).is_file() and Path(file).stat().st_mtime_ns > since:
        return f"{place}   (the file has changed since the run began)"
    source = linecache.getline(file, int(number)).strip() if file and number.isdigit() else ""
    return f"{place}   {source}" if source else place


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(clean(text))
