"""A worker: polls, runs handlers and programs, heartbeats, answers; it crashes, freezes and comes back late."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from outlast.core.commands import Command
from outlast.core.events import Timed
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    Begin,
    Begun,
    CompleteTasks,
    CompleteWorkflowTasks,
    Completion,
    CompletionsReply,
    Heartbeat,
    HeartbeatItem,
    HeartbeatReply,
    Poll,
    Refused,
    Reply,
    ReturnTasks,
    StopWorker,
    TaskCanceled,
    TaskFailed,
    TaskLease,
    TaskOutcome,
    TaskSucceeded,
    TaskToken,
    Work,
    WorkflowTask,
    WorkflowTaskDone,
    WorkflowTaskNotDone,
    WorkflowTasksReply,
    WorkflowToken,
)
from outlast.core.units import MILLISECOND, SECOND
from outlast.sim.calls import Call, Caller
from outlast.sim.coverage import Coverage
from outlast.sim.faults import FaultLog, Faults
from outlast.sim.kernel import Kernel, Process
from outlast.sim.ledger import HandlerRun, Ledger
from outlast.sim.network import Network
from outlast.sim.node import Node
from outlast.sim.program import (
    ACTIVITY_TYPES,
    QUEUES,
    WORKFLOW_TYPES,
    Interpreter,
    Nondeterminism,
    Spec,
    payload,
    replay,
    value_of,
)
from outlast.sim.violation import Violation, require


@dataclass(slots=True, eq=False)
class Running:
    """A handler at work."""

    lease: TaskLease
    spec: Spec
    handler_run: HandlerRun
    heartbeats_lost: bool = False
    cancel: bool = False
    stopped: bool = False


@dataclass(slots=True, eq=False)
class Cached:
    """A run that this worker has in memory, as far as the history's end that was acknowledged to it."""

    run: Interpreter
    last_event_id: int
    acknowledged: bool = False
    history: list[Timed] = field(default_factory=list[Timed])


