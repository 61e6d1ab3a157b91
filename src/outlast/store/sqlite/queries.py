"""The statements of the SQLite store.

Those that write rows take all fields of the struct in order (``column3`` is the third field), so that one C call turns a row
into its values. ``MOVE_OPEN_RUN`` leaves out ``closed_at``, so that the index of open runs is rewritten only when a run closes.
"""

from typing import Final

from outlast.core.writes import AttemptRow, RunMove, RunRow, TaskMove, TaskRow
from outlast.store.sqlite.bulk import Bulk

RUN: Final = ", ".join(RunRow.__struct_fields__)
TASK: Final = ", ".join(TaskRow.__struct_fields__)
ATTEMPT: Final = ", ".join(AttemptRow.__struct_fields__)


# A statement that fails undoes the whole transaction (OR ROLLBACK): then SQLite keeps no copies of pages to undo it alone.


def _insert(table: str, width: int, *, verb: str = "INSERT OR ROLLBACK") -> Bulk:
    return Bulk(f"{verb} INTO {table} VALUES ", width=width)


def _move(table: str, fields: tuple[str, ...], *, without: str = "", where: str = "") -> Bulk:
    key, *moving = fields
    numbered = [(n, name) for n, name in enumerate(moving, 2) if name != without]
    many = ", ".join(f"{name} = moved.column{n}" for n, name in numbered)
    one = ", ".join(f"{name} = ?{n}" for n, name in numbered)
    update = f"UPDATE OR ROLLBACK {table} SET"
    return Bulk(
        f"{update} {many} FROM (VALUES ",
        f") AS moved WHERE {table}.{key} = moved.column1{where}",
        width=len(fields),
        single=f"{update} {one} WHERE {key} = ?1{where}",
    )


# The shard.
READ_SHARD: Final = "SELECT incarnation, epoch, owner, lease_until, last_number, last_at FROM shards WHERE shard = ?"
ADD_SHARD: Final = "INSERT INTO shards VALUES (?, ?, 0, '', 0, 0, 0)"
CLAIM: Final = "UPDATE shards SET incarnation = ?, epoch = epoch + 1, owner = ?, lease_until = ? WHERE shard = ?"
RELEASE: Final = "UPDATE shards SET owner = '', lease_until = 0 WHERE shard = ? AND incarnation = ? AND epoch = ?"
READ_COUNTERS: Final = "SELECT namespace, name, value FROM counters"
READ_RECEIVED: Final = "SELECT source, incarnation, mark FROM received"
READ_INCARNATION: Final = "SELECT value FROM meta WHERE key = 'incarnation'"
READ_IDENTITY: Final = "SELECT key, value FROM meta WHERE key IN ('identity', 'incarnation')"

# One commit.
FENCE: Final = (
    "UPDATE shards SET last_number = ?4, last_at = max(last_at, ?5), lease_until = iif(?6 > 0, ?6, lease_until) "
    "WHERE shard = ?1 AND incarnation = ?2 AND epoch = ?3 AND last_number = ?4 - 1"
)
ADD_RUN: Final = _insert("runs", len(RunRow.__struct_fields__))
MOVE_RUN: Final = _move("runs", RunMove.__struct_fields__)
MOVE_OPEN_RUN: Final = _move("runs", RunMove.__struct_fields__, without="closed_at", where=" AND runs.closed_at = 0")
ADD_HISTORY: Final = _insert("history", 4)
DROP_PARKED: Final = Bulk("DELETE FROM parked WHERE run_id IN (", ")", width=1)
ADD_PARKED: Final = _insert("parked", 3)
ADD_TASK: Final = _insert("tasks", len(TaskRow.__struct_fields__))
MOVE_TASK: Final = _move("tasks", TaskMove.__struct_fields__)
ADD_ATTEMPT: Final = _insert("attempts", len(AttemptRow.__struct_fields__))
ADD_LATE_ATTEMPT: Final = _insert("attempts", len(AttemptRow.__struct_fields__), verb="INSERT OR IGNORE")
DROP_TIMER: Final = Bulk("DELETE FROM timers WHERE (fire_at, timer_id) IN (VALUES ", ")", width=2)
SET_TIMER: Final = _insert("timers", 4, verb="INSERT OR REPLACE")
SET_DEDUP: Final = _insert("dedup", 7, verb="INSERT OR REPLACE")
SET_COUNTER: Final = _insert("counters", 3, verb="INSERT OR REPLACE")
DROP_LABELS: Final = Bulk("DELETE FROM labels WHERE id IN (", ")", width=1)
ADD_LABEL: Final = _insert("labels", 7)
SET_NAMESPACE: Final = _insert("namespaces", 3, verb="INSERT OR REPLACE")
DROP_COUNTERS: Final = Bulk("DELETE FROM counters WHERE namespace IN (", ")", width=1)
DROP_NAMESPACE: Final = Bulk("DELETE FROM namespaces WHERE name IN (", ")", width=1)
FORGET_RUNS: Final = (
    Bulk("DELETE FROM history WHERE run_id IN (", ")", width=1),
    Bulk("DELETE FROM parked WHERE run_id IN (", ")", width=1),
    DROP_LABELS,
    Bulk("DELETE FROM runs WHERE closed_at > 0 AND run_id IN (", ")", width=1),
)
FORGET_TASKS: Final = (
    Bulk("DELETE FROM attempts WHERE task_id IN (", ")", width=1),
    DROP_LABELS,
    Bulk("DELETE FROM tasks WHERE closed_at > 0 AND task_id IN (", ")", width=1),
)
ADD_MESSAGE: Final = _insert("outbox", 5)
SET_RECEIVED: Final = _insert("received", 3, verb="INSERT OR REPLACE")
ADD_FEED: Final = _insert("feed", 6)
DROP_FEEDS: Final = (
    Bulk("DELETE FROM feed WHERE namespace IN (", ")", width=1),
    Bulk("DELETE FROM feed_floors WHERE namespace IN (", ")", width=1),
)

