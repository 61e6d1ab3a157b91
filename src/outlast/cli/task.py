"""``outlast task list | count | show | attempts``."""

import asyncio
import time
from typing import Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.filters import no_tasks, tasks_asked
from outlast.cli.mistaken import told_apart
from outlast.cli.printing import json_line, mode_of, put, rows_text, table_text, talk, tells_none
from outlast.cli.reach import Look, reached
from outlast.cli.shapes import TaskShown
from outlast.cli.text import ago, clean, cut, span
from outlast.cli.watching import Render, shown
from outlast.cli.why import is_open, lines_of_task, with_why
from outlast.cli.workflow import ENDING_SHOWN, counted
from outlast.core.errors import Invalid
from outlast.core.replies import TaskInfo
from outlast.gateway.giving import attempt_out, task_out
from outlast.gateway.values import told
from outlast.protocol.transport import Attempt

PAGE: Final = 500
HEADS: Final = ("TASK", "TYPE", "QUEUE", "STATE", "ATTEMPT", "ENQUEUED", "RESULT OR LAST ERROR")
ATTEMPT_HEADS: Final = ("ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "ERROR")
NO_ATTEMPTS: Final = "No attempt of it has ended. What it waits for: outlast why {}"


def list_(arguments: Arguments) -> int:
    """Print tasks, newest first."""
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


async def _page(arguments: Arguments, look: Look) -> tuple[list[TaskInfo], bool]:
    asked = tasks_asked(arguments)
    infos: list[TaskInfo] = []
    cursor = ""
    while len(infos) < arguments.limit:
        page = await look.tasks(asked, cursor=cursor, limit=min(PAGE, arguments.limit - len(infos)))
        infos += page.tasks
        cursor = page.next
        if not cursor:
            break
    return infos, bool(cursor)


def _listed(arguments: Arguments, infos: list[TaskInfo], now: int) -> str:
    if not infos and tells_none(arguments, no_tasks(arguments)):
        return ""
    if mode_of(arguments) != "table":
        return rows_text(arguments, [task_out(info) for info in infos], (), lambda _: ())
    return table_text(HEADS, [_row(info, now) for info in infos])


def _row(info: TaskInfo, now: int) -> tuple[str, ...]:
    attempt = f"{info.attempt} of {info.attempts_max}" if info.attempts_max else str(info.attempt)
    said = f"{info.failure.type}: {info.failure.message}" if info.failure else ", ".join(map(told, info.result))
    return (
        info.task_id,
        info.type,
        info.queue,
        info.state.value,
        attempt,
        ago(info.enqueued_at, now),
        cut(said, ENDING_SHOWN),
    )


def count(arguments: Arguments) -> int:
    """Print how many tasks there are."""
    return asyncio.run(_count(arguments))


async def _count(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        found = await look.count_tasks(tasks_asked(arguments))
    put(counted(arguments, found))
    return exits.DONE


def show(arguments: Arguments) -> int:
    """Print one task and its attempts."""
    return asyncio.run(_show(arguments))


async def _show(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        return await look_at(arguments, look)


async def look_at(arguments: Arguments, look: Look) -> int:
    """Print the task that is asked for, with ``watch`` until it has ended; return its exit code then."""

    async def once() -> tuple[Render, int | None]:
        async with told_apart(look, arguments.id):
            info = await look.task(arguments.id)
        attempts = await look.attempts(arguments.id)
        code = None if is_open(info) else exits.of_state(info.state)
        served = bool(look.address or look.holder)
        return lambda now: _shown(
            arguments, info, attempts, now, served=served
        ), code if arguments.watch else exits.DONE

    return await shown(arguments, once)


def _shown(arguments: Arguments, info: TaskInfo, attempts: tuple[Attempt, ...], now: int, *, served: bool) -> str:
    if mode_of(arguments) == "json":
        outs = tuple(attempt_out(attempt) for attempt in attempts)
        return json_line(TaskShown(task=task_out(with_why(info)), attempts=outs))
    lines = "\n".join(lines_of_task(info, now=now, served=served)) + "\n"
    return f"{lines}\n{_attempts_table(attempts, now)}" if attempts else lines


def attempts(arguments: Arguments) -> int:
    """Print how the leases of a task ended."""
    return asyncio.run(_attempts(arguments))


async def _attempts(arguments: Arguments) -> int:
    async with reached(arguments) as look, told_apart(look, arguments.id):
        found = await look.attempts(arguments.id)
    if mode_of(arguments) == "json":
        put("".join(json_line(attempt_out(attempt)) for attempt in found))
    elif found or not tells_none(arguments, NO_ATTEMPTS.format(clean(arguments.id))):
        put(_attempts_table(found, time.time_ns()))  # noqa: TID251 - the watch of the person who reads it
    return exits.DONE


def _attempts_table(found: tuple[Attempt, ...], now: int) -> str:
    rows = [
        (
            str(attempt.attempt),
            f"{attempt.outcome}{' (late)' if attempt.late else ''}",
            ago(attempt.started_at, now),
            span(attempt.ended_at - attempt.started_at) if attempt.started_at else "",
            attempt.worker or attempt.identity,
            f"{attempt.error_type}: {attempt.error_message}" if attempt.error_type else attempt.error_message,
        )
        for attempt in found
    ]
    return table_text(ATTEMPT_HEADS, rows)
