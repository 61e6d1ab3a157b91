"""The parts of a commit's one statement, in the order in which they take effect.

A part is a WITH query. Which of them a statement has depends on what the batch holds. PostgreSQL leaves open in which order
such queries run, except that what one reads of another has run before: so each that writes asks for the count of the one
before it. What the batch holds is taken up only where the fence was found, and without it nothing is written.

All see the rows as they were before the statement: ``moved_runs`` and ``moved_tasks`` hold what was and what will be.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, get_args

import msgspec

from outlast.core.writes import AttemptRow, FeedRow, RunMove, RunRow, TaskMove, TaskRow
from outlast.store.postgres.columns import rows_from
from outlast.store.postgres.connection import STATEMENTS_KEPT
from outlast.store.postgres.words import RUN_TROUBLE, TASK_TROUBLE

# The first parameters of every statement: shard, incarnation, epoch, number, at, lease_until, the character between texts, and
# where the shard's row lies.
FIXED: Final = 8
BETWEEN: Final = 7
# By its place, as the counters: each commit makes a new version of these rows, and while somebody has a transaction open none
# of them is removed. By its key the newest would be found behind all others, later and later.
FENCE: Final = """
    UPDATE outlast.shards SET last_number = $4::bigint, last_at = greatest(last_at, $5::bigint),
        lease_until = CASE WHEN $6::bigint > 0 THEN $6::bigint ELSE lease_until END
    WHERE ctid = $8::text::tid AND shard = $1::integer AND incarnation = $2::bigint AND epoch = $3::bigint
        AND last_number = $4::bigint - 1
    RETURNING ctid
