-- Whether the store may be worked on: a store that is being filled, and one whose work was moved away may not.
--
-- There is no row while it may. ``place`` is the other store, ``token`` tells one move from another, ``facts`` is JSON.

CREATE TABLE outlast.standing (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    state text COLLATE "C" NOT NULL,
    place text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    incarnation bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    facts text COLLATE "C" NOT NULL
);

-- What transactions leave here would never be taken by an engine. Who may only write to the intake may not read the above.
--
-- The trigger is enabled in the commit that writes the row, and disabled in the one that removes it: whether a trigger is
-- enabled is seen by every transaction, whereas one of REPEATABLE READ or SERIALIZABLE that began before sees no row.
CREATE FUNCTION outlast.refuse_set_aside() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    stands outlast.standing;
BEGIN
    SELECT * INTO stands FROM outlast.standing;
    IF stands.state = 'moved' THEN
        RAISE EXCEPTION 'The work of this database was moved to %.', stands.place
            USING HINT = 'Enqueue there.', ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF current_setting('outlast.filling', true) IS NOT DISTINCT FROM 'on' THEN
        RETURN NULL;
    ELSIF stands.state IS NULL THEN
        RAISE EXCEPTION 'This database has been moved, or filled from another store, since the transaction began.'
            USING HINT = 'Try again in a new transaction: it is told where the work is.', ERRCODE = 'serialization_failure';
    END IF;
    RAISE EXCEPTION 'This database is being filled from %.', stands.place
        USING HINT = 'Try again when that has come to its end.', ERRCODE = 'object_not_in_prerequisite_state';
END $$;

CREATE TRIGGER refuse_set_aside BEFORE INSERT ON outlast.intake FOR EACH STATEMENT EXECUTE FUNCTION outlast.refuse_set_aside();
ALTER TABLE outlast.intake DISABLE TRIGGER refuse_set_aside;
