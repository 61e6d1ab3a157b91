"""``outlast feed``: what was committed, one event a line, each with the cursor to go on behind it."""

import asyncio
import sys
from typing import Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.printing import fields_text, json_line, mode_of, put, talk
from outlast.cli.reach import reached
from outlast.cli.text import clean
from outlast.cli.text import instant as instant_text
from outlast.core.errors import Invalid
from outlast.gateway.giving import feed_event_out
from outlast.protocol.transport import FeedEvent

HELD: Final = 20.0  # seconds for which one request of --watch is held


def feed(arguments: Arguments) -> int:
    """Print events, from --after on; with --watch go on with what is committed."""
    return asyncio.run(_feed(arguments))


async def _feed(arguments: Arguments) -> int:
    if arguments.limit < 0:
        raise Invalid("invalid_request", f"--limit is {arguments.limit}.", remedy="Give at least 1, or 0 for all.")
    after, left = arguments.after, arguments.limit or sys.maxsize
    told = 0
    async with reached(arguments) as look:
        while left:
            page = await look.feed(after=after, wait=HELD if arguments.watch else 0.0)
            events = page.events[:left]
            for event in events:
                put(_line(arguments, event))
            sys.stdout.flush()
            left -= len(events)
            told += len(events)
            after = page.next if left else events[-1].cursor
            if not page.more and not arguments.watch:
                break
    if not arguments.watch and mode_of(arguments) == "table":
        if not told:
            talk(
                arguments, "There is no event behind this cursor." if arguments.after else "Nothing was committed yet."
            )
        talk(arguments, f"Go on from here with: outlast feed --after {after}")
    return exits.DONE


def _line(arguments: Arguments, event: FeedEvent) -> str:
    out = feed_event_out(event)
    if mode_of(arguments) == "json":
        return json_line(out)
    of = f"{event.workflow_id or event.run_id}#{event.event_id}" if event.event_id else event.task_id
    parts = (event.cursor, instant_text(event.at), event.kind, clean(event.type), clean(of), fields_text(out.fields))
    return "  ".join(part for part in parts if part) + "\n"
