"""A worker: polls, runs handlers and programs, heartbeats, answers; it crashes, freezes and comes back late."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    Begin,
    CompleteTasks,
    Completion,
    Heartbeat,
    HeartbeatItem,
    Poll,
    ReturnTasks,
    StopWorker,
    TaskCanceled,
    TaskFailed,
    TaskOutcome,
    TaskSucceeded,
    TaskToken,
)
from outlast.core.replies import Begun, CompletionsReply, HeartbeatReply, Refused, Reply, TaskLease, Work
from outlast.core.units import MILLISECOND, SECOND
from outlast.sim.calls import Call, Caller
from outlast.sim.coverage import Coverage
from outlast.sim.faults import FaultLog, Faults
from outlast.sim.kernel import Kernel, Process
from outlast.sim.ledger import HandlerRun, Ledger
from outlast.sim.network import Network
from outlast.sim.node import Node
from outlast.sim.player import Player
from outlast.sim.program import (
    ACTIVITY_TYPES,
    QUEUES,
    WORKFLOW_TYPES,
    Spec,
    payload,
    value_of,
)
from outlast.sim.violation import Violation, require

TaskKey = tuple[str, str, int]  # namespace, task id, lease


@dataclass(slots=True, eq=False)
class Running:
    """A handler at work."""

    lease: TaskLease
    spec: Spec
    handler_run: HandlerRun
    heartbeats_lost: bool = False
    cancel: bool = False
    stopped: bool = False


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
        mint: Callable[[str], str],
    ) -> None:
        self.process = Process(kernel, name)
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
        self._player = Player(
            self.process, self._caller, coverage=coverage, faults=faults, log=log,
            cache_max=self._chance.choice((0, 1, 3, 50)), mint=mint, freed=self._poll_soon,
        )  # fmt: skip
        self._life = 0
        self._reset()

    def _reset(self) -> None:
        self._running: dict[TaskKey, Running] = {}
        self._finished: dict[str, list[tuple[TaskKey, Completion]]] = {}
        self._player.forget_all(self.name)
        self._frozen: dict[TaskKey, None] = {}  # leases over which this worker stood still
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
        workflow_slots = self._workflow_slots - self._player.turns
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
                self._player.take(namespace, task)
            for query in reply.queries:
                self._player.ask(namespace, query)
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

    def _begun(self, namespace: str, key: TaskKey, reply: Reply | None) -> None:
        if isinstance(reply, Begun) and reply.items[0] is None:
            self._coverage.hit("begin_acknowledged")
            self._start(namespace, key)
        else:
            self._coverage.hit("begin_refused")
            self._done_with(namespace, key)

    def _start(self, namespace: str, key: TaskKey) -> None:
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

    def _ended(self, namespace: str, key: TaskKey) -> None:
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

    def _answer(self, namespace: str, key: TaskKey, token: TaskToken, outcome: TaskOutcome) -> None:
        """Report an outcome, at once or together with others that end soon."""
        self._finished.setdefault(namespace, []).append((key, Completion(token=token, outcome=outcome)))
        if self._chance.random() < 0.7:
            self._report(namespace)
        else:
            self.process.after(int(self._chance.uniform(1, 40) * MILLISECOND), "report", self._report, namespace)

    def _report(self, namespace: str) -> None:
        finished = self._finished.pop(namespace, [])
        if not finished:
            return
        request = CompleteTasks(items=tuple(completion for _, completion in finished), worker=self.name)

        def answered(reply: Reply | None) -> None:
            require(isinstance(reply, CompletionsReply), 23, "completion_without_answer", reply)
            assert isinstance(reply, CompletionsReply)
            for (key, _), refused in zip(finished, reply.items, strict=True):
                if refused is not None:
                    self._coverage.hit("completion_after_expiry")
                    if key in self._frozen:
                        self._coverage.hit("worker_zombie_answered")
                self._done_with(namespace, key)
            if self._chance.random() < 0.05:
                self._log.hit("request_repeated")
                self._caller.call(namespace, request, lambda again: self._same(reply, again), attempts_max=1)

        self._caller.call(namespace, request, answered)

    def _same(self, reply: CompletionsReply, again: Reply | None) -> None:
        """Check that the same words get the same answers; a recorded failure is forgotten once the next attempt has begun."""
        if not isinstance(again, CompletionsReply):
            return
        for refused, refused_again in zip(reply.items, again.items, strict=True):
            first, second = (refused.code if refused else ""), (refused_again.code if refused_again else "")
            require(second in {first, "lease_lost"}, 23, "completion_answers_differ", f"{first!r} and then {second!r}")
            if not second:
                self._coverage.hit("completion_repeated")

    def _done_with(self, namespace: str, key: TaskKey) -> None:
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

    def _beaten(self, namespace: str, alive: list[tuple[TaskKey, Running]], reply: Reply | None) -> None:
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
