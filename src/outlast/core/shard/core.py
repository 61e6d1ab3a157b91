"""The door to one shard: inputs and the passing of time in, batches, loads and answers out. No input or output of its own.

The shell around it calls ``handle`` for what has arrived, then ``tick``, then ``take_batch``, and does what
``take_outputs`` says; it tells ``on_commit`` what became of a batch and ``loaded`` what was read. After a StepDown the core
is dead: claim the shard again and make another.
"""

from typing import assert_never

from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.admin import (
    CreateNamespace,
    DeleteNamespace,
    DescribeWorkers,
    DropNamespace,
    Forget,
    UpdateNamespace,
)
from outlast.core.counters import TASKS, counted_by
from outlast.core.errors import InvariantBroken, Refusal, Unavailable
from outlast.core.shard import (
    admin,
    attempts,
    due,
    enqueue,
    freshness,
    loading,
    matching,
    queries,
    runs,
    tasks,
    timing,
    turns,
)
from outlast.core.shard.admitted import Admitted, LeaseEnded, RunOverLimit, TimerDue
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.damage import stands_still
from outlast.core.shard.gate import Gate
from outlast.core.shard.gather import Gather
from outlast.core.shard.loading import Loading
from outlast.core.shard.outputs import Answer, Output, StepDown
from outlast.core.shard.pace import Pace
from outlast.core.shard.state import Shard
from outlast.core.shard.window import Window
from outlast.core.units import FOREVER
from outlast.core.writes import (
    Batch,
    Claim,
    CommitOutcome,
    LoadLeasedTasks,
    LoadReadyRuns,
    Page,
    TimerKind,
    TimerRow,
)

UNAVAILABLE = replies.Refused(
    code="unavailable",
    fact="The shard is being taken over; nothing of this request may have been recorded, or all of it.",
    remedy="Send the same request again, with the same ids.",
    retryable=True,
)


