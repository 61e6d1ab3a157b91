"""A disk whose power can be cut: a SQLite VFS in memory that keeps apart what was synced and what was only written.

At a cut each 512-byte sector that was written since the file's last sync is kept, dropped or filled with noise, by a seeded draw
and in no order; a sector once synced stays. What is left can be laid out as ordinary files.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
KEEP_CHANCES = (0.0, 0.1, 0.5, 0.9, 1.0)  # of one cut: from "nothing had reached the disk" to "all had"
NOISE_CHANCE = 0.3  # of a sector that is not kept: written half, so that it holds neither the old nor the new


@dataclass(slots=True)
class Written:
    """A write, or with ``size`` a truncation, since the last sync."""

    offset: int
    data: bytes
    size: int = -1


@dataclass(slots=True)
class CutFile:
    """One file: as its process sees it, as it was at its last sync, and what came since."""

    seen: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    since: list[Written] = field(default_factory=list[Written])
    exists_for_sure: bool = False


@dataclass(slots=True)
class Tally:
    """What the cuts did to sectors that were not synced."""

    kept: int = 0
    dropped: int = 0
    noise: int = 0
    torn_writes: int = 0


class PowerIsOff(apsw.IOError):
    """The disk answers nothing any more."""


class CutDisk:
    """Files in memory, and the operation at which their power goes."""

    def __init__(self, chance: random.Random, tally: Tally, *, files: dict[str, bytes], cut_at: int) -> None:
        self.files = {name: CutFile(bytearray(data), synced=data, exists_for_sure=True) for name, data in files.items()}
        self.left: dict[str, bytes] | None = None
        """What the cut left, once it has happened."""
        self._chance = chance
        self._tally = tally
        self._cut_at = cut_at
        self._operations = 0

    def operation(self) -> None:
        """Count one operation; cut the power if it is the one."""
        if self.left is not None:
            raise PowerIsOff
        self._operations += 1
        if self._operations == self._cut_at:
            self.cut()
            raise PowerIsOff

    def cut(self) -> None:
        """Take the power away, if it is still there."""
        if self.left is not None:
            return
        keep = self._chance.choice(KEEP_CHANCES)
        self.left = {}
        for name, file in sorted(self.files.items()):
            if file.exists_for_sure or self._chance.random() < keep:
                self.left[name] = self._left_of(file, keep)

    def _left_of(self, file: CutFile, keep: float) -> bytes:
        left = bytearray(file.synced)
        for written in file.since:
            if written.size >= 0:
                if self._chance.random() < keep:
                    _resize(left, written.size)
                continue
            fates: set[str] = set()
            for start in range(0, len(written.data), SECTOR):
                piece = written.data[start : start + SECTOR]
                fates.add(self._lay(left, written.offset + start, piece, keep))
            self._tally.torn_writes += len(fates) > 1
        return bytes(left)

    def _lay(self, left: bytearray, offset: int, piece: bytes, keep: float) -> str:
        if self._chance.random() < keep:
            self._tally.kept += 1
            fate = "kept"
        elif self._chance.random() < NOISE_CHANCE:
            self._tally.noise += 1
            piece = self._chance.randbytes(len(piece))
            fate = "noise"
        else:
            self._tally.dropped += 1
            return "dropped"
        if len(left) < offset + len(piece):
            _resize(left, offset + len(piece))
        left[offset : offset + len(piece)] = piece
        return fate


class CutVfs(apsw.VFS):
    """A registered VFS named ``name`` over a disk."""

    def __init__(self, name: str, disk: CutDisk) -> None:
        self._disk = disk
        super().__init__(name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802 - SQLite's name
        path = "" if name is None else name if isinstance(name, str) else name.filename()
        if self._disk.left is not None:
            raise PowerIsOff
        flags[1] = flags[0]
        file = CutFile() if not path else self._disk.files.setdefault(path, CutFile())
        return OpenFile(self._disk if path else None, file)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.operation()
        self._disk.files.pop(filename, None)

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        return pathname in self._disk.files

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


class OpenFile:
    """An open file of the disk; without a disk, a temporary one."""

    def __init__(self, disk: CutDisk | None, file: CutFile) -> None:
        self._disk = disk
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        seen = self._file.seen
        if len(seen) < offset:
            _resize(seen, offset)
        seen[offset : offset + len(data)] = data
        self._file.since.append(Written(offset, bytes(data)))
        self._count()

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        _resize(self._file.seen, newsize)
        self._file.since.append(Written(0, b"", newsize))
        self._count()

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._count()
        self._file.synced = bytes(self._file.seen)
        self._file.since.clear()
        self._file.exists_for_sure = True

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._file.seen)

    def xSectorSize(self) -> int:  # noqa: N802
        return SECTOR

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        # What the real VFS says as well: a write that is cut does not harm the bytes beside it.
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: N802
        return False

    def xLock(self, level: int) -> None: ...  # noqa: N802

    def xUnlock(self, level: int) -> None: ...  # noqa: N802

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xClose(self) -> None: ...  # noqa: N802

    def _count(self) -> None:
        if self._disk is not None:
            self._disk.operation()


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    """Write what a cut left as ordinary files into ``folder``, under their last names."""
    for name, data in files.items():
        (folder / Path(name).name).write_bytes(data)


def _resize(data: bytearray, size: int) -> None:
    if len(data) > size:
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
