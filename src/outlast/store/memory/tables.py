"""The rows of a shard in memory, synchronous: what the memory store and the simulator stand on.

``apply`` is a commit: it checks the fence and the number at the moment when it is called, so that a batch may be held back and
applied late. Rows are copied on the way in and on the way out. The public attributes are for reading, by checks that
look at everything; nobody but ``apply`` and ``claim`` changes them.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar, assert_never

from outlast.core.admin import NamespaceInfo
from outlast.core.errors import InvariantBroken, invariant
from outlast.core.feed import Place as FeedPlace
from outlast.core.replies import TaskState
from outlast.core.units import SECOND, Fence
from outlast.core.writes import (
    AttemptRow,
    Batch,
    Claim,
    CommitOutcome,
    DedupRow,
    FeedRow,
    HistoryRow,
    LabelsRow,
    Load,
    LoadKeys,
    LoadLeasedTasks,
    LoadReadyRuns,
    LoadReadyTasks,
    LoadTimers,
    MessageRow,
    Page,
    ParkedRow,
    RunRow,
    TaskRow,
    TimerRow,
    run_after,
    task_after,
)
from outlast.query.predicate import Value
from outlast.store.base import StoreError
from outlast.store.memory.keys import SortedKeys

_K = TypeVar("_K")


class Held(NamedTuple):
    """The shard's own row."""

    fence: Fence
    owner: str
    lease_until: int
    last_number: int
    last_at: int


