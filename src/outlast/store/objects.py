"""Large payloads in object storage (S3 and what speaks like it), named by the hash of their content.

An object has its name when all of it is there, so that a name is the whole content or damage. Objects are swept
like files, and only by the store that wrote below the prefix first.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore import delete_async, get_async, head_async, put_async
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from outlast.core.errors import invariant
from outlast.core.units import FOREVER, SECOND
from outlast.store.base import StoreError
from outlast.store.blobs import DIGEST, SWEEP_AGE
from outlast.store.owning import OWNER, Ownership

if TYPE_CHECKING:
    from obstore.store import ObjectStore

LISTED: Final = 1_000  # objects of one answer
FRESH_MAX: Final = 10_000  # blobs of which it is known that they were put lately
FACT_MAX: Final = 200  # characters of what a library says of a failure; the rest is its inside

_MISSING: Final = FileNotFoundError
_REFUSED: Final = (PermissionDeniedError, UnauthenticatedError, PermissionError)
_FAILED: Final = (BaseError, OSError)


class ObjectBlobStore:
    """Blobs in ``objects``; ``place`` is what errors call it, ``owner`` gives the id of the store whose they are."""

    def __init__(self, objects: "ObjectStore", *, place: str, owner: Callable[[], Awaitable[str]]) -> None:
        self._objects = objects
        self._place = place
        self._ownership = Ownership(place, ours=owner, read=self._read_owner, keep=self._keep_owner)
        self._put_at: dict[str, float] = {}
        self._naming = asyncio.Lock()  # a blob is not put again between being found old and being removed

    @property
    def unused(self) -> bool:
        """Say that there may be blobs: nobody knows without asking."""
        return False

    async def check(self) -> None:
        """Look whether the place can be used. Raises StoreError, "store_misplaced" where settings are wrong."""
        try:
            await get_async(self._objects, OWNER)
        except _FAILED as error:
            if not isinstance(error, _MISSING) or _is_bucket(error):
                raise self._said(error) from error

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data``; it is stored when this returns. Raises StoreError."""
        invariant(hashlib.sha256(data).hexdigest() == digest, "blob_has_another_hash", digest=digest)
        try:
            await self._ownership.claim()
            if await self._is_fresh(digest, len(data)):
                return
            try:
                await put_async(self._objects, _key(digest), data, mode="create")
            except AlreadyExistsError:
                # It may be old, and swept before the commit that names it; or damaged.
                async with self._naming:
                    await put_async(self._objects, _key(digest), data, mode="overwrite")
        except _FAILED as error:
            raise self._said(error) from error
        self._note(digest)

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError "store_damaged" when it is missing or does not have this hash."""
        # The name came in from outside: what is not a hash is not made into a key.
        if not DIGEST.fullmatch(digest):
            raise self._damaged(f"{digest[:64]!r} is not the name of a stored payload")
        try:
            data = await self._read(digest)
        except _FAILED as error:
            if isinstance(error, _MISSING) and not _is_bucket(error):
                raise self._damaged(f"The stored payload {digest} is missing in {self._place}") from None
            raise self._said(error) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise self._damaged(f"The content of the stored payload {digest} in {self._place} has changed")
        return data

    async def names(self) -> set[str]:
        """Return the names of all that are there, whose they may be. Raises StoreError."""
        return {digest async for digest in self._older(FOREVER)}

    async def aged(self, *, now: int) -> set[str]:
        """Return the blobs that were last put more than SWEEP_AGE before ``now``; none where another store is the owner."""
        if not await self.owns():
            return set()
        return {digest async for digest in self._older(now)}

    async def sweep(self, referenced: Container[str], *, now: int) -> int:
        """Remove what is not in ``referenced`` and was last put more than SWEEP_AGE before ``now``; return how many."""
        if not await self.owns():
            return 0
        removed = 0
        async for digest in self._older(now):
            if digest in referenced:
                continue
            async with self._naming:
                removed += await self._remove(digest, now)
        return removed

    async def owner(self) -> str:
        """Return the id of the store whose the prefix is, "" for nobody's. Raises StoreError."""
        try:
            return await self._ownership.owner()
        except _FAILED as error:
            raise self._said(error) from error

    async def owns(self) -> bool:
        """Say whether the prefix is this store's; asking takes nothing. Raises StoreError."""
        try:
            return await self._ownership.owns()
        except _FAILED as error:
            raise self._said(error) from error

    async def pass_on(self, to: str) -> bool:
        """Make the prefix that of the store with the id ``to``, if it is this store's; say whether it was. Raises StoreError."""
        if not await self.owns():
            return False
        try:
            await put_async(self._objects, OWNER, to.encode(), mode="overwrite")
        except _FAILED as error:
            raise self._said(error) from error
        return True

    async def _read_owner(self) -> str:
        try:
            found = await (await get_async(self._objects, OWNER)).bytes_async()
        except _MISSING as error:
            if _is_bucket(error):
                raise
            return ""
        return bytes(found).decode(errors="replace")

    async def _keep_owner(self, owner: str) -> None:
        with contextlib.suppress(AlreadyExistsError):
            await put_async(self._objects, OWNER, owner.encode(), mode="create")

    async def _read(self, digest: str) -> bytes:
        return bytes(await (await get_async(self._objects, _key(digest))).bytes_async())

    async def _is_fresh(self, digest: str, size: int) -> bool:
        """Say whether this process has put the blob lately, and it is there still: then it need not travel again."""
        put_at = self._put_at.get(digest)
        if put_at is None or time.monotonic() - put_at > SWEEP_AGE / SECOND / 2:
            return False
        try:
            return (await head_async(self._objects, _key(digest)))["size"] == size
        except _MISSING:
            return False

    def _note(self, digest: str) -> None:
        self._put_at.pop(digest, None)  # the order is that of time
        self._put_at[digest] = time.monotonic()
        if len(self._put_at) > FRESH_MAX:
            del self._put_at[next(iter(self._put_at))]

    async def _remove(self, digest: str, now: int) -> int:
        try:
            meta = await head_async(self._objects, _key(digest))
            if not _is_old(meta["last_modified"].timestamp(), now):
                return 0
            await delete_async(self._objects, _key(digest))
        except _MISSING:
            return 0
        except _FAILED as error:
            raise self._said(error) from error
        return 1

    async def _older(self, now: int) -> AsyncIterator[str]:
        try:
            pages: Any = obstore.list(self._objects, chunk_size=LISTED)  # pyright: ignore[reportUnknownMemberType]
            async for page in pages:
                for meta in page:
                    digest = meta["path"].rpartition("/")[2]
                    if DIGEST.fullmatch(digest) and _is_old(meta["last_modified"].timestamp(), now):
                        yield digest
        except _FAILED as error:
            raise self._said(error) from error

    def _said(self, error: Exception) -> StoreError:
        """Return what a failure means for who runs this; what the library says is cut to its first sentence."""
        text = str(error)
        if isinstance(error, _MISSING) and _is_bucket(error):
            return StoreError(
                "store_misplaced",
                f"There is no bucket of {self._place}.",
                remedy="Make it, or correct blobs, s3.endpoint and s3.region.",
            )
        if isinstance(error, _REFUSED):
            return StoreError(
                "store_misplaced",
                f"{self._place} refuses these credentials.",
                remedy="Look at s3.access_key and s3.secret_key (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), and at "
                "what they may do there.",
            )
        if "StorageFull" in text or "QuotaExceeded" in text:
            return StoreError("store_full", f"There is no room in {self._place}.", remedy="Make room there.")
        first = text.splitlines()[0].partition(" - ")
        return StoreError(
            "unavailable",
            f"{self._place} cannot be used: {(first[2] or first[0])[:FACT_MAX].strip()}.",
            remedy="Look at s3.endpoint, and whether it answers from here; what was asked may be asked again.",
        )

    @staticmethod
    def _damaged(fact: str) -> StoreError:
        return StoreError(
            "store_damaged",
            f"{fact}.",
            remedy="Restore the object, or look whether blobs names the place where the store keeps its payloads.",
        )


def _key(digest: str) -> str:
    return f"{digest[:2]}/{digest}"


def _is_old(seconds: float, now: int) -> bool:
    return int(seconds * SECOND) + SWEEP_AGE < now


def _is_bucket(error: Exception) -> bool:
    return "NoSuchBucket" in str(error)
