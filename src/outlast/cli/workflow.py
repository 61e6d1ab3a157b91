"""``outlast workflow list | count | show | history``."""

import asyncio
import sys
from typing import Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.failing import error_lines
from outlast.cli.filters import no_runs, runs_asked
from outlast.cli.mistaken import told_apart
from outlast.cli.printing import fields_text, json_line, mode_of, put, rows_text, table_text, talk, tells_none
from outlast.cli.reach import Look, reached
from outlast.cli.shapes import StepOut, WorkflowShown
from outlast.cli.steps import Step, steps_of
from outlast.cli.text import VALUE_SHOWN, ago, clean, cut, span
from outlast.cli.text import instant as instant_text
from outlast.cli.watching import Render, shown
from outlast.cli.why import waits_for
from outlast.core.errors import Invalid
from outlast.core.events import Event, WorkflowExecutionStarted
from outlast.core.replies import RunStatus, WorkflowInfo
from outlast.gateway.giving import count_out, event_out, workflow_out
from outlast.gateway.values import error_line, instant, told, told_with_schema
from outlast.protocol.transport import Count

PAGE: Final = 500
WHY_ROWS: Final = 40  # rows of a list that are asked what they wait for
FOLLOW_EVERY: Final = 0.5  # seconds
ENDING_SHOWN: Final = 80  # columns of a result or an error in a list
INPUTS_SHOWN: Final = 10  # arguments of a run, each on a line

Recorded = tuple[int, int, Event]


def list_(arguments: Arguments) -> int:
    """Print runs, newest first."""
    return asyncio.run(_list(arguments))


async def _list(arguments: Arguments) -> int:
    if arguments.limit < 1:
        raise Invalid("invalid_request", f"--limit is {arguments.limit}.", remedy="Give at least 1.")
    async with reached(arguments) as look:

        async def once() -> tuple[Render, int | None]:
            infos, more = await _page(arguments, look)
            if more and not arguments.watch:
                talk(arguments, f"There are more; --limit {arguments.limit * 2} shows them.")
            return lambda now: _listed(arguments, infos, now), None

        return await shown(arguments, once)


async def _page(arguments: Arguments, look: Look) -> tuple[list[WorkflowInfo], bool]:
    asked = runs_asked(arguments)
    infos: list[WorkflowInfo] = []
    cursor = ""
    while len(infos) < arguments.limit:
        page = await look.runs(asked, cursor=cursor, limit=min(PAGE, arguments.limit - len(infos)))
        infos += page.runs
        cursor = page.next
        if not cursor:
            break
    if mode_of(arguments) != "id":
        infos = [await _asked(look, info) if n < WHY_ROWS else info for n, info in enumerate(infos)]
    return infos, bool(cursor)


def _listed(arguments: Arguments, infos: list[WorkflowInfo], now: int) -> str:
    if not infos and tells_none(arguments, no_runs(arguments)):
        return ""
    if mode_of(arguments) != "table":
        return rows_text(arguments, [workflow_out(info) for info in infos], (), lambda _: ())
    rows = [
        (
            info.workflow_id,
            info.type,
            info.status.value,
            ago(info.started_at, now),
            _waiting(info, now) if info.status is RunStatus.RUNNING else _ending(info),
        )
        for info in infos
    ]
    return table_text(("WORKFLOW", "TYPE", "STATUS", "STARTED", "WAITS FOR OR RESULT"), rows)


async def _asked(look: Look, info: WorkflowInfo) -> WorkflowInfo:
    """Ask for one open run again: a list's row does not know its activities."""
    return await look.workflow(info.workflow_id, info.run_id) if info.status is RunStatus.RUNNING else info


def _ending(info: WorkflowInfo) -> str:
    said = f"{info.failure.type}: {info.failure.message}" if info.failure else ", ".join(map(told, info.result))
    return cut(said, ENDING_SHOWN)


def _waiting(info: WorkflowInfo, now: int) -> str:
    held = info.task_failure if info.task_state == "backoff" else None
    return f"held: {error_line(held)}" if held is not None else waits_for(info, now=now)


def count(arguments: Arguments) -> int:
    """Print how many runs there are."""
    return asyncio.run(_count(arguments))


