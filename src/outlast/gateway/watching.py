"""Events of a run as they are committed: page by page, held until there are some."""

import asyncio
from typing import Final

import msgspec

from outlast.core.replies import RunStatus
from outlast.gateway.exchange import Exchange
from outlast.protocol.transport import HistoryPage

LOOK_EVERY: Final = 0.1  # seconds between looks for new events


async def history_after(
    exchange: Exchange, workflow_id: str, run_id: str, *, after: int, limit: int, wait: float
) -> tuple[HistoryPage, bool]:
    """Return at most ``limit`` events after ``after`` and whether the run has closed.

    When there is none yet and the run is open, the answer comes with the next commit that has one, or empty after ``wait``
    seconds.
    """
    reader = exchange.engine.reader
    ends = asyncio.get_running_loop().time() + wait
    while True:
        # The description first: what it says has closed has all its events committed.
        info = await reader.describe_workflow(exchange.namespace, workflow_id, run_id)
        closed = info.status is not RunStatus.RUNNING
        page = await reader.read_history(exchange.namespace, workflow_id, info.run_id, first_event_id=after + 1)
        if page.events or closed or asyncio.get_running_loop().time() >= ends:
            return _cut(page, limit), closed
        run_id = info.run_id
        await exchange.pause(LOOK_EVERY)


def _cut(page: HistoryPage, limit: int) -> HistoryPage:
    if len(page.events) <= limit:
        return page
    following = page.first_event_id + limit
    return msgspec.structs.replace(page, events=page.events[:limit], next_event_id=following)
