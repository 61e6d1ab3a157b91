"""What handlers in other processes have done, in a small file that all of them map: a count, and an instant a number.

One process writes, any may read. Only the standard library: peers' programs use it in an environment of their own.
"""

import mmap
import struct
import time
from pathlib import Path

SLOTS = 10_000


class Tally:
    """Slot 0 is a count, the others hold instants in seconds; 0 where nothing was noted."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.exists():
            self._path.write_bytes(bytes(8 * (SLOTS + 1)))
        with self._path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * (SLOTS + 1))

    @property
    def count(self) -> int:
        """How often ``add`` was called since it was cleared."""
        return int(struct.unpack_from("q", self._map, 0)[0])

    def add(self) -> None:
        """Count one more."""
        struct.pack_into("q", self._map, 0, self.count + 1)

    def stamp(self, number: int) -> None:
        """Note that ``number`` happens now."""
        struct.pack_into("d", self._map, 8 * (1 + number % SLOTS), time.time())

    def stamped(self, number: int) -> float:
        """Return when ``number`` happened, 0.0 if it has not."""
        return float(struct.unpack_from("d", self._map, 8 * (1 + number % SLOTS))[0])

    def clear(self) -> None:
        """Forget everything."""
        self._map[:] = bytes(len(self._map))
