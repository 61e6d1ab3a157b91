"""Reads in a session: pages, histories, attempts. Each sees one committed state."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, assert_never

from outlast.core import codec, limits
from outlast.core.admin import NamespaceInfo
from outlast.core.writes import (
    AttemptRow,
    DedupRow,
    HistoryRow,
    Load,
    LoadKeys,
    LoadLeasedTasks,
    LoadReadyRuns,
    LoadReadyTasks,
    LoadTimers,
    Page,
    ParkedRow,
    RunRow,
    TaskRow,
    TimerRow,
)
from outlast.store.base import Turns, Waiting
from outlast.store.compression import unpack
from outlast.store.postgres.session import Reads
from outlast.store.postgres.text import Rows, escaped, unescaped
from outlast.store.postgres.words import ATTEMPT, RUN, TASK

RUNS: Final = Rows(RunRow)
TASKS: Final = Rows(TaskRow)
ATTEMPTS: Final = Rows(AttemptRow)
TIMERS: Final = Rows(TimerRow)
DEDUP: Final = Rows(DedupRow)

PAGES_A_READ: Final = 64  # of a history

_PARKED: Final = (
    "ARRAY(SELECT p.n FROM outlast.parked p WHERE p.shard = r.shard AND p.run_id = r.run_id ORDER BY p.n), "
    "ARRAY(SELECT p.blob FROM outlast.parked p WHERE p.shard = r.shard AND p.run_id = r.run_id ORDER BY p.n)"
)
# The keys come first, numbered, so that their order is that of the rows. Each is looked up by itself (OFFSET 0), however small
# the planner takes the table for.
_RUNS_BY_WORKFLOW: Final = f"""
    SELECT {RUN}, {_PARKED} FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS k(namespace, workflow_id, n)
    CROSS JOIN LATERAL (SELECT * FROM outlast.runs l WHERE l.shard = $1 AND l.namespace = k.namespace
        AND l.workflow_id = k.workflow_id ORDER BY l.opened_no DESC LIMIT 1) r ORDER BY k.n
"""
_RUNS_BY_ID: Final = f"""
    SELECT {RUN}, {_PARKED} FROM unnest($2::text[]) WITH ORDINALITY AS k(run_id, n)
    CROSS JOIN LATERAL (SELECT * FROM outlast.runs t
        WHERE t.run_id = k.run_id AND t.shard = $1 OFFSET 0) r ORDER BY k.n
"""
_TASKS_BY_ID: Final = f"""
    SELECT {TASK} FROM unnest($2::text[]) WITH ORDINALITY AS k(task_id, n)
    CROSS JOIN LATERAL (SELECT * FROM outlast.tasks t
        WHERE t.task_id = k.task_id AND t.shard = $1 OFFSET 0) r ORDER BY k.n
"""
_DEDUP_BY_KEY: Final = """
    SELECT r.namespace, r.scope, r.key, r.id, r.fingerprint, r.expires_at, r.period
    FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS k(namespace, scope, key, n)
    CROSS JOIN LATERAL (SELECT * FROM outlast.dedup t
        WHERE t.namespace = k.namespace AND t.scope = k.scope AND t.key = k.key AND t.shard = $1 OFFSET 0) r
    ORDER BY k.n
"""
_READY_TASKS: Final = f"""
    SELECT {TASK} FROM (SELECT task_id, order_key FROM outlast.ready_tasks WHERE shard = $1 AND namespace = $2 AND queue = $3
        AND type = $4 AND (order_key, task_id) > ($5, $6) ORDER BY order_key, task_id LIMIT $7) k
    CROSS JOIN LATERAL (SELECT * FROM outlast.tasks t
        WHERE t.task_id = k.task_id AND t.shard = $1 OFFSET 0) r ORDER BY k.order_key, k.task_id
"""
_TIMERS: Final = """
    SELECT fire_at, timer_id, kind, target FROM outlast.timers WHERE shard = $1 AND (fire_at, timer_id) > ($2, $3)
    ORDER BY fire_at, timer_id LIMIT $4
"""
_READY_RUNS: Final = f"""
    SELECT {RUN}, {_PARKED} FROM (SELECT ready_at, run_id FROM outlast.ready_runs
        WHERE shard = $1 AND (ready_at, run_id) > ($2, $3) ORDER BY ready_at, run_id LIMIT $4) k
    CROSS JOIN LATERAL (SELECT * FROM outlast.runs t
        WHERE t.run_id = k.run_id AND t.shard = $1 OFFSET 0) r ORDER BY k.ready_at, k.run_id
