"""Instants at which something in memory must be looked at: the ends of leases, of turns, of waits.

Most entries of one kind last equally long and so come in order: they stand in a line, which costs the same however long it
is. Those out of order stand in a heap. Entries are never removed; whether they still stand is looked at when they come up.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

Entry = tuple[int, str, int]  # instant, target, number
Due = tuple[str, str, int]  # kind, target, number


@dataclass(slots=True)
class Expiries:
    """Entries by kind, the first that is due first."""

    lines: dict[str, deque[Entry]] = field(default_factory=dict[str, deque[Entry]])
    strays: list[tuple[int, str, str, int]] = field(default_factory=list[tuple[int, str, str, int]])

    def put(self, at: int, kind: str, target: str, n: int) -> None:
        """Have ``target`` looked at when ``at`` has come."""
        line = self.lines.get(kind)
        if line is None:
            line = self.lines[kind] = deque()
        if line and at < line[-1][0]:
            heapq.heappush(self.strays, (at, kind, target, n))
        else:
            line.append((at, target, n))

    def next_at(self) -> int | None:
        """Return the first instant of all, None when there is no entry."""
        firsts = [line[0][0] for line in self.lines.values() if line]
        if self.strays:
            firsts.append(self.strays[0][0])
        return min(firsts, default=None)

    def take(self, now: int, limit: int) -> list[Due]:
        """Take out up to ``limit`` entries that are due at ``now``."""
        due: list[Due] = []
        for kind, line in self.lines.items():
            while line and line[0][0] <= now and len(due) < limit:
                _, target, n = line.popleft()
                due.append((kind, target, n))
        strays = self.strays
        while strays and strays[0][0] <= now and len(due) < limit:
            _, kind, target, n = heapq.heappop(strays)
            due.append((kind, target, n))
        return due