# Loads.
RUN_BY_ID: Final = f"SELECT {RUN} FROM runs WHERE run_id = ?"
RUN_BY_WORKFLOW: Final = (
    f"SELECT {RUN} FROM runs WHERE namespace = ? AND workflow_id = ? ORDER BY opened_no DESC LIMIT 1"
)
# Of many keys at once: a JSON array of ids, or of arrays. The keys come first, so that their order is that of the rows.
_IDS: Final = "(SELECT value AS wanted FROM json_each(?))"
_KEYS: Final = (
    "(SELECT value ->> 0 AS wanted_namespace, value ->> 1 AS wanted_scope, value ->> 2 AS wanted_key FROM json_each(?))"
)
RUNS_BY_ID: Final = f"SELECT {RUN} FROM {_IDS} CROSS JOIN runs ON run_id = wanted"
TASKS_BY_ID: Final = f"SELECT {TASK} FROM {_IDS} CROSS JOIN tasks ON task_id = wanted"
DEDUP_BY_KEYS: Final = (
    f"SELECT namespace, scope, key, id, fingerprint, expires_at, period FROM {_KEYS} "
    "CROSS JOIN dedup ON namespace = wanted_namespace AND scope = wanted_scope AND key = wanted_key"
)
PARKED_OF_RUN: Final = "SELECT run_id, n, blob FROM parked WHERE run_id = ? ORDER BY n"
TASK_BY_ID: Final = f"SELECT {TASK} FROM tasks WHERE task_id = ?"
DEDUP_BY_KEY: Final = (
    "SELECT namespace, scope, key, id, fingerprint, expires_at, period FROM dedup "
    "WHERE namespace = ? AND scope = ? AND key = ?"
)
READY_TASKS: Final = (
    f"SELECT {TASK} FROM tasks WHERE ready = 1 AND namespace = ? AND queue = ? AND type = ? "
    "AND (order_key, task_id) > (?, ?) ORDER BY order_key, task_id LIMIT ?"
)
TIMERS: Final = (
    "SELECT fire_at, timer_id, kind, target FROM timers WHERE (fire_at, timer_id) > (?, ?) "
    "ORDER BY fire_at, timer_id LIMIT ?"
)
READY_RUNS: Final = (
    f"SELECT {RUN} FROM runs WHERE ready_at > 0 AND closed_at = 0 AND (ready_at, run_id) > (?, ?) "
    "ORDER BY ready_at, run_id LIMIT ?"
)
LEASED_TASKS: Final = f"SELECT {TASK} FROM tasks WHERE state = 'leased' AND task_id > ? ORDER BY task_id LIMIT ?"

# The conditions of the indexes of trouble, word for word: SQLite uses a partial index only where it sees its condition.
RUN_TROUBLES: Final = ("failed", "timed_out", "terminated", "canceled")
RUN_TROUBLE: Final = "status IN ('failed', 'timed_out', 'terminated', 'canceled')"
TASK_TROUBLES: Final = ("failed", "expired", "canceled", "uncertain", "held")
TASK_TROUBLE: Final = "state IN ('failed', 'expired', 'canceled', 'uncertain', 'held')"

