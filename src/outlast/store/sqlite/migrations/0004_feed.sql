-- The feed: what each commit did, namespace by namespace. It begins with the first commit after this migration: what was
-- committed before is in histories and tasks, but in what order is not known any more.
--
-- A row only names rows of histories, attempts and tasks. It is written once, at the end of its namespace's rows, and dropped
-- from their beginning: so that the feed costs one row a commit, where an index of history by commit would cost one a page.

CREATE TABLE feed (
    namespace TEXT NOT NULL,
    number INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    at INTEGER NOT NULL,
    changes BLOB NOT NULL,
    PRIMARY KEY (namespace, number, first)
) STRICT, WITHOUT ROWID;

-- Up to where the feed of a namespace was dropped: a reader that has not come so far has missed something.
CREATE TABLE feed_floors (
    namespace TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    seen INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Tells this store from every other one: a cursor of another store means nothing here.
INSERT INTO meta (key, value) VALUES ('identity', random() & 0x7fffffffffffffff);
