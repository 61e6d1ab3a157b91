"""Moves big payloads to the blob store before a request reaches the core, and back when an answer leaves."""

import asyncio
import hashlib
from typing import TypeVar

from outlast.core import limits
from outlast.core.carriers import payloads_in, with_payloads
from outlast.core.inputs import Request
from outlast.core.payload import Payload
from outlast.store.base import BlobStore

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
    """Return ``value`` with the data of every payload inline. Raises StoreError when data is missing or damaged."""
    wanted = list({payload.blob for payload in payloads_in(value) if payload.blob})
    if not wanted:
        return value
    found = dict(zip(wanted, await asyncio.gather(*(blobs.get(digest) for digest in wanted)), strict=True))
    return with_payloads(value, lambda payload: _inline(payload, found))


def _inline(payload: Payload, found: dict[str, bytes]) -> Payload:
    return Payload(payload.encoding, found[payload.blob], payload.metadata) if payload.blob else payload
