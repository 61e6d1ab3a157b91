"""The SQLite store: one file, one writer thread, reads inline on the event loop.

Owning the file is holding its lock (``lock.py``); ``claim`` raises the epoch, so that batches of an earlier owner in the same
process are refused. Commits run in the writer's thread, where SQLite lets the loop go on during the fsync.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, TypeVar

import apsw

from outlast.core.admin import NamespaceInfo
from outlast.core.feed import Place as FeedPlace
from outlast.core.units import SECOND, Fence
from outlast.core.writes import AttemptRow, Batch, Claim, CommitOutcome, HistoryRow, Load, Page, RunRow, TaskRow
from outlast.protocol.intake import Intake
from outlast.store.base import FeedFound, RunFilter, StoreError, Stretch, Tally, TaskFilter, Turns, Waiting
from outlast.store.migrate import migrate, migrations_in
from outlast.store.sqlite import feed, listing, opening, queries, reading, references, standing, writing
from outlast.store.sqlite.checkpointer import Checkpointer
from outlast.store.sqlite.connection import Connection, connect
from outlast.store.sqlite.lock import FileLock, Holder, real_path
from outlast.store.sqlite.place import Place
from outlast.store.sqlite.thread import WriterThread
from outlast.store.standing import refuse

NOTE_EVERY: Final = SECOND  # how often the lock file learns the number of the last commit
FAULT_LOG_EVERY: Final = 30 * SECOND  # a full disk fails every commit: one line in this time is enough
CHECKPOINT_PAGES: Final = 2_000  # pages of the WAL (16 MB) from which it is brought into the file
CHECKPOINT_PAGES_FACTOR: Final = 4  # from so many times that commits wait for the checkpointer
CHECKPOINT_SECONDS_MAX: Final = 1.0  # of one such wait
READ_SECONDS_MAX: Final = 1.0  # of one read, which holds up the event loop
READ_STEPS: Final = 100_000  # of SQLite's machine between two looks at the clock
DEDUP_SLICE: Final = 10_000  # rows of one step of forgetting: commits go on between the steps

PUT_BACK: Final = "Look at the disk; put the files back as they were, or restore the last backup. No restart is needed."

_T = TypeVar("_T")
_log: Final = logging.getLogger("outlast.store")


class SqliteStore:
    """A shard's rows in the SQLite file at ``path``.

    ``synchronous`` other than "FULL" loses acknowledged work at a power cut. ``vfs`` names a registered SQLite VFS (for fault
    injection): the connection is then exclusive, there is no lock file, and reads wait for the writer's thread.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shard: int = 0,
        synchronous: str = "FULL",
        vfs: str = "",
        allow_network_disk: bool = False,
        checkpoint_pages: int = CHECKPOINT_PAGES,
    ) -> None:
        self.path = real_path(os.fspath(path))
        self._shown = os.fspath(path)  # as its user calls it
        self.shard = shard
        self.reads_inline = not vfs
        self.intake: Intake | None = None  # a file has one writer, and that is the engine
        self.last_fault = ""
        """What went wrong with the last commit that was not DONE, in one line."""
        self.lock = FileLock(self._shown)
        self._synchronous = synchronous
        self._vfs = vfs
        self._allow_network_disk = allow_network_disk
        self._checkpoint_pages = checkpoint_pages
        self._thread: WriterThread | None = None
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._checkpointer: Checkpointer | None = None
        self._read_until = 0.0
        self._wal_pages = 0
        self._noted_at = 0
        self._logged_at = -FAULT_LOG_EVERY
        self._incarnation = 1
        self._place = Place(self.path)
        self._number = 0
        self._broken = ""
        self._opened = False

    # Life.

    async def open(self) -> None:
        """Take the file's lock, check the file, make or migrate the schema. Raises StoreError."""
        if self._thread is not None:
            return
        self._thread = WriterThread(f"outlast-store-{self.shard}")
        try:
            await self._thread.submit(self._open)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Bring the WAL into the file, close it and give the lock back. Closing twice is the same as once."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        try:
            await thread.submit(self._close)
        finally:
            thread.stop()

    def announce(self, address: str) -> None:
        """Tell processes that find the file locked where its engine is reached."""
        self.lock.announce(address)

    # Writes.

    async def claim(self, *, owner: str, now: int, lease_until: int) -> Claim:
        """Raise the epoch in a commit of its own and return what a new owner needs.

        The same owner, and anybody once the lease has ended, may claim. Raises StoreError: "not_owner" while another's
        lease runs, "store_full" or "unavailable" when it could not be written.
        """
        return await self._submit(lambda: self._claim(owner, now, lease_until))

    async def release(self, fence: Fence) -> None:
        """End the lease of ``fence``, if it is the current one."""
        await self._submit(lambda: self._release(fence))

    async def commit(self, batch: Batch) -> CommitOutcome:
        """Write ``batch`` or nothing. A fence or number that is not the next one is REFUSED; see ``writing.commit``."""
        return await self._submit(lambda: self._commit(batch))

    async def forget_dedup(self, *, before_period: int) -> int:
        """Drop the dedup rows of periods before ``before_period``, a slice at a time; return how many."""
        after: tuple[str, str, str] | None = ("", "", "")
        dropped = 0
        while after is not None:
            count, after = await self._submit(partial(self._forget_slice, after, before_period))
            dropped += count
        return dropped

    # Reads.

    async def load(self, load: Load) -> Page:
        """Return the page; what DONE commits wrote is in it."""
        return await self._read(lambda connection: reading.load(connection, load))

    async def read_history(self, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
        """Return pages from the one that holds ``first_event_id`` until ``events_max`` events are covered."""
        return await self._read(
            lambda connection: reading.read_history(
                connection, run_id, first_event_id=first_event_id, events_max=events_max
            )
        )

    async def read_attempts(self, task_id: str) -> list[AttemptRow]:
        """Return how the leases of a task ended."""
        return await self._read(lambda connection: reading.read_attempts(connection, task_id))

    async def list_runs(self, filter: RunFilter) -> Stretch[RunRow]:
        """Return runs, newest first."""
        return await self._read(lambda connection: listing.list_runs(connection, filter))

    async def list_tasks(self, filter: TaskFilter) -> Stretch[TaskRow]:
        """Return tasks, newest first."""
        return await self._read(lambda connection: listing.list_tasks(connection, filter))

    async def count_runs(self, filter: RunFilter) -> Tally:
        """Return how many runs match."""
        return await self._read(lambda connection: listing.count_runs(connection, filter))

    async def count_tasks(self, filter: TaskFilter) -> Tally:
        """Return how many tasks match."""
        return await self._read(lambda connection: listing.count_tasks(connection, filter))

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]:
        """Return what waits in a queue, by type."""
        return await self._read(lambda connection: reading.read_waiting(connection, namespace, queue))

    async def read_turns(self) -> list[Turns]:
        """Return which queues' runs need a workflow task."""
        return await self._read(reading.read_turns)

    async def read_namespaces(self) -> dict[str, NamespaceInfo]:
        """Return the namespaces by name."""
        return await self._read(reading.read_namespaces)

    async def read_counters(self, namespace: str) -> dict[str, int]:
        """Return the counters of a namespace."""
        return await self._read(lambda connection: reading.read_counters(connection, namespace))

    async def read_feed(self, namespace: str, *, after: FeedPlace, events_max: int, bytes_max: int) -> FeedFound:
        """Return what a feed has behind ``after``."""
        return await self._read(
            lambda connection: feed.read_feed(
                connection, self.shard, namespace, after=after, events_max=events_max, bytes_max=bytes_max
            )
        )

    async def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        """Drop the oldest rows of a feed; return how many. Raises StoreError when nothing could be written."""
        return await self._submit(
            lambda: self._forget_feed(namespace, before=before, through=through, rows_max=rows_max)
        )

    async def named_blobs(self, digests: AbstractSet[str]) -> set[str]:
        """Return those of ``digests`` that a row names; read in a thread of its own."""
        if not digests or self._vfs:
            return set(digests)  # with a VFS there is no second connection: nothing can be ruled out
        return await asyncio.to_thread(self._named_blobs, digests)

    def _named_blobs(self, digests: AbstractSet[str]) -> set[str]:
        try:
            connection = self._connect()
            try:
                return references.named_blobs(connection, digests)
            finally:
                connection.close()
        except apsw.Error as error:
            raise opening.said(error, self._shown) from error

    # In the writer's thread.

    def _open(self) -> None:
        before = Holder()
        if not self._vfs:
            if not self._allow_network_disk:
                opening.refuse_network_disk(self.path)
            before = self.lock.acquire()
            opening.examine(self.path, before)
        try:
            self._open_connections(before)
        except apsw.Error as error:
            raise opening.said(error, self._shown) from error
        self._opened, self._broken = True, ""
        self._place.note()
        self._note()

    def _open_connections(self, before: Holder) -> None:
        self._writer = connect(self.path, vfs=self._vfs, synchronous=self._synchronous)
        if not self._vfs:
            opening.check_pages(self._writer, self.path)
        schema = opening.Schema(self._writer, self._shown)
        keep_copy = None if self._vfs else schema.keep_copy
        migrate(schema, migrations_in("outlast.store.sqlite"), keep_copy=keep_copy)
        refuse(standing.read(self._writer), self._shown, url=f"sqlite:///{self._shown}")
        self._read_position()
        opening.check_position(before, incarnation=self._incarnation, number=self._number, path=self._shown)
        # What the last process left in the WAL is synced before anything is built on it, also after a failed fsync.
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._writer.set_wal_hook(self._wal_grew)
        self._reader = self._writer if self._vfs else self._connect()
        if not self._vfs:
            self._reader.set_progress_handler(self._read_is_too_long, READ_STEPS)
            self._checkpointer = Checkpointer(self._connect, f"outlast-checkpoint-{self.shard}")

    def _connect(self) -> Connection:
        return connect(self.path, synchronous=self._synchronous)

    def _read_position(self) -> None:
        writer = self._connection()
        self._incarnation = writer.execute(queries.READ_INCARNATION).fetchall()[0][0]
        if not writer.execute(queries.READ_SHARD, (self.shard,)).fetchall():
            writer.execute(queries.ADD_SHARD, (self.shard, self._incarnation))
        incarnation, _, _, _, number, _ = writer.execute(queries.READ_SHARD, (self.shard,)).fetchall()[0]
        self._incarnation = max(self._incarnation, incarnation)
        self._number = number

    def _close(self) -> None:
        try:
            if self._checkpointer is not None:
                self._checkpointer.stop()
            if self._reader is not None and self._reader is not self._writer:
                self._reader.close()
            if self._writer is not None:
                if self._opened:
                    # Only then: a file found damaged is left as it lies, and so is what its lock file says of it.
                    self._checkpoint("TRUNCATE")
                    self._note()
                self._writer.close()
        except apsw.Error as error:
            # Nothing acknowledged depends on closing: the WAL is read at the next start.
            _log.warning("close_failed path=%s", self._shown, exc_info=error)
        finally:
            self._reader = self._writer = self._checkpointer = None
            self._opened = False
            self.lock.release()

    def _claim(self, owner: str, now: int, lease_until: int) -> Claim:
        if self._broken:
            raise StoreError("unavailable", self._broken, remedy=PUT_BACK)
        writer = self._connection()
        try:
            writer.execute("BEGIN IMMEDIATE")
            claim = self._raise_epoch(writer, owner, now, lease_until)
            writer.execute("COMMIT")
        except apsw.Error as error:
            self._break_on_failed_sync(error)
            fault = opening.said(error, self._shown, writer)
            writing.roll_back(writer)
            raise fault from error
        except BaseException:
            writing.roll_back(writer)
            raise
        if self._lost_its_place():
            raise StoreError("unavailable", self._broken, remedy=PUT_BACK)
        self._incarnation, self._number = claim.fence.incarnation, claim.last_number
        return claim

    def _raise_epoch(self, writer: Connection, owner: str, now: int, lease_until: int) -> Claim:
        _, epoch, holder, until, number, at = writer.execute(queries.READ_SHARD, (self.shard,)).fetchall()[0]
        if holder and holder != owner and until > now:
            raise StoreError(
                "not_owner",
                f"Shard {self.shard} is held by {holder} for another {(until - now) / SECOND:.1f} s.",
                remedy="Wait until its lease has ended, or stop that engine.",
            )
        incarnation = writer.execute(queries.READ_INCARNATION).fetchall()[0][0]
        writer.execute(queries.CLAIM, (incarnation, owner, lease_until, self.shard))
        return Claim(
            shard=self.shard,
            fence=Fence(incarnation, epoch + 1),
            last_number=number,
            last_at=at,
            counters={(namespace, name): value for namespace, name, value in writer.execute(queries.READ_COUNTERS)},
            namespaces=reading.read_namespaces(writer),
            received={(source, other): mark for source, other, mark in writer.execute(queries.READ_RECEIVED)},
        )

    def _release(self, fence: Fence) -> None:
        try:
            self._connection().execute(queries.RELEASE, (self.shard, fence.incarnation, fence.epoch))
        except apsw.Error as error:
            self._break_on_failed_sync(error)
            raise opening.said(error, self._shown) from error

    def _commit(self, batch: Batch) -> CommitOutcome:
        if self._broken:
            return CommitOutcome.UNKNOWN
        outcome, error = writing.commit(self._connection(), batch)
        if outcome is CommitOutcome.DONE:
            if self._lost_its_place():
                return CommitOutcome.UNKNOWN  # it is in a file that nobody will find again
            self._number = batch.number
            self._after_commit()
        elif error is not None:
            self._report(batch, outcome, error)
        return outcome

    def _after_commit(self) -> None:
        if self._wal_pages >= self._checkpoint_pages:
            self._shorten_wal()
        now = time.monotonic_ns()
        if now - self._noted_at >= NOTE_EVERY:
            self._note()

    def _shorten_wal(self) -> None:
        checkpointer = self._checkpointer
        if checkpointer is not None:
            if self._wal_pages >= CHECKPOINT_PAGES_FACTOR * self._checkpoint_pages:
                # It falls behind. Commits wait for it now, so that the WAL has a bound.
                checkpointer.wait(CHECKPOINT_SECONDS_MAX)
            elif not checkpointer.take_done():
                checkpointer.ask()
                return
        self._checkpoint("PASSIVE")

    def _report(self, batch: Batch, outcome: CommitOutcome, error: BaseException) -> None:
        self._break_on_failed_sync(error)
        if outcome is CommitOutcome.REFUSED:
            self.last_fault = f"batch {batch.number} under {batch.fence} was fenced"
            return
        self.last_fault = f"{type(error).__name__}: {error}"
        now = time.monotonic_ns()
        if now - self._logged_at >= FAULT_LOG_EVERY:
            self._logged_at = now
            say = "commit_failed outcome=%s number=%d path=%s error=%s"
            facts = (outcome, batch.number, self._shown, self.last_fault)
            if outcome in {CommitOutcome.FULL, CommitOutcome.LOCKED}:
                _log.debug(say, *facts)  # the engine says it, and a trace would tell nothing more
            else:
                _log.error(say, *facts, exc_info=error)

    def _break_on_failed_sync(self, error: BaseException) -> None:
        if writing.is_failed_sync(error):
            # The system may forget pages that it failed to write and call the next fsync a success. Nothing may be
            # built on them; opening again reads what is there and writes it anew.
            self._broken = f"The disk failed to sync {self._shown}: {error}."

    def _lost_its_place(self) -> bool:
        fault = "" if self._vfs else self._place.fault()
        if fault:
            self._broken = self.last_fault = fault
            _log.error("store_moved path=%s fault=%s", self._shown, fault)
        return bool(fault)

    def _forget_slice(self, after: tuple[str, str, str], before_period: int) -> tuple[int, tuple[str, str, str] | None]:
        writer = self._connection()
        try:
            end = writer.execute(queries.DEDUP_SLICE_END, (*after, DEDUP_SLICE)).fetchall()
            if end:
                writer.execute(queries.FORGET_DEDUP_SLICE, (*after, before_period, *end[0]))
            else:
                writer.execute(queries.FORGET_DEDUP_REST, (*after, before_period))
        except apsw.Error as error:
            self._break_on_failed_sync(error)
            raise opening.said(error, self._shown) from error
        return writer.changes(), end[0] if end else None

    def _forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        writer = self._connection()
        try:
            return feed.forget_feed(writer, namespace, before=before, through=through, rows_max=rows_max)
        except apsw.Error as error:
            self._break_on_failed_sync(error)
            raise opening.said(error, self._shown, writer) from error

    def _wal_grew(self, _connection: object, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self, mode: str) -> None:
        try:
            self._connection().execute(f"PRAGMA wal_checkpoint({mode})")
        except apsw.Error as error:
            # What is in the WAL stays there and counts; only its size goes on growing until there is room again.
            self._break_on_failed_sync(error)
            known = writing.is_out_of_space(error, self._writer)
            _log.warning("checkpoint_failed path=%s error=%s", self._shown, error, exc_info=None if known else error)

    def _note(self) -> None:
        self._noted_at = time.monotonic_ns()
        # Below FULL a power cut may take commits back, so that the number would be no proof.
        number = self._number if self._synchronous in {"FULL", "EXTRA"} else 0
        self.lock.note(incarnation=self._incarnation, number=number)

    # Plumbing.

    def _connection(self) -> Connection:
        if self._writer is None:
            raise _closed(self._shown)
        return self._writer

    async def _submit(self, work: Callable[[], _T]) -> _T:
        if self._thread is None:
            raise _closed(self._shown)
        return await self._thread.submit(work)

    async def _read(self, read: Callable[[Connection], _T]) -> _T:
        reader = self._reader
        if reader is None:
            raise _closed(self._shown)
        try:
            if self.reads_inline:
                self._read_until = time.monotonic() + READ_SECONDS_MAX
                return read(reader)
            return await self._submit(lambda: read(reader))
        except apsw.InterruptError as error:
            raise StoreError(
                "limit_exceeded",
                f"Reading took longer than {READ_SECONDS_MAX:g} s and was ended.",
                remedy="Narrow the list by type, workflow id, or a later place to begin at.",
            ) from error
        except apsw.Error as error:
            raise opening.said(error, self._shown) from error

    def _read_is_too_long(self) -> bool:
        return time.monotonic() > self._read_until


def _closed(path: str) -> StoreError:
    return StoreError("unavailable", f"The store {path} is not open.", remedy="Open it first.")
