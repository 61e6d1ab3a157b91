"""Large payloads in memory: for tests, the simulator, and engines that need not outlive their process."""

import hashlib

from outlast.core.errors import invariant
from outlast.store.base import StoreError


class MemoryBlobStore:
    """Blobs by the hash of their content."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data``."""
        invariant(hashlib.sha256(data).hexdigest() == digest, "blob_has_another_hash", digest=digest)
        self.blobs[digest] = data

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError "store_damaged" when it is missing."""
        try:
            return self.blobs[digest]
        except KeyError:
            raise StoreError(
                "store_damaged", f"The stored payload {digest[:64]!r} is missing.", remedy="Put it again."
            ) from None
