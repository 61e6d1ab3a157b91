"""Requests about the shard itself: its namespaces, its workers, and what it is to forget."""

from typing import assert_never

from outlast.core.admin import (
    AdminReply,
    AdminRequest,
    CreateNamespace,
    DeleteNamespace,
    DescribeWorkers,
    DropNamespace,
    Forget,
    Housekeeping,
    UpdateNamespace,
)
from outlast.core.shard import forget, namespaces, why
from outlast.core.shard.state import Shard


def administer(shard: Shard, request: AdminRequest | Housekeeping, *, namespace: str) -> AdminReply:
    """Carry ``request`` out. Raises Refusal as what it is about does."""
    match request:
        case CreateNamespace():
            return namespaces.create(shard, request)
        case UpdateNamespace():
            return namespaces.update(shard, request)
        case DeleteNamespace():
            return namespaces.delete(shard, request)
        case DropNamespace():
            return namespaces.drop(shard, request)
        case Forget():
            return forget.forget(shard, request, namespace=namespace)
        case DescribeWorkers():
            return why.describe_workers(shard, request, namespace=namespace)
        case _:
            assert_never(request)
