"""The store of a simulation: the tables of the memory store behind commits that take time and may end in doubt.

The fence is compared where the batch is applied, never before. A commit of unknown outcome comes in three forms: it was
applied, it never happens, or it is applied later, unless a higher fence has committed meanwhile.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from outlast.core.errors import InvariantBroken
from outlast.core.shard.window import BEFORE_ALL
from outlast.core.writes import Batch, Claim, CommitOutcome, Load, LoadKeys, LoadReadyTasks, Page
from outlast.sim.coverage import Coverage
from outlast.sim.faults import FaultLog, Faults
from outlast.sim.kernel import Alarm, Kernel, Process
from outlast.sim.violation import Violation
from outlast.store.base import StoreError
from outlast.store.memory.tables import Tables

Result = TypeVar("Result")


class Watcher(Protocol):
    """Who must see each commit at the true instant at which it happens."""

    def applied(self, batch: Batch, owner: str) -> None: ...

    def claimed(self, claim: Claim, owner: str, *, now: int) -> None: ...


@dataclass(slots=True, eq=False)
class InFlight:
    """A commit on its way. ``given`` is what the core handed over, ``batch`` a copy of what it said then."""

    owner: str
    given: Batch
    batch: Batch
    process: Process
    done: Callable[[CommitOutcome], None]
    mode: CommitOutcome = CommitOutcome.DONE
    form: str = ""
    applied: bool = False
    alarm: Alarm | None = field(default=None)


def copied(batch: Batch) -> Batch:
    """Return a batch with rows of its own."""
    return Batch(
        shard=batch.shard,
        fence=batch.fence,
        number=batch.number,
        at=batch.at,
        runs={key: copy(row) for key, row in batch.runs.items()},
        run_moves=dict(batch.run_moves),
        history=[copy(row) for row in batch.history],
        parked=[copy(row) for row in batch.parked],
        unparked=dict(batch.unparked),
        tasks={key: copy(row) for key, row in batch.tasks.items()},
        task_moves=dict(batch.task_moves),
        attempts=[copy(row) for row in batch.attempts],
        timers=dict(batch.timers),
        dropped_timers=dict(batch.dropped_timers),
        dedup=dict(batch.dedup),
        counters=dict(batch.counters),
        messages=list(batch.messages),
        received=dict(batch.received),
        lease_until=batch.lease_until,
        bytes=batch.bytes,
        labels=dict(batch.labels),
        namespaces=dict(batch.namespaces),
        forgotten_runs=dict(batch.forgotten_runs),
        forgotten_tasks=dict(batch.forgotten_tasks),
        feed=list(batch.feed),
    )


class Disk:
    """One shard's database."""

    def __init__(self, kernel: Kernel, faults: Faults, log: FaultLog, coverage: Coverage, watcher: Watcher) -> None:
        self.tables = Tables()
        self._kernel = kernel
        self._faults = faults
        self._log = log
        self._coverage = coverage
        self._watcher = watcher
        self._chance = kernel.stream("disk", "commits")
        self._in_flight: list[InFlight] = []

    # -- ownership --

    def claim(
        self, process: Process, *, owner: str, now: int, lease_until: int, done: Callable[[Claim | None], None]
    ) -> None:
        """Take the shard over; ``done`` gets None when another owner's lease still runs, nothing when the answer is lost."""
        self._kernel.after(self._latency(), f"claim {owner}", self._claim, process, owner, now, lease_until, done)

    def _claim(
        self, process: Process, owner: str, now: int, lease_until: int, done: Callable[[Claim | None], None]
    ) -> None:
        claim: Claim | None = None
        try:
            claim = self.tables.claim(owner=owner, now=now, lease_until=lease_until)
        except StoreError as refusal:
            if refusal.code != "not_owner":
                raise
            self._coverage.hit("claim_refused")
        if claim is not None:
            self._kernel.note(
                f"claimed {owner} fence={claim.fence.incarnation}.{claim.fence.epoch} last={claim.last_number}"
            )
            self._watcher.claimed(claim, owner, now=now)
        if self._faults.live and self._chance.random() < self._faults.claim_unanswered:
            self._log.hit("claim_unanswered")
            return
        process.after(self._latency(), f"claim answered {owner}", done, claim)

    # -- commits --

    def commit(self, process: Process, owner: str, batch: Batch, done: Callable[[CommitOutcome], None]) -> None:
        """Commit ``batch``; ``done`` gets the outcome, if ``process`` lives to hear it."""
        flight = InFlight(owner, batch, copied(batch), process, done)
        self._in_flight.append(flight)
        span = self._latency() + batch.rows() * 2_000
        faults, draw = self._faults, self._chance.random()
        if faults.live:
            bounds = (
                (faults.commit_unknown_applied, CommitOutcome.UNKNOWN, "applied"),
                (faults.commit_unknown_lost, CommitOutcome.UNKNOWN, "lost"),
                (faults.commit_unknown_late, CommitOutcome.UNKNOWN, "late"),
                (faults.commit_full, CommitOutcome.FULL, "full"),
            )
            for bound, outcome, form in bounds:
                if draw < bound:
                    flight.mode, flight.form = outcome, form
                    break
                draw -= bound
            if self._chance.random() < faults.commit_slow:
                self._log.hit("commit_slow")
                span += int(self._chance.uniform(0.1, 5.0) * 1e9)
        flight.alarm = self._kernel.after(span, f"commit {owner}", self._arrive, flight)

    def _arrive(self, flight: InFlight) -> None:
        if flight.mode is CommitOutcome.DONE or flight.form == "applied":
            outcome = self._apply(flight)
            if outcome is CommitOutcome.REFUSED and not flight.form:
                self._coverage.hit("zombie_fenced")
            if flight.form == "applied":
                self._log.hit("commit_unknown_applied")
                if outcome is CommitOutcome.DONE:
                    self._coverage.hit("unknown_applied")
                outcome = CommitOutcome.UNKNOWN
        elif flight.form == "late":
            self._log.hit("commit_unknown_late")
            outcome = CommitOutcome.UNKNOWN
            span = int(self._chance.expovariate(1.0) * 1.5e9)
            flight.alarm = self._kernel.after(span, f"late commit {flight.owner}", self._late, flight)
        else:
            outcome = flight.mode
            self._in_flight.remove(flight)
            self._log.hit("commit_full" if outcome is CommitOutcome.FULL else "commit_unknown_lost")
            self._coverage.hit("commit_full" if outcome is CommitOutcome.FULL else "unknown_lost")
        flight.process.after(self._latency(), f"commit answered {flight.owner}", flight.done, outcome)

    def _late(self, flight: InFlight) -> None:
        outcome = self._apply(flight)
        self._coverage.hit("unknown_late_applied" if outcome is CommitOutcome.DONE else "unknown_late_fenced")

    def _apply(self, flight: InFlight) -> CommitOutcome:
        self._in_flight.remove(flight)
        flight.applied = True
        if flight.given != flight.batch:
            raise Violation(6, "batch_changed_after_it_was_taken", f"batch {flight.batch.number} of {flight.owner}")
        try:
            outcome = self.tables.apply(flight.batch)
        except InvariantBroken as broken:
            raise Violation(6, broken.code, f"batch {flight.batch.number} of {flight.owner}: {broken}") from broken
        self._kernel.note(f"commit {flight.owner} #{flight.batch.number} rows={flight.batch.rows()} {outcome.value}")
        if outcome is CommitOutcome.DONE:
            self._watcher.applied(flight.batch, flight.owner)
            if flight.batch.lease_until:
                self._coverage.hit("shard_lease_renewed")
        return outcome

    def crashed(self, process: Process) -> None:
        """Lose most of what a crashed process had sent and what had not arrived: the connection broke first."""
        for flight in list(self._in_flight):
            if flight.process is process and flight.form != "late" and self._chance.random() < 0.8:
                self._log.hit("commit_cut_by_crash")
                self._in_flight.remove(flight)
                if flight.alarm is not None:
                    flight.alarm.cancel()

    # -- reads --

    def load(self, process: Process, load: Load, done: Callable[[Page], None]) -> None:
        """Read committed rows, as they are when the request arrives."""
        self._kernel.after(self._read_latency(), "load", self._load, process, load, done)

    def _load(self, process: Process, load: Load, done: Callable[[Page], None]) -> None:
        page = self.tables.load(load)
        match load:
            case LoadKeys():
                if page.tasks:
                    self._coverage.hit("task_reloaded")
                if page.runs:
                    self._coverage.hit("run_reloaded")
            case LoadReadyTasks() if load.after > BEFORE_ALL:
                self._coverage.hit("window_continued")
            case _:
                pass
        process.after(self._read_latency(), "loaded", done, page)

    def read(self, process: Process, look: Callable[[], Result], done: Callable[[Result], None]) -> None:
        """Give ``done`` what ``look`` sees in the tables when the request arrives."""
        self._kernel.after(self._read_latency(), "read history", self._read, process, look, done)

    def _read(self, process: Process, look: Callable[[], Result], done: Callable[[Result], None]) -> None:
        process.after(self._read_latency(), "history read", done, look())

    # -- chance --

    def _latency(self) -> int:
        return int(self._faults.commit_latency * (0.2 + self._chance.expovariate(2.0)))

    def _read_latency(self) -> int:
        span = int(self._faults.commit_latency * (0.1 + self._chance.expovariate(4.0)))
        if self._faults.live and self._chance.random() < self._faults.load_slow:
            self._log.hit("load_slow")
            span += int(self._chance.uniform(0.05, 1.0) * 1e9)
        return span
