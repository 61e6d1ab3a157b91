"""The owner of a shard dies right before and right after each of its commits; what comes of it all must not differ.

Clients and workers send what was not answered once more, with the same ids, as theirs do. The script touches each kind of
thing that a shard keeps: tasks that succeed, are retried, wait, run once, fail and expire; runs with activities, timers,
signals, cancels, a termination and a chain.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.codec import decode_spec, decode_status
from outlast.core.inputs import Request
from outlast.core.replies import Reply
from outlast.core.retry import RetryPolicy
from outlast.core.shard.config import ShardConfig
from outlast.core.units import HOUR, SECOND
from outlast.core.writes import Batch, CommitOutcome
from outlast.store.memory.tables import Tables
from tests.core.laws import broken_laws
from tests.core.world import World, enqueue_of, failure, payload

AGAIN = RetryPolicy(attempts_max=4, first=SECOND, factor=1.0, jitter=False)
ONCE = RetryPolicy(attempts_max=1)
FINAL = "final"
TINY = ShardConfig(runs_cached_max=1, tasks_cached_max=1, window_max=2, window_low=1, page_rows=2, dedup_cached_max=1)


class Died(Exception):
    """The process that owns the shard is gone."""


class Mortal(Tables):
    """Tables whose owner dies at one commit, with it in the store or not."""

    def __init__(self, *, at: int, stored: bool) -> None:
        super().__init__()
        self.commits = 0
        self._at = at
        self._stored = stored

    def apply(self, batch: Batch) -> CommitOutcome:
        self.commits += 1
        if self.commits != self._at:
            return super().apply(batch)
        if self._stored:
            super().apply(batch)
        raise Died


@dataclass
class Play:
    """The script, its clients and its worker, over a world that may die once."""

    world: World
    ran: Counter[str] = field(default_factory=Counter[str])
    found: list[str] = field(default_factory=list[str])
    polls: int = 0

    def survive(self, act: Callable[[], Any]) -> Any:
        """Do ``act``, and once more under a new owner if the old one dies over it."""
        while True:
            try:
                return act()
            except Died:
                self._take_over()

    def _take_over(self) -> None:
        self.found += broken_laws(self.world.tables)
        try:
            self.world.restart()
        except Died:
            self._take_over()

    def send(self, request: Request) -> Reply:
        """Send a request until it is answered."""

        def act() -> Reply:
            ticket = self.world.send(request)
            if ticket not in self.world.answers:
                self.world.pass_time(0.000001)
            return self.world.answers[ticket]

        return self.survive(act)

    def pass_time(self, seconds: float) -> None:
        ends = self.world.now + int(seconds * SECOND)
        self.survive(lambda: self.world.pass_time(max(0, ends - self.world.now) / SECOND))

    def work(self, seconds: float) -> None:
        """Have one worker take and do whatever there is for so long."""
        ends = self.world.now + int(seconds * SECOND)
        while self.world.now < ends:
            self.polls += 1
            poll = i.Poll(
                poll_id=f"poll-{self.polls}", worker="one", queues=("default",), task_types=("job", "pay"),
                workflow_types=("order", "chain", "patient", "wide", "doomed"), slots=3, workflow_slots=2,
            )  # fmt: skip
            work = self.send(poll)
            assert isinstance(work, replies.Work)
            for lease in work.tasks:
                self._run(lease)
            for turn in work.workflow_tasks:
                self._turn(turn)
            self.pass_time(0.1)

    def _run(self, lease: replies.TaskLease) -> None:
        if lease.begin_needed:
            begun = self.send(i.Begin(tokens=(lease.token,), worker="one"))
            assert begun == replies.Begun(items=(None,))
        name = lease.activity_id and f"{lease.workflow_id}/{lease.activity_id}"
        name = name or lease.token.task_id
        self.ran[name] += 1
        outcome: i.TaskOutcome = i.TaskSucceeded(result=(payload(f'"{name}"'),))
        if "flaky" in name and lease.attempt < 3:
            outcome = i.TaskFailed(failure=failure(f"attempt {lease.attempt}"))
        elif FINAL in name:
            outcome = i.TaskFailed(failure=failure(final=True))
        item = i.Completion(token=lease.token, outcome=outcome, details=payload(str(lease.attempt)))
        self.send(i.CompleteTasks(items=(item,), worker="one"))

    def _turn(self, turn: replies.WorkflowTask) -> None:
        commands = code_of(turn.type, self.world.history(turn.run_id))
        done = i.WorkflowTaskDone(token=turn.token, commands=commands)
        self.send(i.CompleteWorkflowTasks(worker="one", done=(done,), new_run_ids=(f"{turn.run_id} next",)))

    def play(self) -> None:
        for task in (
            enqueue_of("plain"),
            enqueue_of("flaky", retry=AGAIN),
            enqueue_of("once", retry=ONCE),
            enqueue_of("later", delay=2 * SECOND),
            enqueue_of("never", delay=HOUR),
            enqueue_of(FINAL, retry=AGAIN),
            enqueue_of("late", type="nobody", schedule_to_start=2 * SECOND),
            enqueue_of("keyed", key="key"),
            enqueue_of("keyed again", key="key"),
        ):
            self.send(task)
        self.send(i.EnqueueTasks(items=tuple(enqueue_of(f"batch {n}") for n in range(3))))
        for kind in ("order", "chain", "patient", "wide", "doomed"):
            self.send(
                i.StartWorkflow(type=kind, queue="default", run_id=f"r-{kind}", request_id=kind, workflow_id=kind)
            )
        self.work(2)
        self.send(i.CancelTask(task_id="never"))
        self.send(i.SignalWorkflow(workflow_id="order", name="go", request_id="s1", input=(payload("1"),)))
        self.send(i.CancelWorkflow(workflow_id="patient", request_id="c1"))
        self.send(i.TerminateWorkflow(workflow_id="doomed", request_id="t1"))
        self.work(4)
        self.send(i.SignalWorkflow(workflow_id="order", name="go", request_id="s2", input=(payload("2"),)))
        self.work(3)
        self.found += broken_laws(self.world.tables)

    def told(self) -> dict[str, Any]:
        """Return all that clients can see in the end, without instants and without how the turns fell."""
        tables = self.world.tables
        tasks: dict[str, Any] = {}
        for row in tables.tasks.values():
            spec, status = decode_spec(row.spec), decode_status(row.status)
            name = f"{spec.workflow_id}/{spec.activity_id}" if spec.activity_id else row.task_id
            failed = status.failure and (status.failure.type, status.failure.message)
            outcomes = [attempt.outcome for attempt in self.world.attempts(row.task_id)]
            tasks[name] = (row.state, row.reason, row.attempt, status.result, failed, outcomes, self.ran[name])
        runs = {
            row.run_id: (
                row.status,
                Counter(kind for kind in self.world.kinds(row.run_id) if not kind.startswith("WorkflowTask")),
                row.outcome,
            )
            for row in tables.runs.values()
        }
        return {"tasks": tasks, "runs": runs, "timers": dict(tables.timers), "broken": self.found}


def code_of(kind: str, history: list[e.Event]) -> tuple[c.Command, ...]:
    """Return what the code of a workflow asks for at a history."""
    count = Counter(type(event) for event in history)
    begun = count[e.WorkflowTaskCompleted] > 0
    match kind:
        case "order" if not begun:
            return (
                pay("flaky pay"),
                c.StartTimer(timer_id="1", start_to_fire=3 * SECOND),
                c.RecordMarker(marker_name="m"),
            )
        case "order" if (
            count[e.WorkflowExecutionSignaled] == 2 and count[e.TimerFired] and count[e.ActivityTaskCompleted]
        ):
            return (c.CompleteWorkflow(result=(payload('"done"'),)),)
        case "chain" if any(
            isinstance(event, e.WorkflowExecutionStarted) and event.continued_run_id for event in history
        ):
            return (c.CompleteWorkflow(),)
        case "chain":
            return (c.ContinueAsNew(),)
        case "patient" if count[e.WorkflowExecutionCancelRequested]:
            return (c.CancelTimer(timer_id="1"), c.CancelWorkflow())
        case "patient" if not begun:
            return (c.StartTimer(timer_id="1", start_to_fire=HOUR),)
        case "wide" if not begun:
            return tuple(pay(f"{n}") for n in range(7))
        case "wide" if count[e.ActivityTaskCompleted] == 7:
            return (c.FailWorkflow(failure=failure()),)
        case "doomed" if not begun:
            return (pay("x", activity_type="nobody"), c.StartTimer(timer_id="1", start_to_fire=HOUR))
        case _:
            return ()


def pay(activity_id: str, activity_type: str = "pay") -> c.ScheduleActivity:
    return c.ScheduleActivity(activity_id=activity_id, activity_type=activity_type, task_queue="default", retry=AGAIN)


def played(*, at: int = 0, stored: bool = False, config: ShardConfig | None = None) -> Play:
    """Play the script with a death at commit ``at``, 0 for none."""
    play = Play(World(config=config or ShardConfig(), tables=Mortal(at=at, stored=stored)))
    play.play()
    return play


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("config", [ShardConfig(), TINY], ids=["much memory", "little memory"])
def test_a_death_at_any_commit_ends_as_a_run_without_it(stored: bool, config: ShardConfig) -> None:
    calm = played(config=config)
    expected = calm.told()
    tables = calm.world.tables
    assert isinstance(tables, Mortal)
    assert tables.commits > 40

    other = {}
    for at in range(1, tables.commits + 1):
        told = played(at=at, stored=stored, config=config).told()
        if told != expected:
            other[at] = {name: (expected[name], told[name]) for name in expected if told[name] != expected[name]}

    assert other == {}


def test_the_script_ends_all_it_begins() -> None:
    play = played()

    rows = play.world.tables
    assert [row for row in (*rows.runs.values(), *rows.tasks.values()) if not row.closed_at] == []
    assert {str(row.status) for row in rows.runs.values()} == {
        "completed", "continued_as_new", "canceled", "failed", "terminated",
    }  # fmt: skip
    assert {str(row.state) for row in rows.tasks.values()} == {"succeeded", "failed", "canceled", "expired"}
