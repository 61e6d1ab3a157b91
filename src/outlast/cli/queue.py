"""``outlast queue list | show`` and ``outlast worker list``: how full, and who polls."""

import asyncio
from typing import Final

from outlast.cli.arguments import Arguments
from outlast.cli.printing import json_line, mode_of, rows_text, table_text, talk, tells_none
from outlast.cli.reach import needs_engine, reached
from outlast.cli.text import ago, clean
from outlast.cli.watching import STILL, Render, shown
from outlast.core.admin import DescribeWorkers, WorkerInfo, WorkersInfo
from outlast.gateway.giving import queue_out, worker_out
from outlast.protocol.transport import QueueInfo

QUEUE_HEADS: Final = ("QUEUE", "READY", "DELAYED", "LEASED", "HELD", "UNCERTAIN", "TURNS", "OLDEST", "TYPES")
WORKER_HEADS: Final = ("WORKER", "QUEUES", "TASKS", "WORKFLOWS", "FREE", "LEASES", "SEEN", "BUILD")
NO_QUEUES: Final = (
    "No queue has open work. One by its name, also an empty one: outlast queue show NAME. "
    "Other namespaces: outlast namespace list"
)
NO_WORKERS: Final = "The engine has heard of no such worker since it started. Start one: outlast worker start APP"


def list_(arguments: Arguments) -> int:
    """Print the queues that have open work."""
    return asyncio.run(_list(arguments))


async def _list(arguments: Arguments) -> int:
    async with reached(arguments) as look:

        async def once() -> tuple[Render, int | None]:
            found = await look.queues(arguments.queue)
            if found.more and not arguments.watch:
                talk(arguments, "There are more queues; name one with --queue.")
            return lambda now: _queues_listed(arguments, found.items, now), None

        return await shown(arguments, once)


def show(arguments: Arguments) -> int:
    """Print one queue, also an empty one."""
    return asyncio.run(_show(arguments))


async def _show(arguments: Arguments) -> int:
    async with reached(arguments) as look:

        async def once() -> tuple[Render, int | None]:
            found = await look.queues(arguments.name)
            return lambda now: _shown(arguments, found.items[0], now), None

        return await shown(arguments, once)


def _shown(arguments: Arguments, info: QueueInfo, now: int) -> str:
    if mode_of(arguments) == "json":
        return json_line(queue_out(info))
    cells = zip(QUEUE_HEADS[1:-1], _queue_row(info, now)[1:-1], strict=True)
    lines = [clean(info.queue), *(f"  {head.lower():<10} {cell or 'none'}" for head, cell in cells)]
    lines += [f"  {'of' if n == 0 else '':<10} {clean(text)}" for n, text in enumerate(_types_of(info))]
    return "\n".join(lines) + "\n"


def _types_of(info: QueueInfo) -> list[str]:
    return [f"{one.type} {one.ready}{'+' if one.more else ''}" for one in info.types]


def _queues_listed(arguments: Arguments, infos: tuple[QueueInfo, ...], now: int) -> str:
    if not infos and tells_none(arguments, NO_QUEUES):
        return ""
    if mode_of(arguments) != "table":
        return rows_text(arguments, [queue_out(info) for info in infos], (), lambda _: (), id="name")
    return table_text(QUEUE_HEADS, [_queue_row(info, now) for info in infos])


def _queue_row(info: QueueInfo, now: int) -> tuple[str, ...]:
    counts = (info.ready, info.delayed, info.leased, info.held, info.uncertain, info.turns)
    oldest = ago(info.oldest_at, now).removesuffix(" ago") if info.oldest_at else ""
    return info.queue, *(str(count) for count in counts), oldest, ", ".join(_types_of(info))


def workers(arguments: Arguments) -> int:
    """Print who polls, those seen last first. Only an engine knows."""
    return asyncio.run(_workers(arguments))


async def _workers(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        if not look.address:
            raise needs_engine(
                look,
                "No engine is running on this store, and only an engine knows who polls it.",
                remedy="Start one: outlast dev app.py, or outlast serve.",
            )

        async def once() -> tuple[Render, int | None]:
            found = await look.send(DescribeWorkers(queue=arguments.queue))
            assert isinstance(found, WorkersInfo)
            if found.more and not arguments.watch:
                talk(arguments, "There are more workers; --queue shows those of one queue.")
            return lambda now: _workers_listed(arguments, found.items, now), None

        return await shown(arguments, once)


def _workers_listed(arguments: Arguments, infos: tuple[WorkerInfo, ...], now: int) -> str:
    if not infos and tells_none(arguments, NO_WORKERS):
        return ""
    if mode_of(arguments) != "table":
        return rows_text(arguments, [worker_out(info) for info in infos], (), lambda _: (), id="worker")
    return table_text(WORKER_HEADS, [_worker_row(info, now) for info in infos])


def _worker_row(info: WorkerInfo, now: int) -> tuple[str, ...]:
    return (
        info.identity or info.worker,
        ", ".join(info.queues),
        ", ".join(info.task_types),
        ", ".join(info.workflow_types),
        f"{info.slots} / {info.workflow_slots}",
        str(info.leases),
        "stopped" if info.stopped else _seen(info, now),
        info.build,
    )


def _seen(info: WorkerInfo, now: int) -> str:
    # It polls again and again: that is no news.
    return "" if now == STILL else ago(info.seen_at, now) if info.seen_at else "not since the start"
