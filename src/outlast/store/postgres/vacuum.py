"""What keeps the database from taking back the room of rows that are over.

VACUUM removes no row that an open transaction may still see. One that is left open, by whoever, anywhere in the database, makes
tables and indexes grow, and each commit looks at more versions of the rows that all commits change.
"""

from typing import Final

import msgspec

from outlast.core.units import MINUTE
from outlast.store.postgres.session import Reads

HOLDERS_MAX: Final = 5  # that are told of, the oldest first
OPEN_MIN: Final = 5 * MINUTE  # for which a transaction may be open: reports and backups take some
XIDS_MIN: Final = 100_000  # transactions that began since, for what has no time of its own: slots and standbys

# Only what a user may see is found: sessions of others need the role pg_read_all_stats.
_HELD: Final = """
    SELECT kind, name, pid, owner, program, state, nanos, xids FROM (
        SELECT 'session' AS kind, '' AS name, pid, coalesce(usename::text, '') AS owner,
            coalesce(application_name, '') AS program, coalesce(state, '') AS state,
            coalesce((extract(epoch FROM clock_timestamp() - xact_start) * 1e9)::bigint, 0) AS nanos,
            greatest(age(backend_xmin), age(backend_xid))::bigint AS xids
        FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
            AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
        UNION ALL SELECT 'prepared', gid, 0, owner::text, '', '',
            (extract(epoch FROM clock_timestamp() - prepared) * 1e9)::bigint, age(transaction)::bigint
        FROM pg_prepared_xacts WHERE database = current_database()
        UNION ALL SELECT 'slot', slot_name::text, coalesce(active_pid, 0), '', '', '', 0, age(xmin)::bigint
        FROM pg_replication_slots WHERE xmin IS NOT NULL
        UNION ALL SELECT 'standby', coalesce(client_addr::text, 'local'), pid, coalesce(usename::text, ''),
            coalesce(application_name, ''), coalesce(state, ''), 0,
            age(backend_xmin)::bigint
        FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
    ) f WHERE $1::integer IS NOT NULL AND CASE WHEN kind IN ('session', 'prepared') THEN nanos >= $2 ELSE xids >= $3 END
    ORDER BY xids DESC, nanos DESC LIMIT $4
"""
_OVER: Final = """
    SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'outlast' AND $1::integer IS NOT NULL
"""


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """Who keeps rows that are over from being removed.

    ``kind`` is "session", "prepared" (a prepared transaction), "slot" (of replication) or "standby". ``nanos`` is for how
    long, 0 where that is not known; ``xids`` how many transactions have begun since.
    """

    kind: str
    name: str
    pid: int
    owner: str
    program: str
    state: str
    nanos: int
    xids: int


async def holders(reads: Reads) -> tuple[list[Holder], int]:
    """Return who holds rows for longer than is good, the oldest first, and how many rows of ours are over and still there."""
    found = await reads.fetch(_HELD, OPEN_MIN, XIDS_MIN, HOLDERS_MAX)
    ((over,),) = await reads.fetch(_OVER)
    return [Holder(*row) for row in found], over
