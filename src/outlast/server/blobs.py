"""Blob stores: payload data above what a row takes, by content hash, in a folder or in memory."""

import asyncio
import contextlib
import hashlib
import os
from pathlib import Path

from outlast.store.base import StoreError


class MemoryBlobs:
    """Blobs that live as long as their process."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    @property
    def unused(self) -> bool:
        """Whether there is no blob."""
        return not self._data

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data``."""
        self._data[digest] = data

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError when it is missing."""
        if digest not in self._data:
            raise _missing(digest)
        return self._data[digest]


class FolderBlobs:
    """One file per blob, two letters of its hash as folder; made when the first is put."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    @property
    def unused(self) -> bool:
        """Whether there has never been a blob."""
        return not self._folder.exists()

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data``; it is on the disk when this returns. Raises StoreError when it cannot be."""
        await asyncio.to_thread(self._put, digest, data)

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError when it is missing or does not have this hash."""
        return await asyncio.to_thread(self._get, digest)

    def _put(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        if path.exists():
            return
        partial = path.with_name(f".{path.name}.{os.getpid()}.{id(data)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise StoreError(
                "store_full", f"{path} cannot be written: {error.strerror}.", remedy="Free space on the disk."
            ) from error

    def _get(self, digest: str) -> bytes:
        try:
            data = self._path(digest).read_bytes()
        except OSError as error:
            raise _missing(digest) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(
                "store_damaged", f"The data of blob {digest} is damaged.", remedy="Restore the blobs from a backup."
            )
        return data

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _missing(digest: str) -> StoreError:
    return StoreError("store_damaged", f"Blob {digest} is missing.", remedy="Restore the blobs from a backup.")
