"""``outlast workflow list | show | signal | cancel``."""

import asyncio
import sys
import time
from typing import Any, Final, cast

import msgspec
import uuid_utils

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.reach import Look, reached
from outlast.cli.steps import Step, steps_of
from outlast.cli.text import ago, clean, instant, span, table
from outlast.cli.why import waits_for
from outlast.core.errors import Invalid
from outlast.core.events import Event
from outlast.core.inputs import CancelWorkflow, SignalWorkflow
from outlast.core.payload import Payload
from outlast.core.replies import Accepted, RunStatus, WorkflowInfo

PAGE: Final = 500
WHY_ROWS: Final = 40  # rows of a list that are asked what they wait for

Recorded = tuple[int, int, Event]


def list_(arguments: Arguments) -> int:
    """Print runs, newest first."""
    return asyncio.run(_list(arguments))


async def _list(arguments: Arguments) -> int:
    if arguments.limit < 1:
        raise Invalid("invalid_request", f"--limit is {arguments.limit}.", remedy="Give at least 1.")
    infos: list[WorkflowInfo] = []
    async with reached(arguments) as look:
        cursor = ""
        while len(infos) < arguments.limit:
            page = await look.runs(
                type=arguments.type,
                status=arguments.status,
                cursor=cursor,
                limit=min(PAGE, arguments.limit - len(infos)),
            )
            infos += page.runs
            cursor = page.next
            if not cursor:
                break
        infos = [await _asked(look, info) if n < WHY_ROWS else info for n, info in enumerate(infos)]
    if arguments.json:
        for info in infos:
            sys.stdout.write(msgspec.json.encode(_listed(info)).decode() + "\n")
        return exits.DONE
    now = time.time_ns()  # noqa: TID251 - the watch of the person who reads it
    rows = [
        (
            info.workflow_id,
            info.type,
            info.status.value,
            ago(info.started_at, now),
            waits_for(info, now=now) if info.status is RunStatus.RUNNING else _ending(info),
        )
        for info in infos
    ]
    sys.stdout.write(table(("WORKFLOW", "TYPE", "STATUS", "STARTED", "WAITS FOR"), rows))
    if cursor:
        sys.stderr.write(f"There are more; --limit {arguments.limit * 2} shows them.\n")
    return exits.DONE


async def _asked(look: Look, info: WorkflowInfo) -> WorkflowInfo:
    """Ask for one open run again: a list's row does not know its activities."""
    return await look.workflow(info.workflow_id, info.run_id) if info.status is RunStatus.RUNNING else info


def _ending(info: WorkflowInfo) -> str:
    return f"{info.failure.type}: {info.failure.message}"[:80] if info.failure else ""


def _listed(info: WorkflowInfo) -> dict[str, Any]:
    return {
        "id": info.workflow_id,
        "run_id": info.run_id,
        "type": info.type,
        "queue": info.queue,
        "status": info.status,
        "started_at": info.started_at,
        "closed_at": info.closed_at,
        "events": info.events,
        "waits_for": info.why if info.status is RunStatus.RUNNING else "",
        "failure": _ending(info),
    }


def show(arguments: Arguments) -> int:
    """Print one run by its steps, or every event of it."""
    return asyncio.run(_show(arguments))


