"""Bounds: invariants 52 and 64. What is kept in memory is bounded, and nothing is left when nothing is wanted."""

from outlast.sim.mirror import Change
from outlast.sim.node import Node
from outlast.sim.scene import Scene
from outlast.sim.violation import require

_INPUT_ROWS_MAX = 400  # what a single input may add to a batch beyond its bound: the programs here are small
_SLACK = 130  # caches are cut when a commit returns, and the rows of that commit stay in memory


class Bounds:
    """Watches sizes."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def committed(self, change: Change) -> None:
        """Check the size of one commit."""
        most = self._scene.config.knobs.batch_rows_max
        require(change.batch.rows() <= most + _INPUT_ROWS_MAX, 64, "batch_over_its_bound", change.batch.rows())

    def finish(self, nodes: list[Node]) -> None:
        """Check what an owner still has in memory when all work has ended."""
        knobs = self._scene.config.knobs
        for node in nodes:
            core = node.core
            if core is None or core.stepped_down:
                continue
            shard = core.shard
            held = {
                "leases": shard.leased,
                "turns": shard.turns,
                "callers who wait": len(shard.waiting),
                # An owner that renews its lease always has a batch in flight, and an empty poll may end beside it.
                "answers held back": sum(number != shard.in_flight for number, _ in shard.gate.waiting),
                "inputs that wait for rows": len(core.loading.lines.held),
            }
            left = {name: count for name, count in held.items() if count}
            require(not left, 52, "work_left_in_memory", f"{node.owner}: {left}")
            require(len(shard.runs) <= knobs.runs_cached_max + _SLACK, 64, "too_many_runs_cached", len(shard.runs))
            require(len(shard.tasks) <= knobs.tasks_cached_max + _SLACK, 64, "too_many_tasks_cached", len(shard.tasks))
