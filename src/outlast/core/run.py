"""The state of a run in memory, and how events fold into it.

``apply`` is total: deciding may refuse, folding what was recorded may not. The derived half of RunState is exactly what
folding a history gives; checkers compare the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outlast.core import events as e
from outlast.core.payload import Payload
from outlast.core.replies import Refused, RunStatus, WorkflowOutcome, WorkflowTaskReply
from outlast.core.writes import OpenActivity, OpenTimer, RunFixed, RunState

Closing = (
    e.WorkflowExecutionCompleted
    | e.WorkflowExecutionFailed
    | e.WorkflowExecutionTimedOut
    | e.WorkflowExecutionCanceled
    | e.WorkflowExecutionTerminated
    | e.WorkflowExecutionContinuedAsNew
)


RUNNING: Final = RunStatus.RUNNING
PUBLISH: Final = "publish"  # the marker whose details are values by the name they are published under


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A workflow task in a worker's hands. It is nowhere but in memory (ARCHITECTURE §6)."""

    dispatch: int
    worker: str
    identity: str
    started_at: int
    deadline: int
    scheduled_event_id: int  # of the pair shown to this worker alone
    attempt: int
    poll_id: str
    pair: tuple[e.Timed, e.Timed]  # scheduled and started, as shown; recorded when it ends
    suggest_continue_as_new: bool = False  # as shown


