"""Retention beside all that goes wrong: whichever node serves is asked to forget what closed long ago, a stretch at a time.

As in an engine, what is asked for was read from the store a moment before. Unlike there, some of what is asked for must not
be forgotten at all.
"""

from collections.abc import Callable
from random import Random

from outlast.core.admin import Forget
from outlast.core.units import MILLISECOND
from outlast.sim.disk import Disk
from outlast.sim.kernel import Kernel
from outlast.sim.node import Node

_STRETCH = 6


class Sweeper:
    """Asks for what closed before ``before``, until ``done`` says that it is all over."""

    def __init__(
        self, kernel: Kernel, nodes: list[Node], disk: Disk, namespaces: tuple[str, ...], *, before: int,
        done: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._kernel = kernel
        self._nodes = nodes
        self._disk = disk
        self._namespaces = namespaces
        self._before = before
        self._done = done
        self._chance = kernel.stream("sweeper", "choices")

    def left(self) -> list[str]:
        """Return what closed before the instant and is there still."""
        tables = self._disk.tables
        return [
            *(row.run_id for row in tables.runs.values() if 0 < row.closed_at < self._before),
            *(row.task_id for row in tables.tasks.values() if 0 < row.closed_at < self._before),
        ]

    def begin(self) -> None:
        """Go on from now."""
        self._kernel.after(int(self._chance.uniform(0.1, 2.0) * 100 * MILLISECOND), "sweep", self._round)

    def _round(self) -> None:
        if self._done():
            return
        chance = self._chance
        for namespace in self._namespaces:
            request = self._request(chance, namespace)
            if request.runs or request.tasks:
                span = int(chance.expovariate(1.0) * 5 * MILLISECOND)
                self._kernel.after(span, "sweep asks", self._ask, request, namespace)
        self.begin()

    def _ask(self, request: Forget, namespace: str) -> None:
        node = next((node for node in self._nodes if node.core is not None and node.process.up), None)
        if node is not None:
            node.process.deliver(node.ask_own, request, namespace)

    def _request(self, chance: Random, namespace: str) -> Forget:
        tables = self._disk.tables
        tasks = [row for row in tables.tasks.values() if row.namespace == namespace]
        closed = [row.task_id for row in tasks if 0 < row.closed_at < self._before]
        kept = {row.run_id for row in tasks}
        bound = self._before
        runs = [
            row.run_id for row in tables.runs.values()
            if row.namespace == namespace and 0 < row.closed_at < self._before and row.run_id not in kept
        ]  # fmt: skip
        if chance.random() < 0.3:  # what is open, or closed a moment ago, and what belongs to others
            closed += [
                row.task_id for row in tables.tasks.values() if row.closed_at >= self._before or not row.closed_at
            ]
            runs += [row.run_id for row in tables.runs.values() if row.closed_at >= self._before or not row.closed_at]
            bound = self._kernel.now
        return Forget(
            tasks=tuple(chance.sample(closed, min(len(closed), _STRETCH))),
            runs=tuple(chance.sample(runs, min(len(runs), _STRETCH))),
            closed_before=bound,
        )
