-- An outbox in a PostgreSQL database of the user's: the table and the functions that an engine has in its own database, in another
-- schema, so that both can be in one. A test compares them.

CREATE SCHEMA outlast_outbox;

CREATE TABLE outlast_outbox.intake (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,          -- of the task or workflow, for people
    form text COLLATE "C" NOT NULL,        -- how the body is written
    body bytea NOT NULL CHECK (octet_length(body) <= 4194304),
    entered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    offered_at timestamptz,                -- when it was first handed over
    trouble text COLLATE "C" NOT NULL DEFAULT '' -- why it cannot be taken; such a row waits for a person
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX intake_waiting ON outlast_outbox.intake (place) WHERE trouble = '';

-- An id that sorts by time (UUIDv7): the engine knows a new one without a look.
CREATE FUNCTION outlast_outbox.new_id() RETURNS text LANGUAGE sql VOLATILE PARALLEL SAFE SET search_path = pg_catalog AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(
                uuid_send(gen_random_uuid())
                PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6
            ), 52, 1), 53, 1),
        'hex')::uuid::text
$$;

-- Make a task in this transaction; return its id. input: a JSON array of arguments, or the only argument.
CREATE FUNCTION outlast_outbox.enqueue(
    type text,
    input json DEFAULT '[]',
    id text DEFAULT NULL,
    queue text DEFAULT 'default',
    namespace text DEFAULT 'default',
    delay interval DEFAULT '0',
    priority integer DEFAULT 3,
    timeout interval DEFAULT '10 minutes',
    max_attempts integer DEFAULT 5,
    tags json DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog AS $$
DECLARE
    task_id text := coalesce(id, outlast_outbox.new_id());
BEGIN
    PERFORM outlast_outbox.check_said(type, input, task_id, queue, namespace, delay);
    IF priority IS NULL OR priority NOT BETWEEN 1 AND 5 OR timeout IS NULL OR timeout <= '0' OR timeout > '36500 days'
            OR max_attempts IS NULL OR max_attempts NOT BETWEEN 0 AND 1000000 THEN
        RAISE EXCEPTION 'priority is %, timeout % and max_attempts %.', priority, timeout, max_attempts
            USING HINT = 'priority: 1 (first) to 5; timeout: a span above 0; max_attempts: all tries, 0 for no bound.',
                ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO outlast_outbox.intake (namespace, id, form, body) VALUES (namespace, task_id, 'said', convert_to(json_build_object(
        'kind', 'task', 'id', task_id, 'type', type, 'input', input, 'queue', queue, 'priority', priority, 'tags', tags,
        'delay', extract(epoch FROM delay)::float8, 'timeout', extract(epoch FROM timeout)::float8, 'max_attempts', max_attempts,
        'identity', session_user || '@' || current_database()
    )::text, 'UTF8'));
    RETURN task_id;
END $$;

-- Start a run in this transaction; return its workflow id.
CREATE FUNCTION outlast_outbox.start(
    type text,
    input json DEFAULT '[]',
    id text DEFAULT NULL,
    queue text DEFAULT 'default',
    namespace text DEFAULT 'default',
    delay interval DEFAULT '0',
    if_open text DEFAULT 'fail',
    if_closed text DEFAULT 'allow',
    tags json DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog AS $$
DECLARE
    workflow_id text := coalesce(id, outlast_outbox.new_id());
BEGIN
    PERFORM outlast_outbox.check_said(type, input, workflow_id, queue, namespace, delay);
    IF if_open IS NULL OR if_open NOT IN ('fail', 'return_existing', 'terminate')
            OR if_closed IS NULL OR if_closed NOT IN ('allow', 'allow_if_failed', 'reject') THEN
        RAISE EXCEPTION 'if_open is "%" and if_closed is "%".', if_open, if_closed
            USING HINT = 'if_open: fail, return_existing or terminate; if_closed: allow, allow_if_failed or reject.',
                ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO outlast_outbox.intake (namespace, id, form, body) VALUES (namespace, workflow_id, 'said', convert_to(json_build_object(
        'kind', 'workflow', 'id', workflow_id, 'type', type, 'input', input, 'queue', queue, 'tags', tags,
        'delay', extract(epoch FROM delay)::float8, 'run_id', outlast_outbox.new_id(), 'request_id', outlast_outbox.new_id(),
        'if_open', if_open, 'if_closed', if_closed, 'identity', session_user || '@' || current_database()
    )::text, 'UTF8'));
    RETURN workflow_id;
END $$;

-- Refuse in the caller's transaction what the engine would refuse after it.
CREATE FUNCTION outlast_outbox.check_said(type text, input json, id text, queue text, namespace text, delay interval)
RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $$
BEGIN
    IF type IS NULL OR octet_length(type) NOT BETWEEN 1 AND 255 OR queue IS NULL OR octet_length(queue) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'The type is "%", the queue "%".', left(type, 80), left(queue, 80)
            USING HINT = 'Both are texts of 1 to 255 bytes.', ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(id) NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'The id has % bytes.', octet_length(id)
            USING HINT = 'Give 1 to 1000 bytes, or none: one is made.', ERRCODE = 'invalid_parameter_value';
    END IF;
    IF namespace IS NULL OR octet_length(namespace) NOT BETWEEN 1 AND 63 THEN
        RAISE EXCEPTION 'The namespace is "%".', left(namespace, 80)
            USING HINT = 'Give the name of one that the engine has.', ERRCODE = 'invalid_parameter_value';
    END IF;
    IF input IS NULL OR octet_length(input::text) > 2097152 THEN
        RAISE EXCEPTION 'The input is null or has more than 2097152 bytes.'
            USING HINT = 'Keep large data elsewhere and pass a reference to it.', ERRCODE = 'invalid_parameter_value';
    END IF;
    IF delay IS NULL OR delay < '0' OR delay > '36500 days' THEN
        RAISE EXCEPTION 'The delay is %.', delay USING HINT = 'Give a span from 0 on.', ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
