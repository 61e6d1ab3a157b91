"""A bounded view in memory of the front of an ordered table.

``low`` is the last key up to which everything is here; what is behind it may be in the store alone (None: everything is
here). A row behind it is not taken in, it stays a row; when the view runs short, the next page is asked for. Rows left out
while a page was being read may not be on it, since they were not committed yet: ``low`` then stays in front of them.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")
Key = tuple[int, str]
BEFORE_ALL: Final[Key] = (-(2**63), "")


@dataclass(slots=True)
class Window(Generic[T]):
    """Rows by key, smallest first. An item may stand in it twice, and after it is gone: takers check the item itself."""

    size_max: int
    size_low: int
    low: Key | None = BEFORE_ALL
    heap: list[tuple[Key, T]] = field(default_factory=list[tuple[Key, T]])
    loading: bool = False
    stuck: bool = False  # a page brought it no further, since rows are not committed yet: wait for the next commit
    left_out: deque[tuple[int, Key]] = field(default_factory=deque[tuple[int, Key]])  # number of its batch, key
    last_committed: int = 0  # number of the last batch that this window was told of

    def covers(self, key: Key) -> bool:
        """Return whether a row with this key belongs here rather than in the store alone."""
        return self.low is None or key <= self.low

    def put(self, key: Key, item: T, *, number: int) -> bool:
        """Take the row in, or leave it to the store; return whether it was taken. ``number`` is the batch that writes it."""
        if not self.covers(key):
            self.left_out.append((number, key))
            return False
        heapq.heappush(self.heap, (key, item))
        return True

    def push(self, key: Key, item: T) -> None:
        """Take in a row that a page brought, wherever ``low`` is."""
        heapq.heappush(self.heap, (key, item))

    def pop(self) -> T:
        """Take the first row out."""
        return heapq.heappop(self.heap)[1]

    def evict(self, *, number: int) -> list[T]:
        """Drop the tail when the window has grown to twice its size; return what was dropped.

        ``number`` is the batch that gathers: what is dropped may be of it, and then on no page before it has committed.
        """
        if len(self.heap) < 2 * self.size_max:
            return []
        self.heap.sort()  # a sorted list is a heap
        dropped = [item for _, item in self.heap[self.size_max :]]
        last_kept = self.heap[self.size_max - 1][0]
        self.low = last_kept if self.low is None else min(self.low, last_kept)
        self.left_out.extend((number, key) for key, _ in self.heap[self.size_max :])
        del self.heap[self.size_max :]
        return dropped

    def wants_page(self) -> bool:
        """Return whether the next page should be read now: few rows are left, or the first may not be the first of all."""
        if self.low is None or self.loading or self.stuck:
            return False
        return len(self.heap) <= self.size_low or self.heap[0][0] > self.low

    def page_read(self, keys: list[Key], *, at_end: bool, committed_at_ask: int) -> None:
        """Note that the page with ``keys`` was taken in; ``at_end`` when no row followed it.

        ``committed_at_ask`` is the number of the last batch that was committed when the page was asked for.
        """
        self.loading = False
        self._forget(committed_at_ask)
        reached = None if at_end else keys[-1]
        if self.left_out:
            missing = min(key for _, key in self.left_out)
            if reached is None or reached >= missing:
                reached = max((key for key in keys if key < missing), default=self.low)
        self._forget(self.last_committed)
        # When all is committed that was missing, asking again brings it; else there is nothing to ask before the next commit.
        self.stuck = reached == self.low and bool(self.left_out)
        self.low = reached

    def committed(self, number: int) -> None:
        """Note that batch ``number`` has committed: its rows will be on the next page."""
        self.stuck = False
        self.last_committed = number
        if not self.loading:
            self._forget(number)

    def _forget(self, number: int) -> None:
        while self.left_out and self.left_out[0][0] <= number:
            self.left_out.popleft()
