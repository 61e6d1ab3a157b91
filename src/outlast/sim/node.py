"""A node: the real ShardCore in a model of the shell around it.

The shell's rules are those of the engine: everything that had arrived is handled before a tick; one batch is in flight at a
time; answers leave in the order in which the core gives them; a core that steps down is dropped with all it knows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from outlast.core.errors import NotFound
from outlast.core.inputs import Poll, Request, ReturnTasks, ShardRequest
from outlast.core.replies import Refused, Reply, Work, WorkflowTask
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.core import ShardCore
from outlast.core.shard.outputs import Answer, Ask, StepDown
from outlast.core.units import MILLISECOND, SECOND
from outlast.core.writes import Claim, CommitOutcome, Page
from outlast.engine.reading import Reader
from outlast.engine.shard.inline import inline
from outlast.protocol.transport import HistoryPage
from outlast.sim.clock import NodeClock
from outlast.sim.coverage import Coverage
from outlast.sim.disk import Disk
from outlast.sim.faults import FaultLog, Faults
from outlast.sim.kernel import Alarm, Kernel, Process
from outlast.sim.network import Network
from outlast.sim.violation import require

if TYPE_CHECKING:
    from outlast.sim.calls import Caller, PageAsked


@dataclass(slots=True, eq=False)
class Ticket:
    """Who waits for an answer. ``gone``: the caller's connection is closed."""

    number: int
    caller: "Caller | None"
    attempt: int
    namespace: str
    request: ShardRequest
    gone: bool = False


class Witness(Protocol):
    """Who must see what goes into a core and what comes out of it."""

    def handled(self, node: "Node", ticket: Ticket) -> None: ...

    def answered(self, node: "Node", ticket: Ticket, reply: Reply) -> None: ...

    def served(self, node: "Node", claim: Claim) -> None: ...

    def resumed(self, node: "Node", paused_for: int) -> None: ...

    def acknowledged(self, number: int) -> None: ...