async def _count(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        found = await look.count_runs(runs_asked(arguments))
    put(counted(arguments, found))
    return exits.DONE


def counted(arguments: Arguments, found: Count) -> str:
    """Return a count in the form that was asked for."""
    if mode_of(arguments) == "json":
        return json_line(count_out(found))
    return f"{'at least ' if found.approximate else ''}{found.count}\n"


def show(arguments: Arguments) -> int:
    """Print one run by its steps, or every event of it."""
    return asyncio.run(_show(arguments))


async def _show(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        return await look_at(arguments, look)


async def look_at(arguments: Arguments, look: Look) -> int:
    """Print the run that is asked for, with ``watch`` until it has ended; return its exit code then."""

    async def once() -> tuple[Render, int | None]:
        async with told_apart(look, arguments.id):
            info = await look.workflow(arguments.id, arguments.run)
        events = await events_of(look, info)
        code = None if info.status is RunStatus.RUNNING else exits.of_status(info.status)
        return lambda now: _shown(arguments, info, events, now), code if arguments.watch else exits.DONE

    return await shown(arguments, once)


def _shown(arguments: Arguments, info: WorkflowInfo, events: list[Recorded], now: int) -> str:
    steps = steps_of(events)
    if mode_of(arguments) != "json":
        return run_told(info, events, steps, raw=arguments.raw, now=now)
    return json_line(
        WorkflowShown(
            workflow=workflow_out(info),
            steps=() if arguments.raw else tuple(_step_out(step) for step in steps),
            events=tuple(event_out(*event) for event in events) if arguments.raw else (),
        )
    )


async def events_of(look: Look, info: WorkflowInfo, first: int = 1) -> list[Recorded]:
    """Return the events of a run from ``first`` on, with their ids and instants."""
    events: list[Recorded] = []
    following = first
    while following:
        page = await look.history(info.workflow_id, info.run_id, following)
        events += [(page.first_event_id + n, at, event) for n, (at, event) in enumerate(page.events)]
        following = page.next_event_id
    return events


def history(arguments: Arguments) -> int:
    """Print events, one a line."""
    return asyncio.run(_history(arguments))


async def _history(arguments: Arguments) -> int:
    following = arguments.first
    async with reached(arguments) as look:
        async with told_apart(look, arguments.id):
            info = await look.workflow(arguments.id, arguments.run)
        while True:
            events = await events_of(look, info, following) if following <= info.events else []
            for event in events:
                put(_event_line(arguments, event))
            sys.stdout.flush()
            following += len(events)
            if not arguments.follow:
                return exits.DONE
            if info.status is not RunStatus.RUNNING and following > info.events:
                return exits.of_status(info.status)
            await asyncio.sleep(FOLLOW_EVERY)
            info = await look.workflow(info.workflow_id, info.run_id)


def _event_line(arguments: Arguments, recorded: Recorded) -> str:
    out = event_out(*recorded)
    if mode_of(arguments) == "json":
        return json_line(out)
    return f"{out.event_id:>6}  {instant_text(recorded[1])}  {out.kind}  {fields_text(out.fields)}".rstrip() + "\n"


def run_told(info: WorkflowInfo, events: list[Recorded], steps: list[Step], *, raw: bool, now: int) -> str:
    """Return a run for people: its head, and its steps or, if ``raw``, its events."""
    lines = [
        f"{clean(info.workflow_id)}  {clean(info.type)}  {info.status.value.replace('_', ' ')}",
        f"  run       {info.run_id}",
        f"  started   {instant_text(info.started_at)} UTC"
        + (f", took {span(info.closed_at - info.started_at)}" if info.closed_at else ""),
        f"  events    {info.events}",
    ]
    if info.status is RunStatus.RUNNING:
        lines.append(f"  waits for {clean(waits_for(info, now=now))}")
    lines += [
        f"  published {clean(cut(f'{name} = {told(value)}', VALUE_SHOWN))}"
        for name, value in (info.published or {}).items()
    ]
    if info.warning:
        lines.append(f"  warning   {clean(info.warning)}")
    if events and isinstance(started := events[0][2], WorkflowExecutionStarted):
        lines += [
            f"  input     {clean(cut(told_with_schema(value), VALUE_SHOWN))}" for value in started.input[:INPUTS_SHOWN]
        ]
    lines += [f"  result    {clean(cut(told_with_schema(value), VALUE_SHOWN))}" for value in info.result]
    if info.failure is not None:
        lines += error_lines("failure", info.failure)
    if raw:
        outs = [(recorded, event_out(*recorded)) for recorded in events]
        rows_raw = [
            (str(out.event_id), instant_text(recorded[1]), out.kind, fields_text(out.fields)) for recorded, out in outs
        ]
        return "\n".join(lines) + "\n\n" + table_text(("EVENT", "AT", "KIND", "FIELDS"), rows_raw)
    rows = [_row(step, info) for step in steps]
    return "\n".join(lines) + "\n\n" + table_text(("STEP", "NAME", "STATE", "ATTEMPT", "TOOK", "DETAIL"), rows)


def _row(step: Step, info: WorkflowInfo) -> tuple[str, ...]:
    took = span(step.ended_at - step.began_at) if step.ended_at > step.began_at else ""
    state, attempt, detail = step.state, str(step.attempt or ""), step.detail
    if not step.ended_at and step.kind == "activity":
        for activity in info.activities:
            if activity.scheduled_event_id == step.event_id:
                state, attempt = activity.state.value.replace("_", " "), str(activity.attempt or "")
                if activity.last_failure is not None:
                    detail = f"{activity.last_failure.type}: {activity.last_failure.message}"
    return step.kind, step.name, state, attempt, took, detail.partition("\n")[0][:100]


def _step_out(step: Step) -> StepOut:
    return StepOut(
        event_id=step.event_id,
        kind=step.kind,
        name=step.name,
        state=step.state,
        began_at=instant(step.began_at),
        ended_at=instant(step.ended_at),
        attempt=step.attempt,
        detail=step.detail,
    )
