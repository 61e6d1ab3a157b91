"""Messages between processes: they take time, and may be lost, doubled, delivered much later, or cut off one way."""

from collections.abc import Callable
from typing import Any

from outlast.sim.faults import FaultLog, Faults
from outlast.sim.kernel import Kernel, Process


class Network:
    """All links of a simulation. Faults are drawn per message while ``faults.live``."""

    def __init__(self, kernel: Kernel, faults: Faults, log: FaultLog) -> None:
        self._kernel = kernel
        self._faults = faults
        self._log = log
        self._chance = kernel.stream("network", "messages")
        self._cut: dict[tuple[str, str], int] = {}  # (source, target) -> true time until which nothing passes

    def cut(self, source: str, target: str, span: int) -> None:
        """Let nothing pass from ``source`` to ``target`` for ``span``; the other way stays open."""
        self._cut[(source, target)] = self._kernel.now + span

    def heal(self) -> None:
        """Open every link."""
        self._cut.clear()

    def send(self, source: str, target: Process, label: str, call: Callable[..., None], *arguments: Any) -> None:
        """Deliver ``call(*arguments)`` to ``target``, perhaps: see the module."""
        faults, chance = self._faults, self._chance
        draw = chance.random()
        span = int(faults.latency * (0.3 + chance.expovariate(1.0)))
        if self._cut.get((source, target.name), 0) > self._kernel.now:
            self._log.hit("net_cut_message")
            return
        if faults.live:
            if draw < faults.net_loss:
                self._log.hit("net_loss")
                return
            if draw < faults.net_loss + faults.net_late:
                self._log.hit("net_late")
                span += int(faults.late_span * (0.1 + chance.random()))
            elif draw < faults.net_loss + faults.net_late + faults.net_double:
                self._log.hit("net_double")
                again = span + int(faults.late_span * chance.random() ** 3)
                self._kernel.after(again, label, target.deliver, call, *arguments)
        self._kernel.after(span, label, target.deliver, call, *arguments)
