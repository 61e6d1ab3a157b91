-- What lists are filtered by beside the columns: tags and search attributes. Only runs and tasks that have some have rows here.

CREATE TABLE labels (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    n INTEGER NOT NULL,
    value ANY NOT NULL, -- text, a number, or for a truth value a blob of one byte
    namespace TEXT NOT NULL,
    of TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (id, name, n)
) STRICT, WITHOUT ROWID;

-- Lists of what has one value, newest first.
CREATE INDEX labels_by_value ON labels (namespace, of, name, value, at, id);

ALTER TABLE tasks ADD COLUMN priority INTEGER NOT NULL DEFAULT 3;