class ShardCore:
    """One shard under one fence."""

    def __init__(self, claim: Claim, *, config: ShardConfig, now: int, lease_until: int = 0) -> None:
        """Begin with what ``claim`` gave. ``lease_until``, by the clock, is when the shard's lease ends, if it has an end."""
        at = max(now, claim.last_at)
        self._pace = Pace(now, at - now)
        self._serve_until: int = lease_until - config.shard_margin if config.shard_lease else FOREVER
        self._renew_at: int = now + config.shard_renew
        self.shard = Shard(
            config=config,
            claim=claim,
            now=at,
            gate=Gate(committed=claim.last_number),
            gather=Gather(claim.shard, claim.fence, claim.last_number + 1),
            timers=Window[TimerRow](config.window_max, config.window_low),
            stalled_at=at,
            serve_until=self._pace.time(self._serve_until),
            counters=dict(claim.counters),
            freshest=freshness.mark_of(claim.counters),
            namespaces=dict(claim.namespaces),
            renew_at=self._pace.time(self._renew_at),
        )
        for namespace, name in claim.counters:
            of, queue, _ = counted_by(name)
            if of == TASKS:
                self.shard.queues.setdefault(namespace, set()).add(queue)
        self.loading = Loading()
        loading.ask(self.shard, self.loading, LoadLeasedTasks(after="", limit=config.page_rows))
        loading.ask(self.shard, self.loading, LoadReadyRuns(after=(0, ""), limit=config.page_rows))
        self._after()

    @property
    def stepped_down(self) -> bool:
        return bool(self.shard.stepped_down)

    @property
    def full(self) -> bool:
        """Whether as much has gathered as may: hand in nothing more until a commit has returned, or a page was read.

        Rows and bytes of the batch count, answers that wait for its commit, and inputs that wait for rows.
        """
        shard, config = self.shard, self.shard.config
        waiting = (
            len(shard.gate.waiting) >= config.answers_max or len(self.loading.lines.held) >= config.inputs_held_max
        )
        return waiting or shard.batch_is_full()

    # --- in ----------------------------------------------------------------------------------------------------------

    def handle(
        self, ticket: object, request: i.ShardRequest, *, namespace: str, principal: str, now: int, size: int = 0
    ) -> None:
        """Take a request; exactly one Answer with ``ticket`` comes out, then or later, unless ``forget`` is called.

        ``size`` is how many bytes it has on the wire: about what it may add to a batch.
        """
        shard = self.shard
        if shard.stepped_down:
            self._stopped(ticket)
            return
        if self._pace.time(now) > shard.now:
            self._pass_time(now)
        self._enter(Admitted(ticket, request, namespace, principal, size), waited=False)
        self._after()

    def forget(self, ticket: object, *, now: int) -> None:
        """Drop what waits on behalf of a caller who has gone. Changes that were asked for stay."""
        shard = self.shard
        self._pass_time(now)
        entity_id = shard.waiting.pop(ticket, None)
        if entity_id is not None:
            del shard.waiters[entity_id][ticket]
            if not shard.waiters[entity_id]:
                del shard.waiters[entity_id]
            return
        if queries.forget(shard, ticket):
            return
        poll = shard.poll_of_ticket.get(ticket)
        if poll is not None:
            matching.drop(shard, poll)
            return
        held = self.loading.lines.of_ticket(ticket)
        if held is not None and isinstance(
            held.admitted.input, i.AwaitWorkflow | i.AwaitTask | i.QueryWorkflow | i.Poll
        ):
            self.loading.lines.take(held)
            self._go_on()
            self._after()

    def tick(self, *, now: int) -> None:
        """Bring in what is due. Call it after all that had arrived was handed in, so that a stall expires no healthy lease."""
        if self._stopped(None):
            return
        self._pass_time(now)
        shard = self.shard
        if shard.config.shard_lease and now >= self._renew_at:
            shard.gather.renew = True
        for found in due.collect(shard):
            self._admit(Admitted(None, found, "", ""))
        self._after()

    def clock_stepped(self, span: int, *, now: int) -> None:
        """Hear, before anything else of that instant, that the clock was set ahead by ``span``.

        It makes up for what it was behind. Of the rest none has passed: attempts that run keep the time that they had left.
        """
        if self._stopped(None):
            return
        behind = self._pace.time(now - span) - (now - span)
        self._pace = Pace(now, max(0, behind - span))
        self._follow_lease()
        self._pass_time(now)
        if span > behind:
            attempts.prolong(self.shard, span - behind)

    def loaded(self, load_id: int, page: Page, *, now: int) -> None:
        """Take the page that an Ask asked for."""
        if self._stopped(None):
            return
        self._pass_time(now)
        loading.take_in(self.shard, self.loading, load_id, page)
        self._go_on()
        self._after()

    # --- commit ------------------------------------------------------------------------------------------------------

    def take_batch(self, *, now: int) -> Batch | None:
        """Match what waits with who polls, and return the next batch; None while one is in flight or nothing is to be written."""
        shard = self.shard
        if self._stopped(None) or shard.in_flight:
            return None
        self._pass_time(now)
        matching.match(shard)
        self._after()
        if not shard.gather.dirty or self.stepped_down:
            shard.gather.bytes = 0  # of inputs that changed nothing
            return None
        lease_until = now + shard.config.shard_lease if shard.config.shard_lease else 0
        shard.in_flight = shard.gather.number
        shard.in_flight_lease_until = lease_until
        if lease_until:
            self._renew_at = now + shard.config.shard_renew
            self._follow_lease()
        shard.settle_counters()
        freshness.settle(shard)
        return shard.gather.take(now=shard.now, lease_until=lease_until)

    def on_commit(self, number: int, outcome: CommitOutcome, *, now: int) -> None:
        """Hear what became of a batch. Anything but DONE ends this core: there is no repair path."""
        if self._stopped(None):
            return
        self._pass_time(now)
        shard = self.shard
        if outcome is not CommitOutcome.DONE or number != shard.in_flight:
            self.step_down(f"batch {number}: {outcome.value}")
            return
        shard.in_flight = 0
        if shard.in_flight_lease_until:
            self._serve_until = shard.in_flight_lease_until - shard.config.shard_margin
            self._follow_lease()
        shard.gate.commit(shard.outputs, number)
        shard.timers.committed(number)
        for name, window in shard.ready.items():
            if window.stuck or window.left_out:
                window.committed(number)
                if window.wants_page():
                    shard.short.append(name)
        loading.evict(shard, self.loading)
        self._after()

    def step_down(self, reason: str) -> None:
        """Drop everything: answer whoever waits with `unavailable`, and go on no more."""
        shard = self.shard
        if shard.stepped_down:
            return
        shard.stepped_down = reason
        tickets = shard.gate.drain()
        tickets += [ticket for waiting in shard.waiters.values() for ticket in waiting]
        tickets += [held.ticket for held in shard.poll_of.values()]
        tickets += [held.admitted.ticket for held in self.loading.lines.held.values()]
        tickets += [query.ticket for query in shard.queries.values()]
        shard.outputs += [Answer(ticket, UNAVAILABLE) for ticket in tickets if ticket is not None]
        shard.outputs.append(StepDown(reason))

    # --- out ---------------------------------------------------------------------------------------------------------

    def next_wakeup(self) -> int | None:
        """Return the instant at which ``tick`` should be called next, None if only an input can bring something."""
        at = None if self.stepped_down else due.next_wakeup(self.shard)
        return None if at is None else self._pace.clock(at)

    def take_outputs(self) -> list[Output]:
        """Return what the shell must do now, in order."""
        outputs, self.shard.outputs = self.shard.outputs, []
        return outputs

    # --- inside ------------------------------------------------------------------------------------------------------

    def _stopped(self, ticket: object) -> bool:
        if not self.stepped_down:
            return False
        if ticket is not None:
            self.shard.outputs.append(Answer(ticket, UNAVAILABLE))
        return True

    def _follow_lease(self) -> None:
        """Note when, by the shard's time, its lease ends and is to be renewed: others see it end by the clock."""
        self.shard.serve_until = self._pace.time(self._serve_until)
        self.shard.renew_at = self._pace.time(self._renew_at)

    def _pass_time(self, now: int) -> None:
        shard = self.shard
        now = self._pace.time(now)
        if now <= shard.now:
            return
        if now - shard.now > shard.config.stall:
            # We were not running. What workers sent meanwhile is still on its way here: grant every lease a fresh term.
            shard.stalled_at = now
        shard.now = now

    def _after(self) -> None:
        """Do what an input may have made necessary. Ends the core when it no longer may serve."""
        shard = self.shard
        while shard.follow_ups:
            follow_ups, shard.follow_ups = shard.follow_ups, []
            for found in follow_ups:
                self._admit(Admitted(None, found, "", ""))
        if shard.recalled:
            loading.recall_runs(shard, self.loading)
        if self.loading.wanted:
            loading.ask_keys(shard, self.loading)
        if shard.short or shard.timers.low is not None:
            loading.ask_pages(shard, self.loading)
        if shard.now >= shard.serve_until:
            self._lease_over()

    def _lease_over(self) -> None:
        """The lease on the shard ran out: somebody else may own it, so not even a read may be answered."""
        shard = self.shard
        shard.outputs = [output for output in shard.outputs if not isinstance(output, Answer)] + [
            Answer(output.ticket, UNAVAILABLE) for output in shard.outputs if isinstance(output, Answer)
        ]
        self.step_down("the lease on the shard has ended")

    def _go_on(self) -> None:
        """Apply the inputs that waited and now have all that they need."""
        while not self.stepped_down and (admitted := loading.next_ready(self.shard, self.loading)) is not None:
            self._enter(admitted, waited=True)

    def _admit(self, admitted: Admitted) -> None:
        if self.stepped_down:
            self._stopped(admitted.ticket)
        else:
            self._enter(admitted, waited=False)

    def _enter(self, admitted: Admitted, *, waited: bool) -> None:
        shard = self.shard
        try:
            if waited or not loading.missing(shard, self.loading, admitted):
                shard.gather.bytes += admitted.size
                self._apply(admitted)
        except Refusal as refusal:
            shard.answer(admitted.ticket, refused(refusal))
        except InvariantBroken as broken:
            self.step_down(f"invariant broken: {broken}")
            if admitted.ticket is not None:
                shard.outputs.insert(0, Answer(admitted.ticket, UNAVAILABLE))

    def _apply(self, admitted: Admitted) -> None:
        shard, ticket, namespace = self.shard, admitted.ticket, admitted.namespace
        match admitted.input:
            case i.AwaitWorkflow() as request:  # first, as these come most often
                runs.await_close(shard, request, namespace=namespace, ticket=ticket)
            case i.AwaitTask() as request:
                tasks.await_close(shard, request, namespace=namespace, ticket=ticket)
            case i.StartWorkflow() as request:
                shard.answer(ticket, runs.start(shard, request, namespace=namespace, principal=admitted.principal))
            case i.StartWorkflows() as request:
                self._start_all(request, admitted)
            case i.EnqueueTask() as request:
                shard.answer(ticket, enqueue.enqueue(shard, request, namespace=namespace, principal=admitted.principal))
            case i.EnqueueTasks() as request:
                self._enqueue_all(request, admitted)
            case i.SignalWorkflow() as request:
                shard.answer(ticket, runs.signal(shard, request, namespace=namespace, principal=admitted.principal))
            case i.CancelWorkflow() as request:
                shard.answer(ticket, runs.cancel(shard, request, namespace=namespace))
            case i.TerminateWorkflow() as request:
                shard.answer(ticket, runs.terminate(shard, request, namespace=namespace))
            case i.DescribeWorkflow() as request:
                runs.describe(shard, request, namespace=namespace, ticket=ticket)
            case i.QueryWorkflow() as request:
                queries.ask(shard, request, namespace=namespace, ticket=ticket)
            case i.CancelTask() as request:
                shard.answer(ticket, tasks.cancel(shard, request, namespace=namespace))
            case i.RetryTasks() as request:
                shard.answer(ticket, tasks.retry(shard, request, namespace=namespace))
            case i.DescribeTask() as request:
                tasks.describe(shard, request, namespace=namespace, ticket=ticket)
            case (
                CreateNamespace()
                | UpdateNamespace()
                | DeleteNamespace()
                | DropNamespace()
                | Forget()
                | DescribeWorkers()
            ) as request:
                shard.answer(ticket, admin.administer(shard, request, namespace=namespace))
            case TimerDue() | LeaseEnded() | RunOverLimit() as found:
                self._apply_internal(found)
            case _ as request:
                self._apply_worker(request, namespace=namespace, ticket=ticket)

    def _apply_worker(
        self,
        request: i.Poll
        | i.Begin
        | i.Heartbeat
        | i.CompleteTasks
        | i.ReturnTasks
        | i.CompleteWorkflowTasks
        | i.AnswerQueries
        | i.StopWorker,
        *,
        namespace: str,
        ticket: object,
    ) -> None:
        shard = self.shard
        match request:
            case i.Poll():
                matching.hold(shard, request, namespace=namespace, ticket=ticket)
            case i.Begin():
                attempts.begin(shard, request, namespace=namespace, ticket=ticket)
            case i.Heartbeat():
                attempts.heartbeat(shard, request, namespace=namespace, ticket=ticket)
            case i.CompleteTasks():
                self._complete_all(request, namespace=namespace, ticket=ticket)
            case i.ReturnTasks():
                attempts.hand_back(shard, request, namespace=namespace)
                turns.hand_back(shard, request, namespace=namespace)
                shard.answer(ticket, replies.Accepted())
            case i.CompleteWorkflowTasks():
                turns.complete(shard, request, namespace=namespace, ticket=ticket)
            case i.AnswerQueries():
                queries.answer(shard, request, namespace=namespace)
                shard.answer(ticket, replies.Accepted())
            case i.StopWorker():
                matching.stop_worker(shard, request, namespace=namespace)
                shard.answer(ticket, replies.Accepted())
            case _:
                assert_never(request)

    def _apply_internal(self, found: TimerDue | LeaseEnded | RunOverLimit) -> None:
        shard = self.shard
        match found:
            case LeaseEnded():
                task = shard.tasks.get(found.task_id)
                if task is not None:
                    attempts.expire(shard, task, lease=found.lease)
            case RunOverLimit():
                run = shard.runs.get(found.run_id)
                if run is not None:
                    runs.end_over_limit(shard, run)
            case TimerDue():
                self._fire(found)
            case _:
                assert_never(found)

    def _fire(self, found: TimerDue) -> None:
        shard = self.shard
        if found.target in shard.damaged:
            return  # its row stays, for who can read the other
        run, task = shard.runs.get(found.target), shard.tasks.get(found.target)
        if task is not None and stands_still(shard, task):
            return
        row = TimerRow(found.fire_at, found.timer_id, found.kind, found.target)
        timing.drop_timer(shard, row)
        match TimerKind(found.kind):
            case TimerKind.RUN_TIMER if run is not None:
                turns.fire(shard, run, row)
            case TimerKind.RUN_TIMEOUT if run is not None:
                runs.time_out(shard, run, fire_at=found.fire_at)
            case TimerKind.RUN_BACKOFF if run is not None:
                runs.end_backoff(shard, run, fire_at=found.fire_at)
            case TimerKind.TASK_DUE if task is not None:
                tasks.due(shard, task, fire_at=found.fire_at)
            case TimerKind.TASK_START_BY | TimerKind.TASK_CLOSE_BY as kind if task is not None:
                tasks.overdue(shard, task, kind, fire_at=found.fire_at)
            case _:
                pass  # what the timer was for is gone; its row goes too

    def _start_all(self, request: i.StartWorkflows, admitted: Admitted) -> None:
        given: list[replies.WorkflowStarted | replies.Refused] = []
        for item in request.items:
            try:
                started = runs.start(self.shard, item, namespace=admitted.namespace, principal=admitted.principal)
                given.append(started)
            except Refusal as refusal:
                given.append(refused(refusal))
        self.shard.answer(admitted.ticket, replies.WorkflowsStarted(items=tuple(given)))

    def _enqueue_all(self, request: i.EnqueueTasks, admitted: Admitted) -> None:
        given: list[replies.TaskEnqueuedReply | replies.Refused] = []
        for item in request.items:
            try:
                enqueued = enqueue.enqueue(self.shard, item, namespace=admitted.namespace, principal=admitted.principal)
                given.append(enqueued)
            except Refusal as refusal:
                given.append(refused(refusal))
        self.shard.answer(admitted.ticket, replies.TasksEnqueued(items=tuple(given)))

    def _complete_all(self, request: i.CompleteTasks, *, namespace: str, ticket: object) -> None:
        self.shard.worker(namespace, request.worker)
        given: list[replies.Refused | None] = []
        for item in request.items:
            try:
                attempts.complete(
                    self.shard, item, namespace=namespace, worker=request.worker, identity=request.identity
                )
                given.append(None)
            except Refusal as refusal:
                given.append(refused(refusal))
        self.shard.answer(ticket, replies.CompletionsReply(items=tuple(given)))


def refused(refusal: Refusal) -> replies.Refused:
    """Return the wire form of a refusal."""
    return replies.Refused(
        code=refusal.code,
        fact=refusal.fact,
        remedy=refusal.remedy,
        facts=refusal.facts,
        retryable=isinstance(refusal, Unavailable),
    )
