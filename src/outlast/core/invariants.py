"""What must hold of stored rows, as pure functions: shared by the simulator and by any later check of a store on disk.

``Reference`` folds a history on its own, without the code that runs in production, so that a fault in one is not hidden by
the same fault in the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from outlast.core import events as e
from outlast.core.payload import Payload
from outlast.core.replies import RunStatus, TaskState
from outlast.core.task import TERMINAL
from outlast.core.writes import AttemptRow, RunRow, RunState, TaskRow, TaskSpec, TimerKind, TimerRow

# Which state of a task's row may follow which, where one commit may hold several moves of it.
EDGES: dict[TaskState, frozenset[TaskState]] = {
    TaskState.ENQUEUED: frozenset(
        {TaskState.ENQUEUED, TaskState.HELD, TaskState.LEASED, TaskState.CANCELED, TaskState.EXPIRED}
    ),
    TaskState.HELD: frozenset(
        {TaskState.HELD, TaskState.ENQUEUED, TaskState.LEASED, TaskState.CANCELED, TaskState.EXPIRED}
    ),
    TaskState.LEASED: frozenset(TaskState) - {TaskState.HELD},
    TaskState.RETRY_WAIT: frozenset(
        {TaskState.RETRY_WAIT, TaskState.ENQUEUED, TaskState.LEASED, TaskState.CANCELED, TaskState.EXPIRED}
    ),
    TaskState.UNCERTAIN: frozenset(TaskState),
    TaskState.SUCCEEDED: frozenset({TaskState.SUCCEEDED}),
    # What has ended without success may be brought back, and then move on: with a new lease number.
    **{state: frozenset({state, TaskState.ENQUEUED}) for state in TERMINAL - {TaskState.SUCCEEDED}},
}

_STATUS_OF: dict[type, RunStatus] = {
    e.WorkflowExecutionCompleted: RunStatus.COMPLETED,
    e.WorkflowExecutionFailed: RunStatus.FAILED,
    e.WorkflowExecutionTimedOut: RunStatus.TIMED_OUT,
    e.WorkflowExecutionCanceled: RunStatus.CANCELED,
    e.WorkflowExecutionTerminated: RunStatus.TERMINATED,
    e.WorkflowExecutionContinuedAsNew: RunStatus.CONTINUED_AS_NEW,
}
_ENDS = (e.ActivityTaskCompleted, e.ActivityTaskFailed, e.ActivityTaskTimedOut, e.ActivityTaskCanceled)


@dataclass(slots=True, frozen=True)
class Finding:
    """A promise that does not hold: its number in the list of invariants, a name, and the facts."""

    number: int
    code: str
    detail: str


class Broken(Exception):
    """A history that cannot be."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"invariant {finding.number} ({finding.code}): {finding.detail}")
        self.finding = finding


