"""Namespaces over REST: a world of its own each, with what it may do and for how long it keeps."""

import msgspec

from outlast.core.admin import CreateNamespace, DeleteNamespace, NamespaceInfo, NamespaceSettings, UpdateNamespace
from outlast.core.inputs import Request
from outlast.gateway.conditional import require_match, with_etag
from outlast.gateway.exchange import Answer, Exchange, answer
from outlast.gateway.given import NamespacesOut
from outlast.gateway.giving import namespace_out
from outlast.gateway.router import DEFAULT_NAMESPACE
from outlast.gateway.taken import DeleteNamespaceQuery, NamespaceIn, NamespaceSettingsIn
from outlast.gateway.values import span


async def list_(exchange: Exchange) -> Answer:
    """The namespaces that the caller reaches."""
    there = exchange.engine.namespaces.all()
    return answer(
        NamespacesOut(items=tuple(namespace_out(info) for info in there if exchange.caller.reaches(info.name)))
    )


async def get(exchange: Exchange) -> Answer:
    """One namespace, with the tag that a change may name."""
    info = exchange.engine.namespaces.find(exchange.params["name"])
    return with_etag(exchange, answer(namespace_out(info)), _tag(info))


async def create(exchange: Exchange) -> Answer:
    """201 for a new one, 200 when the same key had made it."""
    wanted = exchange.body_as(NamespaceIn)
    key = exchange.idempotency_key() or exchange.engine.entropy.new_id()
    known = exchange.engine.namespaces.stored.get(wanted.name)
    request = CreateNamespace(
        name=wanted.name,
        request_id=key,
        settings=_changed(NamespaceSettings(), wanted.settings),
        identity=exchange.principal,
    )
    info = await _ask(exchange, request)
    replayed = known is not None and known.last_request_id == key
    return _tagged(info, status=200 if replayed else 201, replayed=replayed)


async def update(exchange: Exchange) -> Answer:
    """Change what the body names, and leave the rest as it is."""
    known = exchange.engine.namespaces.find(exchange.params["name"])
    require_match(exchange, _tag(known))
    request = UpdateNamespace(
        name=known.name,
        request_id=exchange.engine.entropy.new_id(),
        settings=_changed(known.settings, exchange.body_as(NamespaceSettingsIn)),
        version=known.version,  # what is left as it is was read from this one
        identity=exchange.principal,
    )
    return _tagged(await _ask(exchange, request))


async def delete(exchange: Exchange) -> Answer:
    """202: nothing more is taken for it, and what it holds is being removed."""
    asked = exchange.asked(DeleteNamespaceQuery)
    known = exchange.engine.namespaces.find(exchange.params["name"])
    require_match(exchange, _tag(known))
    request = DeleteNamespace(
        name=known.name,
        request_id=exchange.engine.entropy.new_id(),
        confirm=asked.confirm,
        force=asked.force,
        version=known.version if "if-match" in exchange.headers else -1,
        identity=exchange.principal,
    )
    return _tagged(await _ask(exchange, request), status=202)


async def _ask(exchange: Exchange, request: Request) -> NamespaceInfo:
    """Send ``request`` by way of a namespace that is always there: the one it speaks of may not be, or not any more."""
    exchange.namespace = DEFAULT_NAMESPACE
    return await exchange.expect(request, NamespaceInfo)


def _changed(settings: NamespaceSettings, wanted: NamespaceSettingsIn) -> NamespaceSettings:
    fields = {name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not None}
    if wanted.retention is not None:
        fields["retention"] = span(wanted.retention, "retention")
    return msgspec.structs.replace(settings, **fields)


def _tag(info: NamespaceInfo) -> str:
    return f'"{info.version}"'


def _tagged(info: NamespaceInfo, *, status: int = 200, replayed: bool = False) -> Answer:
    return answer(namespace_out(info), status=status, replayed=replayed, headers=(("etag", _tag(info)),))