async def _show(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        info = await look.workflow(arguments.id, arguments.run)
        events = await _events(look, info)
    steps = steps_of(events)
    if arguments.json:
        shown = [_raw(event) for event in events] if arguments.raw else [_step_out(step) for step in steps]
        body = {**_listed(info), "events" if arguments.raw else "steps": shown}
        sys.stdout.write(msgspec.json.encode(body, enc_hook=str).decode() + "\n")
    else:
        sys.stdout.write(_told(info, events, steps, raw=arguments.raw))
    return exits.DONE


async def _events(look: Look, info: WorkflowInfo) -> list[Recorded]:
    events: list[Recorded] = []
    following = 1
    while following:
        page = await look.history(info.workflow_id, info.run_id, following)
        events += [(page.first_event_id + n, at, event) for n, (at, event) in enumerate(page.events)]
        following = page.next_event_id
    return events


def _told(info: WorkflowInfo, events: list[Recorded], steps: list[Step], *, raw: bool) -> str:
    lines = [
        f"{clean(info.workflow_id)}  {clean(info.type)}  {info.status.value.replace('_', ' ')}",
        f"  run       {info.run_id}",
        f"  started   {instant(info.started_at)} UTC"
        + (f", took {span(info.closed_at - info.started_at)}" if info.closed_at else ""),
        f"  events    {info.events}",
    ]
    if info.status is RunStatus.RUNNING:
        lines.append(f"  waits for {clean(waits_for(info, now=time.time_ns()))}")  # noqa: TID251 - as above
    if info.failure is not None:
        lines.append(f"  failure   {clean(f'{info.failure.type}: {info.failure.message}')}")
    if raw:
        told = [(str(id), instant(at), type(event).__name__, _fields(event)) for id, at, event in events]
        return "\n".join(lines) + "\n\n" + table(("EVENT", "AT", "KIND", "FIELDS"), told)
    rows = [_row(step, info) for step in steps]
    return "\n".join(lines) + "\n\n" + table(("STEP", "", "STATE", "ATTEMPT", "TOOK", ""), rows)


def _row(step: Step, info: WorkflowInfo) -> tuple[str, ...]:
    took = span(step.ended_at - step.began_at) if step.ended_at > step.began_at else ""
    state, attempt, detail = step.state, str(step.attempt or ""), step.detail
    if not step.ended_at and step.kind == "activity":
        for activity in info.activities:
            if activity.scheduled_event_id == step.event_id:
                state, attempt = activity.state.value.replace("_", " "), str(activity.attempt or "")
                if activity.last_failure is not None:
                    detail = f"{activity.last_failure.type}: {activity.last_failure.message}"
    return step.kind, step.name, state, attempt, took, detail[:100]


def _step_out(step: Step) -> dict[str, Any]:
    return {
        "event_id": step.event_id,
        "kind": step.kind,
        "name": step.name,
        "state": step.state,
        "began_at": step.began_at,
        "ended_at": step.ended_at,
        "attempt": step.attempt,
        "detail": step.detail,
    }


def _raw(recorded: Recorded) -> dict[str, Any]:
    event_id, at, event = recorded
    return {
        "event_id": event_id,
        "at": at,
        "kind": type(event).__name__,
        **{name: getattr(event, name) for name in event.__struct_fields__},
    }


def _fields(event: Event) -> str:
    """Return the fields that say something."""
    told: list[str] = []
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value and value != ():
            told.append(f"{name}={_short(value)}")
    return " ".join(told)


def _short(value: object) -> str:
    text = repr(value)
    items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    if items and isinstance(items[0], Payload):
        return "[" + ", ".join(_payload(item) for item in items if isinstance(item, Payload)) + "]"
    return text if len(text) <= 60 else text[:57] + "…"  # noqa: PLR2004 - a line of a terminal


def _payload(payload: Payload) -> str:
    if payload.blob:
        return f"<{payload.size:,} bytes>"
    text = payload.data.decode(errors="replace")
    return text if len(text) <= 60 else text[:57] + "…"  # noqa: PLR2004 - as above


def signal(arguments: Arguments) -> int:
    """Send a signal whose value is JSON."""
    payloads: tuple[Payload, ...] = ()
    if arguments.value:
        try:
            value = msgspec.json.decode(arguments.value)
        except msgspec.MsgspecError as error:
            raise Invalid(
                "invalid_request", f"The value is no JSON: {error}.", remedy="Quote text twice: '\"yes\"'."
            ) from None
        payloads = (Payload("json/plain", msgspec.json.encode(value)),)
    request = SignalWorkflow(
        workflow_id=arguments.id, name=arguments.name, request_id=_new_id(), input=payloads, identity="cli"
    )
    return asyncio.run(_send(arguments, request, f'signal "{arguments.name}" sent to {arguments.id}'))


def cancel(arguments: Arguments) -> int:
    """Ask a workflow to stop in good order."""
    request = CancelWorkflow(workflow_id=arguments.id, request_id=_new_id(), reason=arguments.reason, identity="cli")
    return asyncio.run(_send(arguments, request, f"{arguments.id} was asked to cancel"))


async def _send(arguments: Arguments, request: SignalWorkflow | CancelWorkflow, done: str) -> int:
    async with reached(arguments) as look:
        reply = await look.send(request)
    changed = isinstance(reply, Accepted) and reply.changed
    sys.stdout.write(f"{clean(done)}\n" if changed else f"{clean(done)} (it was so already)\n")
    return exits.DONE


def _new_id() -> str:
    return str(uuid_utils.uuid7())
