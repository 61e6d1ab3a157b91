"""A set of keys in order, in short blocks: what an index of a database is, in memory."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])

BLOCK: Final = 512  # keys; a block splits at twice that


class SortedKeys(Generic[K]):
    """Distinct keys in order. Adding, dropping and finding a place cost a logarithm and one short move."""

    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[K]] = []
        self._lasts: list[K] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        for block in self._blocks:
            yield from block

    def add(self, key: K) -> None:
        """Put ``key`` in; it must not be there."""
        self._count += 1
        if not self._blocks:
            self._blocks.append([key])
            self._lasts.append(key)
            return
        at = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        block = self._blocks[at]
        insort(block, key)
        if len(block) > 2 * BLOCK:
            self._blocks.insert(at + 1, block[BLOCK:])
            del block[BLOCK:]
            self._lasts.insert(at, block[-1])
        self._lasts[at] = block[-1]
        self._lasts[-1] = self._blocks[-1][-1]

    def drop(self, key: K) -> None:
        """Take ``key`` out; it must be there."""
        at = bisect_left(self._lasts, key)
        block = self._blocks[at]
        place = bisect_left(block, key)
        if block[place] != key:
            raise KeyError(key)
        del block[place]
        self._count -= 1
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def after(self, key: K) -> Iterator[K]:
        """Yield the keys above ``key`` in order. The set must not change meanwhile."""
        at = bisect_right(self._lasts, key)
        if at == len(self._blocks):
            return
        block = self._blocks[at]
        yield from block[bisect_right(block, key) :]
        for later in self._blocks[at + 1 :]:
            yield from later

    def before(self, key: K | None) -> Iterator[K]:
        """Yield the keys below ``key`` (all for None) in reverse order. The set must not change meanwhile."""
        blocks = self._blocks
        at = len(blocks) if key is None else bisect_left(self._lasts, key)
        if key is not None and at < len(blocks):
            block = blocks[at]
            yield from reversed(block[: bisect_left(block, key)])
        for earlier in reversed(blocks[:at]):
            yield from reversed(earlier)