"""


@dataclass(slots=True, frozen=True, eq=False)
class Part:
    """One WITH query. ``takes`` are the types of the columns that it is given, of which each row of the batch has one value.

    In ``sql``, ``{rows}`` stands for these rows (a FROM item) and ``{gate}`` for the condition that keeps the order. ``reads``:
    it writes nothing and stands outside the order. ``counted``: it must find as many rows as it was given.
    """

    name: str
    takes: tuple[str, ...]
    sql: str
    reads: bool = False
    counted: bool = False


def _types(row: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(_type(field.type) for field in msgspec.structs.fields(row))


def _type(python: type) -> str:
    if get_args(python):
        raise TypeError(python)
    if issubclass(python, bytes):
        return "bytea"
    return "bigint" if issubclass(python, int) else "text"


def _names(row: type[msgspec.Struct], prefix: str = "") -> str:
    return ", ".join(prefix + name for name in row.__struct_fields__)


def _set(row: type[msgspec.Struct]) -> str:
    return ", ".join(f"{name} = m.{name}" for name in row.__struct_fields__[1:])


def _insert(
    name: str, table: str, columns: str, takes: tuple[str, ...], *, on_conflict: str = "", returning: str = "1"
) -> Part:
    sql = (
        f"INSERT INTO outlast.{table} (shard, {columns}) SELECT $1, u.* FROM {{rows}} AS u WHERE {{gate}} {on_conflict}"
    )
    return Part(name, takes, f"{sql} RETURNING {returning}")


def _delete(name: str, table: str, key: str, takes: tuple[str, ...], *, where: str = "", returning: str = "1") -> Part:
    columns = key.split(", ")
    same = " AND ".join(f"t.{column} = u.{column}" for column in columns)
    return Part(name, takes, _delete_at(table, f"{{rows}} AS u({key})", f"{same}{where}", returning=returning))


def _delete_at(table: str, source: str, same: str, *, where: str = "true", returning: str = "1") -> str:
    """Return the statement that deletes what is found for each row of ``source``.

    Each row is looked up by itself (OFFSET 0 keeps the planner from turning that about): joined, the planner might read a table
    from one end to the other for every row, as long as it takes the table for small.
    """
    found = f"(SELECT t.ctid FROM outlast.{table} t WHERE t.shard = $1 AND {same} OFFSET 0)"
    return (
        f"DELETE FROM outlast.{table} t WHERE t.ctid = ANY (ARRAY(SELECT f.ctid FROM {source} CROSS JOIN LATERAL {found} f "
        f"WHERE {where})) AND {{gate}} RETURNING {returning}"
    )


def _follow(name: str, sql: str) -> Part:
    """Return a part that goes on from what another part returned."""
    return Part(name, (), sql)


TEXT: Final = ("text",)

FORGET: Final = (
    _delete("forget_history", "history", "run_id", TEXT),
    _delete("forget_parked", "parked", "run_id", TEXT),
    _delete("forget_run_labels", "labels", "id", TEXT),
    _delete(
        "forget_runs", "runs", "run_id", TEXT, where=" AND t.closed_at > 0",
        returning="t.namespace, t.status, t.started_at, t.run_id",
    ),
    _follow(
        "forget_run_troubles",
        _delete_at(
            "troubles",
            "forget_runs m",
            "t.namespace = m.namespace AND t.of = 'run' AND t.state = m.status AND t.at = m.started_at AND t.id = m.run_id",
        ),
    ),
)  # fmt: skip
FORGET_TASKS: Final = (
    _delete("forget_attempts", "attempts", "task_id", TEXT),
    _delete("forget_task_labels", "labels", "id", TEXT),
    _delete(
        "forget_tasks", "tasks", "task_id", TEXT, where=" AND t.closed_at > 0",
        returning="t.namespace, t.state, t.enqueued_at, t.task_id",
    ),
    _follow(
        "forget_task_troubles",
        _delete_at(
            "troubles",
            "forget_tasks m",
            "t.namespace = m.namespace AND t.of = 'task' AND t.state = m.state AND t.at = m.enqueued_at AND t.id = m.task_id",
        ),
    ),
)  # fmt: skip

_READY_NOW: Final = "ready_at > 0 AND closed_at = 0"
MOVE_RUNS: Final = (
    Part(
        "moved_runs",
        _types(RunMove),
        "SELECT m.*, r.* FROM {rows} AS m"
        f"({_names(RunMove)}) CROSS JOIN LATERAL (SELECT t.ctid AS place, t.namespace, "
        "t.workflow_id, t.started_at, t.ready_at AS was_ready_at, t.status AS was_status, t.closed_at AS was_closed_at "
        "FROM outlast.runs t WHERE t.run_id = m.run_id AND t.shard = $1 AND (t.closed_at = 0 OR m.closed_at <> 0) OFFSET 0) r "
        "WHERE {gate}",
        reads=True,
        counted=True,
    ),
    _follow(
        "move_runs",
        f"UPDATE outlast.runs r SET {_set(RunMove)} FROM moved_runs m WHERE r.ctid = m.place AND {{gate}} RETURNING 1",
    ),
    _follow(
        "end_open",
        _delete_at(
            "open_runs",
            "moved_runs m",
            "t.namespace = m.namespace AND t.workflow_id = m.workflow_id AND t.run_id = m.run_id",
            where="m.was_closed_at = 0 AND m.closed_at <> 0",
        ),
    ),
    _follow(
        "end_ready_runs",
        _delete_at(
            "ready_runs",
            "moved_runs m",
            "t.ready_at = m.was_ready_at AND t.run_id = m.run_id",
            where="m.was_ready_at > 0 AND m.was_closed_at = 0 AND (m.ready_at <> m.was_ready_at OR m.closed_at <> 0)",
        ),
    ),
    _follow(
        "begin_ready_runs",
        "INSERT INTO outlast.ready_runs SELECT $1, ready_at, run_id FROM moved_runs WHERE ready_at > 0 AND closed_at = 0 "
        "AND (ready_at <> was_ready_at OR was_closed_at <> 0) AND {gate} RETURNING 1",
    ),
    _follow(
        "end_run_troubles",
        _delete_at(
            "troubles",
            "moved_runs m",
            "t.namespace = m.namespace AND t.of = 'run' AND t.state = m.was_status AND t.at = m.started_at AND t.id = m.run_id",
            where=f"m.was_{RUN_TROUBLE} AND m.was_status <> m.status",
        ),
    ),
    _follow(
        "begin_run_troubles",
        "INSERT INTO outlast.troubles SELECT $1, namespace, 'run', status, started_at, run_id FROM moved_runs "
        f"WHERE {RUN_TROUBLE} AND was_status <> status AND {{gate}} RETURNING 1",
    ),
)
ADD_RUNS: Final = (
    Part(
        "add_runs",
        _types(RunRow),
        f"INSERT INTO outlast.runs (shard, {_names(RunRow)}) SELECT $1, u.* FROM {{rows}} AS u WHERE {{gate}} "
        "RETURNING namespace, workflow_id, run_id, closed_at, ready_at, status, started_at",
    ),
    _follow(
        "add_open",
        "INSERT INTO outlast.open_runs SELECT $1, namespace, workflow_id, run_id FROM add_runs WHERE closed_at = 0 "
        "AND {gate} RETURNING 1",
    ),
    _follow(
        "add_ready_runs",
        f"INSERT INTO outlast.ready_runs SELECT $1, ready_at, run_id FROM add_runs WHERE {_READY_NOW} AND {{gate}} RETURNING 1",
    ),
    _follow(
        "add_run_troubles",
        "INSERT INTO outlast.troubles SELECT $1, namespace, 'run', status, started_at, run_id FROM add_runs "
        f"WHERE {RUN_TROUBLE} AND {{gate}} RETURNING 1",
    ),
)

ADD_HISTORY: Final = _insert(
    "add_history", "history", "run_id, first_event_id, count, blob", ("text", "bigint", "bigint", "bytea")
)
DROP_PARKED: Final = _delete("drop_parked", "parked", "run_id", TEXT)
ADD_PARKED: Final = _insert("add_parked", "parked", "run_id, n, blob", ("text", "bigint", "bytea"))

MOVE_TASKS: Final = (
    Part(
        "moved_tasks",
        _types(TaskMove),
        "SELECT m.*, r.* FROM {rows} AS m"
        f"({_names(TaskMove)}) CROSS JOIN LATERAL (SELECT t.ctid AS place, t.namespace, "
        "t.type, t.enqueued_at, t.ready AS was_ready, t.queue AS was_queue, t.order_key AS was_order_key, t.state AS was_state "
        "FROM outlast.tasks t WHERE t.task_id = m.task_id AND t.shard = $1 OFFSET 0) r WHERE {gate}",
        reads=True,
        counted=True,
    ),
    _follow(
        "move_tasks",
        f"UPDATE outlast.tasks t SET {_set(TaskMove)} FROM moved_tasks m WHERE t.ctid = m.place AND {{gate}} RETURNING 1",
    ),
    _follow(
        "end_ready",
        _delete_at(
            "ready_tasks",
            "moved_tasks m",
            "t.namespace = m.namespace AND t.queue = m.was_queue AND t.type = m.type AND t.order_key = m.was_order_key "
            "AND t.task_id = m.task_id",
            where="m.was_ready = 1",
        ),
    ),
    _follow(
        "begin_ready",
        "INSERT INTO outlast.ready_tasks SELECT $1, namespace, queue, type, order_key, task_id, greatest(enqueued_at, run_at) "
        "FROM moved_tasks WHERE ready = 1 AND {gate} RETURNING 1",
    ),
    _follow(
        "end_leased",
        _delete_at(
            "leased_tasks",
            "moved_tasks m",
            "t.task_id = m.task_id",
            where="m.was_state = 'leased' AND m.state <> 'leased'",
        ),
    ),
    _follow(
        "begin_leased",
        "INSERT INTO outlast.leased_tasks SELECT $1, task_id FROM moved_tasks WHERE state = 'leased' AND was_state <> 'leased' "
        "AND {gate} RETURNING 1",
    ),
    _follow(
        "end_task_troubles",
        _delete_at(
            "troubles",
            "moved_tasks m",
            "t.namespace = m.namespace AND t.of = 'task' AND t.state = m.was_state AND t.at = m.enqueued_at "
            "AND t.id = m.task_id",
            where=f"m.was_{TASK_TROUBLE} AND m.was_state <> m.state",
        ),
    ),
    _follow(
        "begin_task_troubles",
        "INSERT INTO outlast.troubles SELECT $1, namespace, 'task', state, enqueued_at, task_id FROM moved_tasks "
        f"WHERE {TASK_TROUBLE} AND was_state <> state AND {{gate}} RETURNING 1",
    ),
)
ADD_TASKS: Final = (
    Part(
        "add_tasks",
        _types(TaskRow),
        f"INSERT INTO outlast.tasks (shard, {_names(TaskRow)}) SELECT $1, u.* FROM {{rows}} AS u WHERE {{gate}} "
        "RETURNING namespace, task_id, queue, type, state, ready, order_key, run_at, enqueued_at",
    ),
    _follow(
        "add_ready",
        "INSERT INTO outlast.ready_tasks SELECT $1, namespace, queue, type, order_key, task_id, greatest(enqueued_at, run_at) "
        "FROM add_tasks WHERE ready = 1 AND {gate} RETURNING 1",
    ),
    _follow(
        "add_leased",
        "INSERT INTO outlast.leased_tasks SELECT $1, task_id FROM add_tasks WHERE state = 'leased' AND {gate} RETURNING 1",
    ),
    _follow(
        "add_task_troubles",
        "INSERT INTO outlast.troubles SELECT $1, namespace, 'task', state, enqueued_at, task_id FROM add_tasks "
        f"WHERE {TASK_TROUBLE} AND {{gate}} RETURNING 1",
    ),
)
ADD_ATTEMPTS: Final = _insert("add_attempts", "attempts", _names(AttemptRow), _types(AttemptRow))
ADD_LATE_ATTEMPTS: Final = _insert(
    "add_late_attempts", "attempts", _names(AttemptRow), _types(AttemptRow), on_conflict="ON CONFLICT DO NOTHING"
)
DROP_TIMERS: Final = _delete("drop_timers", "timers", "fire_at, timer_id", ("bigint", "text"))
SET_TIMERS: Final = _insert(
    "set_timers", "timers", "fire_at, timer_id, kind, target", ("bigint", "text", "text", "text"),
    on_conflict="ON CONFLICT (shard, fire_at, timer_id) DO UPDATE SET kind = excluded.kind, target = excluded.target",
)  # fmt: skip
SET_DEDUP: Final = _insert(
    "set_dedup", "dedup", "namespace, scope, key, id, fingerprint, expires_at, period",
    ("text", "text", "text", "text", "text", "bigint", "bigint"),
    on_conflict="ON CONFLICT (shard, namespace, scope, key) DO UPDATE SET id = excluded.id, "
    "fingerprint = excluded.fingerprint, expires_at = excluded.expires_at, period = excluded.period",
)  # fmt: skip
MOVE_COUNTERS: Final = Part(
    "move_counters",
    ("text", "text", "bigint", "text"),
    # Compared in a way that no index serves, so that the place is all that rows can be found by.
    "UPDATE outlast.counters t SET value = u.c3 FROM {rows} AS u WHERE t.ctid = u.c4::tid AND t.shard IS NOT DISTINCT FROM $1 "
    "AND t.namespace IS NOT DISTINCT FROM u.c1 AND t.name IS NOT DISTINCT FROM u.c2 AND {gate} "
    "RETURNING t.namespace, t.name, t.ctid",
    counted=True,
)
SET_COUNTERS: Final = _insert(
    "set_counters", "counters", "namespace, name, value", ("text", "text", "bigint"),
    on_conflict="ON CONFLICT (shard, namespace, name) DO UPDATE SET value = excluded.value",
    returning="namespace, name, ctid",
)  # fmt: skip
DROP_LABELS: Final = _delete("drop_labels", "labels", "id", TEXT)
ADD_LABELS: Final = _insert(
    "add_labels", "labels", "id, name, n, kind, text, number, namespace, of, at",
    ("text", "text", "bigint", "bigint", "text", "numeric", "text", "text", "bigint"),
)  # fmt: skip
SET_NAMESPACES: Final = _insert(
    "set_namespaces", "namespaces", "name, created_at, settings", ("text", "bigint", "bytea"),
    on_conflict="ON CONFLICT (shard, name) DO UPDATE SET created_at = excluded.created_at, settings = excluded.settings",
)  # fmt: skip
DROP_NAMESPACES: Final = _delete("drop_namespaces", "namespaces", "name", TEXT)
DROP_COUNTERS: Final = _delete("drop_counters", "counters", "namespace", TEXT)
DROP_FEEDS: Final = _delete("drop_feeds", "feed", "namespace", TEXT)
DROP_FEED_FLOORS: Final = _delete("drop_feed_floors", "feed_floors", "namespace", TEXT)
ADD_FEED: Final = _insert("add_feed", "feed", _names(FeedRow), _types(FeedRow))
ADD_MESSAGES: Final = _insert(
    "add_messages", "outbox", "target_shard, source_shard, incarnation, sequence, blob",
    ("bigint", "bigint", "bigint", "bigint", "bytea"),
)  # fmt: skip
SET_RECEIVED: Final = _insert(
    "set_received", "received", "source, incarnation, mark", ("bigint", "bigint", "bigint"),
    on_conflict="ON CONFLICT (shard, source, incarnation) DO UPDATE SET mark = excluded.mark",
)  # fmt: skip

_HELD: Final = "(SELECT count(*) FROM fence) = 1"

_PLACES: Final = """
    (SELECT ctid::text FROM fence) AS place, (SELECT array_agg(ARRAY[namespace, name, ctid::text]) FROM (
        SELECT * FROM move_counters UNION ALL SELECT * FROM set_counters) c) AS counters
