"""What a shard has in memory, in one place: the modules beside this one are functions over it."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

from outlast.core.admin import NamespaceInfo
from outlast.core.counters import counter_of
from outlast.core.errors import Busy
from outlast.core.inputs import Poll, QueryWorkflow
from outlast.core.replies import Reply, RunStatus, TaskState
from outlast.core.run import Run
from outlast.core.shard.admitted import Internal
from outlast.core.shard.config import ShardConfig
from outlast.core.shard.expiries import Expiries
from outlast.core.shard.gate import Gate
from outlast.core.shard.gather import Gather
from outlast.core.shard.outputs import Output
from outlast.core.shard.window import Window
from outlast.core.task import Task
from outlast.core.writes import Claim, DedupRow, TimerRow

QueueName = tuple[str, str]  # namespace, task queue
TaskQueue = tuple[str, str, str]  # namespace, task queue, type
WorkerName = tuple[str, str]  # namespace, name: names of one namespace say nothing in another
Told = tuple[tuple[str, ...], tuple[str, ...]]  # types of tasks, types of workflows: what a poll is for

POLLS_TOLD_MAX: Final = 3  # kinds of poll by which a worker is described; ours makes three
WORKERS_LOOKED_AT: Final = 100  # at once, when there are too many to remember


def poll_key(namespace: str, worker: str, poll_id: str) -> str:
    """Return what tells one poll from every other: its id is a worker's own, and says nothing to another's."""
    return f"{namespace}\x1f{worker}\x1f{poll_id}"


@dataclass(slots=True, eq=False)
class WaitingPoll:
    """A worker's request for work that is held."""

    ticket: object
    namespace: str
    poll: Poll
    until: int

    @property
    def key(self) -> str:
        return poll_key(self.namespace, self.poll.worker, self.poll.poll_id)


class Waiter(msgspec.Struct, frozen=True, gc=False):
    """A caller who waits for a run or a task to close."""

    ticket: object
    namespace: str
    follow: bool = True


@dataclass(slots=True, eq=False)
class WorkerSeen:
    """What is known of a worker process."""

    name: WorkerName
    leases: int = 0
    polls: int = 0  # held for it now
    seen_at: int = 0
    suspect: str = ""  # the suspect task that this worker runs, or will run once it is idle
    stopped: bool = False
    identity: str = ""  # with ``build`` from its lease, until it says more itself
    build: str = ""
    told: dict[Told, Poll] = field(default_factory=dict[Told, Poll])  # its last of each kind, the latest last

    def tell(self, poll: Poll) -> None:
        """Keep what ``poll`` says of its worker. Workers poll apart for plain tasks, for coroutines and for turns."""
        kind = (poll.task_types, poll.workflow_types)
        self.told.pop(kind, None)
        self.told[kind] = poll
        if len(self.told) > POLLS_TOLD_MAX:
            del self.told[next(iter(self.told))]


@dataclass(slots=True, eq=False)
class OpenQuery:
    """A question to the code of a run that is not answered yet."""

    number: int
    ticket: object
    namespace: str
    run_id: str
    request: QueryWorkflow
    until: int
    given: bool = False  # a worker has it
    asked_at: int = 0  # when it was first offered, or given out last


@dataclass(slots=True)
class Fair:
    """Start-time fair queueing of one (namespace, task queue)."""

    counter: tuple[str, str]  # namespace and name of the counter that keeps the highest pass
    virtual: int = 0  # order key of what was given out last
    last: dict[str, int] = field(default_factory=dict[str, int])  # fairness key -> its last pass
    floor: int = 0  # where a key that is not in `last` stands at least
    highest: int = 0  # of all passes
    moved: bool = False  # `highest` has to be written with the batch that gathers