# Other reads.
HISTORY: Final = (
    "SELECT run_id, first_event_id, count, blob FROM history WHERE run_id = ?1 AND first_event_id >= coalesce("
    "(SELECT max(first_event_id) FROM history WHERE run_id = ?1 AND first_event_id <= ?2), ?2) ORDER BY first_event_id"
)
# Queues: from one type to the next, a bounded count, and the head of the line.
NEXT_TYPE: Final = (
    "SELECT type FROM tasks WHERE ready = 1 AND namespace = ? AND queue = ? AND type > ? ORDER BY type LIMIT 1"
)
COUNT_READY: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE ready = 1 AND namespace = ? AND queue = ? AND type = ? LIMIT ?)"
)
OLDEST_READY: Final = (
    "SELECT min(since) FROM (SELECT max(enqueued_at, run_at) AS since FROM tasks "
    "WHERE ready = 1 AND namespace = ? AND queue = ? AND type = ? ORDER BY order_key, task_id LIMIT ?)"
)
TURNS: Final = (
    "SELECT namespace, queue, type, count(*), min(ready_at) FROM "
    "(SELECT namespace, queue, type, ready_at FROM runs WHERE ready_at > 0 ORDER BY ready_at, run_id LIMIT ?) "
    "GROUP BY namespace, queue, type ORDER BY namespace, queue, type"
)
NAMESPACES: Final = "SELECT settings FROM namespaces ORDER BY name"
COUNTERS_OF: Final = "SELECT name, value FROM counters WHERE namespace = ?"
ATTEMPTS: Final = f"SELECT {ATTEMPT} FROM attempts WHERE task_id = ? ORDER BY lease, late"

# The feed: its rows behind a place, its end, what they name, and what of it is over.
FEED: Final = (
    "SELECT namespace, number, first, count, at, changes FROM feed "
    "WHERE namespace = ?1 AND number >= ?2 AND (number > ?2 OR first + count > ?3) ORDER BY number, first"
)
FEED_END: Final = "SELECT number, first + count FROM feed WHERE namespace = ? ORDER BY number DESC, first DESC LIMIT 1"
FEED_FLOOR: Final = "SELECT number, seen FROM feed_floors WHERE namespace = ?"
FEED_OF_STORE: Final = (
    "SELECT last_number, incarnation, (SELECT value FROM meta WHERE key = 'identity') FROM shards WHERE shard = ?"
)
HISTORY_PAGE: Final = "SELECT count, blob FROM history WHERE run_id = ? AND first_event_id = ?"
ATTEMPT_OF_LEASE: Final = f"SELECT {ATTEMPT} FROM attempts WHERE task_id = ? AND lease = ? AND late = 0"
TASK_NAMES: Final = f"SELECT task_id, type, queue, run_id FROM {_IDS} CROSS JOIN tasks ON task_id = wanted"
RUN_NAMES: Final = f"SELECT run_id, workflow_id, type FROM {_IDS} CROSS JOIN runs ON run_id = wanted"
FEED_PRUNED: Final = (
    "SELECT number FROM (SELECT number, at FROM feed WHERE namespace = ? ORDER BY number, first LIMIT ?) "
    "WHERE at < ? OR number <= ? ORDER BY number DESC LIMIT 1"
)
SET_FEED_FLOOR: Final = (
    "INSERT OR REPLACE INTO feed_floors SELECT namespace, number, first + count FROM feed "
    "WHERE namespace = ? AND number = ? ORDER BY first DESC LIMIT 1"
)
FORGET_FEED: Final = "DELETE FROM feed WHERE namespace = ? AND number <= ?"

# Dedup rows of periods that are over: the end of the next slice of the key, then the slice's rows.
DEDUP_SLICE_END: Final = (
    "SELECT namespace, scope, key FROM dedup WHERE (namespace, scope, key) > (?, ?, ?) "
    "ORDER BY namespace, scope, key LIMIT 1 OFFSET ?"
)
FORGET_DEDUP_REST: Final = "DELETE FROM dedup WHERE (namespace, scope, key) > (?, ?, ?) AND period < ?"
FORGET_DEDUP_SLICE: Final = f"{FORGET_DEDUP_REST} AND (namespace, scope, key) <= (?, ?, ?)"
