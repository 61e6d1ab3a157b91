"""``outlast watch ID``: a workflow or a task until it has ended, drawn anew as it moves, or one piece of news a line."""

import asyncio
import sys
from typing import Final

from outlast.cli import exits, task, workflow
from outlast.cli.arguments import Arguments
from outlast.cli.printing import json_line, mode_of, put
from outlast.cli.reach import Look, reached
from outlast.cli.shapes import WatchedOut
from outlast.cli.why import find, is_open, with_why
from outlast.core.events import WorkflowExecutionContinuedAsNew
from outlast.core.replies import RunStatus, TaskInfo, WorkflowInfo
from outlast.gateway.giving import event_out, task_out

LOOK_EVERY: Final = 0.5  # seconds


def watch(arguments: Arguments) -> int:
    """Show what an id stands for until it has ended; return the exit code of its end."""
    return asyncio.run(_watch(arguments))


async def _watch(arguments: Arguments) -> int:
    arguments.watch, arguments.raw = True, False
    async with reached(arguments) as look:
        info = await (look.workflow(arguments.id, arguments.run) if arguments.run else find(look, arguments.id))
        if mode_of(arguments) == "json":
            return await (_events(look, info) if isinstance(info, WorkflowInfo) else _states(look, info))
        if isinstance(info, WorkflowInfo):
            return await workflow.look_at(arguments, look)
        return await task.look_at(arguments, look)


async def _events(look: Look, info: WorkflowInfo) -> int:
    """Print events as they come, over the runs of a chain."""
    following, last = 1, None
    while True:
        events = await workflow.events_of(look, info, following) if following <= info.events else []
        for event in events:
            put(json_line(WatchedOut(event=event_out(*event))))
        sys.stdout.flush()
        following += len(events)
        last = events[-1][2] if events else last
        if info.status is RunStatus.RUNNING or following <= info.events:
            await asyncio.sleep(LOOK_EVERY)
            info = await look.workflow(info.workflow_id, info.run_id)
            continue
        if not isinstance(last, WorkflowExecutionContinuedAsNew):
            return exits.of_status(info.status)
        info, following, last = await look.workflow(info.workflow_id, last.new_run_id), 1, None


async def _states(look: Look, info: TaskInfo) -> int:
    """Print a task each time that it has moved."""
    before: TaskInfo | None = None
    while True:
        if info != before:
            put(json_line(WatchedOut(task=task_out(with_why(info)))))
            sys.stdout.flush()
        if not is_open(info):
            return exits.of_state(info.state)
        await asyncio.sleep(LOOK_EVERY)
        before, info = info, await look.task(info.task_id)
