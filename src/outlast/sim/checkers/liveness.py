"""Progress: invariants 17, 20 and 29 at the end, and what the store holds beside what was committed."""

from outlast.core.units import SECOND
from outlast.sim.disk import Disk
from outlast.sim.scene import Scene
from outlast.sim.violation import require


def drained(scene: Scene) -> bool:
    """Return whether everything that was asked for has ended."""
    return not scene.mirror.open_runs and not scene.mirror.open_tasks and not scene.ledger.open_calls


def require_drained(scene: Scene, bound: int) -> None:
    """Raise Violation unless everything has come to an end within ``bound`` after healing."""
    mirror = scene.mirror
    stuck = [
        *(f"run {run_id} ready_at={mirror.runs[run_id].ready_at} timers={len(mirror.timers_of.get(run_id, {}))} "
          f"activities={mirror.states[run_id].activities} retry_at={mirror.states[run_id].task_retry_at}"
          for run_id in mirror.open_runs),
        *(f"task {task_id} {mirror.tasks[task_id].state.value} ready={mirror.tasks[task_id].ready} "
          f"lease={mirror.tasks[task_id].lease}" for task_id in mirror.open_tasks),
    ]  # fmt: skip
    if scene.ledger.open_calls:
        stuck.append(f"{scene.ledger.open_calls} calls without an answer")
    require(drained(scene), 20, "not_drained", f"{bound / SECOND:.0f} s after healing: {'; '.join(stuck[:5])}")


def require_same_rows(scene: Scene, disk: Disk) -> None:
    """Raise Violation unless the store holds just what was committed."""
    mirror, tables = scene.mirror, disk.tables
    require(tables.runs.keys() == mirror.runs.keys(), 6, "store_lost_runs", "the store and the commits differ")
    for run_id, row in mirror.runs.items():
        require(tables.runs[run_id] == row, 6, "store_changed_a_run", run_id)
    require(tables.tasks.keys() == mirror.tasks.keys(), 6, "store_lost_tasks", "the store and the commits differ")
    for task_id, task in mirror.tasks.items():
        require(tables.tasks[task_id] == task, 6, "store_changed_a_task", task_id)
    require(tables.timers == mirror.timers, 6, "store_changed_timers", "the store and the commits differ")
    require(tables.counters == mirror.counters, 29, "store_changed_counters", "the store and the commits differ")
