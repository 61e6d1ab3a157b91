"""``outlast move``: bring the work of one store to another, and leave the first one marked."""

import asyncio

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.printing import json_line, mode_of, put
from outlast.cli.progress import Progress, rows_said
from outlast.cli.shapes import MoveOut
from outlast.core.errors import Invalid
from outlast.server.places import BlobPlace, place_from


def move(arguments: Arguments) -> int:
    """Move, say what would be moved, or with --take-back have a moved store take work again."""
    place = place_from(sources(arguments))
    if arguments.take_back:
        if arguments.target or arguments.dry_run:
            raise Invalid(
                "invalid_request",
                "--take-back takes one store and no --dry-run.",
                remedy="outlast move --take-back STORE",
            )
    elif not arguments.target:
        raise Invalid("invalid_request", "There is no store to move to.", remedy="outlast move FROM TO")
    out = asyncio.run(_move(arguments, place))
    put(json_line(out) if mode_of(arguments) == "json" else _told(out, place))
    return exits.DONE


async def _move(arguments: Arguments, place: BlobPlace) -> MoveOut:
    from outlast.server import moving

    source, target = arguments.source, arguments.target
    if arguments.take_back:
        done = await moving.take_back(source)
    elif arguments.dry_run:
        done = await moving.plan(source, target, place)
    else:
        with Progress(arguments) as progress:
            done = await moving.move(source, target, place, reason=arguments.reason, say=progress.say)
    return MoveOut(
        source=done.source,
        target=done.target or "a new database",
        did=done.did,
        rows=done.rows,
        payloads=done.payloads,
        incarnation=done.incarnation,
        dry_run=arguments.dry_run,
    )


def _told(out: MoveOut, place: BlobPlace) -> str:
    match out.did:
        case "nothing":
            return f"{out.source} was moved to {out.target} before: nothing to do\n"
        case "take_back":
            return (
                f"{out.target} takes work again, as it was when it was moved to {out.source}; workers and leases of before are"
                " refused\nSee to it that nothing goes on there: what is done in both places is done twice.\n"
            )
        case _:
            did = {"move": "moved", "finish": "finished moving"}[out.did]
            verb = f"would have {did}" if out.dry_run else did
    lines = [f"{verb} {out.source} to {out.target}", f"  {rows_said(out.rows, out.payloads)}"]
    if not out.dry_run:
        lines.append(f"  read back and compared; {out.source} takes no work any more")
    if place.url:
        lines.append(f"  payloads stay in {place.url}, where the new store has them")
    return "\n".join(lines) + "\n"
