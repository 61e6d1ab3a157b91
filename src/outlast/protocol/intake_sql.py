"""Statements by which rows of callers' transactions are handed over from PostgreSQL: an engine's table, or an outbox.

``$1`` is a shard, and has no meaning yet: one owner takes all rows.
"""

from dataclasses import dataclass

# Places go from step to step as arrays: as relations they would be joined, and the planner, which knows nothing yet of a table
# that has just been filled, may join them in the square of its rows. Sizes are looked at without reading the bodies. A row
# that is locked is being handed over or mended by somebody else.
_OFFER = """
    WITH chosen AS MATERIALIZED (
        SELECT place FROM {schema}.intake WHERE trouble = '' AND place = ANY(ARRAY(
            SELECT place FROM (SELECT place, size, sum(size) OVER (ORDER BY place) AS through FROM (
                SELECT place, octet_length(body) AS size FROM {schema}.intake
                WHERE trouble = '' AND $1::integer IS NOT NULL AND namespace {which}
                ORDER BY place LIMIT $2
            ) sized) summed WHERE through - size < $3
        )) FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.intake i SET offered_at = coalesce(offered_at, clock_timestamp())
    WHERE i.place = ANY(ARRAY(SELECT place FROM chosen))
    RETURNING i.place, i.namespace, i.form, i.body,
        greatest(0, extract(epoch FROM clock_timestamp() - i.offered_at))::float8 AS waited
"""
_TAKE = "DELETE FROM {schema}.intake WHERE $1::integer IS NOT NULL AND place = ANY($2::bigint[])"
_SET_ASIDE = """
    UPDATE {schema}.intake i SET trouble = t.trouble FROM unnest($2::bigint[], $3::text[]) AS t (place, trouble)
    WHERE i.place = t.place AND $1::integer IS NOT NULL
"""


@dataclass(slots=True, frozen=True)
class Statements:
    """Those of one table. ``offer`` takes how many rows and bytes, and namespaces; the others places, and texts for them."""

    offer: str
    take: str
    set_aside: str


def statements_of(schema: str, *, which: str) -> Statements:
    """Return the statements for the table in ``schema``; ``which`` holds a namespace against ``$4``, an array of them."""
    return Statements(
        offer=_OFFER.format(schema=schema, which=which),
        take=_TAKE.format(schema=schema),
        set_aside=_SET_ASIDE.format(schema=schema),
    )
