-- The tables of all shards of one database, in a schema of their own.
--
-- Most rows are inserted once. What changes (the state of a run or a task) is in no index, so that a change is made within its
-- page (HOT) and leaves nothing in indexes to be cleaned. What rows are found by while they live (ready, leased, open, in
-- trouble) is in narrow tables of its own. Texts compare by their characters and nothing else.
--
-- Where a table has several indexes, the shard stands behind what tells its rows apart: led by the shard, all of them would look
-- alike to the planner as long as it knows nothing of the table.

CREATE SCHEMA outlast;

CREATE TABLE outlast.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- ``identity`` tells this store from every other one; timeline and cluster are those that the incarnation was raised for.
CREATE TABLE outlast.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity bigint NOT NULL DEFAULT ('x' || translate(gen_random_uuid()::text, '-', ''))::bit(64)::bigint & 9223372036854775807,
    incarnation bigint NOT NULL,
    timeline bigint NOT NULL,
    cluster numeric NOT NULL,
    number bigint NOT NULL
);

CREATE TABLE outlast.shards (
    shard integer PRIMARY KEY,
    incarnation bigint NOT NULL,
    epoch bigint NOT NULL,
    owner text NOT NULL,
    lease_until bigint NOT NULL,
    last_number bigint NOT NULL,
    last_at bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.runs (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    opened_no bigint NOT NULL,
    original_run_id text COLLATE "C" NOT NULL,
    first_run_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    build text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    closed_at bigint NOT NULL,
    next_event_id bigint NOT NULL,
    history_bytes bigint NOT NULL,
    ready_at bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    parent text COLLATE "C" NOT NULL,
    fixed bytea NOT NULL,
    state bytea NOT NULL,
    outcome bytea NOT NULL,
    commit_no bigint NOT NULL,
    extra bytea NOT NULL,
    PRIMARY KEY (run_id, shard)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The latest run of a workflow id.
CREATE UNIQUE INDEX runs_by_workflow ON outlast.runs (namespace, workflow_id, shard, opened_no);
-- Lists, newest first.
CREATE INDEX runs_by_start ON outlast.runs (namespace, shard, started_at, run_id);

-- At most one open run has a workflow id.
CREATE TABLE outlast.open_runs (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, namespace, workflow_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Runs that need a workflow task.
CREATE TABLE outlast.ready_runs (
    shard integer NOT NULL,
    ready_at bigint NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, ready_at, run_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.history (
    shard integer NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    first_event_id bigint NOT NULL,
    count bigint NOT NULL,
    blob bytea NOT NULL,
    PRIMARY KEY (shard, run_id, first_event_id)
) WITH (autovacuum_vacuum_cost_delay = 0);
ALTER TABLE outlast.history ALTER COLUMN blob SET STORAGE EXTERNAL; -- it comes compressed

CREATE TABLE outlast.parked (
    shard integer NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    blob bytea NOT NULL,
    PRIMARY KEY (shard, run_id, n)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.tasks (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    build text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    ready bigint NOT NULL,
    order_key bigint NOT NULL,
    attempt bigint NOT NULL,
    lease bigint NOT NULL,
    lease_until bigint NOT NULL,
    worker text COLLATE "C" NOT NULL,
    run_at bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    closed_at bigint NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    scheduled_event_id bigint NOT NULL,
    principal text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    spec bytea NOT NULL,
    status bytea NOT NULL,
    commit_no bigint NOT NULL,
    extra bytea NOT NULL,
    priority bigint NOT NULL,
    PRIMARY KEY (task_id, shard)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX tasks_by_enqueue ON outlast.tasks (namespace, shard, enqueued_at, task_id);

CREATE TABLE outlast.ready_tasks (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    order_key bigint NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    since bigint NOT NULL,
    PRIMARY KEY (shard, namespace, queue, type, order_key, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.leased_tasks (
    shard integer NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What did not go well or waits for a decision: lists of dead letters and of runs that failed.
CREATE TABLE outlast.troubles (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    of text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, namespace, of, state, at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.attempts (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    lease bigint NOT NULL,
    attempt bigint NOT NULL,
    late bigint NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    build text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    error_type text COLLATE "C" NOT NULL,
    error_message text COLLATE "C" NOT NULL,
    error_trace text COLLATE "C" NOT NULL,
    commit_no bigint NOT NULL,
    extra bytea NOT NULL,
    PRIMARY KEY (shard, task_id, lease, late)
) WITH (autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.timers (
    shard integer NOT NULL,
    fire_at bigint NOT NULL,
    timer_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, fire_at, timer_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- No index by period: rows of periods that are over are found by walking the key, a slice at a time, once per period.
CREATE TABLE outlast.dedup (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    period bigint NOT NULL,
    PRIMARY KEY (shard, namespace, scope, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.counters (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bigint NOT NULL,
    PRIMARY KEY (shard, namespace, name)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Messages to other shards, and up to where those of others have been taken.
CREATE TABLE outlast.outbox (
    shard integer NOT NULL,
    target_shard bigint NOT NULL,
    source_shard bigint NOT NULL,
    incarnation bigint NOT NULL,
    sequence bigint NOT NULL,
    blob bytea NOT NULL,
    PRIMARY KEY (shard, target_shard, source_shard, incarnation, sequence)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE outlast.received (
    shard integer NOT NULL,
    source bigint NOT NULL,
    incarnation bigint NOT NULL,
    mark bigint NOT NULL,
    PRIMARY KEY (shard, source, incarnation)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Payload data that is too large for the rows, by the hash of its content.
CREATE TABLE outlast.blobs (
    digest text COLLATE "C" PRIMARY KEY,
    put_at timestamptz NOT NULL DEFAULT now(),
    data bytea NOT NULL
);
ALTER TABLE outlast.blobs ALTER COLUMN data SET STORAGE EXTERNAL;

-- The feed: what each commit did, namespace by namespace; rows name rows of histories, attempts and tasks. Written at the end
-- of their namespace's rows, dropped from the beginning.
CREATE TABLE outlast.feed (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL,
    at bigint NOT NULL,
    changes bytea NOT NULL,
    PRIMARY KEY (shard, namespace, number, first)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE outlast.feed ALTER COLUMN changes SET STORAGE EXTERNAL; -- it comes compressed

-- Up to where the feed of a namespace was dropped: a reader that has not come so far has missed something.
CREATE TABLE outlast.feed_floors (
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    seen bigint NOT NULL,
    PRIMARY KEY (shard, namespace)
) WITH (fillfactor = 20);

CREATE TABLE outlast.namespaces (
    shard integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    settings bytea NOT NULL,
    PRIMARY KEY (shard, name)
);

-- What lists are filtered by beside the columns: tags and search attributes. ``kind``: 0 a text, 1 a number, 2 a truth value
-- (number 0 or 1); values compare with those of their own kind only.
CREATE TABLE outlast.labels (
    shard integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    kind bigint NOT NULL,
    text text COLLATE "C" NOT NULL,
    number numeric NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    of text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (id, name, n, shard)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Lists of what has one value, newest first.
CREATE INDEX labels_by_text ON outlast.labels (namespace, shard, of, name, text, at, id) WHERE kind = 0;
CREATE INDEX labels_by_number ON outlast.labels (namespace, shard, of, name, kind, number, at, id) WHERE kind > 0;
