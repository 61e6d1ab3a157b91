"""The clockwork of a simulation: one heap of events, named streams of chance, and a digest of everything that happened.

Only this module moves time. Events of the same instant run in an order drawn from the seed, so that no order is taken
for granted; nothing here depends on the hash seed or on the machine.
"""

import heapq
import zlib
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

_MASK: Final = (1 << 64) - 1
_FACTOR: Final = 0x9E3779B97F4A7C15
_LINES_KEPT: Final = 400
START: Final = 1_700_000_000_000_000_000  # true time at which every simulation begins, in nanoseconds


class Alarm:
    """One event in the heap; ``cancel`` makes it do nothing."""

    __slots__ = ("arguments", "call", "label")

    def __init__(self, label: str, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.label = label
        self.call: Callable[..., None] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        """Take the event back; harmless when it has run already."""
        self.call = None
        self.arguments = ()


class Kernel:
    """Time, order and chance of one simulation."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.now = START
        self.events = 0
        self.digest = seed & _MASK
        self.tracing = trace
        self.lines: deque[tuple[int, str]] = deque(maxlen=None if trace else _LINES_KEPT)
        self._heap: list[tuple[int, int, int, Alarm]] = []
        self._sequence = 0
        self._ties = self.stream("kernel", "ties")

    def stream(self, entity: str, purpose: str) -> Random:
        """Return a source of chance of its own: what is drawn elsewhere does not move it."""
        return Random(f"{self.seed}/{entity}/{purpose}")

    def at(self, when: int, label: str, call: Callable[..., None], *arguments: Any) -> Alarm:
        """Run ``call(*arguments)`` at true time ``when``, or now if that has passed."""
        alarm = Alarm(label, call, arguments)
        self._sequence += 1
        heapq.heappush(self._heap, (max(when, self.now), self._ties.getrandbits(32), self._sequence, alarm))
        return alarm

    def after(self, span: int, label: str, call: Callable[..., None], *arguments: Any) -> Alarm:
        """Run ``call(*arguments)`` after ``span`` nanoseconds of true time."""
        return self.at(self.now + span, label, call, *arguments)

    def note(self, text: str) -> None:
        """Put a line into the digest and the trace."""
        self.digest = ((self.digest ^ zlib.crc32(text.encode())) * _FACTOR + self.now) & _MASK
        self.lines.append((self.now, text))

    def run(self, *, until: int, stop: Callable[[], bool] | None = None) -> bool:
        """Run events in order up to true time ``until``. Returns True as soon as ``stop`` says so, looked at now and then."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, tie, _, alarm = heapq.heappop(heap)
            call = alarm.call
            if call is None:
                continue
            self.now = when
            self.events += 1
            self.digest = ((self.digest ^ zlib.crc32(alarm.label.encode())) * _FACTOR + when + tie) & _MASK
            if self.tracing:
                self.lines.append((when, f". {alarm.label}"))
            call(*alarm.arguments)
            if stop is not None and not self.events & 15 and stop():
                return True
        self.now = max(self.now, until)
        return stop is not None and stop()

    def tail(self, count: int = 200) -> list[str]:
        """Return the last ``count`` lines of the trace, with seconds since the start."""
        return [f"{(when - START) / 1e9:12.6f} {text}" for when, text in list(self.lines)[-count:]]


class Process:
    """The life of one simulated process: what was scheduled before a crash never runs, what falls into a pause runs after it."""

    __slots__ = ("_held", "incarnation", "kernel", "name", "paused_until", "resuming", "up")

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.incarnation = 1
        self.up = True
        self.paused_until = 0
        self.resuming = False  # what was held back is being run
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def after(self, span: int, label: str, call: Callable[..., None], *arguments: Any) -> Alarm:
        """Run ``call`` in this process after ``span``, unless it crashes before."""
        return self.kernel.after(span, label, self._own, self.incarnation, call, arguments)

    def at(self, when: int, label: str, call: Callable[..., None], *arguments: Any) -> Alarm:
        """Run ``call`` in this process at true time ``when``, unless it crashes before."""
        return self.kernel.at(when, label, self._own, self.incarnation, call, arguments)

    def deliver(self, call: Callable[..., None], *arguments: Any) -> None:
        """Run ``call`` in whatever incarnation is up: how a message arrives. Lost when the process is down."""
        if not self.up:
            return
        if self.paused_until:
            self._held.append((call, arguments))
            return
        call(*arguments)

    def crash(self) -> None:
        """End the process with everything in it."""
        self.incarnation += 1
        self.up = False
        self.paused_until = 0
        self._held.clear()

    def start(self) -> None:
        """Bring a crashed process up again, empty."""
        self.up = True

    def pause(self, span: int) -> None:
        """Freeze the process for ``span``; what arrives meanwhile is held back in order."""
        if not self.up or self.paused_until:
            return
        self.paused_until = self.kernel.now + span
        self.kernel.after(span, f"resume {self.name}", self._resume, self.incarnation)

    def _resume(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            return
        self.paused_until = 0
        held, self._held = self._held, []
        self.resuming = True
        for call, arguments in held:
            if incarnation != self.incarnation:
                break
            call(*arguments)
        self.resuming = False

    def _own(self, incarnation: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if incarnation != self.incarnation or not self.up:
            return
        if self.paused_until:
            self._held.append((call, arguments))
            return
        call(*arguments)
