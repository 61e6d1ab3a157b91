"""A shard core over tables in memory, stepped by hand: what tests of the core are written with."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.codec import decode_events
from outlast.core.commands import Command
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import ShardRequest
from outlast.core.payload import Payload
from outlast.core.replies import Reply
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.core import ShardCore
from outlast.core.shard.outputs import Answer, Ask, StepDown
from outlast.core.units import SECOND
from outlast.core.writes import AttemptRow, Batch, CommitOutcome, Page, TaskRow
from outlast.store.memory.tables import Tables

R = TypeVar("R")

START = 1_700_000_000 * SECOND
NS = "default"


def payload(text: str) -> Payload:
    return Payload(encoding="json/plain", data=text.encode())


def failure(text: str = "broke", *, type: str = "ValueError", final: bool = False) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type=type, message=text, final=final)


def enqueue_of(task_id: str, **options: Any) -> i.EnqueueTask:
    """Return the request for a task whose id is its key, unless ``options`` say otherwise."""
    defaults: dict[str, Any] = {"task_id": task_id, "type": "job", "queue": "default", "key": task_id}
    return i.EnqueueTask(**{**defaults, **options})


@dataclass
class World:
    """One shard, its tables and a clock that only tests move.

    Commits happen at once unless ``hold_commits``; what is asked for is read at once, and handed in at once unless
    ``hold_loads``.
    """

    config: ShardConfig = field(default_factory=ShardConfig)
    tables: Tables = field(default_factory=Tables)
    now: int = START
    hold_commits: bool = False
    hold_loads: bool = False
    pages: list[tuple[int, Page]] = field(default_factory=list[tuple[int, Page]])
    answers: dict[object, Reply] = field(default_factory=dict[object, Reply])
    held: Batch | None = None
    stepped_down: str = ""
    tickets: int = 0
    core: ShardCore = field(init=False)

    def __post_init__(self) -> None:
        self.claim()

    def claim(self) -> None:
        lease_until = self.now + self.config.shard_lease
        claim = self.tables.claim(owner="node", now=self.now, lease_until=lease_until)
        self.core = ShardCore(claim, config=self.config, now=self.now, lease_until=lease_until)
        self.stepped_down = ""
        self.held = None
        self.pages = []
        self.now += 1  # what this owner gives out is younger than what it took over
        self.settle()

    def restart(self) -> None:
        """Lose everything that was in memory."""
        self.claim()

    def send(self, request: ShardRequest, *, namespace: str = NS) -> object:
        """Hand a request in and return its ticket."""
        self.tickets += 1
        self.core.handle(self.tickets, request, namespace=namespace, principal="tester", now=self.now)
        self.settle()
        return self.tickets

    def ask(self, request: ShardRequest, kind: type[R], *, namespace: str = NS) -> R:
        """Hand a request in and return its reply, which must be of ``kind``."""
        ticket = self.send(request, namespace=namespace)
        assert ticket in self.answers, f"no answer to {request}"
        reply = self.answers[ticket]
        assert isinstance(reply, kind), f"{reply} is not a {kind.__name__}"
        return reply

    def tick(self) -> None:
        """Have the core look at what is due, and again while something still is."""
        for _ in range(100):
            self.core.tick(now=self.now)
            self.settle()
            if (self.core.next_wakeup() or self.now + 1) > self.now:
                break

    def stall(self, seconds: float) -> None:
        """Let time go by in which the core is not called at all."""
        self.now += int(seconds * SECOND)

    def set_clock_ahead(self, seconds: float) -> None:
        """Have the clock show at once that time has passed which nobody could work in."""
        span = int(seconds * SECOND)
        self.now += span
        self.core.clock_stepped(span, now=self.now)
        self.core.tick(now=self.now)
        self.settle()

    def forget(self, ticket: object) -> None:
        """Tell the core that the caller behind ``ticket`` has gone."""
        self.core.forget(ticket, now=self.now)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        """Let time go by in small stretches, so that nothing looks like a stall."""
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            wake = self.core.next_wakeup() or end
            self.now = min(max(wake, self.now + 1), end)
            self.core.tick(now=self.now)
            self.settle()

    def settle(self) -> None:
        """Do what the core asks for until it asks for nothing."""
        while True:
            outputs = self.core.take_outputs()
            for output in outputs:
                match output:
                    case Answer():
                        assert output.ticket not in self.answers, "answered twice"
                        self.answers[output.ticket] = output.reply
                    case Ask():
                        page = self.tables.load(output.load)
                        if self.hold_loads:
                            self.pages.append((output.load_id, page))
                        else:
                            self.core.loaded(output.load_id, page, now=self.now)
                    case StepDown():
                        self.stepped_down = output.reason
            batch = None if self.held else self.core.take_batch(now=self.now)
            if batch is not None:
                if self.hold_commits:
                    self.held = batch
                    continue
                self.core.on_commit(batch.number, self.tables.apply(batch), now=self.now)
            elif not outputs and not self.core.shard.outputs:
                return

    def release(self, outcome: CommitOutcome | None = None) -> None:
        """Let the held commit return, done unless ``outcome`` says otherwise."""
        batch, self.held = self.held, None
        assert batch is not None
        self.hold_commits = False
        self.core.on_commit(batch.number, outcome or self.tables.apply(batch), now=self.now)
        self.settle()

    def hand_in(self) -> None:
        """Hand in the pages that were held back, in the order in which they were asked for."""
        pages, self.pages = self.pages, []
        for load_id, page in pages:
            self.core.loaded(load_id, page, now=self.now)
        self.settle()

    # --- what most tests begin with ----------------------------------------------------------------------------------

    def start(self, workflow_id: str = "w", **options: Any) -> replies.WorkflowStarted:
        self.tickets += 1
        defaults: dict[str, Any] = {
            "type": "order",
            "queue": "default",
            "run_id": f"run-{self.tickets}",
            "request_id": f"start-{self.tickets}",
            "workflow_id": workflow_id,
        }
        request = i.StartWorkflow(**{**defaults, **options})
        return self.ask(request, replies.WorkflowStarted)

    def enqueue(self, task_id: str = "t", **options: Any) -> replies.TaskEnqueuedReply:
        return self.ask(enqueue_of(task_id, **options), replies.TaskEnqueuedReply)

    def poll(
        self, worker: str = "one", *, slots: int = 10, turns: int = 10, poll_id: str = "", wait: int = 0
    ) -> replies.Work:
        self.tickets += 1
        request = i.Poll(
            poll_id=poll_id or f"poll-{self.tickets}",
            worker=worker,
            queues=("default",),
            task_types=("job", "pay"),
            workflow_types=("order",),
            slots=slots,
            workflow_slots=turns,
            wait=wait,
        )
        ticket = self.send(request)
        if ticket not in self.answers:
            self.pass_time(0.000001)
        reply = self.answers[ticket]
        assert isinstance(reply, replies.Work)
        return reply

    def ready_tasks(self, worker: str = "probe") -> list[str]:
        """Lease all that is ready, as many at once as there are, and return the ids in the order given out."""
        return [lease.token.task_id for lease in self.poll(worker, slots=1000, turns=0).tasks]

    def lease(self, worker: str = "one") -> replies.TaskLease:
        """Poll for one task and return its lease."""
        (lease,) = self.poll(worker, slots=1, turns=0).tasks
        return lease

    def turn(self, worker: str = "one") -> replies.WorkflowTask:
        """Poll for one workflow task and return it."""
        (task,) = self.poll(worker, slots=0, turns=1).workflow_tasks
        return task

    def do(
        self, task: replies.WorkflowTask, *commands: Command, worker: str = "one", **options: Any
    ) -> replies.WorkflowTaskReply:
        """Complete a turn with ``commands``."""
        done = i.WorkflowTaskDone(token=task.token, commands=commands, **options)
        self.tickets += 1
        request = i.CompleteWorkflowTasks(worker=worker, done=(done,), new_run_ids=(f"next-{self.tickets}",))
        (reply,) = self.ask(request, replies.WorkflowTasksReply).done
        return reply

    def complete(
        self, lease: replies.TaskLease, outcome: i.TaskOutcome | None = None, *, worker: str = "one", **options: Any
    ) -> replies.Refused | None:
        """Answer an attempt, with success unless ``outcome`` says otherwise."""
        item = i.Completion(token=lease.token, outcome=outcome or i.TaskSucceeded(), **options)
        (reply,) = self.ask(i.CompleteTasks(items=(item,), worker=worker), replies.CompletionsReply).items
        return reply

    def fail(self, lease: replies.TaskLease, text: str = "broke", **options: Any) -> replies.Refused | None:
        """Answer an attempt with a failure of the handler."""
        return self.complete(lease, i.TaskFailed(failure=failure(text, **options)))

    def beat(self, lease: replies.TaskLease, *, worker: str = "one", **options: Any) -> replies.HeartbeatAnswer:
        """Send a heartbeat for one lease and return its answer."""
        item = i.HeartbeatItem(token=lease.token, **options)
        (answer,) = self.ask(i.Heartbeat(items=(item,), worker=worker), replies.HeartbeatReply).items
        return answer

    def begin(self, lease: replies.TaskLease, *, worker: str = "one") -> replies.Refused | None:
        """Say that the handler of one lease is about to run."""
        (answer,) = self.ask(i.Begin(tokens=(lease.token,), worker=worker), replies.Begun).items
        return answer

    def give_back(
        self, *leases: replies.TaskLease, turns: tuple[replies.WorkflowTask, ...] = (), worker: str = "one"
    ) -> None:
        """Hand leases back whose handlers never began."""
        request = i.ReturnTasks(
            tokens=tuple(lease.token for lease in leases),
            workflow_tokens=tuple(turn.token for turn in turns),
            worker=worker,
        )
        self.ask(request, replies.Accepted)

    def not_done(
        self, task: replies.WorkflowTask, cause: str = "workflow_worker_unhandled_failure", *, worker: str = "one"
    ) -> replies.WorkflowTaskReply:
        """Say that a turn's code failed."""
        item = i.WorkflowTaskNotDone(token=task.token, cause=cause, failure=failure())
        (reply,) = self.ask(
            i.CompleteWorkflowTasks(worker=worker, not_done=(item,)), replies.WorkflowTasksReply
        ).not_done
        return reply

    def signal(
        self, name: str = "go", request_id: str = "", workflow_id: str = "w", **options: Any
    ) -> replies.Accepted:
        """Send a signal, with a fresh request id unless one is given."""
        self.tickets += 1
        request = i.SignalWorkflow(
            workflow_id=workflow_id, name=name, request_id=request_id or f"signal-{self.tickets}", **options
        )
        return self.ask(request, replies.Accepted)

    def cancel_run(self, workflow_id: str = "w") -> replies.Accepted:
        self.tickets += 1
        request = i.CancelWorkflow(workflow_id=workflow_id, request_id=f"cancel-{self.tickets}")
        return self.ask(request, replies.Accepted)

    def terminate(self, workflow_id: str = "w") -> replies.Accepted:
        self.tickets += 1
        request = i.TerminateWorkflow(workflow_id=workflow_id, request_id=f"terminate-{self.tickets}")
        return self.ask(request, replies.Accepted)

    def cancel_task(self, task_id: str = "t") -> replies.Accepted:
        return self.ask(i.CancelTask(task_id=task_id), replies.Accepted)

    def task_row(self, task_id: str = "t") -> TaskRow:
        return self.tables.tasks[task_id]

    def attempts(self, task_id: str = "t") -> list[AttemptRow]:
        """Return the attempt rows of a task in order of lease, evidence behind what it is about."""
        rows = self.tables.attempts.get(task_id, {})
        return [rows[key] for key in sorted(rows)]

    def outcomes(self, task_id: str = "t") -> list[tuple[int, int, str]]:
        """Return (lease, attempt, outcome) of each attempt row of a task."""
        return [(row.lease, row.attempt, row.outcome) for row in self.attempts(task_id)]

    def run_info(self, workflow_id: str = "w", run_id: str = "") -> replies.WorkflowInfo:
        return self.ask(i.DescribeWorkflow(workflow_id=workflow_id, run_id=run_id), replies.WorkflowInfo)

    def task_info(self, task_id: str = "t") -> replies.TaskInfo:
        return self.ask(i.DescribeTask(task_id=task_id), replies.TaskInfo)

    def history(self, run_id: str) -> list[e.Event]:
        """Return the events of a run as they are stored, checking that their ids are dense."""
        events: list[e.Event] = []
        for row in self.tables.history.get(run_id, []):
            assert row.first_event_id == len(events) + 1
            events += [event for _, event in decode_events(row.blob)]
        return events

    def found(self, run_id: str, kind: type[R]) -> list[R]:
        """Return the events of one kind in the stored history of a run."""
        return [event for event in self.history(run_id) if isinstance(event, kind)]

    def kinds(self, run_id: str) -> list[str]:
        return [type(event).__name__ for event in self.history(run_id)]
