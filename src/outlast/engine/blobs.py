"""Moves big payloads to the blob store before a request reaches the core, and back when an answer leaves."""

import asyncio
import hashlib
import logging
from typing import Final, TypeVar

from outlast.core import limits
from outlast.core.carriers import payloads_in, with_payloads
from outlast.core.inputs import Request
from outlast.core.payload import Payload, without_data
from outlast.store.base import BlobStore, StoreError

LOG: Final = logging.getLogger("outlast.engine")

Value = TypeVar("Value")


def has_big(request: Request) -> bool:
    """Say whether a payload of ``request`` is too big for a row."""
    return any(len(payload.data) > limits.PAYLOAD_INLINE_BYTES_MAX for payload in payloads_in(request))


def has_blobs(value: object) -> bool:
    """Say whether data of a payload in ``value`` is in the blob store."""
    return any(payload.blob for payload in payloads_in(value))


async def put_away(request: Request, blobs: BlobStore) -> Request:
    """Return ``request`` with references for its big payloads; their data is durable by then.

    Raises StoreError when it cannot be kept.
    """
    puts: dict[str, bytes] = {}

    def refer(payload: Payload) -> Payload:
        if len(payload.data) <= limits.PAYLOAD_INLINE_BYTES_MAX:
            return payload
        digest = hashlib.sha256(payload.data).hexdigest()
        puts[digest] = payload.data
        return Payload(payload.encoding, b"", payload.metadata, digest, len(payload.data))

    referring = with_payloads(request, refer)
    await asyncio.gather(*(blobs.put(digest, data) for digest, data in puts.items()))
    return referring


async def fetched(value: Value, blobs: BlobStore) -> Value:
    """Return ``value`` with the data of every payload inline; data that is missing or damaged with the reason in its place.

    What one payload has lost must not keep others from whoever waits for them. Raises StoreError when the blobs cannot be
    asked at the moment.
    """
    wanted = list({payload.blob for payload in payloads_in(value) if payload.blob})
    if not wanted:
        return value
    got = await asyncio.gather(*(_get(digest, blobs) for digest in wanted))
    found = dict(zip(wanted, got, strict=True))
    return with_payloads(value, lambda payload: _inline(payload, found))


async def _get(digest: str, blobs: BlobStore) -> bytes | StoreError:
    try:
        return await blobs.get(digest)
    except StoreError as error:
        if error.code != "store_damaged":
            raise
        LOG.error("payload_lost digest=%s %s", digest, error)  # noqa: TRY400 - its trace says nothing
        return error


def _inline(payload: Payload, found: dict[str, bytes | StoreError]) -> Payload:
    if not payload.blob:
        return payload
    data = found[payload.blob]
    if isinstance(data, StoreError):
        return without_data(payload, code=data.code, why=str(data))
    return Payload(payload.encoding, data, payload.metadata)
