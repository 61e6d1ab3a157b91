"""``outlast doctor``: findings about this machine, the store, the server, and what stands still."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.printing import colours, json_line, mode_of, paint, put
from outlast.cli.reach import NAME_SERVER, Look, reached
from outlast.cli.shapes import FindingOut
from outlast.cli.text import clean, span
from outlast.cli.workflow import PAGE
from outlast.core.admin import DescribeWorkers, WorkersInfo
from outlast.core.errors import NotFound, Refusal
from outlast.core.replies import TaskInfo, WorkflowInfo
from outlast.core.units import MINUTE, SECOND
from outlast.protocol.transport import RunsAsked, TasksAsked
from outlast.server.checkup import (
    Finding,
    Level,
    check_blobs,
    check_payloads,
    check_python,
    check_settings,
    check_store,
)
from outlast.server.settings import check_all
from outlast.server.sources import Sources
from outlast.store.base import StoreError

if TYPE_CHECKING:
    from outlast.store.postgres.vacuum import Holder

CLOCK_OFF: Final = 2 * SECOND  # of what the store has seen: it is no slip of the wire any more
KINDS_MAX: Final = 20  # queues and types that are asked about
STALE: Final = 10 * MINUTE  # a task that has waited longer for a worker is a problem

_SIGNS: Final = {Level.OK: ("✓", "32"), Level.NOTE: ("!", "33"), Level.PROBLEM: ("✗", "31")}


def doctor(arguments: Arguments) -> int:
    """Print each finding; end with FOUND_PROBLEMS when one is a problem."""
    found = asyncio.run(_findings(arguments))
    for finding in found:
        put(_line(arguments, finding))
    problems = sum(1 for finding in found if finding.level is Level.PROBLEM)
    notes = sum(1 for finding in found if finding.level is Level.NOTE)
    if not getattr(arguments, "quiet", False):
        sys.stderr.write(f"{_counted(problems, 'problem')}, {_counted(notes, 'note')}\n")
    return exits.FOUND_PROBLEMS if problems else exits.DONE


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def _findings(arguments: Arguments) -> list[Finding]:
    given = sources(arguments)
    found = [*check_python(), *check_settings(given)]
    try:
        check_all(given)
    except Refusal as error:
        found.append(Finding("setting_wrong", "settings", Level.PROBLEM, error.fact, error.remedy))
    else:
        found += check_payloads(given)
    if not given.text("server"):
        found += _of_store(given)
        found += await _of_blobs(given)
        found += [finding async for finding in _of_database(given)]
        found += await _of_standing(given)
    found += [finding async for finding in _of_what_runs(arguments)]
    return found


def _of_store(given: Sources) -> Iterator[Finding]:
    from outlast.server.stores import is_postgres, path_of

    url = given.text("store")
    if url.startswith("memory:"):
        yield Finding("store_memory", "store", Level.NOTE, "in memory: it ends with its process", "Name a file.")
        return
    if is_postgres(url):
        return  # it is asked, which takes a loop: _of_database
    try:
        yield from check_store(path_of(url))
    except Refusal as error:
        yield Finding("store_wrong", "store", Level.PROBLEM, error.fact, error.remedy)


async def _of_blobs(given: Sources) -> list[Finding]:
    from outlast.server.stores import is_postgres, path_of

    url = given.text("store")
    try:
        if not is_postgres(url):
            path_of(url)
        return await check_blobs(given, url)
    except Refusal:
        return []  # it was said of the settings, or of the store


async def _of_database(given: Sources) -> AsyncIterator[Finding]:
    from outlast.server.looking import set_aside_in, vacuum_held_in, weak_points_of
    from outlast.server.stores import is_postgres

    url = given.text("store")
    if not is_postgres(url):
        return
    try:
        shown, weak = await weak_points_of(url)
    except (Refusal, StoreError) as error:
        yield Finding(error.code, "store", Level.PROBLEM, error.fact, error.remedy)
        return
    if weak:
        yield Finding(
            "store_weak", "store", Level.PROBLEM, f"{shown} may lose acknowledged commits: {', '.join(weak)}",
            "Set them to on, if this data may not be lost.",
        )  # fmt: skip
    else:
        yield Finding("store", "store", Level.OK, f"{shown} answers, and keeps what it acknowledges")
    try:
        count, trouble = await set_aside_in(url)
    except (Refusal, StoreError):
        count, trouble = 0, ""  # what keeps it from being read is said where what runs is looked at
    if count:
        yield Finding(
            "intake_set_aside", "intake", Level.PROBLEM,
            f"of what transactions enqueued, {count} could not be taken; the first: {trouble}",
            "Mend it, then set trouble to '' in outlast.intake (and offered_at to null if its answer was lost), or delete "
            "the row there.",
        )  # fmt: skip
    try:
        held, over = await vacuum_held_in(url)
    except (Refusal, StoreError):
        return  # as above
    for holder in held:
        fact, remedy = _of_holder(holder)
        more = f": rows that are over stay, {over:,} by now, and commits slow down with them"
        yield Finding("vacuum_held_back", "vacuum", Level.PROBLEM, clean(fact) + more, clean(remedy))


def _of_holder(holder: "Holder") -> tuple[str, str]:
    """Return who keeps a database from removing rows, and how that ends."""
    whose = f" of {holder.owner}" if holder.owner else ""
    told = ", ".join(filter(None, (holder.program, holder.state)))
    since = f"{holder.xids:,} transactions"
    match holder.kind:
        case "session":
            fact = f"session {holder.pid}{whose} ({told}) has had a transaction open for {span(holder.nanos)}"
            return fact, f"End it where it was begun, or: SELECT pg_terminate_backend({holder.pid})"
        case "prepared":
            gid = _literal(holder.name)
            fact = f"the prepared transaction {gid}{whose} has waited for {span(holder.nanos)}"
            return fact, f"COMMIT PREPARED {gid}, or ROLLBACK PREPARED {gid}"
        case "slot":
            fact = f"the replication slot {holder.name} is {since} behind"
            drop = f"SELECT pg_drop_replication_slot({_literal(holder.name)})"
            return fact, f"Let its reader go on, or if that is gone: {drop}"
        case _:
            fact = f"a query on the standby {told} ({holder.name}) is {since} old"
            return fact, "End it there, or set hot_standby_feedback to off there."


def _literal(text: str) -> str:
    """Return ``text`` as a literal of SQL, for people to paste."""
    return "'" + text.replace("'", "''") + "'"


async def _of_standing(given: Sources) -> list[Finding]:
    """Say that the store may not be worked on: its work was moved, or it is a backup or half of something."""
    from outlast.server.looking import looked_into

    try:
        async with looked_into(given.text("store")) as opened:
            refused = opened.refused
    except StoreError as error:
        refused = error if error.code == "store_set_aside" else None  # what else is wrong was said of the store
    except Refusal:
        return []
    return [Finding(refused.code, "store", Level.PROBLEM, refused.fact, refused.remedy)] if refused else []


async def _of_what_runs(arguments: Arguments) -> AsyncIterator[Finding]:
    began = time.monotonic()
    try:
        async with reached(arguments) as look:
            tasks = list((await look.tasks(TasksAsked(state="enqueued"), cursor="", limit=PAGE)).tasks)
            runs = list((await look.runs(RunsAsked(status="running"), cursor="", limit=PAGE)).runs)
            took = span(int((time.monotonic() - began) * 1e9))
            if look.address:
                yield Finding("server", "server", Level.OK, f"{look.address} answers, in {took}")
            elif look.holder:
                yield Finding(
                    "server_elsewhere",
                    "server",
                    Level.NOTE,
                    f"{look.holder} has this store; it was not asked",
                    NAME_SERVER,
                )
            else:
                yield Finding(
                    "server_none", "server", Level.NOTE, "no engine is running on this store: nothing moves",
                    "outlast dev app.py, or outlast serve and outlast worker start app.py",
                )  # fmt: skip
            yield _of_clock(tasks, runs)
            async for finding in _of_tasks(look, tasks):
                yield finding
            async for finding in of_workers(look):
                yield finding
            async for finding in _of_runs(look, runs):
                yield finding
            for state, code in (("uncertain", "tasks_uncertain"), ("failed", "tasks_failed")):
                count = await look.count_tasks(TasksAsked(state=state))
                if count.count:
                    yield Finding(
                        code,
                        "tasks",
                        Level.NOTE,
                        f"{count.count} {'is' if count.count == 1 else 'are'} {state}",
                        f"outlast task list --state {state}",
                    )
    except NotFound as error:
        if error.code != "store_not_found":
            yield Finding(error.code, "server", Level.PROBLEM, error.fact, error.remedy)
    except (Refusal, StoreError) as error:
        yield Finding("server_unreachable", "server", Level.PROBLEM, error.fact, error.remedy)


def _of_clock(tasks: list[TaskInfo], runs: list[WorkflowInfo]) -> Finding:
    now = time.time_ns()  # noqa: TID251 - the clock that is looked at
    newest = max([task.enqueued_at for task in tasks] + [run.started_at for run in runs], default=0)
    if newest > now + CLOCK_OFF:
        return Finding(
            "clock_behind", "clock", Level.PROBLEM,
            f"this machine's clock is {span(newest - now)} behind the newest work in the store",
            "Set the clock by NTP on every machine that runs an engine or a client.",
        )  # fmt: skip
    return Finding("clock", "clock", Level.OK, "not behind what the store has seen")


async def _of_tasks(look: Look, tasks: list[TaskInfo]) -> AsyncIterator[Finding]:
    """Say which kinds of task wait with nobody polling for them."""
    kinds: dict[tuple[str, str], list[TaskInfo]] = {}
    for task in tasks:
        kinds.setdefault((task.queue, task.type), []).append(task)
    now = time.time_ns()  # noqa: TID251 - as above
    waiting = 0
    for (queue, type), members in list(kinds.items())[:KINDS_MAX]:
        oldest = min(members, key=lambda task: task.run_at or task.enqueued_at)
        if not look.address or (await look.task(oldest.task_id)).polled:
            continue
        waited = now - max(oldest.enqueued_at, oldest.run_at)
        if waited < 0:
            continue
        waiting += 1
        level = Level.PROBLEM if waited > STALE else Level.NOTE
        yield Finding(
            "worker_missing", "worker", level,
            f'none polls queue "{clean(queue)}" for "{clean(type)}"; {len(members)} of them '
            f'{"waits" if len(members) == 1 else "wait"}, oldest {span(waited)}',
            f"outlast worker start APP --queue {clean(queue)}",
        )  # fmt: skip
    if look.address and not waiting:
        yield Finding("worker", "worker", Level.OK, "every task that waits has a worker that polls for it")


async def of_workers(look: Look) -> AsyncIterator[Finding]:
    """Say which workers poll for nothing, or have not been heard of for a while."""
    if not look.address:
        return
    found = await look.send(DescribeWorkers())
    assert isinstance(found, WorkersInfo)
    now = time.time_ns()  # noqa: TID251 - as above
    for worker in found.items:
        name = clean(worker.identity or worker.worker)
        if worker.stopped or not worker.queues:  # it has not polled: nothing is known of it but that it was there
            continue
        if not worker.task_types and not worker.workflow_types:
            yield Finding(
                "worker_idle", "worker", Level.NOTE, f"{name} polls for no task and no workflow",
                "Declare them with @app.task and @app.workflow in the app that it runs.",
            )  # fmt: skip
        elif worker.leases and now - worker.seen_at > STALE:
            yield Finding(
                "worker_silent", "worker", Level.NOTE,
                f"{name} has {worker.leases} leases and has not polled for {span(now - worker.seen_at)}",
                "Look whether its handlers hang: outlast task list --state leased",
            )  # fmt: skip


async def _of_runs(look: Look, runs: list[WorkflowInfo]) -> AsyncIterator[Finding]:
    """Say which runs are held by what their own code raises."""
    held = [run for run in runs if run.task_state == "backoff"]
    for run in held[:KINDS_MAX]:
        failure = run.task_failure
        yield Finding(
            "run_held", "runs", Level.PROBLEM,
            f"{clean(run.workflow_id)} ({clean(run.type)}) is held: its code fails with "
            + clean(failure.said[:120] if failure else "an error"),
            f"outlast why {clean(run.workflow_id)}",
        )  # fmt: skip
    if len(held) > KINDS_MAX:
        yield Finding(
            "runs_held", "runs", Level.PROBLEM, f"{len(held) - KINDS_MAX} more are held", "outlast workflow list"
        )
    if not held:
        count = await look.count_runs(RunsAsked(status="running"))
        yield Finding("runs", "runs", Level.OK, f"{count.count} open, none held by its code")


def _line(arguments: Arguments, finding: Finding) -> str:
    if mode_of(arguments) == "json":
        return json_line(
            FindingOut(
                code=finding.code,
                area=finding.area,
                level=finding.level.value,
                fact=finding.fact,
                remedy=finding.remedy,
            )
        )
    sign, colour = _SIGNS[finding.level]
    shown = paint(sign, colour) if colours() else sign
    remedy = f"\n             → {finding.remedy}" if finding.remedy else ""
    return f"{shown} {finding.area:<10} {finding.fact}{remedy}\n"
