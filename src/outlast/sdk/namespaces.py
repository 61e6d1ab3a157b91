"""``app.namespaces``: worlds of their own, each with what it may do and for how long it keeps what has closed."""

from collections.abc import Callable
from typing import TypedDict, Unpack

import msgspec

from outlast.core.admin import CreateNamespace, DeleteNamespace, NamespaceInfo, NamespaceSettings, UpdateNamespace
from outlast.core.errors import NotFound
from outlast.sdk.client import PATIENCE, Client, mint
from outlast.sdk.durations import Duration, nanos_of


class NamespaceChange(TypedDict, total=False):
    """Settings of a namespace; what is left out stays, or is as in a new one.

    ``retention`` of 0 keeps what has closed for ever; the other numbers are bounds, 0 for none of its own.
    """

    description: str  # what it is for
    retention: Duration  # how long closed runs and tasks are kept; 0 for ever, 30 days in a new one
    payload_bytes_max: int  # of one value; 0 for the bound of the house
    starts_per_second: float  # workflows and tasks begun, together; 0 for no limit
    starts_burst: int  # how many of them may come at once


class Namespaces:
    """All namespaces of the engine. A change says ``reason``, which is recorded with it; with ``dry_run`` nothing is done."""

    __slots__ = ("_connect",)

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    def list(self) -> tuple[NamespaceInfo, ...]:
        """Return every namespace by name."""
        client = self._connect()
        return client.portal.run(client.transport.list_namespaces(), instead="app.namespaces.alist()")

    async def alist(self) -> tuple[NamespaceInfo, ...]:
        """Return what ``list`` does."""
        client = self._connect()
        return await client.arun(client.transport.list_namespaces(), instead="app.namespaces.alist()")

    def describe(self, name: str) -> NamespaceInfo:
        """Return one namespace. Raises NotFound."""
        client = self._connect()
        return client.portal.run(_named(client, name), instead="app.namespaces.adescribe(…)")

    async def adescribe(self, name: str) -> NamespaceInfo:
        """Return what ``describe`` does."""
        client = self._connect()
        return await client.arun(_named(client, name), instead="app.namespaces.adescribe(…)")

    def create(
        self, name: str, *, reason: str = "", dry_run: bool = False, **settings: Unpack[NamespaceChange]
    ) -> NamespaceInfo:
        """Make a namespace and return it; work for it is taken at once. Raises Conflict when it is there already."""
        client = self._connect()
        return client.portal.run(
            _create(client, name, settings, reason=reason, dry_run=dry_run), instead="app.namespaces.acreate(…)"
        )

    async def acreate(
        self, name: str, *, reason: str = "", dry_run: bool = False, **settings: Unpack[NamespaceChange]
    ) -> NamespaceInfo:
        """Do what ``create`` does."""
        client = self._connect()
        return await client.arun(
            _create(client, name, settings, reason=reason, dry_run=dry_run), instead="app.namespaces.acreate(…)"
        )

    def update(
        self, name: str, *, reason: str = "", dry_run: bool = False, **settings: Unpack[NamespaceChange]
    ) -> NamespaceInfo:
        """Change what is named and return the namespace as it is then.

        Raises Conflict when somebody else has changed it meanwhile, NotFound when there is none.
        """
        client = self._connect()
        return client.portal.run(
            _update(client, name, settings, reason=reason, dry_run=dry_run), instead="app.namespaces.aupdate(…)"
        )

    async def aupdate(
        self, name: str, *, reason: str = "", dry_run: bool = False, **settings: Unpack[NamespaceChange]
    ) -> NamespaceInfo:
        """Do what ``update`` does."""
        client = self._connect()
        return await client.arun(
            _update(client, name, settings, reason=reason, dry_run=dry_run), instead="app.namespaces.aupdate(…)"
        )

    def delete(
        self, name: str, *, confirm: str, force: bool = False, reason: str = "", dry_run: bool = False
    ) -> NamespaceInfo:
        """Have a namespace and all that it holds removed; nothing is taken for it from now on.

        ``confirm`` is its name once more. Raises Conflict when runs or tasks are open, unless ``force`` ends them.
        """
        client = self._connect()
        work = _delete(client, name, confirm=confirm, force=force, reason=reason, dry_run=dry_run)
        return client.portal.run(work, instead="app.namespaces.adelete(…)")

    async def adelete(
        self, name: str, *, confirm: str, force: bool = False, reason: str = "", dry_run: bool = False
    ) -> NamespaceInfo:
        """Do what ``delete`` does."""
        client = self._connect()
        work = _delete(client, name, confirm=confirm, force=force, reason=reason, dry_run=dry_run)
        return await client.arun(work, instead="app.namespaces.adelete(…)")


async def _named(client: Client, name: str) -> NamespaceInfo:
    for info in await client.transport.list_namespaces():
        if info.name == name:
            return info
    raise NotFound(
        "namespace_not_found", f"There is no namespace {name}.", remedy="List what there is: app.namespaces.list()"
    )


async def _create(client: Client, name: str, change: NamespaceChange, *, reason: str, dry_run: bool) -> NamespaceInfo:
    settings = _changed(NamespaceSettings(), change)
    if dry_run:
        return NamespaceInfo(name=name, settings=settings)
    request = CreateNamespace(name=name, request_id=mint(), settings=settings, identity=_identity(client, reason))
    return await client.send(request, NamespaceInfo, PATIENCE)


async def _update(client: Client, name: str, change: NamespaceChange, *, reason: str, dry_run: bool) -> NamespaceInfo:
    known = await _named(client, name)
    settings = _changed(known.settings, change)
    if dry_run:
        return msgspec.structs.replace(known, settings=settings)
    request = UpdateNamespace(
        name=name,
        request_id=mint(),
        settings=settings,
        version=known.version,  # what is left as it is was read from this one
        identity=_identity(client, reason),
    )
    return await client.send(request, NamespaceInfo, PATIENCE)


async def _delete(client: Client, name: str, *, confirm: str, force: bool, reason: str, dry_run: bool) -> NamespaceInfo:
    if dry_run:
        return await _named(client, name)
    request = DeleteNamespace(
        name=name, request_id=mint(), confirm=confirm, force=force, identity=_identity(client, reason)
    )
    return await client.send(request, NamespaceInfo, PATIENCE)


def _changed(settings: NamespaceSettings, change: NamespaceChange) -> NamespaceSettings:
    fields: dict[str, object] = dict(change)
    if "retention" in change:
        fields["retention"] = nanos_of(change["retention"], name="retention")
    return msgspec.structs.replace(settings, **fields)


def _identity(client: Client, reason: str) -> str:
    """Return who asks, with the reason: a change of a namespace is recorded with it."""
    return f"{client.identity}: {reason}" if reason else client.identity
