"""Large payloads in memory: for tests, the simulator, and engines that need not outlive their process."""

import hashlib
from collections.abc import Container

from outlast.core.errors import invariant
from outlast.store.base import StoreError


class MemoryBlobStore:
    """Blobs by the hash of their content."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    @property
    def unused(self) -> bool:
        """Whether there has never been a blob."""
        return not self.blobs

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

    async def aged(self, *, now: int) -> set[str]:  # noqa: ARG002 - no clock tells when a blob came
        """Return none: they are kept as long as their process lives."""
        return set()

    async def sweep(self, referenced: Container[str], *, now: int) -> int:  # noqa: ARG002 - as in aged
        """Remove none."""
        return 0
