"""The PostgreSQL store: one session that owns the shard and writes, a few that read.

The owner's session is bound to its claim. When it is lost, or its end is in doubt, every commit is UNKNOWN until the shard has
been claimed anew, in a new session, which reads anew which history of the database it speaks to.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

import asyncpg

from outlast.core.admin import NamespaceInfo
from outlast.core.errors import InvariantBroken
from outlast.core.feed import Place as FeedPlace
from outlast.core.units import SECOND, Fence
from outlast.core.writes import AttemptRow, Batch, Claim, CommitOutcome, HistoryRow, Load, Page, RunRow, TaskRow
from outlast.store.base import FeedFound, RunFilter, StoreError, Stretch, Tally, TaskFilter, Turns, Waiting
from outlast.store.postgres import claiming, feed, forgetting, listing, opening, reading, references, standing, writing
from outlast.store.postgres.address import address_of, without_secrets
from outlast.store.postgres.connection import FAILURES, READER, WRITER, Opened, Server, close, connect, said
from outlast.store.postgres.intake import PostgresIntake
from outlast.store.postgres.session import Readers, Reads
from outlast.store.standing import Standing, refuse, refuse_half

FAULT_LOG_EVERY: Final = 30 * SECOND  # a full disk fails every commit: one line in this time is enough
TENDERS: Final = 2  # sessions that forget what is over and keep blobs

_T = TypeVar("_T")
_log: Final = logging.getLogger("outlast.store")


class PostgresStore:
    """A shard's rows in the database at ``url``, in its schema ``outlast``.

    ``allow_weak``: use a server that may lose acknowledged commits (fsync, full_page_writes or synchronous_commit off).
    """

    def __init__(self, url: str, *, shard: int = 0, allow_weak: bool = False) -> None:
        """Raises StoreError when ``url`` cannot be read."""
        self.address = address_of(url)
        self.shard = shard
        self.reads_inline = False
        self.intake = PostgresIntake(self)
        self.last_fault = ""
        """What went wrong with the last commit that was not DONE, in one line."""
        self.server: Server | None = None
        """What the last session found; ``weak`` is to be shown to people."""
        self.standing: Standing | None = None
        """Why it may not be worked on, as far as ``open_to_look`` has seen."""
        self.holder = ""
        """Whose engine has the shard, as ``open_to_look`` has seen; "" for nobody's."""
        self._allow_weak = allow_weak or self.address.allow_weak
        self._readers: Readers | None = None
        self._away: StoreError | None = None  # why it could not be opened
        self._tenders: Readers | None = None  # forgets what is over, beside the owner's session
        self._owner: Opened | None = None
        self._first: Opened | None = None  # the session that opened the store becomes the owner's
        self._fence = Fence(0, 0)  # of the last claim
        self._history: tuple[int, int, int] | None = None  # which commits the last claim was made among
        self._places = writing.Places()
        self._committing = False
        self._logged_at = -FAULT_LOG_EVERY

    # Life.

    async def open(self) -> None:
        """Make the schema or migrate it. Raises StoreError."""
        if self._readers is not None:
            return
        try:
            opened = await self._connect(writes=True)
        except StoreError as error:
            self._away = error
            raise
        self._away = None
        if opened.server.weak:
            _log.warning("store_weak at=%s settings=%s", self.address.shown, ", ".join(opened.server.weak))
        try:
            await opening.migrate(opened.session, opened.server)
            refuse(await standing.read(opened.session), self.address.shown, url=self.address.named)
            await opening.add_shard(opened.session, self.shard)
        except BaseException as error:
            opened.session.terminate()
            if isinstance(error, FAILURES):
                raise said(error, self.address) from error
            raise
        self._first = opened
        self._readers = Readers(lambda: self._beside(writes=False), self.shard)
        self._tenders = Readers(lambda: self._beside(writes=True), self.shard, places=TENDERS)

    async def open_to_look(self) -> None:
        """Make the store usable for reading, whoever owns it, and change nothing. Raises StoreError."""
        found = max(await self.applied())
        known = opening.schema_known()
        if found != known:
            raise StoreError(
                "unavailable" if found < known else "store_newer",
                f"{self.address.shown} has schema {found}; this version of Outlast reads schema {known}.",
                remedy="Run: outlast migrate" if found < known else "Look with the newer version of Outlast.",
            )
        self._readers = Readers(lambda: self._connect(writes=False), self.shard)

    async def applied(self) -> dict[int, str]:
        """Return the checksums of the migrations of the database, by number. Raises StoreError when it has no store of ours."""
        opened = await self._connect(writes=False)
        try:
            found = await opening.look(opened.session)
            if max(found, default=0) == opening.schema_known():
                self.standing = await standing.read(opened.session)
                refuse_half(self.standing, self.address.shown, url=self.address.named)
                self.holder = await claiming.holder_of(opened.session, self.shard)
        except FAILURES as error:
            raise said(error, self.address) from error
        finally:
            await close(opened.session)
        if not found:
            raise StoreError(
                "unavailable", f"{self.address.shown} holds no store of Outlast.", remedy="Start an engine on it first."
            )
        return found

    async def close(self) -> None:
        """End all sessions. Closing twice is the same as once."""
        opened = (self._owner, self._first)
        pools = (self._readers, self._tenders)
        self._owner = self._first = self._readers = self._tenders = None
        for session in opened:
            if session is not None:
                await close(session.session)
        for pool in pools:
            if pool is not None:
                await pool.close()

    # Writes.

    async def claim(self, *, owner: str, now: int, lease_until: int) -> Claim:
        """End the sessions of former owners, raise the epoch in a commit of its own, return what a new owner needs.

        The same owner, and anybody once the lease has ended, may claim. Raises StoreError: "not_owner" while another's
        lease runs, "store_full" or "unavailable" when it could not be written or its end is not known.
        """
        self._refuse_closed()
        if self._owner is not None and (self._committing or self._owner.session.is_closed()):
            self._drop_owner()
        opened, self._owner, self._first = self._owner or self._first, None, None
        if opened is None or opened.session.is_closed():
            opened = await self._connect(writes=True)
        self._owner = opened
        try:
            claim, place = await claiming.claim(opened, self.shard, owner=owner, now=now, lease_until=lease_until)
        except BaseException as error:
            if not (isinstance(error, StoreError) and error.code == "not_owner"):
                self._drop_owner()
            if isinstance(error, FAILURES):
                raise said(error, self.address) from error
            raise
        self._fence, self._history = claim.fence, opened.server.history
        self._places = writing.Places(place)
        for pool in (self._readers, self._tenders):
            if pool is not None:
                await pool.renew()
        return claim

    async def release(self, fence: Fence) -> None:
        """End the lease of ``fence``, if it is the current one."""
        self._refuse_closed()
        if self._owner is None or self._owner.session.is_closed() or self._committing:
            return  # without its session an owner has nothing to give back: its lease runs out
        try:
            self._places.shard = await claiming.release(self._owner.session, self.shard, fence) or self._places.shard
        except FAILURES as error:
            self._drop_owner()
            raise said(error, self.address) from error

    async def commit(self, batch: Batch) -> CommitOutcome:
        """Write ``batch`` or nothing. A fence or number that is not the next one is REFUSED; every doubt is UNKNOWN.

        It goes on to its end in the database also when the caller is cancelled; the session is then not used again.
        """
        self._refuse_closed()
        if batch.shard != self.shard:
            return self._report(batch, CommitOutcome.REFUSED, f"batch {batch.number} is of shard {batch.shard}")
        opened = self._owner
        if opened is None or opened.session.is_closed() or self._committing:
            return self._report(batch, CommitOutcome.UNKNOWN, "the owner's session is gone")
        self._committing = True
        try:
            return await self._commit(opened, batch)
        except BaseException:
            # Cancelled: it may have happened, or happen yet.
            self._drop_owner(opened)
            raise
        finally:
            if self._owner is opened or self._owner is None:
                self._committing = False

    async def _commit(self, opened: Opened, batch: Batch) -> CommitOutcome:
        opened.notices.clear()
        try:
            statement = writing.Statement(batch, self._places)
            row = await opened.session.fetchrow(statement.sql, *statement.values)
        except Exception as error:  # noqa: BLE001 - the door: whatever a database does becomes an outcome
            return self._failed(opened, batch, error)
        if opened.notices:
            # A commit that was not replicated as it should be returns like any other, with a warning.
            self._drop_owner(opened)
            return self._report(batch, CommitOutcome.UNKNOWN, f"the commit came with a warning: {opened.notices[0]}")
        if row is None or not row["held"]:
            fault = f"batch {batch.number} under {batch.fence} was fenced"
            return self._report(batch, CommitOutcome.REFUSED, fault)
        self._places.note(batch, row["place"], row["counters"])
        return CommitOutcome.DONE

    def _failed(self, opened: Opened, batch: Batch, error: Exception) -> CommitOutcome:
        if not writing.is_undone(error):
            self._drop_owner(opened)
            return self._report(batch, CommitOutcome.UNKNOWN, self._shown(error), error)
        if isinstance(error, asyncpg.DivisionByZeroError):
            error = InvariantBroken("moved_row_missing", number=batch.number)
        return self._report(batch, writing.outcome_of(error), self._shown(error), error)

    async def forget_dedup(self, *, before_period: int) -> int:
        """Drop the dedup rows of periods before ``before_period``, a slice at a time; return how many."""
        return await self.tend(
            lambda tending: forgetting.forget_dedup(tending, self._fence, before_period=before_period)
        )

    async def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        """Drop the oldest rows of a feed; return how many. Raises StoreError when nothing could be written."""
        return await self.tend(
            lambda tending: forgetting.forget_feed(
                tending, self._fence, namespace, before=before, through=through, rows_max=rows_max
            )
        )

    # Reads.

    async def load(self, load: Load) -> Page:
        """Return the page; what DONE commits wrote is in it."""
        return await self.read(lambda reads: reading.load(reads, load))

    async def read_history(self, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
        """Return pages from the one that holds ``first_event_id`` until ``events_max`` events are covered."""
        return await self.read(
            lambda reads: reading.read_history(reads, run_id, first_event_id=first_event_id, events_max=events_max)
        )

    async def read_attempts(self, task_id: str) -> list[AttemptRow]:
        """Return how the leases of a task ended."""
        return await self.read(lambda reads: reading.read_attempts(reads, task_id))

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]:
        """Return runs, newest first."""
        return await self.read(lambda reads: listing.list_runs(reads, filter))

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]:
        """Return tasks, newest first."""
        return await self.read(lambda reads: listing.list_tasks(reads, filter))

    async def count_runs(self, filter: RunFilter) -> Tally:
        """Return how many runs match."""
        return await self.read(lambda reads: listing.count_runs(reads, filter))

    async def count_tasks(self, filter: TaskFilter) -> Tally:
        """Return how many tasks match."""
        return await self.read(lambda reads: listing.count_tasks(reads, filter))

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]:
        """Return what waits in a queue, by type."""
        return await self.read(lambda reads: reading.read_waiting(reads, namespace, queue))

    async def read_turns(self) -> list[Turns]:
        """Return which queues' runs need a workflow task."""
        return await self.read(reading.read_turns)

    async def read_namespaces(self) -> dict[str, NamespaceInfo]:
        """Return the namespaces by name."""
        return await self.read(reading.read_namespaces)

    async def identity(self) -> tuple[int, int, int, int]:
        """Return what tells this database from every other one and from its copies: identity, incarnation, server, number."""
        ((identity, incarnation),) = await self.read(lambda reads: reads.fetch(claiming.IDENTITY))
        assert self.server is not None  # the session that was read with has looked
        return identity, incarnation, self.server.cluster, self.server.number

    async def read_counters(self, namespace: str) -> dict[str, int]:
        """Return the counters of a namespace."""
        return await self.read(lambda reads: reading.read_counters(reads, namespace))

    async def read_feed(self, namespace: str, *, after: FeedPlace, events_max: int, bytes_max: int) -> FeedFound:
        """Return what a feed has behind ``after``."""
        return await self.read(
            lambda reads: feed.read_feed(reads, namespace, after=after, events_max=events_max, bytes_max=bytes_max)
        )

    async def named_blobs(self, digests: AbstractSet[str]) -> set[str]:
        """Return those of ``digests`` that a row names."""
        if not digests:
            return set()
        return await self.read(lambda reads: references.named_blobs(reads, digests))

    # Plumbing.

    async def _connect(self, *, writes: bool, name: str = "") -> Opened:
        kind = "writer" if writes else "reader"
        opened = await connect(
            self.address,
            name=name or f"outlast {kind} of shard {self.shard}",
            settings=WRITER if writes else READER,
            allow_weak=self._allow_weak,
        )
        self.server = opened.server
        return opened

    async def _beside(self, *, writes: bool) -> Opened:
        """Return a session beside the owner's. It must see the same commits: rows of another server would be written back."""
        opened = await self._connect(writes=writes)
        if self._history is not None and opened.server.history != self._history:
            opened.session.terminate()
            raise StoreError(
                "unavailable",
                f"{self.address.shown} is another server now than the one that the shard was claimed on.",
                remedy="It is claimed anew by itself as soon as the owner's own connection ends; look at the failover.",
            )
        return opened

    async def read(self, read: Callable[[Reads], Awaitable[_T]]) -> _T:
        """Return what ``read`` gives in a session that cannot write. Raises StoreError."""
        return await self._use(self._refuse_closed(), read)

    async def tend(self, work: Callable[[Reads], Awaitable[_T]]) -> _T:
        """Return what ``work`` gives in a session that writes beside the owner's. Raises StoreError."""
        self._refuse_closed()
        if self._tenders is None:
            raise StoreError("unavailable", "The store was opened to look at it.", remedy="Open it to change it.")
        return await self._use(self._tenders, work)

    async def _use(self, sessions: Readers, work: Callable[[Reads], Awaitable[_T]]) -> _T:
        try:
            async with sessions.one() as session:
                return await work(session)
        except FAILURES as error:
            raise said(error, self.address) from error

    def _refuse_closed(self) -> Readers:
        if self._readers is None and self._away is not None:
            raise self._away
        if self._readers is None:
            raise StoreError("unavailable", f"The store {self.address.shown} is not open.", remedy="Open it first.")
        return self._readers

    def _drop_owner(self, opened: Opened | None = None) -> None:
        """Never use the owner's session again. What it was asked to do may still happen in the database."""
        dropped = opened or self._owner
        if dropped is not None:
            dropped.session.terminate()
        if dropped is self._owner:
            self._owner = None
            self._committing = False

    def _report(
        self, batch: Batch, outcome: CommitOutcome, fault: str, error: Exception | None = None
    ) -> CommitOutcome:
        self.last_fault = fault
        now = time.monotonic_ns()
        if outcome is not CommitOutcome.REFUSED and now - self._logged_at >= FAULT_LOG_EVERY:
            self._logged_at = now
            say = "commit_failed outcome=%s number=%d at=%s error=%s"
            facts = (outcome, batch.number, self.address.shown, fault)
            if outcome is CommitOutcome.UNKNOWN:
                _log.error(say, *facts, exc_info=error)
            else:
                _log.debug(say, *facts)  # the engine says it, and a trace would tell nothing more
        return outcome

    def _shown(self, error: BaseException) -> str:
        return f"{type(error).__name__}: {without_secrets(str(error), self.address)}"
