"""A client: starts, enqueues, signals, cancels, asks and waits, and writes down what it was told."""

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.task import LETTERS
from outlast.core.units import MILLISECOND, SECOND
from outlast.sim.calls import Caller
from outlast.sim.coverage import Coverage
from outlast.sim.faults import FaultLog, Faults, Load
from outlast.sim.kernel import Kernel, Process
from outlast.sim.ledger import Entry, Ledger
from outlast.sim.network import Network
from outlast.sim.node import Node
from outlast.sim.program import (
    ACTIVITY_TYPES,
    QUEUES,
    SIGNALS,
    WORKFLOW_TYPES,
    draw_program,
    draw_spec,
    payload,
    policy_of,
    value_of,
)
from outlast.sim.violation import require

_POLICIES_OPEN = (i.IfOpen.FAIL, i.IfOpen.RETURN_EXISTING, i.IfOpen.TERMINATE)
_POLICIES_CLOSED = (i.IfClosed.ALLOW, i.IfClosed.ALLOW, i.IfClosed.ALLOW_IF_FAILED, i.IfClosed.REJECT)


class Client:
    """One process of users' code."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        *,
        namespace: str,
        nodes: list[Node],
        network: Network,
        ledger: Ledger,
        coverage: Coverage,
        faults: Faults,
        log: FaultLog,
        load: Load,
        mint: Callable[[str], str],
        acknowledged: Callable[[], int],
        signals_of: Callable[[str], int],
    ) -> None:
        self.process = Process(kernel, name)
        self.calls_left = load.calls
        self._kernel = kernel
        self.namespace = namespace
        self._caller = Caller(self.process, network, nodes)
        self._ledger = ledger
        self._coverage = coverage
        self._faults = faults
        self._log = log
        self._load = load
        self._mint = mint
        self._acknowledged = acknowledged
        self._signals_of = signals_of
        self._runs: list[tuple[str, str]] = []  # workflow id, run id
        self._chance = kernel.stream(name, "client")
        self._workflows: list[str] = []
        self._tasks: list[str] = []
        self._keyed: list[i.EnqueueTask] = []
        self._signals = 0
        self._pause = max(load.chaos // max(load.calls, 1), 10 * MILLISECOND)

    def boot(self) -> None:
        """Begin."""
        self.process.after(self._chance.randrange(SECOND // 2), "client begins", self._next)

    def go_on(self, calls: int) -> None:
        """Do so many calls more, about what it knows from before too."""
        self.calls_left = calls
        self.boot()

    # -- what it does --

    def _next(self) -> None:
        if self.calls_left <= 0:
            return
        self.calls_left -= 1
        self._one(self._chance)
        pause = int(self._pause * self._chance.expovariate(1.0))
        self.process.after(min(pause, 5 * SECOND), "client goes on", self._next)

    def _one(self, chance: Random) -> None:
        draw = chance.random()
        if draw < 0.30 or not self._workflows:
            self._start(chance)
        elif draw < 0.55:
            self._enqueue(chance)
        elif draw < 0.80:
            for _ in range(chance.choice((1, 1, 2, 4))):
                self._signal(chance.choice(self._workflows), chance.choice(SIGNALS))
        elif draw < 0.84:
            workflow_id = chance.choice(self._workflows)
            self._ask(i.CancelWorkflow(workflow_id=workflow_id, request_id=self._mint("request"), reason="asked"))
        elif draw < 0.865:
            workflow_id = chance.choice(self._workflows)
            self._ask(i.TerminateWorkflow(workflow_id=workflow_id, request_id=self._mint("request"), reason="asked"))
        elif draw < 0.89 and self._runs:
            self._query(*chance.choice(self._runs[-4:]))
        elif draw < 0.91:
            self._ask(i.DescribeWorkflow(workflow_id=chance.choice(self._workflows)))
        elif draw < 0.95 and self._tasks:
            self._ask(i.DescribeTask(task_id=chance.choice(self._tasks)))
        elif self._tasks and draw >= 0.985:
            self._retry(chance.choice(self._tasks))
        elif self._tasks:
            self._cancel(chance.choice(self._tasks), regrets=chance.random() < 0.3)

    def _start(self, chance: Random) -> None:
        count = chance.choice((2, 3, 6)) if chance.random() < self._load.batches else 1
        items = tuple(self._start_request(chance) for _ in range(count))
        if count == 1:
            self._ask(items[0], lambda reply: self._started(items[0], reply))
            return

        def answered(reply: replies.Reply | None) -> None:
            if isinstance(reply, replies.WorkflowsStarted):
                for item, part in zip(items, reply.items, strict=True):
                    self._entered(item, part)
                    self._started(item, part)

        self._ask(i.StartWorkflows(items=items), answered)

    def _start_request(self, chance: Random) -> i.StartWorkflow:
        contended = chance.random() < 0.4
        workflow_id = f"shared-{chance.randrange(self._load.contended_ids)}" if contended else self._mint("workflow")
        if chance.random() < 0.15 and not contended:
            workflow_id = ""  # made from the key
        return i.StartWorkflow(
            type=chance.choice(WORKFLOW_TYPES),
            queue=chance.choice(QUEUES),
            run_id=self._mint("run"),
            request_id=self._mint("request"),
            workflow_id=workflow_id,
            input=(payload(draw_program(chance, self._load.handler_span)),),
            if_open=chance.choice(_POLICIES_OPEN),
            if_closed=chance.choice(_POLICIES_CLOSED),
            run_timeout=int(chance.uniform(1.0, 20.0) * SECOND) if chance.random() < 0.12 else 0,
            task_timeout=int(chance.uniform(0.8, 3.0) * SECOND),
            delay=int(chance.uniform(0.1, 3.0) * SECOND) if chance.random() < 0.1 else 0,
        )

    def _started(
        self, request: i.StartWorkflow, reply: replies.Reply | replies.WorkflowStarted | replies.Refused | None
    ) -> None:
        if isinstance(reply, replies.WorkflowStarted):
            self._workflows.append(reply.workflow_id)
            self._runs.append((reply.workflow_id, reply.run_id))
            if self._chance.random() < 0.4:
                self._await(i.AwaitWorkflow(workflow_id=reply.workflow_id, run_id=reply.run_id))
        elif isinstance(reply, replies.Refused):
            point = {"workflow_already_open": "start_refused_open",
                     "workflow_id_reuse_refused": "start_refused_closed"}.get(reply.code)  # fmt: skip
            if point:
                self._coverage.hit(point)
        if request.workflow_id:
            self._workflows.append(request.workflow_id)

    def _enqueue(self, chance: Random) -> None:
        if self._load.floods and chance.random() < self._load.floods:
            self.flood()
            return
        count = chance.choice((2, 4, 12)) if chance.random() < self._load.batches else 1
        items = tuple(self._enqueue_request(chance) for _ in range(count))
        if count == 1:
            self._ask(items[0], lambda reply: self._enqueued(items[0], reply))
            return

        def answered(reply: replies.Reply | None) -> None:
            if isinstance(reply, replies.TasksEnqueued):
                for item, part in zip(items, reply.items, strict=True):
                    self._entered(item, part)
                    self._enqueued(item, part)

        self._ask(i.EnqueueTasks(items=items), answered)

    def _enqueue_request(self, chance: Random) -> i.EnqueueTask:
        task_id = self._mint("task")
        if self._keyed and chance.random() < 0.2:
            # A user repeats a key, sometimes with something else in it.
            known = chance.choice(self._keyed)
            body = known.input
            if chance.random() < 0.4:
                self._log.hit("key_reused")
                body = (payload(draw_spec(chance, self._load.handler_span)),)
            else:
                self._log.hit("request_repeated")
            return i.EnqueueTask(task_id=task_id, type=known.type, queue=known.queue, key=known.key, input=body,
                                 retry=known.retry, delay=known.delay)  # fmt: skip
        spec = draw_spec(chance, self._load.handler_span)
        draw = chance.random()
        key = "" if draw < 0.15 else task_id if draw < 0.5 else self._mint("key")
        request = i.EnqueueTask(
            task_id=task_id,
            type=chance.choice(ACTIVITY_TYPES),
            queue=chance.choice(QUEUES),
            key=key,
            input=(payload(spec),),
            retry=policy_of(spec),
            delay=int(chance.uniform(0.05, 4.0) * SECOND) if chance.random() < 0.15 else 0,
            start_to_close=spec.get("start_to_close", 0),
            schedule_to_start=spec.get("schedule_to_start", 0),
            schedule_to_close=spec.get("schedule_to_close", 0),
            heartbeat=spec.get("heartbeat", 0),
            priority=chance.choice((1, 3, 3, 5)),
            fairness_key=chance.choice(("", "", "a", "b")),
        )
        if key and key != task_id:
            self._keyed.append(request)
        return request

    def _enqueued(
        self, request: i.EnqueueTask, reply: replies.Reply | replies.TaskEnqueuedReply | replies.Refused | None
    ) -> None:
        if isinstance(reply, replies.TaskEnqueuedReply):
            self._tasks.append(reply.task_id)
            if request.key == request.task_id and not reply.replayed:
                self._keyed.append(request)  # a minted key is known to its user from now on
            draw = self._chance.random()
            if draw < 0.3:
                self._await(i.AwaitTask(task_id=reply.task_id))
            elif draw > 0.9:
                self._cancel(reply.task_id, regrets=True)
        elif isinstance(reply, replies.Refused) and reply.code == "idempotency_key_reused":
            self._coverage.hit("key_reused_refused")

    def _cancel(self, task_id: str, *, regrets: bool) -> None:
        """Cancel a task; who regrets it brings it back in the same breath, so that one commit may hold both."""
        self._ask(i.CancelTask(task_id=task_id, reason="asked"))
        if regrets:
            self._retry(task_id)

    def _retry(self, task_id: str) -> None:
        """Bring a task back; now and then the same request comes once more, when the task may have ended again."""
        request = i.RetryTasks(task_ids=(task_id,), request_id=self._mint("request"), reason="it may work now")
        self._ask(request)
        if self._chance.random() < 0.4:
            self._log.hit("request_repeated")
            self._ledger.open_calls += 1  # one that is still to come: until then nothing is drained for good
            self.process.after(int(self._chance.uniform(0.1, 8.0) * SECOND), "asks again", self._ask_again, request)

    def _ask_again(self, request: i.Request) -> None:
        self._ledger.open_calls -= 1
        self._ask(request)

    def flood(self) -> None:
        """Enqueue as many tasks of one kind at once as make the window on them drop its tail; mostly the last come first."""
        chance = self._chance
        spec = {"span": 10 * MILLISECOND, "fails": 0, "attempts": 5, "first": SECOND // 5}
        known = i.EnqueueTask(
            task_id="", type=chance.choice(ACTIVITY_TYPES), queue=chance.choice(QUEUES), input=(payload(spec),),
            retry=policy_of(spec), delay=chance.choice((0, 0, 100 * MILLISECOND)),
        )  # fmt: skip
        count = self._load.flood + chance.choice((0, 0, 1, 5))
        step = chance.choice((0, 5, 5, 5))
        items = tuple(replace(known, task_id=self._mint("task"), priority=5 - n * step // count) for n in range(count))
        self._ask(i.EnqueueTasks(items=items))

    def signal(self, workflow_id: str, name: str) -> None:
        """Send a signal from outside the client's own plan."""
        self._signal(workflow_id, name)

    def terminate(self, workflow_id: str) -> None:
        """End a run, from outside the client's own plan."""
        self._ask(i.TerminateWorkflow(workflow_id=workflow_id, request_id=self._mint("request"), reason="closing time"))

    def _signal(self, workflow_id: str, name: str) -> None:
        self._signals += 1
        value: list[Any] = [self.process.name, self._signals]
        request = i.SignalWorkflow(
            workflow_id=workflow_id, name=name, request_id=self._mint("request"), input=(payload(value),)
        )

        def answered(reply: replies.Reply | None) -> None:
            if isinstance(reply, replies.Accepted) and not reply.changed:
                self._coverage.hit("signal_repeated")
            elif isinstance(reply, replies.Refused) and reply.code == "workflow_closed":
                self._coverage.hit("signal_refused_closed")
            elif self._chance.random() < 0.15:
                known = next((run_id for name, run_id in reversed(self._runs) if name == workflow_id), "")
                if known:
                    self._query(workflow_id, known)

        self._ask(request, answered)

    def _query(self, workflow_id: str, run_id: str) -> None:
        """Ask the code of a run how many signals it has seen: all that were committed before, or the answer is of the past."""
        floor = self._signals_of(run_id)

        def answered(reply: replies.Reply | None) -> None:
            if isinstance(reply, replies.QueryAnswered):
                seen, is_open = value_of(reply.result)
                require(seen >= floor or not is_open, 6, "query_of_the_past", f"{run_id}: {seen} of {floor} signals")
                self._coverage.hit("query_answered")

        wait = int(self._chance.uniform(1.0, 4.0) * SECOND)
        self._ask(i.QueryWorkflow(workflow_id=workflow_id, run_id=run_id, name="signals", wait=wait), answered)

    # -- how it asks --

    def _ask(self, request: i.Request, then: Callable[[replies.Reply | None], None] | None = None) -> None:
        entry = Entry(self.process.name, self.namespace, request, self._kernel.now, floor=self._acknowledged())
        self._ledger.entries.append(entry)
        self._ledger.open_calls += 1

        def ended(reply: replies.Reply | None) -> None:
            if not entry.ended_at:
                entry.ended_at = self._kernel.now
                entry.reply = reply
                entry.attempts = call.sent
                self._ledger.open_calls -= 1
                if isinstance(reply, replies.Refused) and reply.code in {"workflow_not_found", "task_not_found"}:
                    self._coverage.hit("asked_for_forgotten")
                if then is not None:
                    then(reply)

        patience = int(self._chance.uniform(0.4, 3.0) * SECOND)
        call = self._caller.call(self.namespace, request, ended, patience=patience)
        if self._faults.live and self._chance.random() < self._faults.caller_gave_up:
            self._log.hit("caller_gave_up")
            span = int(self._chance.expovariate(1.0) * 50 * MILLISECOND)
            self.process.after(span, "gives up", self._give_up, call, ended)

    def _give_up(self, call: Any, ended: Callable[[replies.Reply | None], None]) -> None:
        self._caller.drop(call)
        ended(None)

    def _await(self, request: i.AwaitWorkflow | i.AwaitTask) -> None:
        """Wait for an end; asks again and again, as the real client does."""
        entry = Entry(self.process.name, self.namespace, request, self._kernel.now)
        self._ledger.entries.append(entry)
        self._ledger.open_calls += 1

        def ended(reply: replies.Reply | None) -> None:
            entry.ended_at = self._kernel.now
            entry.reply = reply
            self._ledger.open_calls -= 1
            asked = request.run_id if isinstance(request, i.AwaitWorkflow) else ""
            if isinstance(reply, replies.WorkflowOutcome) and reply.run_id != asked:
                self._coverage.hit("await_followed")
            if isinstance(reply, replies.TaskOutcomeReply) and reply.state in LETTERS and self.calls_left > 0:
                self._retry(reply.task_id)

        self._caller.call(self.namespace, request, ended, patience=int(self._chance.uniform(1.0, 8.0) * SECOND))

    def _entered(
        self,
        request: i.Request,
        reply: replies.Reply | replies.WorkflowStarted | replies.TaskEnqueuedReply | replies.Refused,
    ) -> None:
        entry = Entry(self.process.name, self.namespace, request, self._kernel.now, self._kernel.now, attempts=2)
        entry.reply = reply
        self._ledger.entries.append(entry)