@dataclass(slots=True, eq=False)
class Shard:
    """One shard in its owner's memory. All of it may be dropped at any moment and read again from the store."""

    config: ShardConfig
    claim: Claim
    now: int
    gate: Gate
    gather: Gather
    timers: Window[TimerRow]
    stalled_at: int  # leases from before it have a fresh term from then on (ARCHITECTURE §3)
    serve_until: int  # before it reads may be answered from memory
    outputs: list[Output] = field(default_factory=list[Output])
    in_flight: int = 0  # number of the batch that is being committed, 0 for none
    in_flight_lease_until: int = 0
    stepped_down: str = ""
    renew_at: int = 0
    freshest: int = 0  # the highest rank of an id that was ever stored, or will be with the batch that gathers

    runs: OrderedDict[str, Run] = field(default_factory=OrderedDict[str, Run])
    latest: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])  # -> run id, of cached runs
    tasks: OrderedDict[str, Task] = field(default_factory=OrderedDict[str, Task])
    dedup: OrderedDict[tuple[str, str, str], tuple[DedupRow, int]] = field(
        default_factory=OrderedDict[tuple[str, str, str], tuple[DedupRow, int]]
    )  # with the number of the batch that writes it
    absent: OrderedDict[tuple[str, ...], None] = field(default_factory=OrderedDict[tuple[str, ...], None])
    counters: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    namespaces: dict[str, NamespaceInfo] = field(default_factory=dict[str, NamespaceInfo])
    namespaces_gone: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])  # removed by this owner
    forgotten: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    """Runs and tasks with the number of the batch that removes them: a page that was asked for before may still hold them."""

    damaged: dict[str, str] = field(default_factory=dict[str, str])  # runs and tasks that cannot be opened, and why
    stranded: set[str] = field(default_factory=set[str])  # tasks with a lease that is over, of runs among ``damaged``
    damaged_names: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Workflows whose latest run is one of them -> run id."""

    ready: dict[TaskQueue, Window[str]] = field(default_factory=dict[TaskQueue, Window[str]])
    short: list[TaskQueue] = field(default_factory=list[TaskQueue])  # windows whose next page should be asked for
    hosts: dict[str, WorkerName] = field(
        default_factory=dict[str, WorkerName]
    )  # suspect task -> worker that takes it when idle
    fair: dict[QueueName, Fair] = field(default_factory=dict[QueueName, Fair])
    fairs_moved: list[Fair] = field(default_factory=list[Fair])
    offers: dict[TaskQueue, deque[str]] = field(default_factory=dict[TaskQueue, deque[str]])  # runs that need a turn
    held: dict[TaskQueue, dict[str, None]] = field(
        default_factory=dict[TaskQueue, dict[str, None]]
    )  # runs whose turn failed and waits to be tried again
    sticky: dict[tuple[str, str, str, str], deque[str]] = field(
        default_factory=dict[tuple[str, str, str, str], deque[str]]
    )  # namespace, task queue, type, worker -> runs that wait for it
    away: dict[str, None] = field(default_factory=dict[str, None])  # runs that need a turn and have left memory
    recalled: dict[str, None] = field(default_factory=dict[str, None])  # runs on offer that must be read again
    polls: dict[QueueName, dict[str, WaitingPoll]] = field(default_factory=dict[QueueName, dict[str, WaitingPoll]])
    poll_of: dict[str, WaitingPoll] = field(default_factory=dict[str, WaitingPoll])  # poll key -> held poll
    poll_of_ticket: dict[object, WaitingPoll] = field(default_factory=dict[object, WaitingPoll])
    poll_answers: OrderedDict[str, tuple[list[str], list[tuple[str, int]]]] = field(
        default_factory=OrderedDict[str, tuple[list[str], list[tuple[str, int]]]]
    )  # poll key -> leased tasks, (run, dispatch)
    poll_leases: int = 0  # how many all of those answers have
    workers: OrderedDict[WorkerName, WorkerSeen] = field(default_factory=OrderedDict[WorkerName, WorkerSeen])
    types_seen: OrderedDict[TaskQueue, int] = field(
        default_factory=OrderedDict[TaskQueue, int]
    )  # "w:" or "t:" type -> last polled; the oldest first
    queues: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # of each namespace, those with counters
    queries: dict[int, OpenQuery] = field(default_factory=dict[int, OpenQuery])  # by number, the oldest first
    queries_asked: int = 0  # under this fence
    dispatches: int = 0  # workflow tasks given out under this fence
    turns: int = 0  # of them, in workers' hands now
    leased: int = 0  # tasks in workers' hands now, as far as loaded
    hot: dict[QueueName, None] = field(default_factory=dict[QueueName, None])  # where matching may find something

    follow_ups: list[Internal] = field(default_factory=list[Internal])  # inputs that inputs gave rise to
    expiries: Expiries = field(default_factory=Expiries)
    waiters: dict[str, dict[object, Waiter]] = field(default_factory=dict[str, dict[object, Waiter]])
    waiting: dict[object, str] = field(default_factory=dict[object, str])  # ticket -> entity id

    def saw(self) -> int:
        """Return the number of the batch whose state an answer given now sees."""
        return self.gather.number if self.gather.dirty else self.gather.number - 1

    def batch_is_full(self) -> bool:
        """Return whether the batch that gathers has as many rows or bytes as one may have."""
        gather, config = self.gather, self.config
        return gather.bytes >= config.batch_bytes_max or gather.rows() >= config.batch_rows_max

    def answer(self, ticket: object, reply: Reply) -> None:
        """Answer ``ticket`` once what it tells of is committed. Internal inputs have the ticket None."""
        if ticket is not None:
            self.gate.answer(self.outputs, ticket, reply, saw=self.saw())

    def count(self, namespace: str, name: str, by: int) -> None:
        """Move a stored counter."""
        key = (namespace, name)
        value = self.counters.get(key, 0) + by
        self.counters[key] = value
        self.gather.counters[key] = value

    def count_task(self, task: Task, was: TaskState | None) -> None:
        """Keep the counters of a queue's tasks by state equal to a recount."""
        if was is task.state:
            return
        moved = self.gather.moved
        if was is not None:
            key = (task.namespace, task.queue, was)
            moved[key] = moved.get(key, 0) - 1
        key = (task.namespace, task.queue, task.state)
        moved[key] = moved.get(key, 0) + 1

    def count_run(self, run: Run, was: RunStatus | None) -> None:
        """Keep the counters of runs by status equal to a recount."""
        moved = self.gather.moved
        if was is not None:
            key = (run.namespace, "", was)
            moved[key] = moved.get(key, 0) - 1
        key = (run.namespace, "", run.status)
        moved[key] = moved.get(key, 0) + 1

    def settle_counters(self) -> None:
        """Bring the moves of this batch into the counters that it writes: one row each, however many moved."""
        for (namespace, queue, state), by in self.gather.moved.items():
            if by:
                self.count(namespace, counter_of(queue, state), by)
        for fair in self.fairs_moved:
            self.counters[fair.counter] = self.gather.counters[fair.counter] = fair.highest
            fair.moved = False
        self.fairs_moved.clear()

    def expire_at(self, at: int, kind: str, target: str, n: int) -> None:
        """Have ``kind`` looked at when ``at`` has come. Entries are never removed; they are checked when they come up."""
        self.expiries.put(at, kind, target, n)

    def worker(self, namespace: str, worker: str) -> WorkerSeen:
        """Return what is known of a worker process, noting that it was heard of now."""
        name = (namespace, worker)
        seen = self.workers.get(name)
        if seen is None:
            seen = self.workers[name] = WorkerSeen(name)
        else:
            self.workers.move_to_end(name)
        seen.seen_at = self.now
        if len(self.workers) > self.config.workers_max:
            self._forget_workers()
        return seen

    def _forget_workers(self) -> None:
        """Forget who was not heard of for longest and has nothing in hand. Nothing is lost: it is met anew."""
        for seen in list(islice(self.workers.values(), WORKERS_LOOKED_AT)):
            if len(self.workers) <= self.config.workers_max:
                return
            if seen.leases or seen.polls:
                self.workers.move_to_end(seen.name)
            else:
                del self.workers[seen.name]

    def end_after_stall(self, end: int, *, since: int, term: int) -> int:
        """Return when something given out at ``since`` ends: at ``end``, or ``term`` after a stall that came between."""
        return max(end, self.stalled_at + term) if since <= self.stalled_at else end

    def waiters_of(self, entity_id: str) -> list[Waiter]:
        """Take out the callers who wait for ``entity_id`` to close."""
        found = self.waiters.pop(entity_id, None)
        if not found:
            return []
        for ticket in found:
            self.waiting.pop(ticket, None)
        return list(found.values())

    def add_waiter(self, entity_id: str, waiter: Waiter) -> None:
        """Hold a caller until the entity closes.

        Raises:
            Busy: as many wait as may.
        """
        if len(self.waiting) >= self.config.waiters_max:
            raise Busy("busy", f"{self.config.waiters_max} callers wait for results.", remedy="Ask again later.")
        waiters = self.waiters.get(entity_id)
        if waiters is None:
            self.waiters[entity_id] = {waiter.ticket: waiter}
        else:
            waiters[waiter.ticket] = waiter
        self.waiting[waiter.ticket] = entity_id
