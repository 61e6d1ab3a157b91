"""Bringing rows into memory: what an input needs before it can be applied, the pages of recovery, and eviction.

An input whose entities are not in memory waits while they are read; inputs behind it that need one of the same wait behind
it (``lines``). What is known to be absent is remembered, since only this owner can make it. Memory wins over a page: a page
may be older than what has happened meanwhile, so an entity that was written since the page was asked for cannot have been
evicted.
"""

from dataclasses import dataclass, field
from itertools import islice

from outlast.core.inputs import Poll
from outlast.core.shard import holding, needs, offers
from outlast.core.shard.admitted import Admitted
from outlast.core.shard.damage import open_run, open_task
from outlast.core.shard.histories import flush_parked
from outlast.core.shard.lines import Lines
from outlast.core.shard.needs import Key
from outlast.core.shard.outputs import Ask
from outlast.core.shard.state import Shard, poll_key
from outlast.core.task import LEASED, Task
from outlast.core.writes import (
    Load,
    LoadKeys,
    LoadLeasedTasks,
    LoadReadyRuns,
    LoadReadyTasks,
    LoadTimers,
    Page,
    ParkedRow,
    RunRow,
)

LEASES: Key = ("leases",)  # what polls wait for after a take-over


@dataclass(slots=True)
class OpenLoad:
    """A load that is on its way."""

    load: Load
    committed: int  # number of the last committed batch when it was asked for
    keys: list[Key] = field(default_factory=list[Key])


@dataclass(slots=True)
class Loading:
    """All loads of a shard."""

    next_id: int = 1
    asked: dict[int, OpenLoad] = field(default_factory=dict[int, OpenLoad])
    lines: Lines = field(default_factory=Lines)
    reading: set[Key] = field(default_factory=set[Key])  # keys that were asked for, or are about to be
    wanted: dict[Key, None] = field(default_factory=dict[Key, None])  # keys to be read with the next load
    leases_read: bool = False  # all leases that the new owner found are in memory


def missing(shard: Shard, loading: Loading, admitted: Admitted) -> bool:
    """Return whether ``admitted`` must wait, for rows or behind an input that waits for some; it is then kept.

    A poll waits until all leases have been read: asked again, it must get those that it has, and not others beside them.
    """
    if isinstance(admitted.input, Poll):
        if not loading.leases_read:
            loading.lines.hold(admitted, (LEASES,))
        return not loading.leases_read
    if not loading.lines.held and needs.are_surely_met(shard, admitted):
        return False
    keys = needs.of(shard, admitted)
    absent_keys = [key for key in keys if not needs.known(shard, key)]
    if not absent_keys and not (loading.lines.held and loading.lines.stand_in(keys)):
        return False
    loading.lines.hold(admitted, keys)
    _want(loading, absent_keys)
    return True


def next_ready(shard: Shard, loading: Loading) -> Admitted | None:
    """Take out the oldest input that waited and now has all that it needs; None when there is none.

    What was read may show that it needs more: it then goes on waiting, in its place.
    """
    while (held := loading.lines.next_first()) is not None:
        is_poll = isinstance(held.admitted.input, Poll)
        if is_poll and not loading.leases_read:
            continue  # who stood before it has gone; what it waits for has not come
        keys = [] if is_poll else needs.of(shard, held.admitted)
        absent_keys = [key for key in keys if not needs.known(shard, key)]
        loading.lines.extend(held, keys)
        if not absent_keys and loading.lines.leads(held):
            loading.lines.take(held)
            return held.admitted
        _want(loading, absent_keys)
    return None


def _want(loading: Loading, keys: list[Key]) -> None:
    for key in keys:
        if key not in loading.reading:
            loading.reading.add(key)
            loading.wanted[key] = None


def ask_keys(shard: Shard, loading: Loading) -> None:
    """Ask for everything that inputs of this stretch want, in one load."""
    keys, loading.wanted = list(loading.wanted), {}
    load = LoadKeys(
        workflows=tuple((key[1], key[2]) for key in keys if key[0] == "workflow"),
        runs=tuple(key[1] for key in keys if key[0] == "run"),
        tasks=tuple(key[1] for key in keys if key[0] == "task"),
        dedup=tuple((key[1], key[2], key[3]) for key in keys if key[0] == "dedup"),
    )
    ask(shard, loading, load, keys)


