"""Retention: invariant 69. Only what closed long ago is forgotten, whole, and what is forgotten stays away."""

from outlast.core.replies import RunStatus
from outlast.core.task import TERMINAL
from outlast.sim.mirror import Change
from outlast.sim.scene import Scene
from outlast.sim.violation import require


class Retention:
    """Watches what commits take away."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def committed(self, change: Change) -> None:
        """Check what one commit has forgotten."""
        mirror, hit = self._scene.mirror, self._scene.coverage.hit
        # An owner forgets by its own clock.
        bound = change.now + self._scene.config.skew - self._scene.window
        for run in change.forgotten_runs:
            require(run.status != RunStatus.RUNNING.value, 69, "open_run_forgotten", run.run_id)
            require(run.closed_at <= bound, 69, "run_forgotten_early", f"{run.run_id}: {run.closed_at - bound} early")
            left = [task.task_id for task in mirror.tasks.values() if task.run_id == run.run_id]
            require(not left, 69, "run_forgotten_before_its_activities", f"{run.run_id}: {left[:3]}")
            hit("run_forgotten")
        for task in change.forgotten_tasks:
            require(task.state in TERMINAL, 69, "open_task_forgotten", task.task_id)
            require(
                task.closed_at <= bound, 69, "task_forgotten_early", f"{task.task_id}: {task.closed_at - bound} early"
            )
            hit("task_forgotten")
        for old, run in change.runs:
            if old is None and (run.namespace, run.workflow_id) in mirror.gone_names:
                hit("forgotten_id_used_again")

    def finish(self, left: list[str]) -> None:
        """Check that all that was to be forgotten is gone."""
        require(not left, 69, "not_forgotten", left[:5])
