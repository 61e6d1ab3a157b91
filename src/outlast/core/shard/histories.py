"""Histories: giving events their ids, or parking them while a turn is in a worker's hands."""

import msgspec

from outlast.core import events as e
from outlast.core.run import Run
from outlast.core.shard.state import Shard

ACTIVITY_ENDS = (
    e.ActivityTaskCompleted,
    e.ActivityTaskFailed,
    e.ActivityTaskTimedOut,
    e.ActivityTaskCanceled,
)
EVENT_BEFORE = -1  # stands for the id of the event that is recorded directly before


def append(shard: Shard, run: Run, *events: e.Event) -> None:
    """Record ``events``, or park them while a turn is in a worker's hands."""
    shard.gather.touch_run(run)
    if run.turn is None:
        for event in events:
            run.record(shard.now, event)
        return
    for event in events:
        run.parked.append((shard.now, event))
        run.state.parked_bytes += _size(event)
        shard.gather.parked += 1
        run.state.parked_count += 1


def _size(event: e.Event) -> int:
    return len(msgspec.msgpack.encode(event)) if isinstance(event, e.WorkflowExecutionSignaled) else 100


def id_of_next(run: Run) -> int:
    """Return the id of the event that is appended next, for the one behind it; EVENT_BEFORE if it is going to be parked."""
    return run.next_event_id if run.turn is None else EVENT_BEFORE


def flush_parked(shard: Shard, run: Run, *, without_timers: set[str] | None = None) -> list[e.Event]:
    """Give the parked events their ids, in order of arrival; return them. ``without_timers``: whose firing is dropped.

    They are recorded with the present instant: what the turn recorded before them is later than their arrival.
    """
    flushed: list[e.Event] = []
    for _, event in run.parked:
        if without_timers and isinstance(event, e.TimerFired) and event.timer_id in without_timers:
            continue
        if isinstance(event, ACTIVITY_ENDS) and event.started_event_id == EVENT_BEFORE:
            event = msgspec.structs.replace(event, started_event_id=run.next_event_id - 1)  # noqa: PLW2901
        run.record(shard.now, event)
        flushed.append(event)
    drop_parked(shard, run)
    return flushed


def drop_parked(shard: Shard, run: Run) -> None:
    """Forget the parked events and their rows; the run is written with this batch in any case."""
    shard.gather.touch_run(run)
    if not run.parked:
        return
    shard.gather.bytes += run.state.parked_bytes  # they go into the history, or into that of the run that follows
    if run.parked_stored:
        shard.gather.unparked[run.run_id] = None
    run.parked = []
    run.parked_stored = 0
    run.state.parked_bytes = 0
    run.state.parked_count = 0