def ask(shard: Shard, loading: Loading, load: Load, keys: list[Key] | None = None) -> None:
    """Have the shell read ``load``."""
    load_id = loading.next_id
    loading.next_id += 1
    loading.asked[load_id] = OpenLoad(load, shard.gate.committed, keys or [])
    shard.outputs.append(Ask(load_id, load))


def recall_runs(shard: Shard, loading: Loading) -> None:
    """Ask for runs on offer that have left memory."""
    for run_id in shard.recalled:
        key: Key = ("run", run_id)
        if run_id not in shard.runs:
            _want(loading, [key])
    shard.recalled = {}


def ask_pages(shard: Shard, loading: Loading) -> None:
    """Ask for the next pages of windows that run short."""
    rows = shard.config.page_rows
    if shard.timers.wants_page():
        shard.timers.loading = True
        assert shard.timers.low is not None
        ask(shard, loading, LoadTimers(after=shard.timers.low, limit=rows))
    names, shard.short = dict.fromkeys(shard.short), []
    for name in names:
        window = shard.ready.get(name)
        if window is not None and window.wants_page():
            window.loading = True
            assert window.low is not None
            namespace, queue, type_name = name
            load = LoadReadyTasks(namespace=namespace, queue=queue, type=type_name, after=window.low, limit=rows)
            ask(shard, loading, load)


def take_in(shard: Shard, loading: Loading, load_id: int, page: Page) -> None:
    """Take a page in. What waited for it comes out of ``next_ready``."""
    asked = loading.asked.pop(load_id)
    names = asked.load.workflows if isinstance(asked.load, LoadKeys) else ()
    _adopt_runs(shard, page.runs, page.parked, latest_of=frozenset(names))
    match asked.load:
        case LoadKeys():
            for row in page.tasks:
                if row.task_id not in shard.forgotten and (task := open_task(shard, row)) is not None:
                    adopt(shard, task)
            for known in page.dedup:
                shard.dedup.setdefault((known.namespace, known.scope, known.key), (known, 0))
            _release(shard, loading, asked.keys)
        case LoadReadyTasks() as load:
            _take_ready(shard, load, page, asked.committed)
        case LoadTimers() as load:
            keys = [(timer.fire_at, timer.timer_id) for timer in page.timers]
            for key, timer in zip(keys, page.timers, strict=True):
                shard.timers.push(key, timer)
            shard.timers.page_read(keys, at_end=len(keys) < load.limit, committed_at_ask=asked.committed)
        case LoadLeasedTasks() as load:
            for row in page.tasks:
                if row.task_id not in shard.forgotten and (task := open_task(shard, row)) is not None:
                    adopt(shard, task)
            if len(page.tasks) >= load.limit:
                ask(shard, loading, LoadLeasedTasks(after=page.tasks[-1].task_id, limit=load.limit))
            else:
                loading.leases_read = True
                loading.lines.moved(LEASES)
        case LoadReadyRuns() as load:
            if len(page.runs) >= load.limit:
                last = page.runs[-1]
                ask(shard, loading, LoadReadyRuns(after=(last.ready_at, last.run_id), limit=load.limit))


def _release(shard: Shard, loading: Loading, keys: list[Key]) -> None:
    for key in keys:
        loading.reading.discard(key)
        if not needs.known(shard, key):
            shard.absent[key] = None
        loading.lines.moved(key)


def _adopt_runs(
    shard: Shard, rows: list[RunRow], parked_rows: list[ParkedRow], *, latest_of: frozenset[tuple[str, str]]
) -> None:
    """Keep runs that were read. An open run is the latest of its workflow id; so is what was read as such."""
    parked: dict[str, list[ParkedRow]] = {}
    for waiting in parked_rows:
        parked.setdefault(waiting.run_id, []).append(waiting)
    latest_read: dict[tuple[str, str], RunRow] = {}
    revived: list[str] = []
    for row in rows:
        name = (row.namespace, row.workflow_id)
        best = latest_read.get(name)
        if name in latest_of and row.run_id not in shard.forgotten and (best is None or best.opened_no < row.opened_no):
            latest_read[name] = row
        if row.run_id in shard.runs or row.run_id in shard.forgotten:
            continue
        run = open_run(shard, row, parked.get(row.run_id, []))
        if run is None:
            continue
        shard.runs[row.run_id] = run
        shard.away.pop(row.run_id, None)
        if run.open:
            shard.latest.setdefault(name, run.run_id)
            revived.append(run.run_id)
    for name, row in latest_read.items():
        if row.run_id in shard.damaged:
            shard.damaged_names[name] = row.run_id
        else:
            shard.latest.setdefault(name, row.run_id)
    for run_id in revived:
        _revive(shard, run_id)


