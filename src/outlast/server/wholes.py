"""Stores as wholes by their addresses, and where their payloads are: what moves, backs up and restores opens here."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, Protocol, cast

from outlast.core.errors import Conflict, Invalid, NotFound
from outlast.core.units import MILLISECOND, SECOND
from outlast.server.places import BlobPlace, blobs_at
from outlast.server.stores import is_postgres, owner_id, path_of, postgres_store
from outlast.store.whole import INTAKE, KINDS, WORK, Blobs, Position, WholeStore

LEASES_SINCE: Final = 1_735_689_600 * SECOND  # 2025-01-01: lease numbers are raised by the milliseconds since


async def hold(url: str, *, make: bool) -> WholeStore:
    """Return the store at ``url`` with every engine kept out until it is closed. Raises Refusal, StoreError.

    With ``make`` a new one is made and an older one is brought to the newest schema.
    """
    refuse_memory(url)
    if is_postgres(url):
        postgres_store(url)  # it says when the driver is missing, and what is wrong with the address
        from outlast.store.postgres.whole import PostgresWhole

        return await PostgresWhole.hold(url, make=make)
    from outlast.store.sqlite.whole import SqliteWhole

    if not make:
        _refuse_missing(path_of(url))
    return await asyncio.to_thread(lambda: SqliteWhole.hold(path_of(url), make=make))


async def looked_at(url: str) -> WholeStore:
    """Return one state of the store at ``url``, whoever has it, for reading. Raises Refusal, StoreError."""
    refuse_memory(url)
    if is_postgres(url):
        postgres_store(url)
        from outlast.store.postgres.whole import PostgresWhole

        return await PostgresWhole.look(url)
    from outlast.store.sqlite.whole import SqliteWhole

    _refuse_missing(path_of(url))
    return await asyncio.to_thread(lambda: SqliteWhole.look(path_of(url)))


def _refuse_missing(path: str) -> None:
    """Raise NotFound where no store has been; of one that was, its lock file tells more."""
    from outlast.store.sqlite.lock import lock_path_of

    if not Path(path).exists() and not Path(lock_path_of(path)).exists():
        raise NotFound("store_not_found", f"There is no store at {path}.", remedy="Name the file that has the work.")


def exists(url: str) -> bool:
    """Say whether there may be a store at ``url``: a database is there, and is asked when it is opened."""
    return is_postgres(url) or (Path(path_of(url)).is_file() and Path(path_of(url)).stat().st_size > 0)


def refuse_memory(url: str) -> None:
    """Raise Invalid for a store that ends with its process."""
    if url.startswith("memory:"):
        raise Invalid(
            "invalid_request",
            "A store in memory ends with its process; there is nothing to move or to keep.",
            remedy="Name sqlite:///FILE or postgresql://HOST/DATABASE.",
        )


class PlacedBlobs(Blobs, Protocol):
    """Payloads in a place that several stores can name."""

    async def pass_on(self, to: str) -> bool: ...


def blobs_of_whole(store: WholeStore, place: BlobPlace, position: Position) -> Blobs:
    """Return the payloads of ``store``: its own unless ``place`` names another, which it owns as ``position`` says."""
    return placed_blobs(store, place, position) if place.url else store.blobs


def placed_blobs(store: WholeStore, place: BlobPlace, position: Position) -> PlacedBlobs:
    """Return the payloads at ``place``, as ``store`` owns them when it is at ``position``."""

    async def owner() -> str:
        return owner_id(position.identity, position.incarnation, *store.marks())

    found = blobs_at(place, beside="", owner=owner)
    assert hasattr(found, "pass_on")
    return cast("PlacedBlobs", found)


@contextlib.asynccontextmanager
async def closing(store: WholeStore) -> AsyncGenerator[WholeStore]:
    """Give ``store``, and close it behind."""
    try:
        yield store
    finally:
        await store.close()


async def pass_on(source: WholeStore, target: WholeStore, place: BlobPlace) -> None:
    """Have ``target`` own the payloads that stay at ``place``, if ``source`` does: who owns them sweeps them."""
    if place.url:
        blobs = placed_blobs(source, place, await source.position())
        found = await target.position()
        await blobs.pass_on(owner_id(found.identity, found.incarnation, *target.marks()))


async def counts_of(store: WholeStore) -> dict[str, int]:
    """Return how many rows of each kind a store has."""
    return {kind.name: await store.count(kind) for kind in KINDS}


def refuse_work(counts: dict[str, int], shown: str, *, remedy: str) -> None:
    """Raise Conflict when a store has work in it."""
    work = {name: count for name, count in counts.items() if count and name in WORK}
    if work:
        said = ", ".join(f"{count:,} {name}" for name, count in work.items())
        raise Conflict("store_not_empty", f"{shown} holds work already: {said}.", remedy=remedy)


async def refuse_left(source: WholeStore, target: WholeStore, *, carried: int = 0) -> None:
    """Raise Conflict when transactions left what no engine on ``target`` would ever take; ``carried`` of it are there already."""
    left = 0 if target.takes_intake else max(carried, await source.count(INTAKE))
    if left:
        raise Conflict(
            "store_not_empty",
            f"{left:,} {'task or run' if left == 1 else 'tasks or runs'} that transactions left in {source.shown} no engine"
            f" has taken yet, and {target.shown} has no place for them.",
            remedy="Let an engine run there until outlast.intake is empty, then begin anew; or fill a PostgreSQL database.",
        )


def now() -> int:
    """Return the instant, by this machine's clock."""
    return time.time_ns()  # noqa: TID251 - an operator's act has no engine whose clock it could go by


def raised(*known: int) -> int:
    """Return an incarnation above all that are ``known``, and above any that another restore of the same rows took before."""
    return max(*known, now() // MILLISECOND - 1) + 1


def lease_step() -> int:
    """Return what lease numbers are raised by, so that none that was given out since the rows were kept is given again."""
    return max((now() - LEASES_SINCE) // MILLISECOND, 1)
