"""What must hold of the stored rows of a shard, whatever has happened."""

from collections import Counter

from outlast.core.codec import decode_events, decode_spec, decode_state, decode_timed
from outlast.core.invariants import Broken, Reference, run_findings, task_findings, waker_of
from outlast.core.replies import TaskState
from outlast.core.run import fold
from outlast.core.task import TERMINAL
from outlast.core.writes import RunRow, TimerKind, TimerRow
from outlast.store.memory.tables import Tables

RUN_KINDS = {TimerKind.RUN_TIMER.value, TimerKind.RUN_TIMEOUT.value, TimerKind.RUN_BACKOFF.value}

DERIVED = ("activities", "timers", "signals", "cancel_requested", "search_attributes", "last_task_started_id")


def broken_laws(tables: Tables) -> list[str]:
    """Return a sentence for each law that ``tables`` break."""
    by_target: dict[str, list[TimerRow]] = {}
    for timer in tables.timers.values():
        by_target.setdefault(timer.target, []).append(timer)
    found: list[str] = []
    for row in tables.runs.values():
        found += _of_run(tables, row, by_target.get(row.run_id, []))
    found += _of_tasks(tables, by_target)
    found += [f"timer {row} of nothing" for row in tables.timers.values() if _is_lost(tables, row)]
    return found + _of_counters(tables)


def _of_run(tables: Tables, row: RunRow, timers: list[TimerRow]) -> list[str]:
    history = [timed for page in tables.history[row.run_id] for timed in decode_events(page.blob)]
    pages = tables.history[row.run_id]
    firsts = [page.first_event_id for page in pages]
    expected = [1 + sum(page.count for page in pages[:n]) for n in range(len(pages))]
    found = [f"run {row.run_id}: pages begin with {firsts}, not {expected}"] if firsts != expected else []
    reference = Reference(row.run_id)
    try:
        for at, event in history:
            reference.take(at, event)
    except Broken as broken:
        return [*found, str(broken)]
    state = decode_state(row.state)
    derived = fold(history)
    found += [
        f"run {row.run_id}: {name} is not what its history says"
        for name in DERIVED
        if getattr(derived.state, name) != getattr(state, name)
    ]
    if (derived.status.value, derived.next_event_id) != (row.status, row.next_event_id):
        found.append(f"run {row.run_id}: {row.status} is not what its history says")
    parked = [decode_timed(item.blob) for _, item in sorted(tables.parked.get(row.run_id, {}).items())]
    found += [str(finding) for finding in run_findings(row, state, reference, parked, timers)]
    for activity in state.activities.values():
        task = tables.tasks[activity.task_id]
        ended = any(getattr(event, "scheduled_event_id", 0) == task.scheduled_event_id for _, event in parked)
        if task.state in TERMINAL and not ended:
            found.append(f"run {row.run_id}: waits for {task.task_id}, which has ended")
    return found


def _of_tasks(tables: Tables, by_target: dict[str, list[TimerRow]]) -> list[str]:
    found: list[str] = []
    for row in tables.tasks.values():
        timers = by_target.get(row.task_id, [])
        attempts = tables.attempts.get(row.task_id, {})
        in_order = [attempts[key] for key in sorted(attempts)]
        found += [str(finding) for finding in task_findings(row, decode_spec(row.spec), in_order)]
        if not waker_of(row, timers):
            found.append(f"task {row.task_id}: nothing will move it")
        if row.state in TERMINAL and timers:
            found.append(f"task {row.task_id}: it has ended and has timers {timers}")
    return found


def _is_lost(tables: Tables, timer: TimerRow) -> bool:
    return timer.target not in (tables.runs if timer.kind in RUN_KINDS else tables.tasks)


def _of_counters(tables: Tables) -> list[str]:
    recount: Counter[tuple[str, str]] = Counter()
    for task in tables.tasks.values():
        recount[task.namespace, f"tasks:{task.queue}:{TaskState(task.state).value}"] += 1
    for run in tables.runs.values():
        recount[run.namespace, f"runs:{run.status}"] += 1
    stored = {key: value for key, value in tables.counters.items() if value and key[1].startswith(("tasks:", "runs:"))}
    return [] if stored == dict(recount) else [f"counters say {stored}, a recount {dict(recount)}"]
