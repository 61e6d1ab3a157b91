"""The lock file beside a database: who has it, where they are reached, and that there has been a database at all.

Holding the operating system's lock on ``<database>.lock`` is owning the database; it ends with the process, however that
ends. The file's content outlives it: it says that a database was made and up to which commit it surely went, so that a
file that has vanished or gone back is noticed and never replaced by an empty one.
"""

import contextlib
import os
import socket
import sys
import time
import weakref
from pathlib import Path
from typing import Final

import msgspec

from outlast.store.base import StoreError

ACQUIRE_ATTEMPTS: Final = 5  # somebody who only looks holds the lock for an instant
ACQUIRE_PAUSE: Final = 0.02  # seconds
LOCK_FILE_BYTES_MAX: Final = 4096

_WINDOWS_LOCK_AT: Final = 1 << 30  # far behind the content, which must stay readable


class Holder(msgspec.Struct, omit_defaults=True):
    """What the lock file says. ``number`` and ``incarnation`` are of a commit that is surely in the database."""

    pid: int = 0
    address: str = ""
    host: str = ""
    started_at: int = 0
    database: bool = False
    incarnation: int = 0
    number: int = 0


class FileLock:
    """The lock of one database, from ``acquire`` to ``release``. Not held by children of a fork."""

    def __init__(self, database: str) -> None:
        self.path = lock_path_of(database)
        self.holder = Holder()
        self._database = database
        self._file = -1

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._file >= 0

    def acquire(self) -> Holder:
        """Take the lock and return what the file said before.

        Raises StoreError "store_locked", naming who has it, and "unavailable" when the file cannot be made.
        """
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise StoreError(
                "unavailable",
                f"The lock file {self.path} cannot be opened: {error.strerror}.",
                remedy="Make its folder, and give this user the right to write there.",
            ) from error
        for attempt in range(ACQUIRE_ATTEMPTS):
            if _try_lock(file):
                break
            if attempt + 1 < ACQUIRE_ATTEMPTS:
                time.sleep(ACQUIRE_PAUSE)
        else:
            found = _read(file) or Holder()
            os.close(file)
            raise _locked(self._database, found)
        self._file = file
        _held.add(self)
        before = _read(file) or Holder()
        self.holder = Holder(
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=time.time_ns(),  # noqa: TID251 - for people; decides nothing
            database=before.database,
            incarnation=before.incarnation,
            number=before.number,
        )
        return before

    def announce(self, address: str) -> None:
        """Tell other processes where the holder is reached, for example ``http://127.0.0.1:7777``."""
        self.holder.address = address
        self.write()

    def note(self, *, incarnation: int, number: int) -> None:
        """Record that there is a database, and that commit ``number`` is in it."""
        self.holder.database = True
        self.holder.incarnation = incarnation
        self.holder.number = number
        self.write()

    def write(self) -> None:
        """Bring ``holder`` to the file. A full disk is let pass: what the file said before stays true."""
        if self._file < 0:
            return
        content = msgspec.json.encode(self.holder)
        # One write of one length: readers see the old or the new content, as long as the file has a block at all.
        with contextlib.suppress(OSError):
            os.pwrite(self._file, content.ljust(512), 0) if hasattr(os, "pwrite") else _write_at(self._file, content)

    def release(self) -> None:
        """Give the lock back; the file stays."""
        if self._file < 0:
            return
        self.holder.pid = 0
        self.holder.address = ""
        self.write()
        self._close()

    def _close(self) -> None:
        _held.discard(self)
        file, self._file = self._file, -1
        os.close(file)


def lock_path_of(database: str) -> str:
    """Return the path of the lock file of ``database``."""
    return f"{real_path(database)}.lock"


def real_path(database: str) -> str:
    """Return ``database`` from the root, or the file that it is a link to: by whichever name, it has one lock and one log.

    User code may change the working directory of the process: a file that is opened again must be the same one.
    """
    return os.path.realpath(database) if os.path.islink(database) else os.path.abspath(database)  # noqa: PTH100, PTH114 - a text stays one


def read_holder(database: str) -> Holder | None:
    """Return who has ``database`` at the moment, or None if nobody does."""
    try:
        file = os.open(lock_path_of(database), os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        if _try_lock(file):
            return None
        return _read(file) or Holder()
    finally:
        os.close(file)


def last_holder(database: str) -> Holder:
    """Return what the lock file of ``database`` says of it, whether or not somebody has it now."""
    try:
        file = os.open(lock_path_of(database), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return Holder()
    try:
        return _read(file) or Holder()
    finally:
        os.close(file)


def refuse_held(database: str) -> None:
    """Raise StoreError "store_locked", naming who has ``database``, if somebody does at the moment."""
    holder = read_holder(database)
    if holder is not None and holder.pid:  # one without a number only looks: it is gone in an instant
        raise _locked(database, holder)


def _locked(database: str, holder: Holder) -> StoreError:
    who = f"process {holder.pid}" if holder.pid else "another process"
    where = f", reached at {holder.address}" if holder.address else ""
    host = f" on {holder.host}" if holder.host and holder.host != socket.gethostname() else ""
    return StoreError(
        "store_locked",
        f"The database {Path(database).name} is held by {who}{host}{where}.",
        remedy=f"Ask that engine: outlast workflow list --server {holder.address}. Or stop {who} first."
        if holder.address
        else f"It serves no other process yet, or none at all: stop {who} first, or look again in a moment.",
    )


def _read(file: int) -> Holder | None:
    os.lseek(file, 0, os.SEEK_SET)
    content = os.read(file, LOCK_FILE_BYTES_MAX).strip(b" \0\n")
    try:
        return msgspec.json.decode(content, type=Holder)
    except msgspec.MsgspecError:
        # Empty at the first start; torn after a power cut. What it said is gone, and the database is judged by itself.
        return None


def _write_at(file: int, content: bytes) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, content.ljust(512))


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try_lock(file: int) -> bool:
        os.lseek(file, _WINDOWS_LOCK_AT, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


_held: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


def _forget_in_child() -> None:
    # A lock belongs to the open file, which a forked child shares: without this a child that outlives its parent would
    # keep the database locked. Closing the child's copy leaves the parent's lock alone.
    for lock in list(_held):
        lock._close()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
