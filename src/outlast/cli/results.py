"""``outlast workflow result`` and ``outlast task result``: wait, then print the value and end as the run did."""

import asyncio
import sys

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.mistaken import told_apart
from outlast.cli.printing import json_line, mode_of, put, talk
from outlast.cli.reach import Look, reached
from outlast.cli.text import clean
from outlast.cli.values import span_of
from outlast.cli.why import is_open
from outlast.core.errors import Conflict, Unavailable
from outlast.core.inputs import AwaitTask, AwaitWorkflow
from outlast.core.payload import Payloads, is_withheld, reason_of
from outlast.core.replies import RunStatus, TaskOutcomeReply, WorkflowOutcome
from outlast.core.units import SECOND
from outlast.gateway.given import FailureOut, OutcomeOut, TaskOutcomeOut
from outlast.gateway.giving import task_outcome_out, workflow_outcome_out
from outlast.gateway.values import told
from outlast.protocol.opening import is_closed


def of_workflow(arguments: Arguments) -> int:
    """Print a workflow's result; end with FAILED when it did not complete, WAITED when it is still open."""
    return asyncio.run(_workflow(arguments))


async def _workflow(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        return await workflow_result(arguments, look, arguments.id, arguments.run)


def of_task(arguments: Arguments) -> int:
    """Print a task's result, as ``of_workflow``."""
    return asyncio.run(_task(arguments))


async def _task(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        return await task_result(arguments, look, arguments.id)


async def workflow_result(arguments: Arguments, look: Look, workflow_id: str, run_id: str) -> int:
    """Print the result of a workflow once it has one."""
    async with told_apart(look, workflow_id):
        info = await look.workflow(workflow_id, run_id)
    if info.status in {RunStatus.RUNNING, RunStatus.CONTINUED_AS_NEW}:
        if info.task_failure is not None or not info.polled:
            _stands_still(arguments, workflow_id, info.why)
        try:
            reply = await look.send(AwaitWorkflow(workflow_id=workflow_id, run_id=run_id), wait=_wait(arguments))
        except Unavailable as error:
            return _waited(arguments, workflow_id, error)
        assert isinstance(reply, WorkflowOutcome)
    else:
        reply = WorkflowOutcome(
            workflow_id=workflow_id, run_id=info.run_id, status=info.status, result=info.result, failure=info.failure
        )
    refuse_closed(arguments, reply.result)
    return _print(arguments, workflow_outcome_out(reply), reply.status.value, exits.of_status(reply.status))


async def task_result(arguments: Arguments, look: Look, task_id: str) -> int:
    """Print the result of a task once it has one."""
    async with told_apart(look, task_id):
        info = await look.task(task_id)
    if is_open(info):
        if not info.polled:
            _stands_still(arguments, task_id, info.why)
        try:
            reply = await look.send(AwaitTask(task_id=task_id), wait=_wait(arguments))
        except Unavailable as error:
            return _waited(arguments, task_id, error)
        assert isinstance(reply, TaskOutcomeReply)
    else:
        reply = TaskOutcomeReply(
            task_id=task_id,
            state=info.state,
            reason=info.reason,
            attempt=info.attempt,
            result=info.result,
            failure=info.failure,
        )
    refuse_closed(arguments, reply.result)
    return _print(arguments, task_outcome_out(reply), reply.state.value, exits.of_state(reply.state))


def refuse_closed(arguments: Arguments, result: Payloads) -> None:
    """Raise Conflict for a value that would be printed alone and is closed: what reads it would take it for the result."""
    if mode_of(arguments) == "json":
        return
    for payload in result:
        code, why = reason_of(payload)
        if not code and not is_closed(payload):
            continue
        remedy = "Set payloads.codecs and payloads.keys as the app has them, or see it as it is stored: --json"
        if is_withheld(payload):
            remedy = "Use a token that may see values."
        if payload.blob:
            remedy = "Restore it where it is looked for; the setting blobs says where."
        raise Conflict(code or "payload_locked", f"The result is {told(payload)}. {why}".strip(), remedy=remedy)


def _wait(arguments: Arguments) -> float | None:
    """Return the seconds that --wait gives, None for as long as it takes."""
    return span_of(arguments.wait, what="--wait") / SECOND if arguments.wait else None


def _stands_still(arguments: Arguments, id: str, why: str) -> None:
    """Say what is waited for, where it will not come by itself: a wait without a word looks as if all went well."""
    talk(arguments, f"{clean(id)} waits for {clean(why.removesuffix('.'))}; see outlast why {clean(id)}")


def _waited(arguments: Arguments, id: str, error: Unavailable) -> int:
    if error.code != "timeout" or not arguments.wait:
        raise error
    sys.stderr.write(f"outlast: {clean(id)} has not ended within {arguments.wait}.  [timeout]\n")
    sys.stderr.write("  → It goes on; ask again, or: outlast why ID\n")
    return exits.WAITED


def _print(arguments: Arguments, out: OutcomeOut | TaskOutcomeOut, state: str, code: int) -> int:
    if mode_of(arguments) == "json":
        put(json_line(out))
        return code
    if code == exits.DONE:
        put("".join(json_line(value) for value in out.result) or "null\n")
        return code
    sys.stderr.write(f"outlast: {clean(out.id)} ended as {state.replace('_', ' ')}{_said(out.failure)}\n")
    return code


def _said(failure: FailureOut | None) -> str:
    return f": {clean(f'{failure.type}: {failure.message}')}" if failure is not None else ""
