-- The mark above which an id was never stored (core/shard/freshness.py), for what was stored before there was a mark: the
-- highest rank, 15 hex digits of a UUIDv7, among the names of runs, workflows made from keys, tasks and request ids.

INSERT INTO counters (namespace, name, value)
WITH RECURSIVE
names (name) AS (
    SELECT run_id FROM runs
    UNION ALL SELECT substr(workflow_id, 3) FROM runs WHERE workflow_id LIKE 'w-%'
    UNION ALL SELECT task_id FROM tasks
    UNION ALL SELECT key FROM dedup
),
ranks (digits) AS (
    SELECT lower(substr(name, 1, 8) || substr(name, 10, 4) || substr(name, 16, 3)) FROM names
    WHERE length(name) = 36 AND substr(name, 9, 1) = '-' AND substr(name, 15, 1) = '7'
),
highest (digits) AS (
    SELECT max(digits) FROM ranks WHERE digits NOT GLOB '*[^0-9a-f]*'
),
read_off (at, value) AS (
    SELECT 0, 0
    UNION ALL
    SELECT at + 1, value * 16 + instr('0123456789abcdef', substr(digits, at + 1, 1)) - 1 FROM read_off, highest
    WHERE at < 15 AND digits IS NOT NULL
)
SELECT '', 'freshest', max(value) FROM read_off WHERE (SELECT digits FROM highest) IS NOT NULL HAVING max(value) > 0
ON CONFLICT (namespace, name) DO UPDATE SET value = max(value, excluded.value);