class Node:
    """One process that may own the shard."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        clock: NodeClock,
        *,
        config: ShardConfig,
        disk: Disk,
        reader: Reader,
        network: Network,
        witness: Witness,
        coverage: Coverage,
        faults: Faults,
        log: FaultLog,
    ) -> None:
        self.process = Process(kernel, name)
        self.clock = clock
        self.core: ShardCore | None = None
        self.claim: Claim | None = None
        self._kernel = kernel
        self._config = config
        self._disk = disk
        self._reader = reader
        self._network = network
        self._witness = witness
        self._coverage = coverage
        self._faults = faults
        self._log = log
        self._chance = kernel.stream(name, "shell")
        self._encoder = msgspec.msgpack.Encoder()
        self._mailbox: list[Ticket] = []
        self._open: dict[int, Ticket] = {}
        self._giving: dict[int, Ticket] = {}  # answered by the core; the histories of their turns are being read
        self._tickets = 0
        self._claims = 0
        self._turn_set = False
        self._wake: Alarm | None = None
        self._wake_at: int | None = None
        self._gathered = 0
        self._in_flight = False
        self._served_before = False

    @property
    def owner(self) -> str:
        """The name under which this life of the node claims."""
        return f"{self.process.name}.{self.process.incarnation}"

    # -- life --

    def boot(self, *, after: int = 0) -> None:
        """Start the process; it begins to claim."""
        self.process.start()
        self._served_before = False
        self.process.after(after + 1, f"boot {self.process.name}", self._claim)

    def crash(self) -> None:
        """Kill the process."""
        self._disk.crashed(self.process)
        self.process.crash()
        self._turn_set = False
        self._drop()

    def pause(self, span: int) -> None:
        """Freeze the process; after it the shell goes on as if nothing had been."""
        self.process.pause(span)
        self._kernel.after(span, "node resumed", self._resumed, self.process.incarnation, span)

    def clock_jumped(self) -> None:
        """Set the alarm anew after the clock was stepped."""
        self._wake_at = None
        self._set_wake()

    def _resumed(self, incarnation: int, span: int) -> None:
        if incarnation == self.process.incarnation and self.core is not None:
            self._witness.resumed(self, span)

    def _drop(self) -> None:
        self.core = None
        self.claim = None
        self._mailbox.clear()
        self._open.clear()
        self._giving.clear()
        self._in_flight = False
        self._gathered = 0
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = None

    # -- ownership --

    def _claim(self) -> None:
        if self.core is not None:
            return
        now = self.clock.now()
        lease = self._config.shard_lease
        until = now + lease if lease else 0
        self._claims += 1
        self.process.after(2 * SECOND, "claim timeout", self._claim_again, self._claims)
        self._disk.claim(
            self.process, owner=self.owner, now=now, lease_until=until, done=lambda claim: self._claimed(claim, until)
        )

    def _claim_again(self, claims: int) -> None:
        if self.core is None and claims == self._claims:
            self._claim()

    def _claimed(self, claim: Claim | None, lease_until: int) -> None:
        self._claims += 1  # whatever timeout was set for the claim means nothing any more
        if self.core is not None:
            return
        if claim is None:
            self.process.after(int(self._chance.uniform(100, 700) * MILLISECOND), "claim", self._claim)
            return
        now = self.clock.now()
        if self._served_before:
            self._coverage.hit("reclaim")
        self._served_before = True
        self.claim = claim
        self.core = ShardCore(claim, config=self._config, now=now, lease_until=lease_until)
        self._witness.served(self, claim)
        self._kernel.note(f"{self.process.name} serves under {claim.fence.incarnation}.{claim.fence.epoch}")
        if self._faults.live and self._chance.random() < self._faults.crash_in_recovery:
            span = int(self._chance.expovariate(1.0) * 3 * self._faults.commit_latency)
            self.process.after(span, "crash in recovery", self._crash_in_recovery)
        self._flush()

    def _crash_in_recovery(self) -> None:
        self._log.hit("crash_in_recovery")
        self.crash()
        self._kernel.after(int(self._chance.uniform(0.05, 1.5) * SECOND), "reboot", self.reboot)

    def reboot(self) -> None:
        """Start the process again, unless it is up."""
        if not self.process.up:
            self.boot()

    # -- what comes in --

    def receive(self, caller: "Caller", attempt: int, namespace: str, request: Request) -> None:
        """Take a request from the network."""
        self._tickets += 1
        ticket = Ticket(self._tickets, caller, attempt, namespace, request)
        if self.core is None:
            refusal = Refused(code="unavailable", fact="This node does not serve the shard.", retryable=True)
            self._reply(ticket, refusal)
            return
        self._open[ticket.number] = ticket
        self._mailbox.append(ticket)
        self._set_turn()

    def hung_up(self, caller: "Caller", attempt: int) -> None:
        """Learn that a caller has closed its connection."""
        for ticket in (*self._open.values(), *self._giving.values()):
            if ticket.caller is caller and ticket.attempt == attempt:
                ticket.gone = True
                if ticket in self._mailbox:
                    # It stays: the bytes of the request have arrived, whoever sent them is gone.
                    return
                if self.core is not None and ticket.number in self._open:
                    self.core.forget(ticket, now=self.clock.now())
                    self._flush()
                return

    def fetch(self, caller: "Caller", key: int, namespace: str, asked: "PageAsked") -> None:
        """Read a page of a history for a worker that has not got it in memory."""

        def look() -> HistoryPage | None:
            try:
                reading = self._reader.read_history(
                    namespace, asked.workflow_id, asked.run_id, first_event_id=asked.first_event_id
                )
                return inline(reading)
            except NotFound:
                return None  # it was forgotten

        def looked(page: HistoryPage | None) -> None:
            self._network.send(self.process.name, caller.process, "fetched", caller.fetched, key, page)

        self._disk.read(self.process, look, looked)

    # -- the loop --

    def _set_turn(self) -> None:
        if not self._turn_set:
            self._turn_set = True
            span = int(self._chance.uniform(5_000, 400_000))
            self.process.after(span, "turn", self._turn, self.process.incarnation)

    def _turn(self, incarnation: int) -> None:
        self._turn_set = False
        core = self.core
        if core is None or incarnation != self.process.incarnation:
            return
        if self.process.resuming:
            # What arrived during the pause is read before anything that is due is looked at.
            self._set_turn()
            return
        if core.shard.now > self.clock.now():
            self._coverage.hit("clock_behind")
        count = self._chance.choice((1, 3, 1000))
        taken = 0
        while self._mailbox and taken < count and not core.full:
            self._take(core, self._mailbox.pop(0))
            taken += 1
        self._gathered += taken
        if self._mailbox and not core.full:
            self._set_turn()
        elif not self._mailbox:
            due = core.next_wakeup()
            if due is not None and due <= self.clock.now():
                core.tick(now=self.clock.now())
        self._flush()

    def _take(self, core: ShardCore, ticket: Ticket) -> None:
        now, request = self.clock.now(), ticket.request
        self._witness.handled(self, ticket)
        size = len(self._encoder.encode(request))
        core.handle(ticket, request, namespace=ticket.namespace, principal="sim", now=now, size=size)
        if ticket.gone:
            core.forget(ticket, now=now)

    def _woken(self) -> None:
        self._wake_at = None
        if self.core is not None:
            self._set_turn()

    def _set_wake(self) -> None:
        if self.core is None:
            return
        due = self.core.next_wakeup()
        if due == self._wake_at:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = due
        if due is not None:
            self._wake = self.process.at(self.clock.true_of(due), "wake", self._woken)

    def _flush(self) -> None:
        core = self.core
        if core is None or not self._drain(core):
            return
        batch = core.take_batch(now=self.clock.now())
        # What saw nothing new may be answered without a commit.
        if not self._drain(core):
            return
        if batch is not None:
            require(not self._in_flight, 11, "two_batches_in_flight", batch.number)
            self._in_flight = True
            if self._gathered >= 5:
                self._coverage.hit("batch_gathered")
            self._gathered = 0
            self._disk.commit(
                self.process, self.owner, batch, lambda outcome: self._committed(core, batch.number, outcome)
            )
        self._set_wake()

    def _drain(self, core: ShardCore) -> bool:
        """Act on what the core asks for; return whether it goes on."""
        stepped: StepDown | None = None
        for output in core.take_outputs():
            match output:
                case Answer():
                    self._answer(output)
                case Ask():
                    self._disk.load(self.process, output.load, self._loader(core, output.load_id))
                case StepDown():
                    stepped = output  # what was handed in after it is answered behind it
        if stepped is not None:
            self._step_down(stepped)
        return stepped is None

    def _loader(self, core: ShardCore, load_id: int) -> Callable[[Page], None]:
        def loaded(page: Page) -> None:
            if self.core is core:
                core.loaded(load_id, page, now=self.clock.now())
                self._flush()

        return loaded

    def _committed(self, core: ShardCore, number: int, outcome: CommitOutcome) -> None:
        if self.core is not core:
            return
        self._in_flight = False
        if outcome is CommitOutcome.DONE:
            self._witness.acknowledged(number)
        if self._mailbox:
            self._set_turn()  # it may have waited for room in the batch
        core.on_commit(number, outcome, now=self.clock.now())
        if outcome is not CommitOutcome.DONE:
            self._doubted(core)
        self._flush()

    def _doubted(self, core: ShardCore) -> None:
        """Check that a core in doubt says nothing but that it stops, then let the shell act on it."""
        outputs = core.take_outputs()
        require(any(isinstance(output, StepDown) for output in outputs), 15, "no_step_down_after_doubt", outputs)
        for output in outputs:
            if isinstance(output, Answer):
                require(
                    isinstance(output.reply, Refused) and output.reply.retryable,
                    15, "answer_after_doubt", output.reply,
                )  # fmt: skip
                self._answer(output)
        self._step_down(next(output for output in outputs if isinstance(output, StepDown)))

    def _step_down(self, output: StepDown) -> None:
        self._kernel.note(f"{self.process.name} steps down: {output.reason}")
        require("invariant broken" not in output.reason, 0, "core_gave_up", output.reason)
        unanswered = [ticket for ticket in self._open.values() if ticket not in self._mailbox and not ticket.gone]
        require(not unanswered, 15, "unanswered_at_step_down", [type(ticket.request).__name__ for ticket in unanswered])
        refusal = Refused(code="unavailable", fact="The shard was dropped.", retryable=True)
        for ticket in self._mailbox:
            self._reply(ticket, refusal)
        self._drop()
        self.process.after(int(self._chance.uniform(1, 300) * MILLISECOND), "claim", self._claim)

    # -- what goes out --

    def _answer(self, output: Answer) -> None:
        ticket = output.ticket
        assert isinstance(ticket, Ticket)
        reply = output.reply
        self._witness.answered(self, ticket, reply)
        self._open.pop(ticket.number, None)
        if ticket.caller is None:
            return
        if isinstance(reply, Work) and isinstance(ticket.request, Poll):
            self._give_out(ticket, ticket.request, reply)
        else:
            self._reply(ticket, reply)

    def _give_out(self, ticket: Ticket, poll: Poll, work: Work) -> None:
        if ticket.gone:
            self._take_back(ticket, poll, work)
            return
        missing = [n for n, task in enumerate(work.workflow_tasks) if not task.events]
        if not missing:
            self._reply(ticket, work)
            return
        turns = list(work.workflow_tasks)
        left = len(missing)

        def filled(n: int, task: WorkflowTask) -> None:
            nonlocal left
            turns[n] = task
            left -= 1
            if left == 0:
                self._giving.pop(ticket.number, None)
                whole = Work(tasks=work.tasks, workflow_tasks=tuple(turns), stop=work.stop)
                if ticket.gone:
                    self._take_back(ticket, poll, whole)
                else:
                    self._reply(ticket, whole)

        self._giving[ticket.number] = ticket
        for n in missing:
            self._disk.read(self.process, partial(self._with_history, turns[n]), partial(filled, n))

    def _with_history(self, task: WorkflowTask) -> WorkflowTask:
        return inline(self._reader.with_history(task))

    def _take_back(self, ticket: Ticket, poll: Poll, work: Work) -> None:
        if self.core is None or not (work.tasks or work.workflow_tasks):
            return
        self._log.hit("lease_returned")
        request = ReturnTasks(
            tokens=tuple(lease.token for lease in work.tasks),
            workflow_tokens=tuple(task.token for task in work.workflow_tasks),
            worker=poll.worker,
        )
        self.ask_own(request, ticket.namespace)

    def ask_own(self, request: ShardRequest, namespace: str) -> None:
        """Hand the core what the node itself asks for; nobody waits for the answer."""
        if self.core is None:
            return
        self._tickets += 1
        own = Ticket(self._tickets, None, 0, namespace, request)
        self._open[own.number] = own
        self._mailbox.append(own)
        self._set_turn()

    def _reply(self, ticket: Ticket, reply: Reply) -> None:
        self._open.pop(ticket.number, None)
        if ticket.caller is not None:
            self._network.send(
                self.process.name, ticket.caller.process, f"<- {type(reply).__name__}",
                ticket.caller.replied, ticket.attempt, reply,
            )  # fmt: skip
