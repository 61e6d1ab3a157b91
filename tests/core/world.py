"""A shard core over tables in memory, stepped by hand: what tests of the core are written with."""

from dataclasses import dataclass, field
from typing import TypeVar

from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core.codec import decode_events
from outlast.core.commands import Command
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import Reply, Request
from outlast.core.payload import Payload
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.core import ShardCore
from outlast.core.shard.outputs import Answer, Ask, StepDown
from outlast.core.units import SECOND
from outlast.core.writes import Batch, CommitOutcome
from outlast.store.memory.tables import Tables

R = TypeVar("R")

START = 1_700_000_000 * SECOND
NS = "default"


def payload(text: str) -> Payload:
    return Payload(encoding="json/plain", data=text.encode())


def failure(text: str = "broke", *, type: str = "ValueError", final: bool = False) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type=type, message=text, final=final)


@dataclass
class World:
    """One shard, its tables and a clock that only tests move. Commits happen at once unless ``hold_commits``."""

    config: ShardConfig = field(default_factory=ShardConfig)
    tables: Tables = field(default_factory=Tables)
    now: int = START
    hold_commits: bool = False
    answers: dict[object, Reply] = field(default_factory=dict[object, Reply])
    held: Batch | None = None
    stepped_down: str = ""
    tickets: int = 0
    core: ShardCore = field(init=False)

    def __post_init__(self) -> None:
        self.claim()

    def claim(self) -> None:
        claim = self.tables.claim(owner="node", now=self.now, lease_until=self.now)
        self.core = ShardCore(claim, config=self.config, now=self.now)
        self.stepped_down = ""
        self.held = None
        self.settle()

    def restart(self) -> None:
        """Lose everything that was in memory."""
        self.claim()

    def send(self, request: Request, *, namespace: str = NS) -> object:
        """Hand a request in and return its ticket."""
        self.tickets += 1
        self.core.handle(self.tickets, request, namespace=namespace, principal="tester", now=self.now)
        self.settle()
        return self.tickets

    def ask(self, request: Request, kind: type[R], *, namespace: str = NS) -> R:
        """Hand a request in and return its reply, which must be of ``kind``."""
        ticket = self.send(request, namespace=namespace)
        assert ticket in self.answers, f"no answer to {request}"
        reply = self.answers[ticket]
        assert isinstance(reply, kind), f"{reply} is not a {kind.__name__}"
        return reply

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
                        self.core.loaded(output.load_id, self.tables.load(output.load), now=self.now)
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

    # --- what most tests begin with ----------------------------------------------------------------------------------

    def start(self, workflow_id: str = "w", **options: object) -> i.WorkflowStarted:
        self.tickets += 1
        request = i.StartWorkflow(
            **{
                "type": "order",
                "queue": "default",
                "run_id": f"run-{self.tickets}",
                "request_id": f"start-{self.tickets}",
                "workflow_id": workflow_id,
                **options,
            }  # type: ignore[arg-type]
        )
        return self.ask(request, i.WorkflowStarted)

    def enqueue(self, task_id: str = "t", **options: object) -> i.TaskEnqueuedReply:
        request = i.EnqueueTask(**{"task_id": task_id, "type": "job", "queue": "default", "key": task_id, **options})  # type: ignore[arg-type]
        return self.ask(request, i.TaskEnqueuedReply)

    def poll(
        self, worker: str = "one", *, slots: int = 10, turns: int = 10, poll_id: str = "", wait: int = 0
    ) -> i.Work:
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
        assert isinstance(reply, i.Work)
        return reply

    def lease(self, worker: str = "one") -> i.TaskLease:
        """Poll for one task and return its lease."""
        (lease,) = self.poll(worker, slots=1, turns=0).tasks
        return lease

    def turn(self, worker: str = "one") -> i.WorkflowTask:
        """Poll for one workflow task and return it."""
        (task,) = self.poll(worker, slots=0, turns=1).workflow_tasks
        return task

    def do(
        self, task: i.WorkflowTask, *commands: Command, worker: str = "one", **options: object
    ) -> i.WorkflowTaskReply:
        """Complete a turn with ``commands``."""
        done = i.WorkflowTaskDone(token=task.token, commands=commands, **options)  # type: ignore[arg-type]
        self.tickets += 1
        request = i.CompleteWorkflowTasks(worker=worker, done=(done,), new_run_ids=(f"next-{self.tickets}",))
        (reply,) = self.ask(request, i.WorkflowTasksReply).done
        return reply

    def complete(
        self, lease: i.TaskLease, outcome: i.TaskOutcome | None = None, *, worker: str = "one", **options: object
    ) -> i.Refused | None:
        """Answer an attempt, with success unless ``outcome`` says otherwise."""
        item = i.Completion(token=lease.token, outcome=outcome or i.TaskSucceeded(), **options)  # type: ignore[arg-type]
        (reply,) = self.ask(i.CompleteTasks(items=(item,), worker=worker), i.CompletionsReply).items
        return reply

    def run_info(self, workflow_id: str = "w", run_id: str = "") -> i.WorkflowInfo:
        return self.ask(i.DescribeWorkflow(workflow_id=workflow_id, run_id=run_id), i.WorkflowInfo)

    def task_info(self, task_id: str = "t") -> i.TaskInfo:
        return self.ask(i.DescribeTask(task_id=task_id), i.TaskInfo)

    def history(self, run_id: str) -> list[e.Event]:
        """Return the events of a run as they are stored, checking that their ids are dense."""
        events: list[e.Event] = []
        for row in self.tables.history.get(run_id, []):
            assert row.first_event_id == len(events) + 1
            events += [event for _, event in decode_events(row.blob)]
        return events

    def kinds(self, run_id: str) -> list[str]:
        return [type(event).__name__ for event in self.history(run_id)]
