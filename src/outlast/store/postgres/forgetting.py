"""What is over is dropped, beside the owner's session and a slice at a time, so that commits go on between the steps."""

from typing import Final

from outlast.core.units import Fence
from outlast.store.postgres.session import Reads
from outlast.store.postgres.text import escaped, unescaped

DEDUP_SLICE: Final = 10_000  # rows of one step

_DEDUP_SLICE_END: Final = """
    SELECT namespace, scope, key FROM outlast.dedup WHERE shard = $1 AND (namespace, scope, key) > ($2, $3, $4)
    ORDER BY namespace, scope, key LIMIT 1 OFFSET $5
"""
# Who was followed forgets nothing: its clock, by which it forgets, may be wrong.
_FORGET_DEDUP: Final = """
    DELETE FROM outlast.dedup WHERE shard = $1 AND (namespace, scope, key) > ($2, $3, $4) AND period < $5
        AND EXISTS (SELECT 1 FROM outlast.shards WHERE shard = $1 AND incarnation = $6 AND epoch = $7)
"""
_FORGET_DEDUP_SLICE: Final = f"{_FORGET_DEDUP} AND (namespace, scope, key) <= ($8, $9, $10)"
# In one transaction, and one statement: the floor is kept with what it stands for.
_FORGET_FEED: Final = """
    WITH pruned AS (
        SELECT number FROM (SELECT number, at FROM outlast.feed WHERE shard = $1 AND namespace = $2
            ORDER BY number, first LIMIT $3) f WHERE (at < $4 OR number <= $5)
            AND EXISTS (SELECT 1 FROM outlast.shards WHERE shard = $1 AND incarnation = $6 AND epoch = $7)
        ORDER BY number DESC LIMIT 1
    ), floor AS (
        INSERT INTO outlast.feed_floors SELECT f.shard, f.namespace, f.number, f.first + f.count FROM outlast.feed f, pruned
        WHERE f.shard = $1 AND f.namespace = $2 AND f.number = pruned.number ORDER BY f.first DESC LIMIT 1
        ON CONFLICT (shard, namespace) DO UPDATE SET number = excluded.number, seen = excluded.seen
    )
    DELETE FROM outlast.feed f USING pruned WHERE f.shard = $1 AND f.namespace = $2 AND f.number <= pruned.number
"""


async def forget_dedup(tending: Reads, fence: Fence, *, before_period: int) -> int:
    """Drop the dedup rows of periods before ``before_period``, if the shard is held under ``fence``; return how many."""
    after: tuple[str, ...] | None = ("", "", "")
    dropped = 0
    while after is not None:
        place = (*map(escaped, after), before_period, fence.incarnation, fence.epoch)
        end = await tending.fetch(_DEDUP_SLICE_END, *place[:3], DEDUP_SLICE)
        if end:
            dropped += await tending.change(_FORGET_DEDUP_SLICE, *place, *end[0])
        else:
            dropped += await tending.change(_FORGET_DEDUP, *place)
        after = tuple(map(unescaped, end[0])) if end else None
    return dropped


async def forget_feed(tending: Reads, fence: Fence, namespace: str, *, before: int, through: int, rows_max: int) -> int:
    """Drop the oldest rows of a feed and keep up to where, if the shard is held under ``fence``; return how many."""
    return await tending.change(
        _FORGET_FEED, escaped(namespace), rows_max, before, through, fence.incarnation, fence.epoch
    )
