"""The engine's door: a request in, its reply out once what it tells of is committed."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outlast.core import limits
from outlast.core.admin import DeleteNamespace, DropNamespace, Forgotten, NamespaceInfo, NamespaceState, UpdateNamespace
from outlast.core.cut import with_failures_cut
from outlast.core.errors import Refusal
from outlast.core.glance import is_plain_wait
from outlast.core.inputs import CompleteTasks, EnqueueTasks, Poll, Request, ShardRequest, StartWorkflows
from outlast.core.replies import (
    QueryAnswered,
    Refused,
    Reply,
    TaskInfo,
    TaskOutcomeReply,
    Work,
    WorkflowInfo,
    WorkflowOutcome,
)
from outlast.core.shard.config import ShardConfig
from outlast.core.units import SECOND
from outlast.core.validation import faults_of, measure, require_small_payloads, validate
from outlast.core.writes import Batch, Claim
from outlast.engine.batches import part_of
from outlast.engine.blobs import fetched, has_big, has_blobs, put_away
from outlast.engine.feed import Feeds
from outlast.engine.intake import PATIENCE, PRINCIPAL, TAKE_EVERY, Taker
from outlast.engine.namespaces import Namespaces
from outlast.engine.ports import Clock, Entropy, NobodyWatches, Observer
from outlast.engine.reading import Reader
from outlast.engine.rounds import Rounds
from outlast.engine.shard.inline import inline
from outlast.engine.shard.mailbox import Letter
from outlast.engine.shard.shell import Shell
from outlast.engine.sweeping import SWEEP_EVERY, Sweeper
from outlast.engine.ticket import STOPPING, FutureTicket, Ticket
from outlast.engine.watches import Watches
from outlast.protocol.errors import refused
from outlast.protocol.interpreter import Tuned
from outlast.protocol.transport import HistoryPage
from outlast.store.base import BlobStore, Store, StoreError

LOG: Final = logging.getLogger("outlast.engine")

LOOK_EVERY: Final = 1.0  # seconds between looks of a held read whether the engine still runs; new events are told
FORGET_EVERY: Final = 600.0  # seconds between looks for dedup periods that are over
BLOBS_FIRST: Final = 3600.0  # seconds after the start: programs that end soon leave it to those that stay
BLOBS_EVERY: Final = 24 * 3600.0  # it reads every row when there is an old blob

WAIT_BYTES: Final = 200  # that a wait is counted with, beside others in the mailbox

_UNREADABLE: Final = Refused(
    code="internal", fact="The answer cannot be read from the store.", remedy="See the engine's log."
)
_CARRIES_PAYLOADS: Final = (Work, QueryAnswered, WorkflowInfo, WorkflowOutcome, TaskInfo, TaskOutcomeReply)


@dataclass(slots=True, frozen=True)
class Health:
    """Whether the engine takes requests and gets on with its work, and if not, why.

    ``checks`` has each part that was looked at with what is wrong with it, "" for nothing. A round beside requests that
    hangs makes an engine unready; one that ends with an error is told there alone.
    """

    ready: bool
    code: str = ""
    fact: str = ""
    checks: tuple[tuple[str, str], ...] = ()


class Engine:
    """One store's engine on one event loop. All methods but ``loop`` are called on that loop."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: Observer | None = None,
        config: ShardConfig | None = None,
        namespaces: frozenset[str] = frozenset({"default"}),
        any_namespace: bool = False,
        owner: str = "",
    ) -> None:
        """``any_namespace``: one that is asked for is there from then on, up to NAMESPACES_MAX."""
        self.reader = Reader(store, blobs)
        self.clock = clock
        self.entropy = entropy
        self._store = store
        self._blobs = blobs
        # Most stores never see a payload that big: then nothing is looked through for references.
        self._blobs_used = not blobs.unused
        self.namespaces = Namespaces(frozenset(namespaces), any_name=any_namespace)
        self._config = config or ShardConfig()
        self.watches = Watches()
        self.feeds = Feeds(store)
        self._shell = Shell(
            store,
            config=self._config,
            clock=clock,
            observer=observer or NobodyWatches(),
            owner=owner,
            release=self._release,
            reopened=self._reopened,
            claimed=self._claimed,
            committed=self._committed,
        )
        self._sweeper = Sweeper(
            store,
            self.namespaces,
            clock,
            self._ask,
            kept_min=self._config.idempotency_window,
            feed_age=self._config.feed_age,
            dropped=self.feeds.dropped,
        )
        self._sweeps = Rounds("sweep", self._sweeper.sweep, every=SWEEP_EVERY)
        self._sweeper.beat = self._sweeps.beat
        window = self._config.idempotency_window / SECOND
        self.rounds: tuple[Rounds, ...] = (
            self._sweeps,
            Rounds("keys", self._forget_old, every=min(FORGET_EVERY, window), first=0.0),
            Rounds("blobs", self._sweep_old_blobs, every=BLOBS_EVERY, first=BLOBS_FIRST),
            *self._intake_rounds(store),
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._fills: set[asyncio.Task[None]] = set()  # answers that are being completed
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopped = False
        self.on_reopen: Callable[[], None] = lambda: None
        """Called when the store was closed and opened again: what was told to it has to be told anew."""

    def _intake_rounds(self, store: Store) -> list[Rounds]:
        """Return the round that takes what callers' own transactions left, if the store is one that others can write to."""
        if store.intake is None:
            return []
        taker = Taker(store.intake, self._take)
        rounds = Rounds("intake", taker.take, every=TAKE_EVERY, first=0.0, patience=PATIENCE)
        taker.beat = rounds.beat
        return [rounds]

    async def _take(self, request: Request, namespace: str) -> Reply:
        return await self.reply_to(self.submit(request, namespace=namespace, principal=PRINCIPAL))

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, claim its shard and serve it. Raises StoreError."""
        self._loop = asyncio.get_running_loop()
        await self._store.open()
        try:
            await self._shell.start()
        except BaseException:
            self._loop = None
            await self._store.close()
            raise
        Tuned.begin()
        for each in self.rounds:
            self._spawn(each.run(), each.name)

    async def stop(self) -> None:
        """Take nothing new, commit what is gathered, answer everyone, give the shard back, close the store."""
        if self.stopped or self._loop is None:
            return
        self.stopped = True
        self.watches.anything_may_have_moved()
        self.feeds.close()
        try:
            self._shell.begin_stop()
            await _ended(self._fills)  # leases in them go back while the shard still takes them
            await self._shell.stop()
            await _ended(self._tasks | self._fills)
        finally:
            Tuned.end()
            await self._store.close()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it runs on."""
        if self._loop is None:
            raise RuntimeError("The engine was not started.")
        return self._loop

    def health(self) -> Health:
        """Return whether requests are taken now and all that runs beside them gets on, and the reason when not."""
        code, shard = self._shell_health()
        late = [each.overdue() for each in self.rounds]
        fact = next((fact for fact in (shard, *late) if fact), "")
        failing = [(each.name, overdue or each.failing) for each, overdue in zip(self.rounds, late, strict=True)]
        return Health(
            ready=not fact,
            code=code or ("unavailable" if fact else ""),
            fact=fact,
            checks=(("shard", shard), *failing),
        )

    def _shell_health(self) -> tuple[str, str]:
        trouble = self._shell.trouble
        if self._shell.serving and not trouble.code:
            late = self._shell.overdue()
            return ("unavailable" if late else "", late)
        if self.stopped:
            return "unavailable", "The engine is stopping."
        return trouble.code or "unavailable", trouble.fact or "The shard is being loaded."

    def knows(self, namespace: str) -> bool:
        """Say whether there is such a namespace."""
        return self.namespaces.knows(namespace)

    # --- requests -----------------------------------------------------------------------------------------------------

    def submit(self, request: Request, *, namespace: str, principal: str) -> FutureTicket:
        """Take ``request`` in now; its ``future`` will hold the reply. A refusal is a reply too."""
        ticket = FutureTicket(self.loop.create_future(), request, namespace)
        self.post(ticket, request, namespace=namespace, principal=principal)
        return ticket

    async def reply_to(self, ticket: FutureTicket) -> Reply:
        """Return the reply. A caller that is cancelled is forgotten; leases it would have got are handed back."""
        try:
            return await ticket.future
        except asyncio.CancelledError:
            self._shell.forget(ticket)
            self._undelivered(ticket)
            raise

    def _undelivered(self, ticket: FutureTicket) -> None:
        """Hand back leases in a reply that was there when its caller went away."""
        future, request = ticket.future, ticket.request
        if future.done() and not future.cancelled() and isinstance(request, Poll):
            work = future.result()
            if isinstance(work, Work):
                self._shell.give_back(work, request.worker, namespace=ticket.namespace)

    def post(self, ticket: Ticket, request: Request, *, namespace: str, principal: str) -> None:
        """Take ``request`` in; ``ticket`` is settled with the reply, at once when it is refused at the door."""
        if is_plain_wait(request) and self.namespaces.knows(namespace):
            self._put(ticket, request, namespace, principal, WAIT_BYTES)
            return
        try:
            if not self.namespaces.knows(namespace):
                raise self.namespaces.missing(namespace)
            size = measure(request)
            validate(request)
            request = with_failures_cut(request)
            if isinstance(request, UpdateNamespace | DeleteNamespace):
                self.namespaces.find(request.name)
            if isinstance(request, StartWorkflows | EnqueueTasks):
                faults = faults_of(request.items)
                ticket, left = part_of(ticket, request, {n: refused(fault) for n, fault in faults.items()})
                if left is None:
                    return
                request = left
            # What is faulty begins nothing, and so takes nothing of what the namespace may begin.
            self.namespaces.admit(namespace, request, size=size, now=self.clock.now())
            if size > limits.PAYLOAD_INLINE_BYTES_MAX and has_big(request):
                self._spawn(self._post_big(ticket, request, namespace, principal), "big-payloads")
                return
        except Refusal as refusal:
            ticket.settle(refused(refusal))
            return
        except Exception:
            LOG.exception("a request could not be looked at")
            ticket.settle(Refused(code="internal", fact="The request met a fault of ours.", remedy="See the log."))
            return
        self._put(ticket, request, namespace, principal, size)

    async def _ask(self, request: ShardRequest, namespace: str) -> Reply:
        """Ask the shard for what the engine itself wants, also in a namespace that takes nothing from outside any more."""
        ticket = FutureTicket(self.loop.create_future(), request, namespace)
        refusal = self._shell.put(ticket, request, namespace=namespace, principal="engine")
        return await ticket.future if refusal is None else refusal

    def forget(self, ticket: Ticket) -> None:
        """Drop a caller that has gone."""
        self._shell.forget(ticket)

    async def read_history(
        self, namespace: str, workflow_id: str, run_id: str, *, first_event_id: int, wait: float
    ) -> HistoryPage:
        """Return committed events of a run; where there is none yet, held as ``protocol.transport.Transport`` says.

        Raises as ``Reader.read_history``.
        """
        page = await self.reader.read_history(namespace, workflow_id, run_id, first_event_id=first_event_id)
        ends = self.loop.time() + wait
        with self.watches.watch(page.run_id) as moved:
            moved.set()  # what was committed since the page was read
            while not page.events and not page.closed and not self.stopped and (left := ends - self.loop.time()) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK_EVERY, left)):
                        await moved.wait()
                moved.clear()
                page = await self.reader.read_history(
                    namespace, workflow_id, page.run_id, first_event_id=first_event_id
                )
        return page

    def give_back(self, work: Work, worker: str, *, namespace: str) -> None:
        """Hand back leases that did not reach their worker."""
        self._shell.give_back(work, worker, namespace=namespace)

    def _put(self, ticket: Ticket, request: Request, namespace: str, principal: str, size: int) -> None:
        refusal = self._shell.put(ticket, request, namespace=namespace, principal=principal, size=size)
        if refusal is not None:
            ticket.settle(refusal)

    async def _post_big(self, ticket: Ticket, request: Request, namespace: str, principal: str) -> None:
        try:
            if isinstance(request, CompleteTasks):
                ticket, smaller = part_of(ticket, request, _too_big(request))
                if smaller is None:
                    return
                request = smaller
            else:
                require_small_payloads(request)
            self._blobs_used = True
            request = await put_away(request, self._blobs)
            if not self.namespaces.knows(namespace):  # deleted while this was written to the disk
                raise self.namespaces.missing(namespace)
        except Refusal as refusal:
            ticket.settle(refused(refusal))
            return
        except StoreError as error:
            ticket.settle(Refused(code=error.code, fact=error.fact, remedy=error.remedy, retryable=True))
            return
        self._put(ticket, request, namespace, principal, measure(request))

    # --- replies ------------------------------------------------------------------------------------------------------

    def _release(self, ticket: Ticket, reply: Reply, letter: Letter | None) -> None:
        """Hand ``reply`` to its caller, complete: with history and data. Leases that nobody takes go back."""
        if isinstance(reply, _CARRIES_PAYLOADS):
            if isinstance(reply, Work) and any(not task.events for task in reply.workflow_tasks):
                if not self._store.reads_inline:
                    self._begin_fill(ticket, reply, letter)
                    return
                try:
                    reply = inline(self._with_histories(reply))
                except Exception as error:  # noqa: BLE001 - the door: a caller must get an answer
                    self._not_filled(ticket, reply, letter, error)
                    return
            if self._blobs_used and has_blobs(reply):
                self._begin_fill(ticket, reply, letter)
                return
        elif type(reply) is NamespaceInfo:
            self.namespaces.note(reply)
            if reply.state is NamespaceState.DELETING:
                self._sweeps.call()
        elif type(reply) is Forgotten and letter is not None and isinstance(letter.request, DropNamespace):
            # Here, and not where the sweeper reads its answer: one of the same name may be made by the same commit.
            self.namespaces.gone(letter.request.name)
        self._settle(ticket, reply, letter)

    def _settle(self, ticket: Ticket, reply: Reply, letter: Letter | None) -> None:
        if not ticket.settle(reply) and isinstance(reply, Work) and letter is not None:
            self._return(reply, letter)

    def _return(self, work: Work, letter: Letter) -> None:
        if isinstance(letter.request, Poll):
            self._shell.give_back(work, letter.request.worker, namespace=letter.namespace)

    def _begin_fill(self, ticket: Ticket, reply: Reply, letter: Letter | None) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._fills.discard(task)
            if task.cancelled():  # perhaps before it had begun
                self._not_filled(ticket, reply, letter, None)

        task = self.loop.create_task(self._fill(ticket, reply, letter), name="fill")
        self._fills.add(task)
        task.add_done_callback(ended)

    async def _fill(self, ticket: Ticket, reply: Reply, letter: Letter | None) -> None:
        try:
            if isinstance(reply, Work):
                reply = await self._with_histories(reply)
            full = await fetched(reply, self._blobs)
        except Exception as error:  # noqa: BLE001 - the door: a caller must get an answer
            self._not_filled(ticket, reply, letter, error)
            return
        self._settle(ticket, full, letter)

    async def _with_histories(self, work: Work) -> Work:
        tasks = [task if task.events else await self.reader.with_history(task) for task in work.workflow_tasks]
        return msgspec.structs.replace(work, workflow_tasks=tuple(tasks))

    def _not_filled(self, ticket: Ticket, reply: Reply, letter: Letter | None, error: Exception | None) -> None:
        """Say that ``reply`` cannot be completed, for ``error`` or since the engine stops; leases in it go back."""
        if error is not None:
            LOG.error("what was to be answered cannot be read", exc_info=error)
        if isinstance(reply, Work) and letter is not None:
            self._return(reply, letter)
        match error:
            case None:
                ticket.settle(Work(stop=True) if isinstance(reply, Work) else STOPPING)
            case StoreError():
                ticket.settle(Refused(code=error.code, fact=error.fact, remedy=error.remedy))
            case _:
                ticket.settle(_UNREADABLE)

    def _reopened(self) -> None:
        self.on_reopen()

    def _claimed(self, claim: Claim) -> None:
        """Take in what is committed: the last commit before a claim may have happened without an answer."""
        self.namespaces.read(claim.namespaces)
        self.watches.anything_may_have_moved()
        self.feeds.anything_may_have_moved()

    def _committed(self, batch: Batch) -> None:
        self.watches.committed(batch)
        self.feeds.committed(batch)

    # --- odds ---------------------------------------------------------------------------------------------------------

    async def _forget_old(self) -> None:
        """Drop dedup periods that are over."""
        await self._store.forget_dedup(before_period=self.clock.now() // self._config.idempotency_window)

    async def _sweep_old_blobs(self) -> None:
        """Remove data that was kept for requests which were refused, or that nothing refers to any more."""
        removed = await self.sweep_blobs()
        if removed:
            LOG.info("swept %d payloads that nothing refers to", removed)

    async def sweep_blobs(self) -> int:
        """Remove data that is older than a day and that no row refers to; return how many. Raises StoreError."""
        now = self.clock.now()
        aged = await self._blobs.aged(now=now)
        named = await self._store.named_blobs(aged) if aged else set[str]()
        return await self._blobs.sweep(named, now=now)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel ``tasks`` and return when they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def _too_big(request: CompleteTasks) -> dict[int, Refused]:
    """Return the refusals of completions whose payloads are over the limit: the others must not suffer for them."""
    found: dict[int, Refused] = {}
    for n, item in enumerate(request.items):
        alone = CompleteTasks(items=(item,), worker=request.worker)
        try:
            require_small_payloads(alone)
        except Refusal as refusal:
            found[n] = refused(refusal)
    return found
