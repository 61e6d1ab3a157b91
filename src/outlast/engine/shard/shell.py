"""The thin loop around a ShardCore: feeds it, commits its batches, reads its pages, releases its answers.

It decides nothing. Every doubt (a commit whose end is not known, an exception out of the core) drops the core; the shard
is then claimed and loaded again. There is no repair.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, cast

from outlast.core import limits
from outlast.core.errors import InvariantBroken
from outlast.core.inputs import Poll, ReturnTasks, ShardRequest
from outlast.core.replies import Refused, Reply, Work
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.core import ShardCore
from outlast.core.shard.outputs import Answer, Ask, StepDown
from outlast.core.units import Fence
from outlast.core.writes import Batch, Claim, CommitOutcome, LoadKeys, Page
from outlast.engine.ports import Clock, Observer
from outlast.engine.shard.inline import inline
from outlast.engine.shard.mailbox import ONLY_READS, RESERVED, Letter, Mailbox
from outlast.engine.shard.patience import claimed_within
from outlast.engine.ticket import STOPPING, NobodyWaits, Ticket
from outlast.store.base import Store, StoreError

LOG: Final = logging.getLogger("outlast.engine")

CLAIM_PAUSE_FIRST: Final = 0.05  # seconds, doubling
CLAIM_PAUSE_MAX: Final = 5.0
REOPEN_AFTER: Final = 2  # claims that failed in a row
LOG_EVERY: Final = 30.0  # seconds between lines about the same trouble
ALARM_SLACK: Final = 100_000  # nanoseconds: an alarm that rings early would ring twice
COMMIT_SLOW: Final = 10.0  # seconds after which a commit in flight is held to hang
ALARM_LATE: Final = 5.0  # seconds after which what is due and was not looked at is held to be forgotten
STOP_GRACE: Final = 10.0  # seconds that a clean stop gives the last commits


@dataclass(slots=True)
class Trouble:
    """Why the shard is not served, for those who ask and for the log."""

    code: str = ""
    fact: str = ""
    at: float = 0.0
    logged_at: float = field(default=float("-inf"))


class Shell:
    """One shard on one loop. All methods are called on that loop."""

    def __init__(
        self,
        store: Store,
        *,
        config: ShardConfig,
        clock: Clock,
        observer: Observer,
        owner: str,
        release: Callable[[Ticket, Reply, Letter | None], None],
        reopened: Callable[[], None] = lambda: None,
        claimed: Callable[[Claim], None] = lambda _: None,
        committed: Callable[[Batch], None] = lambda _: None,
        mailbox: Mailbox | None = None,
    ) -> None:
        """``release`` hands an answer to its caller, together with what was asked; ``reopened`` hears of a reopened store,
        ``claimed`` of each claim, before anything is answered under it, ``committed`` of each batch that is done, before its
        answers leave. None may raise.
        """
        self._store = store
        self._config = config
        self._clock = clock
        self._observer = observer
        self._owner = owner
        self._release = release
        self._reopened = reopened
        self._claimed = claimed
        self._committed = committed
        self._mailbox = mailbox or Mailbox()
        self._core: ShardCore | None = None
        self._open: dict[Ticket, Letter] = {}
        self._pages: deque[Ask] = deque()
        self._lookups: deque[Ask] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_due = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0
        self._departed: dict[Ticket, Letter] = {}
        self._stepped = clock.stepped
        self._pause = CLAIM_PAUSE_FIRST
        self._stopping = False
        self._quiet: asyncio.Future[None] | None = None
        self._committing: Batch | None = None
        self._commit_began = 0.0
        self._fence: Fence | None = None
        self._last_fault = ""
        self._last_fault_at = float("-inf")
        self.trouble = Trouble()
        self.last_commit_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim the shard and serve it, once the lease of an owner that has gone has ended. Raises StoreError."""
        self._loop = asyncio.get_running_loop()
        config = self._config
        await claimed_within(self._claim, (config.shard_lease + config.shard_margin) / 1e9 if config.shard_lease else 0)

    def begin_stop(self) -> None:
        """Take nothing new and answer all polls, also those that leases are on their way to: these are handed back."""
        self._stopping = True
        for ticket, letter in list(self._open.items()):
            if isinstance(letter.request, Poll):
                self._forget(ticket)
                self._release(ticket, Work(stop=True), None)

    async def stop(self) -> None:
        """Answer waiting polls, commit what is gathered, give the shard back. Work that is not acknowledged is refused."""
        self.begin_stop()
        self._quiet = asyncio.get_running_loop().create_future()
        self._wake()
        clean = True
        try:
            await asyncio.wait_for(self._quiet, STOP_GRACE)
        except TimeoutError:
            clean = False
            LOG.warning("stopped with a commit in flight after %s s", STOP_GRACE)
        core, self._core = self._core, None
        self._refuse_all(self._unserved())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._alarm is not None:
            self._alarm.cancel()
        if clean and core is not None and self._fence is not None:
            await self._store.release(self._fence)

    @property
    def serving(self) -> bool:
        """Whether requests are taken."""
        return self._core is not None and not self._stopping

    def overdue(self) -> str:
        """Return a sentence when a shard that is served does not get on, "" when all is well."""
        if self._committing is not None:
            waited = monotonic() - self._commit_began
            if waited > COMMIT_SLOW:
                return f"A commit has not come back from the store for {waited:.0f} s."
        due = self._core.next_wakeup() if self._core is not None else None
        late = (self._clock.now() - due) / 1e9 if due is not None else 0.0
        if late > ALARM_LATE:
            self._wake()
            return f"What was due {late:.0f} s ago has not been looked at."
        return ""

    # --- requests -----------------------------------------------------------------------------------------------------

    def put(
        self, ticket: Ticket, request: ShardRequest, *, namespace: str, principal: str, size: int = 0
    ) -> Refused | None:
        """Take ``request`` of ``size`` bytes in, or say why not. Its answer comes by ``release``."""
        if self._stopping:
            if isinstance(request, Poll):
                self._release(ticket, Work(stop=True), None)
                return None
            if type(request) not in RESERVED:
                return self._unserved()
        if self._core is None:
            return self._unserved()
        if not self._mailbox.put(ticket, request, namespace=namespace, principal=principal, size=size):
            return Refused(
                code="busy",
                fact="As many requests are waiting for this shard as may wait.",
                remedy="Send it again in a moment.",
                retryable=True,
            )
        if not self._turn_due:
            self._wake()
        return None

    def forget(self, ticket: Ticket) -> None:
        """Drop a caller that has gone. A change that it asked for may happen all the same."""
        if ticket in self._open:
            self._forget(ticket)
            self._wake()

    def give_back(self, work: Work, worker: str, *, namespace: str) -> None:
        """Hand back the leases of a poll's answer that nobody took: the attempts do not count."""
        if work.tasks or work.workflow_tasks:
            tokens = tuple(lease.token for lease in work.tasks)
            turns = tuple(task.token for task in work.workflow_tasks)
            request = ReturnTasks(tokens=tokens, workflow_tokens=turns, worker=worker)
            self.put(NobodyWaits(), request, namespace=namespace, principal="")

    # --- the turn -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._turn_due and self._loop is not None:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Handle what has arrived, then what is due, then write. Inputs come before expiries (ARCHITECTURE §3)."""
        self._turn_due = False
        core = self._core
        if core is None:
            self._settle_quiet()
            return
        try:
            if self._pages:  # left by the turns before, whether or not the core says anything in this one
                self._read(core)
            self._handle(core)
            core.tick(now=self._now(core))
            self._drain(core)
            if self._core is core:
                self._write(core)
            if self._core is core:
                self._set_alarm(core)
        except Exception as error:  # noqa: BLE001 - the door of the core: whatever comes out, the shard starts afresh
            self._broken(error)
        self._settle_quiet()

    def _now(self, core: ShardCore) -> int:
        """Return the instant. First the core hears when the clock was set ahead: it showed time that nobody could work in."""
        now, stepped = self._clock.now(), self._clock.stepped
        span, self._stepped = stepped - self._stepped, stepped
        if span:
            core.clock_stepped(span, now=now)
        return now

    def _handle(self, core: ShardCore) -> None:
        handled = 0
        mailbox, now = self._mailbox, self._now(core)
        full = core.full
        while mailbox and handled < limits.TURN_WEIGHT and not full:
            letter = mailbox.take()
            ticket, request, namespace, principal, weight, size = letter
            if ticket.gone:
                continue
            if self._stopping and isinstance(request, Poll):
                self._release(ticket, Work(stop=True), None)
                continue
            self._open[ticket] = letter
            try:
                core.handle(ticket, request, namespace=namespace, principal=principal, now=now, size=size)
            except Exception:
                # Its sender must not send it again and again: it would break every core it meets.
                self._open.pop(ticket, None)
                self._release(ticket, _POISON, None)
                raise
            handled += weight
            full = type(request) not in ONLY_READS and core.full
        if mailbox and not full:
            self._wake()

    def _drain(self, core: ShardCore) -> None:
        """Act on what the core asks for until it asks for nothing more."""
        while outputs := core.take_outputs():
            for output in outputs:
                match output:
                    case Answer():
                        self._answer(cast("Ticket", output.ticket), output.reply)
                    case Ask():
                        (self._lookups if isinstance(output.load, LoadKeys) else self._pages).append(output)
                    case StepDown():
                        self._stepped_down(output.reason)
                        return
            self._read(core)

    def _answer(self, ticket: Ticket, reply: Reply) -> None:
        letter = self._open.pop(ticket, None)
        departed = self._departed.pop(ticket, None)
        if departed is not None:
            if isinstance(reply, Work) and isinstance(departed.request, Poll):
                # Here and now, whatever the ticket says: by way of its caller they might come after the last commit.
                self.give_back(reply, departed.request.worker, namespace=departed.namespace)
            return
        if type(reply) is Refused and reply.code == "unavailable" and self.trouble.code in _MENDED_BY_PEOPLE:
            reply = self._unserved()
        self._release(ticket, reply, letter)

    def _read(self, core: ShardCore) -> None:
        if not self._store.reads_inline:
            for ask in (*self._lookups, *self._pages):
                self._spawn(self._load(core, ask), f"load-{ask.load_id}")
            self._lookups.clear()
            self._pages.clear()
            return
        while self._lookups:
            self._loaded(core, self._lookups.popleft())
        for _ in range(min(limits.LOADS_A_TURN, len(self._pages))):
            self._loaded(core, self._pages.popleft())
        if self._pages:
            self._wake()

    def _loaded(self, core: ShardCore, ask: Ask) -> None:
        core.loaded(ask.load_id, inline(self._store.load(ask.load)), now=self._now(core))

    async def _load(self, core: ShardCore, ask: Ask) -> None:
        try:
            page: Page = await self._store.load(ask.load)
            if self._core is core:
                core.loaded(ask.load_id, page, now=self._now(core))
                self._wake()
        except Exception as error:  # noqa: BLE001 - as in _turn
            if self._core is core:
                self._broken(error)

    def _write(self, core: ShardCore) -> None:
        if self._committing is not None:
            return
        batch = core.take_batch(now=self._now(core))
        self._drain(core)  # what saw nothing new may be answered without a commit
        if batch is None or self._core is not core:
            return
        self._committing = batch
        self._commit_began = monotonic()
        self._spawn(self._commit(core, batch), f"commit-{batch.number}")

    async def _commit(self, core: ShardCore, batch: Batch) -> None:
        outcome = CommitOutcome.UNKNOWN
        try:
            outcome = await self._store.commit(batch)
        except Exception:
            LOG.exception("commit raised; its end is not known", extra={"batch": batch.number})
        finally:
            # Also when this task is cancelled: then the outcome is UNKNOWN, as it may yet happen.
            self._committing = None
            if outcome is CommitOutcome.DONE:
                self._committed(batch)
            self._observer.on_commit(outcome, rows=batch.rows(), seconds=monotonic() - self._commit_began)
            if self._core is core:
                self._on_commit(core, batch.number, outcome)
            else:
                self._wake()

    def _on_commit(self, core: ShardCore, number: int, outcome: CommitOutcome) -> None:
        if outcome is CommitOutcome.DONE:
            self._pause = CLAIM_PAUSE_FIRST
            self.last_commit_at = monotonic()
            self.trouble = Trouble(logged_at=self.trouble.logged_at)
        else:
            self._note(*_TROUBLE[outcome])
        try:
            core.on_commit(number, outcome, now=self._now(core))
            self._drain(core)
        except Exception as error:  # noqa: BLE001 - as in _turn
            self._broken(error)
        self._departed.clear()
        self._wake()

    def _set_alarm(self, core: ShardCore) -> None:
        due = core.next_wakeup()
        if due is None or self._loop is None:
            return
        if self._alarm is not None:
            if self._alarm_at <= due:
                return  # It rings early, looks, and is set again: cheaper than moving it at every turn.
            self._alarm.cancel()
        delay = max(0, due - self._clock.now() + ALARM_SLACK)
        self._alarm_at = due
        self._alarm = self._loop.call_later(delay / 1e9, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    # --- stepping down and coming back --------------------------------------------------------------------------------

    def _broken(self, error: Exception) -> None:
        """Drop a core that raised: what it has in memory is not to be trusted."""
        code = error.code if isinstance(error, InvariantBroken | StoreError) else "internal"
        said = f"{type(error).__name__}: {error}"
        if said != self._last_fault or monotonic() - self._last_fault_at >= LOG_EVERY:
            self._last_fault, self._last_fault_at = said, monotonic()
            LOG.error("the shard is dropped and loaded again", exc_info=error, extra={"code": code})
        self._note("unavailable", "The shard is being loaded again after a fault.")
        self._stepped_down(code)

    def _stepped_down(self, reason: str) -> None:
        self._core = None
        self._observer.on_step_down(reason)
        self._refuse_all(self._unserved())
        if not self._stopping:
            self._spawn(self._claim_again(), "claim")

    def _refuse_all(self, refused: Refused) -> None:
        self._lookups.clear()
        self._pages.clear()
        while self._mailbox:
            self._release(self._mailbox.take().ticket, refused, None)
        self._departed.clear()
        waiting, self._open = self._open, {}
        for ticket in waiting:
            self._release(ticket, refused, None)

    async def _claim_again(self) -> None:
        failed = 0
        while self._core is None and not self._stopping:
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, CLAIM_PAUSE_MAX)
            failed += 1
            try:
                if failed > REOPEN_AFTER and self.trouble.code not in {"not_owner", *_MENDED_BY_PEOPLE}:
                    # A store that will not be claimed may be broken for good as it is open now (a failed sync): what is
                    # on the disk is read anew.
                    await self._store.close()
                    await self._store.open()
                    self._reopened()
                await self._claim()
            except StoreError as error:
                self._note(error.code, error.fact)
            except Exception as error:  # noqa: BLE001 - whatever the store does, the shard is tried again
                self._note("unavailable", f"The store cannot be claimed: {error}.")

    async def _claim(self) -> None:
        now = self._clock.now()
        lease_until = now + self._config.shard_lease if self._config.shard_lease else 0
        claim = await self._store.claim(owner=self._owner, now=now, lease_until=lease_until)
        self._fence = claim.fence
        now, self._stepped = self._clock.now(), self._clock.stepped
        self._core = ShardCore(claim, config=self._config, now=now, lease_until=lease_until)
        self._claimed(claim)
        self._observer.on_claim(claim.fence.epoch)
        self.trouble = Trouble(logged_at=self.trouble.logged_at)
        self._wake()

    def _note(self, code: str, fact: str) -> None:
        now = monotonic()
        logged_at = self.trouble.logged_at
        if now - logged_at >= LOG_EVERY:
            LOG.warning("the shard is not served: %s", fact, extra={"code": code})
            logged_at = now
        self.trouble = Trouble(code=code, fact=fact, at=now, logged_at=logged_at)

    def _unserved(self) -> Refused:
        if self._stopping:
            return STOPPING
        remedy = _MENDED_BY_PEOPLE.get(self.trouble.code)
        if remedy is not None:
            return Refused(code=self.trouble.code, fact=self.trouble.fact, remedy=remedy, retryable=True)
        return Refused(
            code="unavailable",
            fact=self.trouble.fact or "The shard is being loaded.",
            remedy="Send it again in a moment.",
            retryable=True,
        )

    # --- odds ---------------------------------------------------------------------------------------------------------

    def _forget(self, ticket: Ticket) -> None:
        letter = self._open.pop(ticket, None)
        if letter is not None and self._committing is not None and isinstance(letter.request, Poll):
            # Its answer may be on its way out with the commit in flight: the leases in it must find their way back.
            self._departed[ticket] = letter
        if self._core is not None:
            self._core.forget(ticket, now=self._now(self._core))

    def _settle_quiet(self) -> None:
        """End a clean stop once nothing is left to write."""
        if self._quiet is None or self._quiet.done():
            return
        if self._core is None or (not self._mailbox and self._committing is None):
            self._quiet.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._loop is None:
            work.close()
            return
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_POISON: Final = Refused(
    code="internal",
    fact="The request met a fault of ours; what became of it is not known.",
    remedy="See the engine's log, and report it.",
)
_TROUBLE: Final = {
    CommitOutcome.REFUSED: ("unavailable", "Another owner has taken the shard."),
    CommitOutcome.FULL: ("store_full", "The store is full: nothing can be written."),
    CommitOutcome.LOCKED: ("store_locked", "Another program holds the write lock of the store's file."),
    CommitOutcome.UNKNOWN: ("unavailable", "A commit did not answer; what became of it is being read."),
}

# Nothing was written, and nothing is wrong with what is on the disk: callers hear what it is, and the store stays open.
_MENDED_BY_PEOPLE: Final = {
    "store_full": "Free space; no restart is needed.",
    "store_locked": "End what holds the lock; no restart is needed.",
}
