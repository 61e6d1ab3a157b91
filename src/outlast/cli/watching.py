"""``--watch``: the same look again and again, shown when it has changed."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from outlast.cli.arguments import Arguments
from outlast.cli.printing import mode_of, put
from outlast.cli.values import span_of
from outlast.core.errors import Invalid
from outlast.core.units import MILLISECOND, SECOND

HOME_AND_CLEAR = "\x1b[H\x1b[J"

STILL = 0  # an instant for which everything is rendered as if no time passed: what differs then has changed

Render = Callable[[int], str]
Look = Callable[[], Awaitable[tuple[Render, int | None]]]


async def shown(arguments: Arguments, look: Look) -> int:
    """Print what ``look`` returns, once or with --watch until it says that it has ended; return its exit code.

    ``look`` returns what gives the text for an instant, from which ages are counted, and the exit code, None for as long as
    there may be news. On a terminal ages grow as one watches; elsewhere a text that differs in them alone is no news.
    """
    if not arguments.watch:
        render, code = await look()
        put(render(_now()))
        return code or 0
    every = span_of(arguments.every, what="--every")
    if every < 50 * MILLISECOND:
        raise Invalid("invalid_request", f'--every is "{arguments.every}".', remedy="Give at least 50ms.")
    redraw = sys.stdout.isatty() and mode_of(arguments) == "table"
    before = ""
    if redraw:
        put("\x1b[2J")
    while True:
        render, code = await look()
        text = render(_now())
        found = text if redraw else render(STILL)
        if found != before:
            put(
                f"{HOME_AND_CLEAR}{text}"
                if redraw
                else f"\n{text}"
                if before and mode_of(arguments) == "table"
                else text
            )
            sys.stdout.flush()
            before = found
        if code is not None:
            return code
        await asyncio.sleep(every / SECOND)


def _now() -> int:
    return time.time_ns()  # noqa: TID251 - the watch of the person who reads it