@dataclass(slots=True)
class Reference:
    """What a history says of its run, folded event by event."""

    run_id: str
    events: int = 0
    last_at: int = 0
    status: RunStatus = RunStatus.RUNNING
    activities: dict[int, tuple[str, str, int]] = field(default_factory=dict[int, tuple[str, str, int]])
    timers: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    activity_ids: dict[str, int] = field(default_factory=dict[str, int])
    timer_ids: dict[str, int] = field(default_factory=dict[str, int])
    signals: int = 0
    cancel_requested: bool = False
    search_attributes: dict[str, Payload] | None = None
    published: dict[str, Payload] | None = None
    last_started: int = 0
    last_completed: int = 0
    new_run_id: str = ""

    def take(self, at: int, event: e.Event) -> None:
        """Fold the next event in.

        Raises:
            Broken: it may not stand there.
        """
        number = self.events + 1
        self._require(self.status is RunStatus.RUNNING, 30, "event_after_closing", number, event)
        self._require(
            (number == 1) == isinstance(event, e.WorkflowExecutionStarted), 30, "wrong_first_event", number, event
        )
        self._require(at >= self.last_at, 43, "event_time_went_back", number, event)
        self.events, self.last_at = number, at
        match event:
            case e.WorkflowExecutionStarted():
                self.search_attributes = event.search_attributes
            case e.WorkflowExecutionSignaled():
                self.signals += 1
            case e.WorkflowExecutionCancelRequested():
                self._require(not self.cancel_requested, 30, "cancel_requested_twice", number, event)
                self.cancel_requested = True
            case e.MarkerRecorded() if event.marker_name == "publish":
                self.published = {**(self.published or {}), **(event.details or {})}
            case e.UpsertWorkflowSearchAttributes():
                self.search_attributes = {**(self.search_attributes or {}), **event.search_attributes}
            case e.WorkflowTaskStarted():
                self._require(event.scheduled_event_id == number - 1, 30, "started_without_scheduled", number, event)
            case e.WorkflowTaskCompleted():
                self._require(event.started_event_id == number - 1, 30, "completed_without_started", number, event)
                self.last_started, self.last_completed = event.started_event_id, number
            case e.TimerStarted() | e.TimerFired() | e.TimerCanceled():
                self._timer(number, at, event)
            case e.ActivityTaskScheduled() | e.ActivityTaskCancelRequested() | e.ActivityTaskStarted():
                self._activity(number, event)
            case _ if isinstance(event, _ENDS):
                self._activity_ends(number, event)
            case _ if type(event) in _STATUS_OF:
                self.status = _STATUS_OF[type(event)]
                self.new_run_id = getattr(event, "new_run_id", "")
                self.activities.clear()
                self.timers.clear()
            case _:
                pass

    def _timer(self, number: int, at: int, event: e.TimerStarted | e.TimerFired | e.TimerCanceled) -> None:
        if isinstance(event, e.TimerStarted):
            self._require(event.timer_id not in self.timer_ids, 42, "timer_id_used_twice", number, event)
            self._require(event.fire_at == at + event.start_to_fire, 40, "timer_with_wrong_instant", number, event)
            self.timer_ids[event.timer_id] = number
            self.timers[event.timer_id] = (number, event.fire_at)
            return
        opened = self.timers.pop(event.timer_id, None)
        self._require(opened is not None, 42, "timer_with_two_outcomes", number, event)
        self._require(
            opened is not None and opened[0] == event.started_event_id, 42, "timer_of_another_start", number, event
        )

    def _activity(
        self, number: int, event: e.ActivityTaskScheduled | e.ActivityTaskCancelRequested | e.ActivityTaskStarted
    ) -> None:
        match event:
            case e.ActivityTaskScheduled():
                self._require(event.activity_id not in self.activity_ids, 33, "activity_id_used_twice", number, event)
                self.activity_ids[event.activity_id] = number
                self.activities[number] = (event.activity_id, event.task_id, 0)
            case e.ActivityTaskCancelRequested():
                if (known := self.activities.get(event.scheduled_event_id)) is not None:
                    self.activities[event.scheduled_event_id] = (known[0], known[1], number)
            case e.ActivityTaskStarted():
                self._require(
                    event.scheduled_event_id in self.activities, 33, "activity_started_when_closed", number, event
                )

    def _activity_ends(self, number: int, event: e.Event) -> None:
        assert isinstance(event, _ENDS)
        known = self.activities.pop(event.scheduled_event_id, None)
        self._require(known is not None, 33, "activity_with_two_outcomes", number, event)
        if event.started_event_id:
            self._require(event.started_event_id == number - 1, 33, "outcome_without_its_start", number, event)

    def _require(self, condition: object, number: int, code: str, event_id: int, event: e.Event) -> None:
        if not condition:
            raise Broken(Finding(number, code, f"{self.run_id} event {event_id}: {event}"))


def derived_differs(reference: Reference, state: RunState) -> str:
    """Return where the derived half of ``state`` is not what the history says; empty when it is."""
    activities = {
        number: (activity.activity_id, activity.task_id, activity.cancel_event_id)
        for number, activity in state.activities.items()
    }
    timers = {timer_id: (timer.started_event_id, timer.fire_at) for timer_id, timer in state.timers.items()}
    pairs: tuple[tuple[str, object, object], ...] = (
        ("activities", activities, reference.activities),
        ("timers", timers, reference.timers),
        ("signals", state.signals, reference.signals),
        ("cancel_requested", state.cancel_requested, reference.cancel_requested),
        ("search_attributes", state.search_attributes, reference.search_attributes),
        ("published", state.published, reference.published),
        ("last_task_started_id", state.last_task_started_id, reference.last_started),
        ("last_task_completed_id", state.last_task_completed_id, reference.last_completed),
    )
    return "; ".join(
        f"{name} is {stored}, the history says {folded}" for name, stored, folded in pairs if stored != folded
    )


