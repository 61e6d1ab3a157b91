"""What the server is: version, protocol, bounds; and the document of its own addresses."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from outlast.core import limits
from outlast.core.units import SECOND
from outlast.gateway.exchange import Answer, Exchange, answer
from outlast.protocol.version import PROTOCOL

API: Final = "v1"


class LimitsOut(msgspec.Struct, kw_only=True, frozen=True):
    """Bounds that a caller may run into."""

    body_bytes: int = limits.REQUEST_BYTES_MAX
    payload_bytes: int = limits.PAYLOAD_BYTES_MAX
    batch_items: int = limits.BATCH_ITEMS_MAX
    page_items: int = limits.LIST_LIMIT_MAX
    wait_seconds: int = limits.POLL_WAIT_MAX // SECOND
    idempotency_seconds: int = limits.IDEMPOTENCY_WINDOW // SECOND


class ServerOut(msgspec.Struct, kw_only=True, frozen=True):
    version: str
    api: str
    protocol: int
    principal: str
    ready: bool
    limits: LimitsOut


async def info(exchange: Exchange) -> Answer:
    """Say what the server is, and as whom the caller is known."""
    return answer(
        ServerOut(
            version=_version(),
            api=API,
            protocol=PROTOCOL,
            principal=exchange.principal,
            ready=exchange.engine.health().ready,
            limits=LimitsOut(),
        )
    )


def _version() -> str:
    try:
        return version("outlast")
    except PackageNotFoundError:
        return "unknown: it runs from a checkout"
