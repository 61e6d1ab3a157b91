"""``--watch``: the same look again and again, shown when it has changed."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from outlast.cli.arguments import Arguments
from outlast.cli.printing import mode_of, put
from outlast.cli.values import span_of
from outlast.core.errors import Invalid
from outlast.core.units import MILLISECOND, SECOND

HOME_AND_CLEAR = "\x1b[H\x1b[J"

Look = Callable[[], Awaitable[tuple[str, int | None]]]


async def shown(arguments: Arguments, look: Look) -> int:
    """Print what ``look`` returns, once or with --watch until it says that it has ended; return its exit code.

    ``look`` returns the text and the exit code, None for as long as there may be news.
    """
    if not arguments.watch:
        text, code = await look()
        put(text)
        return code or 0
    every = span_of(arguments.every, what="--every")
    if every < 50 * MILLISECOND:
        raise Invalid("invalid_request", f'--every is "{arguments.every}".', remedy="Give at least 50ms.")
    redraw = sys.stdout.isatty() and mode_of(arguments) == "table"
    before = ""
    if redraw:
        put("\x1b[2J")
    while True:
        text, code = await look()
        if text != before:
            put(
                f"{HOME_AND_CLEAR}{text}"
                if redraw
                else f"\n{text}"
                if before and mode_of(arguments) == "table"
                else text
            )
            sys.stdout.flush()
            before = text
        if code is not None:
            return code
        await asyncio.sleep(every / SECOND)