def run_findings(
    row: RunRow, state: RunState, reference: Reference, parked: list[e.Timed], timers: Iterable[TimerRow]
) -> list[Finding]:
    """Return what is wrong with one run's row beside its history, its parked events and its timers."""
    found: list[Finding] = []

    def require(condition: object, number: int, code: str, detail: object) -> None:
        if not condition:
            found.append(Finding(number, code, f"{row.run_id}: {detail}"))

    closed = reference.status is not RunStatus.RUNNING
    require(row.next_event_id == reference.events + 1, 30, "history_not_dense", (row.next_event_id, reference.events))
    require(row.status == reference.status.value, 31, "status_not_of_history", (row.status, reference.status.value))
    if differs := derived_differs(reference, state):
        require(condition=False, number=31, code="state_not_fold_of_history", detail=differs)
    require(bool(row.closed_at) == closed, 30, "closed_at_wrong", row.closed_at)
    require(bool(row.outcome) == closed, 1, "outcome_wrong", len(row.outcome))
    require(not (closed and row.ready_at), 30, "closed_run_is_ready", row.ready_at)
    require(not (closed and parked), 49, "closed_run_has_parked", len(parked))
    require(not parked or row.ready_at, 19, "parked_without_turn", len(parked))
    require(state.parked_count == len(parked), 31, "parked_count_wrong", (state.parked_count, len(parked)))
    fired = {event.timer_id for _, event in parked if isinstance(event, e.TimerFired)}
    expected = {(fire_at, timer_id) for timer_id, (_, fire_at) in reference.timers.items() if timer_id not in fired}
    stored = {
        (timer.fire_at, timer.timer_id.rsplit("/t:", 1)[-1])
        for timer in timers
        if timer.kind == TimerKind.RUN_TIMER.value
    }
    require(expected == stored, 42, "timer_rows_not_of_history", f"rows {sorted(stored)}, open {sorted(expected)}")
    if closed:
        require(not list(timers), 42, "closed_run_has_timers", list(timers))
    return found


def task_findings(row: TaskRow, spec: TaskSpec, attempts: list[AttemptRow]) -> list[Finding]:
    """Return what is wrong with one task's row beside its attempts (in order of lease)."""
    found: list[Finding] = []

    def require(condition: object, number: int, code: str, detail: object) -> None:
        if not condition:
            found.append(Finding(number, code, f"{row.task_id}: {detail}"))

    policy = spec.retry
    require(not policy.attempts_max or row.attempt <= policy.attempts_max, 21, "too_many_attempts", row.attempt)
    require(
        (row.state is TaskState.LEASED) == bool(row.lease_until), 22, "lease_end_wrong", (row.state, row.lease_until)
    )
    require((row.state in TERMINAL) == bool(row.closed_at), 19, "closed_at_wrong", (row.state, row.closed_at))
    require(not row.ready or row.state is TaskState.ENQUEUED, 19, "ready_but_not_enqueued", row.state)
    counted = 0
    seen = 0
    for attempt in attempts:
        if attempt.late:
            continue
        require(attempt.lease > seen, 21, "lease_ended_twice", attempt.lease)
        seen = attempt.lease
        if attempt.outcome == "retried":  # no lease: the task was brought back, and counts its attempts anew
            counted = 0
            continue
        require(attempt.attempt == counted + 1, 21, "attempts_not_dense", (attempt.attempt, counted))
        counted += attempt.outcome != "returned"
    return found


def waker_of(row: TaskRow, timers: Iterable[TimerRow]) -> str:
    """Return what will move a task that is not closed; empty when nothing will."""
    if row.state in TERMINAL:
        return "closed"
    if row.state is TaskState.LEASED:
        return "lease"
    if row.ready:
        return "ready"
    if row.state is TaskState.UNCERTAIN:
        return "decision"
    return next((timer.kind for timer in timers if timer.kind == TimerKind.TASK_DUE.value), "")
