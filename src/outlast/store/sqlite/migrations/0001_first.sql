-- The tables of a shard. One file holds one shard.
--
-- Keys are text in order of time where they can be (UUIDv7), so that new rows land on the last pages. Each index below is
-- written on the hot path: it is partial wherever a row needs it only for a part of its life. runs and tasks keep their
-- rowid: it makes each of their indexes smaller, and a start a third cheaper.

CREATE TABLE shards (
    shard INTEGER PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    last_number INTEGER NOT NULL,
    last_at INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
    namespace TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    run_id TEXT NOT NULL PRIMARY KEY,
    opened_no INTEGER NOT NULL,
    original_run_id TEXT NOT NULL,
    first_run_id TEXT NOT NULL,
    type TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    queue TEXT NOT NULL,
    build TEXT NOT NULL,
    principal TEXT NOT NULL,
    identity TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    closed_at INTEGER NOT NULL,
    next_event_id INTEGER NOT NULL,
    history_bytes INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    parent TEXT NOT NULL,
    fixed BLOB NOT NULL,
    state BLOB NOT NULL,
    outcome BLOB NOT NULL,
    commit_no INTEGER NOT NULL,
    extra BLOB NOT NULL
) STRICT;

-- The latest run of a workflow id.
CREATE UNIQUE INDEX runs_by_workflow ON runs (namespace, workflow_id, opened_no);
-- At most one open run has a workflow id.
CREATE UNIQUE INDEX runs_open ON runs (namespace, workflow_id) WHERE closed_at = 0;
-- Runs that need a workflow task.
CREATE INDEX runs_ready ON runs (ready_at, run_id) WHERE ready_at > 0;
-- Lists, newest first.
CREATE INDEX runs_by_start ON runs (namespace, started_at, run_id, type);
-- Lists of what did not go well; rare, so that it costs nothing in ordinary life.
CREATE INDEX runs_by_trouble ON runs (namespace, status, started_at, run_id)
    WHERE status IN ('failed', 'timed_out', 'terminated', 'canceled');

CREATE TABLE history (
    run_id TEXT NOT NULL,
    first_event_id INTEGER NOT NULL,
    count INTEGER NOT NULL,
    blob BLOB NOT NULL,
    PRIMARY KEY (run_id, first_event_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE parked (
    run_id TEXT NOT NULL,
    n INTEGER NOT NULL,
    blob BLOB NOT NULL,
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
    namespace TEXT NOT NULL,
    task_id TEXT NOT NULL PRIMARY KEY,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    build TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    ready INTEGER NOT NULL,
    order_key INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    worker TEXT NOT NULL,
    run_at INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    closed_at INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    scheduled_event_id INTEGER NOT NULL,
    principal TEXT NOT NULL,
    identity TEXT NOT NULL,
    spec BLOB NOT NULL,
    status BLOB NOT NULL,
    commit_no INTEGER NOT NULL,
    extra BLOB NOT NULL
) STRICT;

CREATE INDEX tasks_ready ON tasks (namespace, queue, type, order_key, task_id) WHERE ready = 1;
CREATE INDEX tasks_leased ON tasks (task_id) WHERE state = 'leased';
CREATE INDEX tasks_by_enqueue ON tasks (namespace, enqueued_at, task_id);
-- The dead letters and what waits for a decision.
CREATE INDEX tasks_by_trouble ON tasks (namespace, state, enqueued_at, task_id)
    WHERE state IN ('failed', 'expired', 'canceled', 'uncertain', 'held');

CREATE TABLE attempts (
    namespace TEXT NOT NULL,
    task_id TEXT NOT NULL,
    lease INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    late INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    worker TEXT NOT NULL,
    identity TEXT NOT NULL,
    build TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    error_type TEXT NOT NULL,
    error_message TEXT NOT NULL,
    error_trace TEXT NOT NULL,
    commit_no INTEGER NOT NULL,
    extra BLOB NOT NULL,
    PRIMARY KEY (task_id, lease, late)
) STRICT, WITHOUT ROWID;

CREATE TABLE timers (
    fire_at INTEGER NOT NULL,
    timer_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (fire_at, timer_id)
) STRICT, WITHOUT ROWID;

-- No index by period: rows of periods that are over are found by walking the key, a slice at a time, once per period.
CREATE TABLE dedup (
    namespace TEXT NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    period INTEGER NOT NULL,
    PRIMARY KEY (namespace, scope, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE counters (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Messages to other shards, and up to where those of others have been taken.
CREATE TABLE outbox (
    target_shard INTEGER NOT NULL,
    source_shard INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    blob BLOB NOT NULL,
    PRIMARY KEY (target_shard, source_shard, incarnation, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE received (
    source INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    PRIMARY KEY (source, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE namespaces (
    name TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    settings BLOB NOT NULL
) STRICT, WITHOUT ROWID;
