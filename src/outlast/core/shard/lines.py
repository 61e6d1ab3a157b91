"""Inputs that wait for rows, in the order in which they came.

An input stands in the line of every entity that it needs, read already or not, and whoever comes later and needs one of them
stands behind it. So nothing overtakes an input because one of its rows was read sooner than another.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from outlast.core.shard.admitted import Admitted
from outlast.core.shard.needs import Key


@dataclass(slots=True, eq=False)
class Held:
    """An input that waits, and the lines that it stands in."""

    number: int
    admitted: Admitted
    keys: dict[Key, None] = field(default_factory=dict[Key, None])


@dataclass(slots=True)
class Lines:
    """All inputs that wait. The first of all of them is at the head of each of its lines, so somebody always goes on."""

    held: dict[int, Held] = field(default_factory=dict[int, Held])
    _numbers: int = 0
    _lines: dict[Key, list[int]] = field(default_factory=dict[Key, list[int]])  # heaps of numbers; some have gone
    _of_ticket: dict[object, int] = field(default_factory=dict[object, int])
    _candidates: list[int] = field(default_factory=list[int])  # heap: at the head of a line that has moved

    def hold(self, admitted: Admitted, keys: Iterable[Key]) -> None:
        """Put an input at the end of the lines of ``keys``."""
        self._numbers += 1
        held = self.held[self._numbers] = Held(self._numbers, admitted)
        if admitted.ticket is not None:
            self._of_ticket[admitted.ticket] = held.number
        self.extend(held, keys)

    def extend(self, held: Held, keys: Iterable[Key]) -> None:
        """Have ``held`` stand in the lines of ``keys`` as well, before all that came after it."""
        for key in keys:
            if key not in held.keys:
                held.keys[key] = None
                heapq.heappush(self._lines.setdefault(key, []), held.number)

    def stand_in(self, keys: Iterable[Key]) -> bool:
        """Return whether an input waits in the line of one of ``keys``."""
        return any(key in self._lines for key in keys)

    def moved(self, key: Key) -> None:
        """Have the head of the line of ``key`` looked at."""
        line = self._lines.get(key)
        while line and line[0] not in self.held:
            heapq.heappop(line)
        if line:
            heapq.heappush(self._candidates, line[0])
        else:
            self._lines.pop(key, None)

    def next_first(self) -> Held | None:
        """Return the oldest input that has been looked at since and is the first in all its lines, None when there is none."""
        while self._candidates:
            held = self.held.get(heapq.heappop(self._candidates))
            if held is not None and self.leads(held):
                return held
        return None

    def leads(self, held: Held) -> bool:
        """Return whether ``held`` is the first in all its lines."""
        return all(self._lines[key][0] == held.number for key in held.keys)

    def take(self, held: Held) -> None:
        """Let ``held`` out of its lines; those behind it are looked at next."""
        del self.held[held.number]
        self._of_ticket.pop(held.admitted.ticket, None)
        for key in held.keys:
            self.moved(key)

    def of_ticket(self, ticket: object) -> Held | None:
        """Return the input with this ticket, if it waits."""
        number = self._of_ticket.get(ticket)
        return None if number is None else self.held[number]
