-- Whether the store may be worked on: a backup, a store that is being filled, and one whose work was moved away may not.
--
-- There is no row while it may. ``place`` is the other store, ``token`` tells one move from another, ``facts`` is JSON.

CREATE TABLE standing (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    state TEXT NOT NULL,
    place TEXT NOT NULL,
    token TEXT NOT NULL,
    at INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    reason TEXT NOT NULL,
    facts TEXT NOT NULL
) STRICT;

-- What transactions in PostgreSQL left for the engine there (its table of the same name), as a backup keeps it: nobody takes
-- it here. Instants are in microseconds.

CREATE TABLE intake (
    place INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    form TEXT NOT NULL,
    body BLOB NOT NULL,
    entered_at INTEGER NOT NULL,
    offered_at INTEGER,
    trouble TEXT NOT NULL
) STRICT;
