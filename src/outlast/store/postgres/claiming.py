"""Taking a shard over.

First the sessions of whoever owned it are ended: what they had in flight is then either committed or undone, and nothing of
theirs can happen later. Then the shard's row is locked, and the epoch raised in a commit of its own.
"""

from typing import Any, Final

from outlast.core import codec
from outlast.core.units import SECOND, Fence
from outlast.core.writes import Claim
from outlast.store.base import StoreError
from outlast.store.postgres import standing
from outlast.store.postgres.connection import Opened, Session
from outlast.store.postgres.opening import LOCK
from outlast.store.postgres.text import escaped, unescaped
from outlast.store.standing import refuse

END_MILLISECONDS: Final = 2_000  # how long the end of one session is waited for

_LOCK: Final = f"SELECT pg_advisory_xact_lock({LOCK}, $1::integer + 1)"
_READ: Final = (
    "SELECT incarnation, epoch, owner, lease_until, last_number, last_at FROM outlast.shards WHERE shard = $1"
)
_HOLDER: Final = """
    SELECT owner FROM outlast.shards
    WHERE shard = $1 AND lease_until > (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint
"""
_END_OTHERS: Final = f"""
    SELECT pg_terminate_backend(pid, {END_MILLISECONDS}) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid() AND usename = current_user
"""
IDENTITY: Final = """
    SELECT identity, incarnation FROM outlast.meta WHERE $1::integer >= 0
"""
_META: Final = "SELECT incarnation, timeline, cluster, number FROM outlast.meta"
_RAISE_INCARNATION: Final = "UPDATE outlast.meta SET incarnation = $1, timeline = $2, cluster = $3, number = $4"
_CLAIM: Final = """
    UPDATE outlast.shards SET incarnation = $2, epoch = epoch + 1, owner = $3, lease_until = $4 WHERE shard = $1
    RETURNING epoch, ctid::text AS place
"""
_RELEASE: Final = """
    UPDATE outlast.shards SET owner = '', lease_until = 0 WHERE shard = $1 AND incarnation = $2 AND epoch = $3
    RETURNING ctid::text
"""
_COUNTERS: Final = "SELECT namespace, name, value FROM outlast.counters WHERE shard = $1"
_RECEIVED: Final = "SELECT source, incarnation, mark FROM outlast.received WHERE shard = $1"
_NAMESPACES: Final = "SELECT settings FROM outlast.namespaces WHERE shard = $1 ORDER BY name"


def name_of(shard: int) -> str:
    """Return what the session of a shard's owner is called in the database: by it those of former owners are found."""
    return f"outlast owner of shard {shard}"


async def claim(
    opened: Opened, shard: int, *, owner: str, now: int, lease_until: int, to_work: bool = True
) -> tuple[Claim, str]:
    """Raise the epoch of ``shard`` for ``owner`` and return what it needs, with the place of the shard's row.

    Without ``to_work`` also when the database may not be worked on, by who moves or fills it.

    Raises StoreError "not_owner" while another's lease runs, "unavailable" when the end of the commit is not known; what else
    the database raises comes as it is.
    """
    session = opened.session
    await session.execute("BEGIN")
    try:
        await session.execute(_LOCK, shard)
        _refuse_leased(await session.fetchrow(_READ, shard), shard, owner, now)
        await session.execute(_END_OTHERS, name_of(shard))
        # Under the lock: by this name it would be ended while it waits for that, though it never was an owner.
        await session.execute(f"SET application_name = '{name_of(shard)}'")
        row = await session.fetchrow(f"{_READ} FOR UPDATE", shard)
        _refuse_leased(row, shard, owner, now)
        if to_work:
            refuse(await standing.read(session), opened.shown, url=opened.shown)
        incarnation = await _incarnation(opened)
        claimed = await session.fetchrow(_CLAIM, shard, incarnation, escaped(owner), lease_until)
        counters = await session.fetch(_COUNTERS, shard)
        received = await session.fetch(_RECEIVED, shard)
        namespaces = [codec.decode_namespace(blob) for (blob,) in await session.fetch(_NAMESPACES, shard)]
    except BaseException:
        if not session.is_closed():
            await session.execute("ROLLBACK")
        raise
    opened.notices.clear()
    await session.execute("COMMIT")
    if opened.notices:
        raise StoreError(
            "unavailable",
            f"The database took the claim with a warning: {opened.notices[0]}.",
            remedy="Look at its standbys (synchronous_standby_names): the claim is tried again.",
        )
    assert row is not None
    assert claimed is not None
    claim = Claim(
        shard=shard,
        fence=Fence(incarnation, claimed["epoch"]),
        last_number=row["last_number"],
        last_at=row["last_at"],
        counters={(unescaped(namespace), unescaped(name)): value for namespace, name, value in counters},
        received={(source, other): mark for source, other, mark in received},
        namespaces={info.name: info for info in namespaces},
    )
    return claim, claimed["place"]


async def release(session: Session, shard: int, fence: Fence) -> str:
    """End the lease of ``fence``, if it is the current one; return the place of the shard's row then, else ""."""
    return await session.fetchval(_RELEASE, shard, fence.incarnation, fence.epoch) or ""


async def holder_of(session: Session, shard: int) -> str:
    """Return whose lease on the shard runs by the database's clock, "" for nobody's."""
    return unescaped(await session.fetchval(_HOLDER, shard) or "")


def _refuse_leased(row: Any, shard: int, owner: str, now: int) -> None:
    if row is None:
        raise StoreError(
            "store_damaged",
            f"The row of shard {shard} is gone from the table outlast.shards.",
            remedy="Restore the last backup.",
        )
    holder, until = unescaped(row["owner"]), row["lease_until"]
    if holder and holder != owner and until > now:
        raise StoreError(
            "not_owner",
            f"Shard {shard} is held by {holder} for another {(until - now) / SECOND:.1f} s.",
            remedy="Name the server of that engine: --server URL, or OUTLAST_SERVER. If it has died, its lease ends.",
        )


async def _incarnation(opened: Opened) -> int:
    """Return the incarnation, raised when the database is not the one it was raised for: a promoted copy, a restored dump."""
    session, server = opened.session, opened.server
    meta = await session.fetchrow(f"{_META} FOR UPDATE")
    assert meta is not None
    if (meta["timeline"], int(meta["cluster"]), meta["number"]) == server.history:
        return int(meta["incarnation"])
    raised = max(int(meta["incarnation"]) + 1, server.timeline)
    await session.execute(_RAISE_INCARNATION, raised, *server.history)
    return raised
