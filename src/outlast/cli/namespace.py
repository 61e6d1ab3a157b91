"""``outlast namespace list | show | create | update | delete``."""

import asyncio
import sys
from typing import Final

import msgspec

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.printing import json_line, mode_of, put, rows_text, table_text
from outlast.cli.reach import Look, reached
from outlast.cli.shapes import NamespaceChangeOut
from outlast.cli.starting import IDENTITY, new_id
from outlast.cli.text import clean, span
from outlast.cli.values import span_of
from outlast.core.admin import CreateNamespace, DeleteNamespace, NamespaceInfo, NamespaceSettings, UpdateNamespace
from outlast.core.errors import Invalid, NotFound
from outlast.core.inputs import Request
from outlast.gateway.giving import namespace_out

HEADS: Final = ("NAMESPACE", "STATE", "KEPT", "STARTS/S", "PAYLOAD", "DESCRIPTION")


def list_(arguments: Arguments) -> int:
    """Print every namespace."""
    return asyncio.run(_list(arguments))


async def _list(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        found = await look.namespaces()
    if mode_of(arguments) == "table":
        put(table_text(HEADS, [_row(info) for info in found]))
    else:
        put(rows_text(arguments, [namespace_out(info) for info in found], (), lambda _: (), id="name"))
    return exits.DONE


def _row(info: NamespaceInfo) -> tuple[str, ...]:
    settings = info.settings
    return (
        info.name,
        info.state.value,
        span(settings.retention) if settings.retention else "for ever",
        f"{settings.starts_per_second:g}" if settings.starts_per_second else "",
        f"{settings.payload_bytes_max:,}" if settings.payload_bytes_max else "",
        settings.description,
    )


def show(arguments: Arguments) -> int:
    """Print one namespace."""
    return asyncio.run(_show(arguments))


async def _show(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        info = await _named(look, arguments.name)
    put(json_line(namespace_out(info)) if mode_of(arguments) == "json" else _told(info))
    return exits.DONE


async def _named(look: Look, name: str) -> NamespaceInfo:
    for info in await look.namespaces():
        if info.name == name:
            return info
    raise NotFound(
        "namespace_not_found", f"There is no namespace {clean(name)}.", remedy="List them: outlast namespace list"
    )


def _told(info: NamespaceInfo) -> str:
    lines = [f"{clean(info.name)}  {info.state.value}  version {info.version}"]
    lines += [f"  {head.lower():<12} {cell}" for head, cell in zip(HEADS[2:], _row(info)[2:], strict=True) if cell]
    return "\n".join(clean(line) for line in lines) + "\n"


def create(arguments: Arguments) -> int:
    """Make a namespace; work for it is taken at once."""
    settings = _changed(NamespaceSettings(), arguments)
    request = CreateNamespace(
        name=arguments.name, request_id=new_id(), settings=settings, identity=_identity(arguments)
    )
    return asyncio.run(_do(arguments, request, "create", "created"))


def update(arguments: Arguments) -> int:
    """Change what is named of a namespace's settings, and leave the rest."""
    return asyncio.run(_update(arguments))


async def _update(arguments: Arguments) -> int:
    async with reached(arguments) as look:
        info = await _named(look, arguments.name)
    settings = _changed(info.settings, arguments)
    if settings == info.settings:
        raise Invalid(
            "invalid_request", "Nothing to change was named.", remedy="Name a setting, for example --retention 7d"
        )
    request = UpdateNamespace(
        name=arguments.name,
        request_id=new_id(),
        settings=settings,
        version=info.version,  # somebody else's change in between is a conflict, and no loss
        identity=_identity(arguments),
    )
    return await _do(arguments, request, "update", "updated")


def delete(arguments: Arguments) -> int:
    """Delete a namespace and what it holds; its name must be typed again."""
    confirm = arguments.confirm
    if not confirm and not arguments.dry_run and sys.stdin.isatty():
        sys.stderr.write(f"This deletes {clean(arguments.name)} and all that it holds.\nType its name to go on: ")
        sys.stderr.flush()
        confirm = sys.stdin.readline().strip()
    if confirm != arguments.name and not arguments.dry_run:
        raise Invalid(
            "invalid_request",
            f"The name was not typed again; {clean(arguments.name)} is left as it is.",
            remedy=f"Say --confirm {clean(arguments.name)}",
        )
    request = DeleteNamespace(
        name=arguments.name,
        request_id=new_id(),
        confirm=arguments.name,
        force=arguments.force,
        identity=_identity(arguments),
    )
    return asyncio.run(_do(arguments, request, "delete", "is being deleted:"))


async def _do(arguments: Arguments, request: Request, would: str, did: str) -> int:
    """Send a change and print the namespace as it is then."""
    async with reached(arguments, write=not arguments.dry_run) as look:
        if arguments.dry_run:
            info = NamespaceInfo(name=arguments.name) if would == "create" else await _named(look, arguments.name)
            if isinstance(request, CreateNamespace | UpdateNamespace):
                info = msgspec.structs.replace(info, settings=request.settings)
        else:
            reply = await look.send(request)
            assert isinstance(reply, NamespaceInfo)
            info = reply
    if mode_of(arguments) == "json":
        put(json_line(NamespaceChangeOut(namespace=namespace_out(info), dry_run=arguments.dry_run)))
    else:
        put(f"{f'would {would}' if arguments.dry_run else did} {_told(info)}")
    return exits.DONE


def _changed(settings: NamespaceSettings, arguments: Arguments) -> NamespaceSettings:
    """Return ``settings`` with what the options name."""
    named: dict[str, object] = {}
    if arguments.description is not None:
        named["description"] = arguments.description
    if arguments.retention is not None:
        text = arguments.retention
        named["retention"] = 0 if text in {"0", "forever"} else span_of(text, what="--retention")
    if arguments.payload_bytes is not None:
        named["payload_bytes_max"] = arguments.payload_bytes
    if arguments.starts_per_second is not None:
        named["starts_per_second"] = arguments.starts_per_second
    if arguments.starts_burst is not None:
        named["starts_burst"] = arguments.starts_burst
    return msgspec.structs.replace(settings, **named)


def _identity(arguments: Arguments) -> str:
    """Return who asks, with the reason: a change of a namespace is recorded with it."""
    return f"{IDENTITY}: {arguments.reason}" if arguments.reason else IDENTITY
