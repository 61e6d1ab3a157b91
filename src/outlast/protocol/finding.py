"""The ids of what a filter finds, gathered over as many pages as it takes: by a server, a client or the command line."""

from collections.abc import Awaitable, Callable

from outlast.core import limits
from outlast.protocol.transport import Listing

FetchPage = Callable[[str, int], Awaitable[Listing]]  # by cursor, at most so many


async def found_tasks(fetch: FetchPage, limit: int) -> tuple[tuple[str, ...], bool]:
    """Return the ids of the first ``limit`` tasks, in the order of the pages, and whether there are more."""
    ids: list[str] = []
    cursor = ""
    while len(ids) < limit:
        page = await fetch(cursor, min(limits.LIST_LIMIT_MAX, limit - len(ids)))
        ids += [info.task_id for info in page.tasks]
        cursor = page.next
        if not cursor:
            break
    return tuple(ids), bool(cursor)
