"""Changes to what runs: signal, cancel, terminate; for one id or for those that a pipe brings."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.filters import tasks_asked
from outlast.cli.mistaken import told_apart
from outlast.cli.printing import json_line, mode_of, put, talk
from outlast.cli.reach import Look, reached
from outlast.cli.shapes import ChangeOut
from outlast.cli.starting import IDENTITY, new_id
from outlast.cli.text import clean, span
from outlast.cli.values import ids_of, payload_of
from outlast.cli.why import is_open
from outlast.core import limits
from outlast.core.errors import Invalid, Refusal
from outlast.core.inputs import (
    CancelTask,
    CancelWorkflow,
    Request,
    RetryTasks,
    SignalWorkflow,
    TerminateWorkflow,
)
from outlast.core.payload import Payload
from outlast.core.replies import Accepted, Refused, RunStatus, TasksRetried
from outlast.core.task import LETTERS
from outlast.gateway.values import JSON_PLAIN
from outlast.protocol.errors import exception_of
from outlast.protocol.finding import found_tasks
from outlast.protocol.transport import TasksAsked

AT_ONCE: Final = 64  # changes on their way
REASON_HEADER: Final = "reason"  # of a signal, in its event


@dataclass(frozen=True, slots=True)
class Change:
    """``would`` is told by --dry-run and before a question, ``did`` when it is done; ``stands`` says what an id is now."""

    would: str
    did: str
    noun: str
    request: Callable[[str], Request]
    stands: Callable[[Look, str], Awaitable[tuple[str, bool]]]


def signal(arguments: Arguments) -> int:
    """Send a signal whose value is JSON."""
    payloads = (payload_of(arguments.value, what="The value"),) if arguments.value else ()
    headers = {REASON_HEADER: Payload(JSON_PLAIN, json_line(arguments.reason).encode())} if arguments.reason else None

    def request(id: str) -> Request:
        return SignalWorkflow(
            workflow_id=id, name=arguments.name, request_id=new_id(), input=payloads, headers=headers, identity=IDENTITY
        )

    name = clean(arguments.name)
    change = Change(f'send signal "{name}" to', f'signal "{name}" sent to', "workflow", request, _workflow_stands)
    return asyncio.run(_changed(arguments, [arguments.id], change))


def cancel(arguments: Arguments) -> int:
    """Ask workflows to stop in good order."""

    def request(id: str) -> Request:
        return CancelWorkflow(workflow_id=id, request_id=new_id(), reason=arguments.reason, identity=IDENTITY)

    change = Change("ask to cancel", "asked to cancel", "workflow", request, _workflow_stands)
    return asyncio.run(_changed(arguments, arguments.ids, change))


def terminate(arguments: Arguments) -> int:
    """End workflows at once."""

    def request(id: str) -> Request:
        return TerminateWorkflow(workflow_id=id, request_id=new_id(), reason=arguments.reason, identity=IDENTITY)

    change = Change("terminate", "terminated", "workflow", request, _workflow_stands)
    return asyncio.run(_changed(arguments, arguments.ids, change))


def cancel_task(arguments: Arguments) -> int:
    """Ask tasks to stop."""

    def request(id: str) -> Request:
        return CancelTask(task_id=id, reason=arguments.reason, identity=IDENTITY)

    change = Change("ask to cancel", "asked to cancel", "task", request, _task_stands)
    return asyncio.run(_changed(arguments, arguments.ids, change))


def retry_task(arguments: Arguments) -> int:
    """Bring tasks back that ended without success: those named, or up to --limit of those that a filter finds."""
    request_id = new_id()  # of all of it: what was done is not done twice

    def request(id: str) -> Request:
        return RetryTasks(task_ids=(id,), request_id=request_id, reason=arguments.reason, identity=IDENTITY)

    change = Change("bring back", "brought back", "task", request, _may_come_back)
    arguments.run = ""  # activities are their run's business
    asked = tasks_asked(arguments)
    if bool(arguments.ids) is (asked != TasksAsked()):
        raise Invalid(
            "invalid_request",
            "Ids and a filter are given." if arguments.ids else "Neither ids nor a filter are given.",
            remedy="Name tasks, or what they have in common: --type, --queue, --state, --query.",
        )
    return asyncio.run(_retried(arguments, asked, change))


async def _retried(arguments: Arguments, asked: TasksAsked, change: Change) -> int:
    if arguments.ids:
        return await _changed(arguments, arguments.ids, change)
    async with reached(arguments) as look:
        ids, more = await _dead_letters(look, msgspec.structs.replace(asked, dead_letters=True), arguments.limit)
    if more:
        talk(arguments, f"There are more than {len(ids):,}; ask again for the next.")
    if not ids:
        talk(arguments, "no task that failed or expired matches: nothing to do")
        return exits.DONE
    return await _changed(arguments, list(ids), change)


async def _dead_letters(look: Look, asked: TasksAsked, limit: int) -> tuple[tuple[str, ...], bool]:
    if not 1 <= limit <= limits.BATCH_ITEMS_MAX:
        raise Invalid(
            "invalid_request", f"--limit is {limit}.", remedy=f"Give a number from 1 to {limits.BATCH_ITEMS_MAX:,}."
        )
    return await found_tasks(lambda cursor, most: look.tasks(asked, cursor=cursor, limit=most), limit)


async def _may_come_back(look: Look, id: str) -> tuple[str, bool]:
    info = await look.task(id)
    return f"{info.type}, {info.state.value.replace('_', ' ')}", info.state in LETTERS and not info.run_id


async def _workflow_stands(look: Look, id: str) -> tuple[str, bool]:
    info = await look.workflow(id)
    return f"{info.type}, {info.status.value.replace('_', ' ')}", info.status is RunStatus.RUNNING


async def _task_stands(look: Look, id: str) -> tuple[str, bool]:
    info = await look.task(id)
    return f"{info.type}, {info.state.value.replace('_', ' ')}", is_open(info)


async def _changed(arguments: Arguments, given: list[str], change: Change) -> int:
    ids = ids_of(given)
    if not ids:
        talk(arguments, f"no {change.noun} was named: nothing to do")
        return exits.DONE
    if len(ids) > 1 and not arguments.dry_run and not arguments.yes:
        _ask(ids, change)
    began = time.monotonic()
    outs: list[ChangeOut] = []
    async with reached(arguments, write=not arguments.dry_run) as look:
        try:
            for at in range(0, len(ids), AT_ONCE):
                part = ids[at : at + AT_ONCE]
                for out in await asyncio.gather(*(_one(arguments, look, id, change) for id in part)):
                    outs.append(out)
                    _tell(arguments, out)
                if sys.stderr.isatty() and len(ids) > AT_ONCE:
                    talk(arguments, f"{len(outs):,} of {len(ids):,}")
        except asyncio.CancelledError:
            talk(arguments, f"stopped after {len(outs):,} of {len(ids):,}; those are done")
            raise
    refused = [out for out in outs if out.error]
    if len(ids) > 1:
        took = span(int((time.monotonic() - began) * 1e9))
        rest = f", {len(refused):,} refused" if refused else ""
        verb = f"would {change.would}" if arguments.dry_run else change.did
        talk(arguments, f"{verb} {len(outs) - len(refused):,} {change.noun}s in {took}{rest}")
    return exits.exit_code_of(refused[0].error) if refused else exits.DONE


async def _one(arguments: Arguments, look: Look, id: str, change: Change) -> ChangeOut:
    try:
        if arguments.dry_run:
            async with told_apart(look, id):
                stands, would = await change.stands(look, id)
            verb = f"would {change.would} {id} ({stands})" if would else f"nothing to do: {id} ({stands})"
            return ChangeOut(id=id, did=verb, changed=would, dry_run=True)
        async with told_apart(look, id):
            reply = await look.send(change.request(id))
            if isinstance(reply, TasksRetried):
                reply = checked(reply.items[0])
    except Refusal as error:
        exits.complain(error.code, clean(error.fact), error.remedy)
        return ChangeOut(id=id, did=error.fact, changed=False, error=error.code)
    if isinstance(reply, Accepted) and reply.changed:
        return ChangeOut(id=id, did=change.did, changed=True)
    stands, open_ = await change.stands(look, id)
    return ChangeOut(
        id=id, did=f"{change.did} {id} before" if open_ else f"nothing to do: {id} ({stands})", changed=False
    )


def checked(item: Accepted | Refused) -> Accepted:
    """Return ``item``. Raises the refusal that it may be."""
    if isinstance(item, Refused):
        raise exception_of(item)
    return item


def _tell(arguments: Arguments, out: ChangeOut) -> None:
    if mode_of(arguments) == "json":
        put(json_line(out))
    elif out.dry_run:
        put(f"{clean(out.did)}\n")
    elif not out.error:
        put(f"{clean(out.did)} {clean(out.id)}\n" if out.changed else f"{clean(out.did)}\n")


def _ask(ids: list[str], change: Change) -> None:
    """Have a person type the number before more than one is changed. Raises Invalid where nobody can be asked."""
    what = f"{change.would} {len(ids):,} {change.noun}s"
    if not sys.stdin.isatty():
        raise Invalid("invalid_request", f"This would {what}.", remedy="Say --yes, or look first with --dry-run.")
    shown = ", ".join(clean(id) for id in ids[:5]) + (" …" if len(ids) > 5 else "")  # noqa: PLR2004 - what one reads
    sys.stderr.write(f"This will {what}: {shown}\nType {len(ids)} to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != str(len(ids)):
        raise Invalid(
            "invalid_request", "That was not the number: nothing was changed.", remedy="Ask again, or say --yes."
        )
