"""Bounds: invariants 52, 64, 78 and 79."""

from outlast.sim.mirror import Change
from outlast.sim.scene import Scene
from outlast.sim.violation import require

_INPUT_ROWS_MAX = 400  # what a single input may add to a batch beyond its bound: the programs here are small


class Bounds:
    """Watches sizes."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.rows_read = 0

    def committed(self, change: Change) -> None:
        """Check the size of one commit."""
        most = self._scene.config.knobs.batch_rows_max
        require(change.batch.rows() <= most + _INPUT_ROWS_MAX, 64, "batch_over_its_bound", change.batch.rows())