@dataclass(slots=True)
class Tables:
    """Everything one shard stores."""

    shard: int = 0
    held: Held = field(default_factory=lambda: Held(Fence(1, 0), "", 0, 0, 0))
    incarnation: int = 1
    runs: dict[str, RunRow] = field(default_factory=dict[str, RunRow])
    history: dict[str, list[HistoryRow]] = field(default_factory=dict[str, list[HistoryRow]])
    parked: dict[str, dict[int, ParkedRow]] = field(default_factory=dict[str, dict[int, ParkedRow]])
    tasks: dict[str, TaskRow] = field(default_factory=dict[str, TaskRow])
    attempts: dict[str, dict[tuple[int, int], AttemptRow]] = field(
        default_factory=dict[str, dict[tuple[int, int], AttemptRow]]
    )
    timers: dict[tuple[int, str], TimerRow] = field(default_factory=dict[tuple[int, str], TimerRow])
    dedup: dict[tuple[str, str, str], DedupRow] = field(default_factory=dict[tuple[str, str, str], DedupRow])
    counters: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    messages: dict[tuple[int, int, int, int], MessageRow] = field(
        default_factory=dict[tuple[int, int, int, int], MessageRow]
    )
    received: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    namespaces: dict[str, NamespaceInfo] = field(default_factory=dict[str, NamespaceInfo])
    identity: int = 1
    feed: dict[str, list[FeedRow]] = field(default_factory=dict[str, list[FeedRow]])
    feed_floors: dict[str, FeedPlace] = field(default_factory=dict[str, FeedPlace])
    labels: dict[str, dict[str, tuple[Value, ...]]] = field(default_factory=dict[str, dict[str, tuple[Value, ...]]])

    runs_named: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    open_runs: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    latest_runs: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    runs_by_start: dict[str, SortedKeys[tuple[int, str]]] = field(
        default_factory=dict[str, SortedKeys[tuple[int, str]]]
    )
    tasks_by_enqueue: dict[str, SortedKeys[tuple[int, str]]] = field(
        default_factory=dict[str, SortedKeys[tuple[int, str]]]
    )
    ready_runs: SortedKeys[tuple[int, str]] = field(default_factory=SortedKeys[tuple[int, str]])
    ready_tasks: dict[tuple[str, str, str], SortedKeys[tuple[int, str]]] = field(
        default_factory=dict[tuple[str, str, str], SortedKeys[tuple[int, str]]]
    )
    leased_tasks: SortedKeys[tuple[str]] = field(default_factory=SortedKeys[tuple[str]])
    timer_order: SortedKeys[tuple[int, str]] = field(default_factory=SortedKeys[tuple[int, str]])

    def claim(self, *, owner: str, now: int, lease_until: int) -> Claim:
        """Raise the epoch for ``owner``. Raises StoreError "not_owner" while another owner's lease runs at ``now``."""
        held = self.held
        if held.owner and held.owner != owner and held.lease_until > now:
            raise StoreError(
                "not_owner",
                f"Shard {self.shard} is held by {held.owner} for another {(held.lease_until - now) / SECOND:.1f} s.",
                remedy="Wait until its lease has ended, or stop that engine.",
            )
        fence = Fence(self.incarnation, held.fence.epoch + 1)
        self.held = Held(fence, owner, lease_until, held.last_number, held.last_at)
        return Claim(
            self.shard,
            fence,
            held.last_number,
            held.last_at,
            dict(self.counters),
            dict(self.received),
            dict(self.namespaces),
        )

    def release(self, fence: Fence) -> None:
        """End the lease of ``fence``, if it is the current one."""
        if fence == self.held.fence:
            self.held = self.held._replace(owner="", lease_until=0)

    def apply(self, batch: Batch) -> CommitOutcome:
        """Write all of ``batch`` (DONE), or nothing for an old fence or a number that is not the next one (REFUSED).

        Raises InvariantBroken, with nothing written, for a batch that a database's keys would not let in.
        """
        held = self.held
        if batch.shard != self.shard or batch.fence != held.fence or batch.number != held.last_number + 1:
            return CommitOutcome.REFUSED
        self._check(batch)
        self._forget(batch)
        self._apply_runs(batch)
        self._apply_tasks(batch)
        self._apply_timers(batch)
        self.dedup.update(batch.dedup)
        self.counters.update(batch.counters)
        self.received.update(batch.received)
        for name, info in batch.namespaces.items():
            if info is None:
                self.namespaces.pop(name, None)
                for key in [key for key in self.counters if key[0] == name]:
                    del self.counters[key]
                self.feed.pop(name, None)
                self.feed_floors.pop(name, None)
            else:
                self.namespaces[name] = info
        for row in batch.feed:
            self.feed.setdefault(row.namespace, []).append(row)
        for labels in batch.labels.values():
            self._put_labels(labels)
        for message in batch.messages:
            self.messages[_id_of(message)] = message
        self.held = Held(
            held.fence,
            held.owner,
            batch.lease_until or held.lease_until,
            batch.number,
            max(held.last_at, batch.at),
        )
        return CommitOutcome.DONE

    def forget_feed(self, namespace: str, *, before: int, through: int, rows_max: int) -> int:
        """Drop the oldest rows of a feed, at most ``rows_max`` and the rest of a commit; return how many."""
        rows = self.feed.get(namespace, [])
        count = 0
        for row in rows:
            if not (row.at < before or row.number <= through):
                break
            if count >= rows_max and row.number != rows[count - 1].number:
                break
            count += 1
        if count:
            self.feed_floors[namespace] = FeedPlace(
                rows[count - 1].number, rows[count - 1].first + rows[count - 1].count
            )
            del rows[:count]
        return count

    def load(self, load: Load) -> Page:
        """Return the page that ``load`` asks for."""
        match load:
            case LoadKeys():
                return self._load_keys(load)
            case LoadReadyTasks(namespace=namespace, queue=queue, type=type_, after=after, limit=limit):
                ready = self.ready_tasks.get((namespace, queue, type_))
                keys = () if ready is None else _first(ready.after(after), limit)
                return Page(tasks=[copy(self.tasks[task_id]) for _, task_id in keys])
            case LoadTimers(after=after, limit=limit):
                return Page(timers=[self.timers[key] for key in _first(self.timer_order.after(after), limit)])
            case LoadReadyRuns(after=after, limit=limit):
                return self._runs_page([run_id for _, run_id in _first(self.ready_runs.after(after), limit)])
            case LoadLeasedTasks(after=after_id, limit=limit):
                leased = _first(self.leased_tasks.after((after_id,)), limit)
                return Page(tasks=[copy(self.tasks[task_id]) for (task_id,) in leased])
            case _:
                assert_never(load)

    def _load_keys(self, load: LoadKeys) -> Page:
        latest = (self.latest_runs.get(key) for key in load.workflows)
        run_ids = [run_id for run_id in (*latest, *load.runs) if run_id is not None and run_id in self.runs]
        page = self._runs_page(dict.fromkeys(run_ids))
        page.tasks = [copy(self.tasks[id_]) for id_ in dict.fromkeys(load.tasks) if id_ in self.tasks]
        page.dedup = [self.dedup[key] for key in dict.fromkeys(load.dedup) if key in self.dedup]
        return page

    def _runs_page(self, run_ids: Iterable[str]) -> Page:
        page = Page()
        for run_id in run_ids:
            page.runs.append(copy(self.runs[run_id]))
            parked = self.parked.get(run_id)
            if parked:
                page.parked += [copy(parked[n]) for n in sorted(parked)]
        return page

    # What a database's keys refuse. All of it is looked at before anything is written.

    def _check(self, batch: Batch) -> None:
        self._check_runs(batch)
        for task_id in batch.tasks:
            invariant(task_id not in self.tasks, "task_row_twice", task_id=task_id)
        for task_id in batch.task_moves:
            invariant(task_id in self.tasks, "moved_task_missing", task_id=task_id)
        pages: set[tuple[str, int]] = set()
        for page in batch.history:
            key = (page.run_id, page.first_event_id)
            rows = self.history.get(page.run_id, [])
            # Nearly always the page goes on from the last one: then there is nothing to look through.
            inside = bool(rows) and rows[-1].first_event_id >= page.first_event_id
            stored = inside and any(row.first_event_id == page.first_event_id for row in rows)
            invariant(key not in pages and not stored, "history_page_twice", run_id=page.run_id, first=key[1])
            pages.add(key)
        places: set[tuple[str, int]] = set()
        for row in batch.parked:
            stored = row.run_id not in batch.unparked and row.n in self.parked.get(row.run_id, ())
            place = (row.run_id, row.n)
            invariant(place not in places and not stored, "parked_row_twice", run_id=row.run_id, n=row.n)
            places.add(place)
        leases: set[tuple[str, int]] = set()
        for attempt in batch.attempts:
            if attempt.late:
                continue
            stored = (attempt.lease, 0) in self.attempts.get(attempt.task_id, ())
            lease = (attempt.task_id, attempt.lease)
            invariant(lease not in leases and not stored, "attempt_row_twice", task_id=lease[0], lease=lease[1])
            leases.add(lease)
        for message in batch.messages:
            invariant(_id_of(message) not in self.messages, "message_twice", sequence=message.sequence)

    def _check_runs(self, batch: Batch) -> None:
        opening: dict[tuple[str, str], str] = {}
        for run_id in batch.run_moves:
            invariant(run_id in self.runs, "moved_run_missing", run_id=run_id)
        for run_id, row in batch.runs.items():
            invariant(run_id not in self.runs, "run_row_twice", run_id=run_id)
            key = (row.namespace, row.workflow_id)
            latest = self.latest_runs.get(key)
            again = (
                latest is not None
                and latest not in batch.forgotten_runs
                and self.runs[latest].opened_no == row.opened_no
            )
            invariant(not again, "opened_number_twice", workflow_id=row.workflow_id, run_id=run_id)
            if row.closed_at:
                continue
            other = self.open_runs.get(key)
            move = batch.run_moves.get(other or "")
            closing = move is not None and move.closed_at
            if key in opening or (other is not None and not closing):
                raise InvariantBroken("two_open_runs", workflow_id=row.workflow_id, run_id=run_id, other=other or "")
            opening[key] = run_id

    # Writes.

    def _apply_runs(self, batch: Batch) -> None:
        for move in batch.run_moves.values():
            self._put_run(run_after(self.runs[move.run_id], move))
        for row in batch.runs.values():
            self._put_run(copy(row))
        for page in batch.history:
            pages = self.history.setdefault(page.run_id, [])
            pages.append(copy(page))
            if len(pages) > 1 and pages[-2].first_event_id > page.first_event_id:
                pages.sort(key=lambda row: row.first_event_id)
        for run_id in batch.unparked:
            self.parked.pop(run_id, None)
        for parked in batch.parked:
            self.parked.setdefault(parked.run_id, {})[parked.n] = copy(parked)

    def _put_run(self, row: RunRow) -> None:
        key = (row.namespace, row.workflow_id)
        old = self.runs.get(row.run_id)
        if old is None:
            latest = self.latest_runs.get(key)
            if latest is None or self.runs[latest].opened_no < row.opened_no:
                self.latest_runs[key] = row.run_id
            self.runs_by_start.setdefault(row.namespace, SortedKeys()).add((row.started_at, row.run_id))
            self.runs_named.setdefault((row.namespace, row.workflow_id), []).append(row.run_id)
        elif old.ready_at > 0 and not old.closed_at:
            self.ready_runs.drop((old.ready_at, old.run_id))
        if row.ready_at > 0 and not row.closed_at:
            self.ready_runs.add((row.ready_at, row.run_id))
        if not row.closed_at:
            self.open_runs[key] = row.run_id
        elif self.open_runs.get(key) == row.run_id:
            del self.open_runs[key]
        self.runs[row.run_id] = row

    def _apply_tasks(self, batch: Batch) -> None:
        for move in batch.task_moves.values():
            self._put_task(task_after(self.tasks[move.task_id], move))
        for row in batch.tasks.values():
            self._put_task(copy(row))
        for attempt in batch.attempts:
            rows = self.attempts.setdefault(attempt.task_id, {})
            rows.setdefault((attempt.lease, attempt.late), copy(attempt))

    def _put_task(self, row: TaskRow) -> None:
        old = self.tasks.get(row.task_id)
        if old is None:
            self.tasks_by_enqueue.setdefault(row.namespace, SortedKeys()).add((row.enqueued_at, row.task_id))
        else:
            if old.ready == 1:
                self.ready_tasks[old.namespace, old.queue, old.type].drop((old.order_key, old.task_id))
            if old.state == TaskState.LEASED:
                self.leased_tasks.drop((old.task_id,))
        if row.ready == 1:
            ready = self.ready_tasks.setdefault((row.namespace, row.queue, row.type), SortedKeys())
            ready.add((row.order_key, row.task_id))
        if row.state == TaskState.LEASED:
            self.leased_tasks.add((row.task_id,))
        self.tasks[row.task_id] = row

    def _forget(self, batch: Batch) -> None:
        for run_id in batch.forgotten_runs:
            run = self.runs.get(run_id)
            self.history.pop(run_id, None)
            self.parked.pop(run_id, None)
            self.labels.pop(run_id, None)
            if run is not None and run.closed_at:
                del self.runs[run_id]
                self.runs_by_start[run.namespace].drop((run.started_at, run_id))
                self._forget_latest(run)
        for task_id in batch.forgotten_tasks:
            task = self.tasks.get(task_id)
            self.attempts.pop(task_id, None)
            self.labels.pop(task_id, None)
            if task is not None and task.closed_at:
                del self.tasks[task_id]
                self.tasks_by_enqueue[task.namespace].drop((task.enqueued_at, task_id))

    def _forget_latest(self, run: RunRow) -> None:
        key = (run.namespace, run.workflow_id)
        self.runs_named[key].remove(run.run_id)
        if not self.runs_named[key]:
            del self.runs_named[key]
        if self.latest_runs.get(key) != run.run_id:
            return
        others = [self.runs[run_id] for run_id in self.runs_named.get(key, ())]
        if others:
            self.latest_runs[key] = max(others, key=lambda row: row.opened_no).run_id
        else:
            del self.latest_runs[key]

    def _put_labels(self, row: LabelsRow) -> None:
        values: dict[str, tuple[Value, ...]] = {}
        for name, value in row.items:
            values[name] = (*values.get(name, ()), value)
        self.labels.pop(row.id, None)
        if values:
            self.labels[row.id] = values

    def _apply_timers(self, batch: Batch) -> None:
        for key in batch.dropped_timers:
            if self.timers.pop(key, None) is not None:
                self.timer_order.drop(key)
        for key, timer in batch.timers.items():
            if key not in self.timers:
                self.timer_order.add(key)
            self.timers[key] = timer


def _id_of(message: MessageRow) -> tuple[int, int, int, int]:
    return message.target_shard, message.source_shard, message.incarnation, message.sequence


def _first(keys: Iterator[_K], limit: int) -> Iterator[_K]:
    return islice(keys, max(limit, 0))
