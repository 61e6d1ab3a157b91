"""``outlast backup`` and ``outlast restore``: one state of a store in a file, and back."""

import asyncio

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.printing import json_line, mode_of, put
from outlast.cli.progress import Progress, rows_said
from outlast.cli.shapes import BackupOut, RestoreOut
from outlast.server.places import BlobPlace, place_from


def backup(arguments: Arguments) -> int:
    """Keep the store in a file."""
    found = sources(arguments)
    out = asyncio.run(_backup(arguments, found.text("store"), place_from(found)))
    put(json_line(out) if mode_of(arguments) == "json" else _kept(out))
    return exits.DONE


async def _backup(arguments: Arguments, url: str, place: BlobPlace) -> BackupOut:
    from outlast.server import keeping

    if arguments.dry_run:
        done = await keeping.plan_backup(url, arguments.file, place)
    else:
        with Progress(arguments) as progress:
            done = await keeping.backup(url, arguments.file, place, say=progress.say)
    return BackupOut(
        store=done.store,
        backup=done.backup,
        rows=done.rows,
        payloads=done.payloads,
        size=done.size,
        dry_run=arguments.dry_run,
    )


def _kept(out: BackupOut) -> str:
    verb = "would keep" if out.dry_run else "kept"
    beside = f", its payloads in {out.backup}.blobs" if out.payloads else ""
    return f"{verb} {out.store} in {out.backup}{beside}\n  {rows_said(out.rows, out.payloads)}\n"


def restore(arguments: Arguments) -> int:
    """Fill a store from a backup."""
    found = sources(arguments)
    out = asyncio.run(_restore(arguments, found.text("store"), place_from(found)))
    put(json_line(out) if mode_of(arguments) == "json" else _restored(out))
    return exits.DONE


async def _restore(arguments: Arguments, url: str, place: BlobPlace) -> RestoreOut:
    from outlast.server import keeping

    file, replace = arguments.file, arguments.replace
    with Progress(arguments) as progress:
        if arguments.dry_run:
            done = await keeping.plan_restore(file, url, replace=replace, say=progress.say)
        else:
            done = await keeping.restore(file, url, place, replace=replace, say=progress.say)
    return RestoreOut(
        backup=done.backup,
        store=done.store,
        rows=done.rows,
        payloads=done.payloads,
        incarnation=done.incarnation,
        before=done.before,
        verified=done.verified,
        dry_run=arguments.dry_run,
    )


def _restored(out: RestoreOut) -> str:
    verb = "would restore" if out.dry_run else "restored"
    lines = [f"{verb} {out.store} from {out.backup}", f"  {rows_said(out.rows, out.payloads)}"]
    if out.verified:
        lines.append("  the backup is what it was when it was made")
    else:
        lines.append(
            "  the backup says nothing of what must be in it, or is of an older schema: it was read to its end"
        )
    if out.before:
        lines.append(f"  {'would keep' if out.dry_run else 'kept'} the file as it was: {out.before}")
    if not out.dry_run:
        lines.append("  workers and leases from before are refused; what ran since the backup may run again")
    return "\n".join(lines) + "\n"
