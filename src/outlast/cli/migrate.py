"""``outlast migrate``: bring a store to the schema of this version, which ``serve`` does not do by itself."""

import asyncio
from pathlib import Path

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.printing import json_line, mode_of, put
from outlast.cli.shapes import MigrationOut


def migrate(arguments: Arguments) -> int:
    """Migrate, or with --check or --dry-run say whether there is anything to do."""
    from outlast.server.looking import schema_known, schema_of
    from outlast.server.stores import is_postgres, path_of

    url = sources(arguments).text("store")
    if is_postgres(url):
        return _migrate_database(arguments, url)
    path = path_of(url)
    before, after = schema_of(path), schema_known()
    only_look = arguments.check or arguments.dry_run
    if before < after and not only_look:
        asyncio.run(_migrate(url))
    copy = f"{path}.before-{before + 1}" if before < after else ""
    out = MigrationOut(store=path, before=before, after=after, copy=copy, dry_run=only_look)
    put(json_line(out) if mode_of(arguments) == "json" else _told(out))
    return exits.FOUND_PROBLEMS if arguments.check and before < after else exits.DONE


def _migrate_database(arguments: Arguments, url: str) -> int:
    from outlast.server.looking import schemas_of_database

    shown, before, after = asyncio.run(schemas_of_database(url))
    only_look = arguments.check or arguments.dry_run
    if before < after and not only_look:
        asyncio.run(_migrate(url))
    out = MigrationOut(store=shown, before=before, after=after, copy="", dry_run=only_look)
    put(json_line(out) if mode_of(arguments) == "json" else _told(out))
    return exits.FOUND_PROBLEMS if arguments.check and before < after else exits.DONE


async def _migrate(url: str) -> None:
    from outlast.server.stores import open_stores

    store = open_stores(url).store
    await store.open()
    await store.close()


def _told(out: MigrationOut) -> str:
    name = Path(out.store).name
    if out.before == out.after:
        return f"{name} has schema {out.after}, the one of this version: nothing to do\n"
    verb = "would be brought" if out.dry_run else "was brought"
    copy = f"; the file as it was: {out.copy}" if out.copy else ""
    return f"{name} {verb} from schema {out.before} to {out.after}{copy}\n"