"""
_LEASED_TASKS: Final = f"""
    SELECT {TASK} FROM (SELECT task_id FROM outlast.leased_tasks WHERE shard = $1 AND task_id > $2
        ORDER BY task_id LIMIT $3) k
    CROSS JOIN LATERAL (SELECT * FROM outlast.tasks t
        WHERE t.task_id = k.task_id AND t.shard = $1 OFFSET 0) r ORDER BY k.task_id
"""
_HISTORY_FROM: Final = """
    SELECT coalesce(max(first_event_id), $3) FROM outlast.history WHERE shard = $1 AND run_id = $2 AND first_event_id <= $3
"""
_HISTORY: Final = f"""
    SELECT first_event_id, count, blob FROM outlast.history
    WHERE shard = $1 AND run_id = $2 AND first_event_id >= $3 ORDER BY first_event_id LIMIT {PAGES_A_READ}
"""
_ATTEMPTS: Final = f"SELECT {ATTEMPT} FROM outlast.attempts WHERE shard = $1 AND task_id = $2 ORDER BY lease, late"
# Queues: from one type to the next, a bounded count, and the head of the line.
_WAITING: Final = """
    WITH RECURSIVE types (type) AS (
        (SELECT type FROM outlast.ready_tasks WHERE shard = $1 AND namespace = $2 AND queue = $3 ORDER BY type LIMIT 1)
        UNION ALL SELECT (SELECT q.type FROM outlast.ready_tasks q WHERE q.shard = $1 AND q.namespace = $2 AND q.queue = $3
            AND q.type > t.type ORDER BY q.type LIMIT 1) FROM types t WHERE t.type IS NOT NULL
    )
    SELECT t.type, (SELECT count(*) FROM (SELECT 1 FROM outlast.ready_tasks q WHERE q.shard = $1 AND q.namespace = $2
        AND q.queue = $3 AND q.type = t.type LIMIT $4) c) AS count,
        (SELECT min(since) FROM (SELECT since FROM outlast.ready_tasks q WHERE q.shard = $1 AND q.namespace = $2
            AND q.queue = $3 AND q.type = t.type ORDER BY q.order_key, q.task_id LIMIT $5) h) AS since
    FROM types t WHERE t.type IS NOT NULL LIMIT $6
"""
_TURNS: Final = """
    SELECT r.namespace, r.queue, r.type, count(*) AS ready, min(k.ready_at) AS since
    FROM (SELECT ready_at, run_id FROM outlast.ready_runs WHERE shard = $1 ORDER BY ready_at, run_id LIMIT $2) k
    CROSS JOIN LATERAL (SELECT * FROM outlast.runs t
        WHERE t.run_id = k.run_id AND t.shard = $1 OFFSET 0) r
    GROUP BY r.namespace, r.queue, r.type ORDER BY r.namespace, r.queue, r.type