def _revive(shard: Shard, run_id: str) -> None:
    """Offer a run that was read and needs a turn. Parked events are flushed first: the turn they waited for is void."""
    run = shard.runs[run_id]
    if run.parked:
        flush_parked(shard, run)
        offers.need(shard, run)
    offers.offer(shard, run)


def adopt(shard: Shard, task: Task) -> Task:
    """Keep a task that was read, unless memory has it; a running lease is watched from now on."""
    known = shard.tasks.get(task.task_id)
    if known is not None:
        return known
    shard.tasks[task.task_id] = task
    if task.state is LEASED:
        holding.hold(shard, task)
        key = poll_key(task.namespace, task.worker, task.status.poll_id)
        task_ids, given = shard.poll_answers.get(key, ([], []))
        shard.poll_answers[key] = ([*task_ids, task.task_id], given)
        shard.poll_leases += 1
    return task


def _take_ready(shard: Shard, load: LoadReadyTasks, page: Page, committed: int) -> None:
    window = shard.ready[load.namespace, load.queue, load.type]
    keys: list[tuple[int, str]] = []
    for row in page.tasks:
        keys.append((row.order_key, row.task_id))
        if row.task_id in shard.forgotten:
            continue  # the page is older than its end
        opened = open_task(shard, row)
        if opened is None:
            continue
        task = adopt(shard, opened)
        if task.ready and not task.in_window and task.task_id not in shard.hosts:
            task.in_window = True
            window.push((task.order_key, task.task_id), task.task_id)
    window.page_read(keys, at_end=len(keys) < load.limit, committed_at_ask=committed)
    shard.hot[load.namespace, load.queue] = None
    shard.short.append((load.namespace, load.queue, load.type))


def evict(shard: Shard, loading: Loading) -> None:
    """Drop what has not been used for longest while caches are over their bounds."""
    floor = min((asked.committed for asked in loading.asked.values()), default=shard.gate.committed)
    excess = len(shard.runs) - shard.config.runs_cached_max
    if excess > 0:
        _evict_runs(shard, excess, floor)
    excess = len(shard.tasks) - shard.config.tasks_cached_max
    if excess > 0:
        _evict_tasks(shard, excess, floor)
    while len(shard.dedup) > shard.config.dedup_cached_max:
        key = next(iter(shard.dedup))
        if shard.dedup[key][1] > floor:
            break
        del shard.dedup[key]
    while shard.forgotten and next(iter(shard.forgotten.values())) <= floor:
        shard.forgotten.popitem(last=False)
    while len(shard.absent) > shard.config.dedup_cached_max:
        shard.absent.popitem(last=False)


def _evict_runs(shard: Shard, excess: int, floor: int) -> None:
    looked_at = list(islice(shard.runs.values(), 2 * excess + 100))
    for run in looked_at:
        if excess <= 0:
            return
        if run.turn is not None or run.pinned > floor or run.fresh or run.run_id in shard.gather.runs:
            shard.runs.move_to_end(run.run_id)
            continue
        del shard.runs[run.run_id]
        if run.ready_at and run.open:
            shard.away[run.run_id] = None
        if shard.latest.get((run.namespace, run.workflow_id)) == run.run_id:
            del shard.latest[run.namespace, run.workflow_id]
        excess -= 1


def _evict_tasks(shard: Shard, excess: int, floor: int) -> None:
    looked_at = list(islice(shard.tasks.values(), 2 * excess + 100))
    for task in looked_at:
        if excess <= 0:
            return
        held = task.state is LEASED or (task.in_window and task.ready) or task.task_id in shard.hosts
        if held or task.pinned > floor or task.task_id in shard.gather.tasks:
            shard.tasks.move_to_end(task.task_id)
            continue
        del shard.tasks[task.task_id]
        excess -= 1