class Worker:
    """One process of a worker."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        *,
        nodes: list[Node],
        network: Network,
        ledger: Ledger,
        coverage: Coverage,
        faults: Faults,
        log: FaultLog,
        namespaces: tuple[str, ...],
    ) -> None:
        self.process = Process(kernel, name)
        self.mint: Callable[[str], str] = lambda kind: f"{kind}-{name}"  # replaced by the cluster
        self._kernel = kernel
        self._caller = Caller(self.process, network, nodes)
        self._ledger = ledger
        self._coverage = coverage
        self._faults = faults
        self._log = log
        self._namespaces = namespaces
        self._chance = kernel.stream(name, "worker")
        self._slots = self._chance.choice((1, 2, 4, 8))
        self._workflow_slots = self._chance.choice((1, 2, 4))
        self._cache_max = self._chance.choice((0, 1, 3, 50))
        self._life = 0
        self._reset()

    def _reset(self) -> None:
        self._running: dict[tuple[str, str, int], Running] = {}
        self._turns = 0
        self._turns_seen: dict[WorkflowToken, None] = {}
        self._frozen: dict[tuple[str, str, int], None] = {}  # leases over which this worker stood still
        self._cache: dict[tuple[str, str], Cached] = {}
        self._polling: dict[str, Call | None] = dict.fromkeys(self._namespaces)
        self._polls = 0
        self._stopping = False

    @property
    def name(self) -> str:
        """The name of this life of the worker."""
        return f"{self.process.name}.{self._life}"

    # -- life --

    def boot(self, *, after: int = 0) -> None:
        """Start the process."""
        self._life += 1
        self._reset()
        self.process.start()
        for namespace in self._namespaces:
            self.process.after(after + self._chance.randrange(20_000_000), "first poll", self._poll, namespace)
        self.process.after(after + SECOND // 2, "heartbeats", self._beat)

    def crash(self) -> None:
        """Kill the process with everything it was doing."""
        if not self.process.up:
            return
        if self._running:
            self._coverage.hit("worker_gone_mid_task")
        self._caller.forget_all()
        self.process.crash()

    def pause(self, span: int) -> None:
        """Freeze the process."""
        for key, running in self._running.items():
            if span > (running.lease.lease or 0):
                self._frozen[key] = None
        self.process.pause(span)

    def stop(self, *, restart_after: int) -> None:
        """Stop in good order: take nothing more, hand back what has not started, end what runs, start again."""
        if not self.process.up or self._stopping:
            return
        self._stopping = True
        for namespace in self._namespaces:
            self._caller.call(namespace, StopWorker(worker=self.name), lambda _: None, attempts_max=2)
            if (call := self._polling.get(namespace)) is not None:
                self._caller.drop(call)
                self._polling[namespace] = None
        self.process.after(restart_after, "worker stops", self._stopped, restart_after)

    def _stopped(self, restart_after: int) -> None:
        self.crash()
        self._kernel.after(restart_after, "worker starts", self.start_again)

    def start_again(self) -> None:
        """Start the process again, unless it is up."""
        if not self.process.up:
            self.boot()

    # -- polls --

    def _poll(self, namespace: str) -> None:
        if self._stopping or self._polling[namespace] is not None:
            return
        slots = self._slots - len(self._running)
        workflow_slots = self._workflow_slots - self._turns
        if slots <= 0 and workflow_slots <= 0:
            return
        self._polls += 1
        wait = int(self._chance.uniform(0.5, 4.0) * SECOND)
        request = Poll(
            poll_id=f"{self.name}/{self._polls}",
            worker=self.name,
            queues=QUEUES,
            task_types=ACTIVITY_TYPES if slots > 0 else (),
            workflow_types=WORKFLOW_TYPES if workflow_slots > 0 else (),
            slots=max(slots, 0),
            workflow_slots=max(workflow_slots, 0),
            wait=wait,
        )
        # The first try is told to wait, so its answer takes that long; every further try asks with the same poll id.
        patience = wait + int(self._chance.uniform(0.05, 1.5) * SECOND)
        self._polling[namespace] = self._caller.call(
            namespace, request, lambda reply: self._worked(namespace, reply), patience=patience
        )

    def _worked(self, namespace: str, reply: Reply | None) -> None:
        self._polling[namespace] = None
        if isinstance(reply, Work):
            for lease in reply.tasks:
                self._take(namespace, lease)
            for task in reply.workflow_tasks:
                if task.token in self._turns_seen:
                    continue  # the same poll, answered again
                self._turns_seen[task.token] = None
                self._turns += 1
                span = int(self._chance.expovariate(1.0) * 3 * MILLISECOND)
                self.process.after(span, "turn taken", self._turn, namespace, task)
        elif isinstance(reply, Refused):
            raise Violation(64, "poll_refused", reply.code)
        self._poll_soon(namespace)

    def _poll_soon(self, namespace: str) -> None:
        self.process.after(int(self._chance.uniform(0.2, 10) * MILLISECOND), "next poll", self._poll, namespace)

    # -- tasks --

    def _take(self, namespace: str, lease: TaskLease) -> None:
        key = (namespace, lease.token.task_id, lease.token.lease)
        if key in self._running:
            return  # the same poll, answered again
        handler_run = HandlerRun(
            task_id=lease.token.task_id, lease=lease.token.lease, attempt=lease.attempt, worker=self.name,
            operation_id=lease.operation_id, once=lease.begin_needed, started_at=0,
        )  # fmt: skip
        running = Running(lease, value_of(lease.input), handler_run)
        running.heartbeats_lost = self._faults.live and self._chance.random() < self._faults.heartbeats_lost
        if running.heartbeats_lost:
            self._log.hit("heartbeats_lost")
        self._running[key] = running
        if self._stopping or (self._faults.live and self._chance.random() < self._faults.worker_stop_rate / 10):
            # Nothing has begun yet: the lease goes back and the attempt does not count.
            self._log.hit("lease_returned")
            self._done_with(namespace, key)
            back = ReturnTasks(tokens=(lease.token,), worker=self.name)
            self._caller.call(namespace, back, lambda _: None, attempts_max=3)
        elif lease.begin_needed:
            request = Begin(tokens=(lease.token,), worker=self.name)
            self._caller.call(namespace, request, lambda reply: self._begun(namespace, key, reply))
        else:
            self._start(namespace, key)

    def _begun(self, namespace: str, key: tuple[str, str, int], reply: Reply | None) -> None:
        if isinstance(reply, Begun) and reply.items[0] is None:
            self._coverage.hit("begin_acknowledged")
            self._start(namespace, key)
        else:
            self._coverage.hit("begin_refused")
            self._done_with(namespace, key)

    def _start(self, namespace: str, key: tuple[str, str, int]) -> None:
        running = self._running.get(key)
        if running is None or running.handler_run.started_at:
            return
        running.handler_run.started_at = self._kernel.now
        self._ledger.handler_runs.append(running.handler_run)
        self._kernel.note(f"{self.name} runs {key[1]} lease {key[2]} attempt {running.lease.attempt}")
        spec = running.spec
        if running.lease.attempt <= spec.get("kills", 0):
            self.process.after(int(spec["span"] * self._chance.random()), "handler kills", self._killed)
            return
        span = spec["span"] if not spec.get("hangs") or running.lease.attempt > 1 else spec["span"] + 10 * SECOND
        self.process.after(span, "handler ends", self._ended, namespace, key)

    def _killed(self) -> None:
        self._log.hit("handler_failed")
        self.crash()
        self._kernel.after(int(self._chance.uniform(0.05, 1.0) * SECOND), "worker starts", self.start_again)

    def _ended(self, namespace: str, key: tuple[str, str, int]) -> None:
        running = self._running.get(key)
        if running is None or running.handler_run.ended_at:
            return
        running.handler_run.ended_at = self._kernel.now
        if self._kernel.now - running.handler_run.started_at > running.spec["span"] + SECOND:
            self._log.hit("handler_overran")
        outcome = self._outcome_of(running)
        self._answer(namespace, key, running.lease.token, outcome)

    def _outcome_of(self, running: Running) -> TaskOutcome:
        spec = running.spec
        if running.cancel:
            return TaskCanceled()
        if running.lease.attempt > spec["fails"]:
            return TaskSucceeded(result=(payload([running.lease.token.task_id, running.lease.attempt]),))
        self._log.hit("handler_failed")
        failure = Failure(
            kind=FailureKind.APPLICATION,
            type="Fatal" if spec.get("final") else "Unlucky",
            message="It was to fail.",
            next_delay=spec.get("next"),
        )
        return TaskFailed(failure=failure)

    def _answer(self, namespace: str, key: tuple[str, str, int], token: TaskToken, outcome: TaskOutcome) -> None:
        request = CompleteTasks(items=(Completion(token=token, outcome=outcome),), worker=self.name)

        def answered(reply: Reply | None) -> None:
            require(isinstance(reply, CompletionsReply), 23, "completion_without_answer", reply)
            assert isinstance(reply, CompletionsReply)
            refused = reply.items[0]
            if refused is not None:
                self._coverage.hit("completion_after_expiry")
                if key in self._frozen:
                    self._coverage.hit("worker_zombie_answered")
            if self._chance.random() < 0.05:
                self._log.hit("request_repeated")
                self._caller.call(namespace, request, lambda again: self._same(key, refused, again), attempts_max=1)
            self._done_with(namespace, key)

        self._caller.call(namespace, request, answered)

    def _same(self, key: tuple[str, str, int], refused: Refused | None, again: Reply | None) -> None:
        if not isinstance(again, CompletionsReply):
            return
        first, second = (refused.code if refused else ""), (again.items[0].code if again.items[0] else "")
        # A recorded failure is forgotten once the next attempt has begun.
        require(second in {first, "lease_lost"}, 23, "completion_answers_differ",
                f"{key}: {first!r} and then {second!r}")  # fmt: skip
        if not second:
            self._coverage.hit("completion_repeated")

    def _done_with(self, namespace: str, key: tuple[str, str, int]) -> None:
        self._running.pop(key, None)
        self._poll_soon(namespace)

    # -- heartbeats --

    def _beat(self) -> None:
        for namespace in self._namespaces:
            alive = [
                (key, running)
                for key, running in self._running.items()
                if key[0] == namespace and not running.heartbeats_lost and not running.stopped
            ]
            if alive:
                items = tuple(
                    HeartbeatItem(
                        token=running.lease.token,
                        progress=bool(running.handler_run.started_at) and not running.spec.get("hangs"),
                        details=payload(len(self._ledger.handler_runs)) if self._chance.random() < 0.1 else None,
                    )
                    for _, running in alive
                )
                self._caller.call(
                    namespace, Heartbeat(items=items, worker=self.name),
                    partial(self._beaten, namespace, alive),
                    attempts_max=1, patience=SECOND,
                )  # fmt: skip
        spans = [
            min(r.lease.lease or SECOND, r.lease.heartbeat or r.lease.lease or SECOND) for r in self._running.values()
        ]
        span = max(min(spans, default=SECOND) // 3, 50 * MILLISECOND)
        self.process.after(span, "heartbeats", self._beat)

    def _beaten(self, namespace: str, alive: list[tuple[tuple[str, str, int], Running]], reply: Reply | None) -> None:
        if not isinstance(reply, HeartbeatReply):
            return
        for (key, running), answer in zip(alive, reply.items, strict=True):
            if key not in self._running:
                continue
            if answer.action == "stop":
                self._coverage.hit("heartbeat_after_loss")
                running.stopped = True
                # Half of the handlers do not listen: they end, and answer under a lease that is lost.
                if self._chance.random() < 0.5:
                    self._done_with(namespace, key)
            elif answer.action == "cancel" and not running.cancel:
                self._coverage.hit("heartbeat_cancel")
                if self._chance.random() < 0.7 and running.handler_run.started_at:
                    running.cancel = True
                    span = int(self._chance.uniform(1, 300) * MILLISECOND)
                    self.process.after(span, "handler stops", self._ended, namespace, key)

    # -- workflow tasks --

    def _turn(self, namespace: str, task: WorkflowTask) -> None:
        key = (namespace, task.run_id)
        if self._faults.live and self._chance.random() < self._faults.cache_drop and self._cache:
            self._log.hit("cache_drop")
            self._cache.pop(key, None)
        cached = self._cache.get(key)
        if task.first_event_id == 1:
            self._cache.pop(key, None)
            self._play(namespace, task, None, list(task.events))
        elif cached is not None and cached.acknowledged and cached.last_event_id == task.first_event_id - 1:
            self._coverage.hit("sticky_used")
            self._play(namespace, task, cached, list(task.events))
        else:
            self._cache.pop(key, None)
            self._coverage.hit("cache_missed")
            self._caller.fetch(
                task.run_id, task.first_event_id - 1,
                lambda events: self._fetched(namespace, task, events),
            )  # fmt: skip

    def _fetched(self, namespace: str, task: WorkflowTask, events: tuple[Timed, ...] | None) -> None:
        if events is None:
            self._turn_over(namespace)  # nothing is answered: the task times out
            return
        require(len(events) == task.first_event_id - 1, 30, "history_shorter_than_told",
                f"{task.run_id}: {len(events)} before {task.first_event_id}")  # fmt: skip
        self._play(namespace, task, None, [*events, *task.events])

    def _play(self, namespace: str, task: WorkflowTask, cached: Cached | None, events: list[Timed]) -> None:
        try:
            if cached is None:
                require(len(events) == task.started_event_id, 30, "task_shows_wrong_events",
                        f"{task.run_id}: {len(events)} for {task.started_event_id}")  # fmt: skip
                run, commands = replay(events)
            else:
                run = cached.run
                for place, (_, event) in enumerate(events, start=task.first_event_id):
                    run.feed(place, event)
                require(task.first_event_id + len(events) - 1 == task.started_event_id, 30, "task_shows_wrong_events",
                        f"{task.run_id}: {task.first_event_id}+{len(events)} for {task.started_event_id}")  # fmt: skip
                commands = run.turn()
        except Nondeterminism as error:
            raise Violation(34, "nondeterminism", f"{task.run_id}: {error}") from error
        if self._faults.live and self._chance.random() < self._faults.workflow_task_stuck:
            self._log.hit("workflow_task_stuck")
            self._cache.pop((namespace, task.run_id), None)
            self.process.after(
                int(self._chance.uniform(0.5, 2.0) * (task.timeout or SECOND)), "stuck turn",
                self._complete, namespace, task, run, commands,
            )  # fmt: skip
        elif self._faults.live and self._chance.random() < self._faults.workflow_task_failed:
            self._log.hit("workflow_task_failed")
            self._fail(namespace, task)
        else:
            self._complete(namespace, task, run, commands)

    def _complete(self, namespace: str, task: WorkflowTask, run: Interpreter, commands: tuple[Command, ...]) -> None:
        keep = self._cache_max > 0 and not run.closed
        cached = Cached(run, task.started_event_id + 1 + len(commands))
        if keep:
            self._cache[(namespace, task.run_id)] = cached
            while len(self._cache) > self._cache_max:
                del self._cache[next(iter(self._cache))]
        done = WorkflowTaskDone(token=task.token, commands=commands, cached=keep)
        request = CompleteWorkflowTasks(worker=self.name, done=(done,), new_run_ids=(self.mint("run"),))

        def answered(reply: Reply | None) -> None:
            self._turn_over(namespace)
            if not isinstance(reply, WorkflowTasksReply) or reply.done[0].refused is not None:
                self._cache.pop((namespace, task.run_id), None)
                if isinstance(reply, WorkflowTasksReply) and reply.done[0].refused is not None:
                    self._refused(task, reply.done[0].refused)
                return
            for place, command in enumerate(commands, start=task.started_event_id + 2):
                run.echo(place, command)
            require(reply.done[0].last_event_id == cached.last_event_id, 34, "turn_ends_elsewhere",
                    f"{task.run_id}: {reply.done[0].last_event_id}, expected {cached.last_event_id}")  # fmt: skip
            cached.acknowledged = True
            for won in run.won:
                self._coverage.hit("wait_signal_won" if won == "signal" else "wait_timeout_won")
            run.won.clear()

        self._caller.call(namespace, request, answered, patience=SECOND, attempts_max=4)

    def _refused(self, task: WorkflowTask, refused: Refused) -> None:
        if refused.code == "unhandled_command":
            self._coverage.hit("unhandled_command")
        elif refused.code in ("workflow_task_lost", "workflow_closed", "workflow_not_found"):
            self._coverage.hit("workflow_task_stale")
        else:
            raise Violation(34, "turn_refused", f"{task.run_id}: {refused.code}: {refused.fact}")

    def _fail(self, namespace: str, task: WorkflowTask) -> None:
        self._cache.pop((namespace, task.run_id), None)
        failure = Failure(kind=FailureKind.APPLICATION, type="Bug", message="The worker had a bad day.")
        item = WorkflowTaskNotDone(token=task.token, cause="workflow_worker_unhandled_failure", failure=failure)
        request = CompleteWorkflowTasks(worker=self.name, not_done=(item,))
        self._caller.call(namespace, request, lambda _: self._turn_over(namespace), patience=SECOND, attempts_max=2)

    def _turn_over(self, namespace: str) -> None:
        self._turns = max(0, self._turns - 1)
        self._poll_soon(namespace)
