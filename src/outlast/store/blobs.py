"""Large payloads as files, named by the hash of their content.

A file is complete and on the disk before it has its name, so that a name that is there is the whole content or damage. Files are
never changed; one that nothing refers to is swept once it is old enough that no commit under way can still name it.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Awaitable, Callable, Container, Iterator
from pathlib import Path
from typing import Final

from outlast.core.errors import invariant
from outlast.core.units import DAY
from outlast.store.base import StoreError
from outlast.store.owning import OWNER, Ownership

DIGEST: Final = re.compile(r"[0-9a-f]{64}")
SWEEP_AGE: Final = DAY  # a commit that names a blob comes long before
PART: Final = ".part"
NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
BESIDE: Final = ".blobs"  # what the folder beside a database is called, behind the database's name


class FileBlobStore:
    """Blobs below ``folder``, which is made when it is first needed.

    ``owner`` gives the id of the store whose they are; None in the folder beside a database, which is nobody else's.
    """

    def __init__(self, folder: str | os.PathLike[str], *, owner: Callable[[], Awaitable[str]] | None = None) -> None:
        self.folder = Path(folder).absolute()  # whatever becomes of the working directory
        self._ownership = (
            Ownership(str(folder), ours=owner, read=self._read_owner, keep=self._keep_owner) if owner else None
        )
        self._synced: set[Path] = set()  # folders whose own entry is known to be on the disk
        self._naming = threading.Lock()  # a blob is not put again between being found old and being removed

    @property
    def unused(self) -> bool:
        """Whether there has never been a blob."""
        return not self.folder.exists()

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data``; it is on the disk when this returns. Raises StoreError "store_full" or "unavailable"."""
        if self._ownership is not None:
            await self._ownership.claim()
        await asyncio.to_thread(self._put, digest, data)

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError "store_damaged" when it is missing or does not have this hash."""
        return await asyncio.to_thread(self._get, digest)

    async def names(self) -> set[str]:
        """Return the names of all that are there, whose they may be."""
        return await asyncio.to_thread(
            lambda: {path.name for path in self.folder.glob("??/*") if DIGEST.fullmatch(path.name)}
        )

    async def aged(self, *, now: int) -> set[str]:
        """Return the blobs that were last put more than SWEEP_AGE before ``now``; none where another store is the owner."""
        if not await self.owns():
            return set()
        return await asyncio.to_thread(self._aged, now)

    async def sweep(self, referenced: Container[str], *, now: int) -> int:
        """Remove what is not in ``referenced`` and was last put more than SWEEP_AGE before ``now``; return how many."""
        if not await self.owns():
            return 0
        return await asyncio.to_thread(self._sweep, referenced, now)

    async def owner(self) -> str:
        """Return the id of the store whose the folder is, "" for nobody's and beside a database. Raises StoreError."""
        return "" if self._ownership is None else await self._ownership.owner()

    async def owns(self) -> bool:
        """Say whether the folder is this store's; asking takes nothing. Raises StoreError."""
        return self._ownership is None or await self._ownership.owns()

    async def pass_on(self, to: str) -> bool:
        """Make the folder that of the store with the id ``to``, if it is this store's; say whether it was. Raises StoreError."""
        if self._ownership is None or not await self._ownership.owns():
            return False
        await asyncio.to_thread(self._replace_owner, to)
        return True

    async def _read_owner(self) -> str:
        return await asyncio.to_thread(self._owner_kept)

    async def _keep_owner(self, owner: str) -> None:
        await asyncio.to_thread(self._keep, owner)

    def _owner_kept(self) -> str:
        # The folder beside another's database is that database's, though nothing in it says so.
        if self.folder.suffix == BESIDE and self.folder.with_suffix("").is_file():
            return str(self.folder.with_suffix(""))
        try:
            return (self.folder / OWNER).read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise _not_looked_at(self.folder, error) from error

    def _keep(self, owner: str) -> None:
        file = self.folder / OWNER
        try:
            self._make_folder(self.folder)
            part = _write(file, owner.encode())
            try:
                _link(part, file)
            finally:
                _remove(part)
            _sync_folder(self.folder)
        except OSError as error:
            raise _not_kept(self.folder, error) from error

    def _replace_owner(self, owner: str) -> None:
        try:
            self._rename(_write(self.folder / OWNER, owner.encode()), self.folder / OWNER)
        except OSError as error:
            raise _not_kept(self.folder, error) from error

    def _rename(self, part: Path, path: Path) -> None:
        try:
            with self._naming:
                part.replace(path)
        except OSError:
            _remove(part)
            raise
        _sync_folder(path.parent)

    def _path_of(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def _put(self, digest: str, data: bytes) -> None:
        invariant(hashlib.sha256(data).hexdigest() == digest, "blob_has_another_hash", digest=digest)
        path = self._path_of(digest)
        try:
            self._make_folder(path.parent)
            self._rename(_write(path, data), path)  # several may put the same content at once: the last one's is kept
        except OSError as error:
            raise _not_kept(self.folder, error) from error

    def _make_folder(self, folder: Path) -> None:
        # A folder that is there may have been made by a process that died before it was synced: once in each life.
        if folder in self._synced:
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for above in (self.folder, self.folder.parent):
            _sync_folder(above)
        self._synced.add(folder)

    def _get(self, digest: str) -> bytes:
        # The name came in from outside: what is not a hash is not made into a path.
        if not DIGEST.fullmatch(digest):
            raise _damaged(f"{digest[:64]!r} is not the name of a stored payload")
        try:
            data = self._path_of(digest).read_bytes()
        except FileNotFoundError:
            raise _damaged(f"the stored payload {digest} is missing") from None
        except OSError as error:
            raise StoreError(
                "unavailable",
                f"The stored payload {digest} cannot be read: {error.strerror}.",
                remedy=f"Look at the disk and at the rights on {self.folder}, then try again.",
            ) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise _damaged(f"the content of the stored payload {digest} has changed")
        return data

    def _sweep(self, referenced: Container[str], now: int) -> int:
        removed = 0
        for path in self._older(now):
            if path.name in referenced:
                continue
            with self._naming, contextlib.suppress(FileNotFoundError):
                if _is_old(path, now):
                    path.unlink()
                    removed += 1
        return removed

    def _aged(self, now: int) -> set[str]:
        return {path.name for path in self._older(now) if DIGEST.fullmatch(path.name)}

    def _older(self, now: int) -> Iterator[Path]:
        for path in sorted(self.folder.glob("??/*")):
            with contextlib.suppress(FileNotFoundError):
                if _is_old(path, now):
                    yield path


def _is_old(path: Path, now: int) -> bool:
    return path.stat().st_mtime_ns + SWEEP_AGE < now


def _write(path: Path, data: bytes) -> Path:
    """Return a file with ``data`` beside ``path``, on the disk, under a name that nobody else has: many may do so at once.

    Who may read the folder may read the file.
    """
    handle, name = tempfile.mkstemp(PART, f"{path.name}.", path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(PermissionError):  # there are file systems that keep no rights
            part.chmod(path.parent.stat().st_mode & 0o666)
    except OSError:
        _remove(part)
        raise
    return part


def _remove(part: Path) -> None:
    with contextlib.suppress(OSError):
        part.unlink()


def _link(part: Path, file: Path) -> None:
    """Give ``part`` the name ``file`` too, unless that is there: it appears with its content in it or not at all."""
    try:
        file.hardlink_to(part)
    except FileExistsError:
        return  # another was first
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # A file system without links: another may find the file empty for a moment, and then takes it for somebody else's.
        with contextlib.suppress(FileExistsError), file.open("xb") as claimed:
            claimed.write(part.read_bytes())
            claimed.flush()
            os.fsync(claimed.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # pragma: no cover - a folder cannot be synced there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _not_kept(folder: Path, error: OSError) -> StoreError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return StoreError(
            "store_full", f"There is no room for a payload in {folder}.", remedy="Free space on its disk."
        )
    return StoreError(
        "unavailable",
        f"A payload cannot be written to {folder}: {error.strerror}.",
        remedy="Give this user the right to write there, and look at the disk.",
    )


def _not_looked_at(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        "unavailable",
        f"{folder / OWNER} cannot be read: {error.strerror}.",
        remedy="Give this user the right to read there, and look at the disk.",
    )


def _damaged(fact: str) -> StoreError:
    return StoreError(
        "store_damaged",
        f"{fact[0].upper()}{fact[1:]}.",
        remedy="Restore the folder of payloads together with the database, from one backup.",
    )
