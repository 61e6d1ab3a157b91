"""``outlast migrate``: bring a store to the schema of this version, which ``serve`` does not do by itself."""

import asyncio
from pathlib import Path

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.printing import json_line, mode_of, put
from outlast.cli.shapes import MigrationOut, PendingOut


def migrate(arguments: Arguments) -> int:
    """Migrate, or with --plan, --check or --dry-run say what there is to do."""
    from outlast.server.looking import pending_in
    from outlast.server.stores import is_postgres

    url = sources(arguments).text("store")
    shown, before, pending = asyncio.run(pending_in(url))
    after = pending[-1].number if pending else before
    only_look = arguments.plan or arguments.check or arguments.dry_run
    if pending and not only_look:
        asyncio.run(_migrate(url))
    out = MigrationOut(
        store=shown,
        before=before,
        after=after,
        copy=f"{shown}.before-{pending[0].number}" if pending and not is_postgres(url) else "",
        dry_run=only_look,
        pending=tuple(PendingOut(number=one.number, name=one.name, does=one.does) for one in pending),
    )
    put(json_line(out) if mode_of(arguments) == "json" else _told(out))
    return exits.FOUND_PROBLEMS if arguments.check and pending else exits.DONE


async def _migrate(url: str) -> None:
    from outlast.server.stores import open_stores

    store = open_stores(url).store
    await store.open()
    await store.close()


def _told(out: MigrationOut) -> str:
    name = Path(out.store).name
    if not out.pending:
        return f"{name} has schema {out.after}, the one of this version: nothing to do\n"
    verb = "would be brought" if out.dry_run else "was brought"
    copy = f"; the file as it was: {out.copy}" if out.copy else ""
    lines = [f"{name} {verb} from schema {out.before} to {out.after}{copy}"]
    lines += [f"  {one.number}  {one.name:<12} {one.does}" for one in out.pending]
    return "\n".join(lines) + "\n"