class Run(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """One run in memory: its row, opened up, and what only memory needs to know of it."""

    namespace: str
    workflow_id: str
    run_id: str
    opened_no: int
    original_run_id: str
    first_run_id: str
    type: str
    queue: str
    build: str
    principal: str
    identity: str
    started_at: int
    fixed: RunFixed
    state: RunState = msgspec.field(default_factory=RunState)
    status: RunStatus = RUNNING
    closed_at: int = 0
    next_event_id: int = 1
    history_bytes: int = 0
    ready_at: int = 0
    reason: str = ""
    parent: str = ""
    outcome: WorkflowOutcome | None = None

    # Only in memory.
    stored: bool = False  # the store has it, or a batch on its way does
    pinned: int = 0  # number of the last batch that writes it; it may leave memory once that is committed
    labelled: dict[str, Payload] | None = None  # the search attributes that were last written as labels
    fresh: list[e.Timed] = []  # recorded, not yet taken into a batch
    tail: list[e.Timed] = []  # recorded since the last completed turn
    tail_first: int = 0  # event id of tail[0]; 0 when the tail is not known
    parked: list[e.Timed] = []
    parked_stored: int = 0  # how many of `parked` have rows
    turn: Turn | None = None
    offered: bool = False  # stands in a queue for workers
    last_done: tuple[int, WorkflowTaskReply] | None = None  # dispatch number and answer, for a repeat

    @property
    def open(self) -> bool:
        return self.status is RUNNING

    def record(self, at: int, event: e.Event) -> int:
        """Give ``event`` the next id, fold it in, and return the id."""
        event_id = self.next_event_id
        self.next_event_id = event_id + 1
        timed = (at, event)
        self.fresh.append(timed)
        if not self.tail:
            self.tail_first = event_id
        self.tail.append(timed)
        fold_one = _FOLDS.get(type(event))
        if fold_one is not None:
            fold_one(self.state, event_id, event)
        return event_id

    def record_turn(self, turn: Turn, at: int, completed: e.WorkflowTaskCompleted) -> int:
        """Record the three events of a turn that was completed, and return the id of the last."""
        event_id = self.next_event_id + 2
        self.next_event_id = event_id + 1
        self.fresh += (*turn.pair, (at, completed))
        _task_completed(self.state, event_id, completed)
        return event_id

    def begin_tail(self) -> None:
        """Note that the worker knows all events so far."""
        self.tail = []
        self.tail_first = 0


@dataclass(slots=True)
class Derived:
    """What a history alone says of a run."""

    state: RunState
    status: RunStatus
    next_event_id: int


STATUS_OF: dict[type, RunStatus] = {
    e.WorkflowExecutionCompleted: RunStatus.COMPLETED,
    e.WorkflowExecutionFailed: RunStatus.FAILED,
    e.WorkflowExecutionTimedOut: RunStatus.TIMED_OUT,
    e.WorkflowExecutionCanceled: RunStatus.CANCELED,
    e.WorkflowExecutionTerminated: RunStatus.TERMINATED,
    e.WorkflowExecutionContinuedAsNew: RunStatus.CONTINUED_AS_NEW,
}


def fold(history: list[e.Timed]) -> Derived:
    """Fold a whole history, from event 1 on."""
    derived = Derived(state=RunState(), status=RunStatus.RUNNING, next_event_id=1)
    for _, event in history:
        apply(derived.state, derived.next_event_id, event)
        derived.status = STATUS_OF.get(type(event), derived.status)
        derived.next_event_id += 1
    return derived


def apply(state: RunState, event_id: int, event: e.Event) -> None:
    """Fold one event into the derived half of ``state``. Kinds that are not in the table leave no mark on it."""
    fold_one = _FOLDS.get(type(event))
    if fold_one is not None:
        fold_one(state, event_id, event)


def _task_completed(state: RunState, event_id: int, event: e.WorkflowTaskCompleted) -> None:
    state.last_task_started_id = event.started_event_id
    state.last_task_completed_id = event_id


def _activity_scheduled(state: RunState, event_id: int, event: e.ActivityTaskScheduled) -> None:
    state.activities[event_id] = OpenActivity(event.activity_id, event.task_id)


def _activity_cancel_requested(state: RunState, event_id: int, event: e.ActivityTaskCancelRequested) -> None:
    if (activity := state.activities.get(event.scheduled_event_id)) is not None:
        activity.cancel_event_id = event_id


def _activity_ended(
    state: RunState,
    _: int,
    event: e.ActivityTaskCompleted | e.ActivityTaskFailed | e.ActivityTaskTimedOut | e.ActivityTaskCanceled,
) -> None:
    state.activities.pop(event.scheduled_event_id, None)


def _timer_started(state: RunState, event_id: int, event: e.TimerStarted) -> None:
    state.timers[event.timer_id] = OpenTimer(event_id, event.fire_at, event.summary)


def _timer_ended(state: RunState, _: int, event: e.TimerFired | e.TimerCanceled) -> None:
    del state.timers[event.timer_id]


def _signaled(state: RunState, _: int, _event: e.WorkflowExecutionSignaled) -> None:
    state.signals += 1


def _cancel_requested(state: RunState, _: int, _event: e.WorkflowExecutionCancelRequested) -> None:
    state.cancel_requested = True


def _attributes_upserted(state: RunState, _: int, event: e.UpsertWorkflowSearchAttributes) -> None:
    state.search_attributes = {**(state.search_attributes or {}), **event.search_attributes}


def _marked(state: RunState, _: int, event: e.MarkerRecorded) -> None:
    if event.marker_name == PUBLISH:
        state.published = {**(state.published or {}), **(event.details or {})}


def _started(state: RunState, _: int, event: e.WorkflowExecutionStarted) -> None:
    state.search_attributes = event.search_attributes


def _closed(state: RunState, _: int, _event: Closing) -> None:
    state.activities.clear()
    state.timers.clear()


# A table and not a switch: this is done for every event, and a switch tries kind after kind. A test holds the table
# against the catalogue.
_FOLDS: Final[dict[type, Callable[[RunState, int, Any], None]]] = {
    e.WorkflowTaskCompleted: _task_completed,
    e.ActivityTaskScheduled: _activity_scheduled,
    e.ActivityTaskCancelRequested: _activity_cancel_requested,
    e.ActivityTaskCompleted: _activity_ended,
    e.ActivityTaskFailed: _activity_ended,
    e.ActivityTaskTimedOut: _activity_ended,
    e.ActivityTaskCanceled: _activity_ended,
    e.TimerStarted: _timer_started,
    e.TimerFired: _timer_ended,
    e.TimerCanceled: _timer_ended,
    e.WorkflowExecutionSignaled: _signaled,
    e.WorkflowExecutionCancelRequested: _cancel_requested,
    e.UpsertWorkflowSearchAttributes: _attributes_upserted,
    e.MarkerRecorded: _marked,
    e.WorkflowExecutionStarted: _started,
    **dict.fromkeys(e.CLOSING, _closed),
}
LEAVE_NO_MARK: Final = frozenset(
    {
        e.WorkflowTaskScheduled,
        e.WorkflowTaskStarted,
        e.WorkflowTaskTimedOut,
        e.WorkflowTaskFailed,
        e.ActivityTaskStarted,
        e.TaskEnqueued,
    }
)
FOLDED: Final = frozenset(_FOLDS)


_WITHOUT_NEXT: Final = (e.WorkflowExecutionCanceled, e.WorkflowExecutionTerminated)


def outcome_of(run: Run, event: Closing) -> WorkflowOutcome:
    """Return what callers who wait for ``run`` are told."""
    result = event.result if isinstance(event, e.WorkflowExecutionCompleted) else ()
    failure = event.failure if isinstance(event, e.WorkflowExecutionFailed) else None
    new_run_id = "" if isinstance(event, _WITHOUT_NEXT) else event.new_run_id
    return WorkflowOutcome(
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        status=STATUS_OF[type(event)],
        result=result,
        failure=failure,
        new_run_id=new_run_id,
    )


def refused_turn(code: str, fact: str, *, remedy: str) -> WorkflowTaskReply:
    """Return the answer to a completion that changes nothing."""
    return WorkflowTaskReply(refused=Refused(code=code, fact=fact, remedy=remedy))