"""


@lru_cache(maxsize=STATEMENTS_KEPT)
def statement_of(parts: tuple[Part, ...]) -> str:
    """Return the statement that has these parts, behind the fence.

    Its one row says whether the fence held, and where the shard's row and the counters that it wrote lie from now on.

    The parameters of a part that takes rows are their count and their columns. What goes on from another part finds nothing
    there without the fence.
    """
    queries = [f"fence AS ({FENCE})"]
    taken, before, checks = FIXED, "fence", list[str]()
    for part in parts:
        count, rows = taken + 1, ""
        if part.takes:
            rows, taken = rows_from(part.takes, taken, BETWEEN)
        gate = _HELD if part.reads or before == "fence" else f"(SELECT count(*) FROM {before}) >= 0"
        if part.takes and gate != _HELD:
            gate = f"{_HELD} AND {gate}"
        queries.append(f"{part.name} AS ({part.sql.replace('{rows}', rows).replace('{gate}', gate)})")
        if part.counted:
            # A division by zero undoes the whole statement: an entity that the core takes for stored is not there.
            found = f"((SELECT count(*) FROM {part.name}) = ${count}::integer)::int"
            checks.append(f"CASE WHEN {_HELD} THEN 1 / {found} ELSE 1 END")
        if not part.reads:
            before = part.name
    return f"WITH {', '.join(queries)} SELECT {', '.join([f'{_HELD} AS held', _PLACES, *checks])}"