"""
_NAMESPACES: Final = "SELECT settings FROM outlast.namespaces WHERE shard = $1 ORDER BY name"
_COUNTERS: Final = "SELECT name, value FROM outlast.counters WHERE shard = $1 AND namespace = $2"


async def load(reads: Reads, wanted: Load) -> Page:
    """Return the page that ``wanted`` asks for."""
    match wanted:
        case LoadKeys():
            return await _load_keys(reads, wanted)
        case LoadReadyTasks(namespace=namespace, queue=queue, type=type_, after=(key, after), limit=limit):
            place = (*map(escaped, (namespace, queue, type_)), key, escaped(after))
            return Page(tasks=TASKS.read(await reads.fetch(_READY_TASKS, *place, max(limit, 0))))
        case LoadTimers(after=(at, after), limit=limit):
            return Page(timers=TIMERS.read(await reads.fetch(_TIMERS, at, escaped(after), max(limit, 0))))
        case LoadReadyRuns(after=(at, after), limit=limit):
            return _with_parked(await reads.fetch(_READY_RUNS, at, escaped(after), max(limit, 0)))
        case LoadLeasedTasks(after=after, limit=limit):
            return Page(tasks=TASKS.read(await reads.fetch(_LEASED_TASKS, escaped(after), max(limit, 0))))
        case _:
            assert_never(wanted)


async def read_history(reads: Reads, run_id: str, *, first_event_id: int, events_max: int) -> list[HistoryRow]:
    """Return pages from the one that holds ``first_event_id`` until ``events_max`` events from there are covered."""
    pages: list[HistoryRow] = []
    if events_max <= 0:
        return pages
    ((begin,),) = await reads.fetch(_HISTORY_FROM, escaped(run_id), first_event_id)
    while True:
        found = await reads.fetch(_HISTORY, escaped(run_id), begin)
        for first, count, blob in found:
            begin = first + 1
            if first + count <= first_event_id:
                continue
            pages.append(HistoryRow(run_id, first, count, unpack(blob)))
            if first + count - first_event_id >= events_max:
                return pages
        if len(found) < PAGES_A_READ:
            return pages


async def read_attempts(reads: Reads, task_id: str) -> list[AttemptRow]:
    """Return how the leases of a task ended, in order of (lease, late)."""
    return ATTEMPTS.read(await reads.fetch(_ATTEMPTS, escaped(task_id)))


async def read_waiting(reads: Reads, namespace: str, queue: str) -> list[Waiting]:
    """Return what waits in a queue, by type, from the table of ready tasks alone."""
    most = limits.QUEUE_COUNT_MAX
    found = await reads.fetch(
        _WAITING, escaped(namespace), escaped(queue), most + 1, limits.QUEUE_HEAD_ROWS, limits.QUEUES_SHOWN_MAX
    )
    return [Waiting(unescaped(type_), min(count, most), since, count > most) for type_, count, since in found]


async def read_turns(reads: Reads) -> list[Turns]:
    """Return which queues' runs need a workflow task."""
    found = await reads.fetch(_TURNS, limits.QUEUE_COUNT_MAX)
    return [
        Turns(unescaped(namespace), unescaped(queue), unescaped(type_), ready, since)
        for namespace, queue, type_, ready, since in found
    ]


async def read_namespaces(reads: Reads) -> dict[str, NamespaceInfo]:
    """Return the namespaces by name."""
    found = [codec.decode_namespace(blob) for (blob,) in await reads.fetch(_NAMESPACES)]
    return {info.name: info for info in found}


async def read_counters(reads: Reads, namespace: str) -> dict[str, int]:
    """Return the counters of a namespace by name."""
    return {unescaped(name): value for name, value in await reads.fetch(_COUNTERS, escaped(namespace))}


async def _load_keys(reads: Reads, wanted: LoadKeys) -> Page:
    kinds = sum(map(bool, (wanted.workflows, wanted.runs, wanted.tasks, wanted.dedup)))
    if kinds <= 1:
        return await _load_found(reads, wanted)  # one statement sees one commit by itself
    async with one_state(reads):
        return await _load_found(reads, wanted)


async def _load_found(reads: Reads, wanted: LoadKeys) -> Page:
    found: list[Any] = []
    if wanted.workflows:
        found += await reads.fetch(_RUNS_BY_WORKFLOW, *_columns(wanted.workflows))
    if wanted.runs:
        known = {row["run_id"] for row in found}
        found += [row for row in await reads.fetch(_RUNS_BY_ID, *_columns(wanted.runs)) if row["run_id"] not in known]
    page = _with_parked(found)
    if wanted.tasks:
        page.tasks = TASKS.read(await reads.fetch(_TASKS_BY_ID, *_columns(wanted.tasks)))
    if wanted.dedup:
        page.dedup = DEDUP.read(await reads.fetch(_DEDUP_BY_KEY, *_columns(wanted.dedup)))
    return page


def _columns(keys: Sequence[str | tuple[str, ...]]) -> list[list[str]]:
    """Return the keys, each once, as columns."""
    rows = [(key,) if isinstance(key, str) else key for key in dict.fromkeys(keys)]
    return [[escaped(text) for text in column] for column in zip(*rows, strict=True)]


def _with_parked(found: Sequence[Any]) -> Page:
    rows = [tuple(row) for row in found]
    runs: list[RunRow] = RUNS.read([row[:-2] for row in rows])
    parked = [
        ParkedRow(run.run_id, n, blob)
        for run, row in zip(runs, rows, strict=True)
        for n, blob in zip(row[-2], row[-1], strict=True)
    ]
    return Page(runs=runs, parked=parked)


@asynccontextmanager
async def one_state(reads: Reads) -> AsyncGenerator[None]:
    """Let several statements see the same commit, although the owner goes on between them."""
    await reads.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    except BaseException:
        reads.spoiled = True  # it may be in the middle of anything: the session is not used again
        raise
    await reads.execute("COMMIT")
