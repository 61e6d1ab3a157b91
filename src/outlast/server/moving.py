"""Moving a store's work to another store.

Nobody works on either of the two meanwhile. The target takes no work before everything is in it and was read back; then the
source is marked, and only then the target is opened. A move that was cut off anywhere is said again: it begins anew as long as
the source is not marked, and goes on from the mark when it is. At no instant can both be worked on.
"""

from pathlib import Path
from typing import Final

import msgspec

from outlast.core.errors import Conflict, Invalid, NotFound
from outlast.server.clock import SystemEntropy
from outlast.server.places import BlobPlace
from outlast.server.stores import is_postgres, path_of, refuse_held
from outlast.server.wholes import (
    closing,
    counts_of,
    exists,
    hold,
    lease_step,
    looked_at,
    now,
    pass_on,
    raised,
    refuse_left,
    refuse_work,
)
from outlast.store.standing import FILLING, MOVED, VERIFIED, Standing, refusal_of, refuse
from outlast.store.whole import INTAKE, Say, WholeStore, carry, carry_blobs, compare, summed

ELSEWHERE: Final = "Name an empty store, or a new one; work of two stores cannot be brought together."


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What a move did. ``did``: "move", "finish" for one that had been cut off behind the mark, "nothing" for one that was done.

    ``rows`` by kind, ``payloads`` that were beside the source, and the ``incarnation`` that the work goes on under.
    """

    source: str
    target: str
    did: str
    rows: dict[str, int]
    payloads: int
    incarnation: int


async def plan(source_url: str, target_url: str, place: BlobPlace) -> Moved:
    """Return what ``move`` would do, having changed nothing. Raises what it would raise, Refusal and StoreError."""
    _refuse_same(source_url, target_url)
    _refuse_held(source_url)
    _refuse_held(target_url)
    async with closing(await looked_at(source_url)) as source:
        marked, counts = await source.standing(), await counts_of(source)
        payloads = 0 if place.url else len(await source.blobs.names())
        found = await source.position()
        did, target_shown, incarnation = "move", "", found.incarnation
        if marked is not None and marked.state != MOVED:
            refuse(marked, source.shown, url=source.url)
        try:
            if not exists(target_url):
                raise NotFound("store_not_found", "It is made by the move.")
            target = await looked_at(target_url)
        except NotFound:
            if marked is not None:
                raise refusal_of(marked, source.shown, url=source.url) from None
            target_shown = "" if is_postgres(target_url) else path_of(target_url)
        else:
            async with closing(target):
                target_shown, incarnation = target.shown, raised(incarnation, (await target.position()).incarnation)
                if marked is not None:
                    did = await _left_to_do(source, target, marked)
                else:
                    await _refuse_unfit(source, target)
                    await refuse_left(source, target)
        return Moved(
            source=source.shown,
            target=target_shown,
            did=did,
            rows=counts,
            payloads=payloads,
            incarnation=raised(incarnation),
        )


async def move(source_url: str, target_url: str, place: BlobPlace, *, reason: str, say: Say) -> Moved:
    """Move all work, or finish a move that was cut off. Raises Refusal, StoreError; the source is then as it was."""
    _refuse_same(source_url, target_url)
    async with closing(await hold(source_url, make=False)) as source:
        marked = await source.standing()
        if marked is not None and marked.state == MOVED:
            return await _finish(source, target_url, place, marked)
        refuse(marked, source.shown, url=source.url)
        async with closing(await hold(target_url, make=True)) as target:
            await _refuse_unfit(source, target)
            await refuse_left(source, target)
            return await _move(source, target, place, reason=reason, say=say)


async def _move(source: WholeStore, target: WholeStore, place: BlobPlace, *, reason: str, say: Say) -> Moved:
    found = await source.position()
    incarnation = raised(found.incarnation, (await target.position()).incarnation)
    mark = Standing(
        state=FILLING, place=source.url, token=SystemEntropy().new_id(), at=now(), incarnation=found.incarnation
    )
    await target.begin(mark)
    written = await carry(source, target, say=say)
    # Again: callers may enqueue while rows are copied. Those that do from here on have the marking refused.
    await refuse_left(source, target, carried=written[INTAKE.name].rows)
    # In a place of their own both stores find them; beside the source they are brought along.
    payloads = 0 if place.url else len(await carry_blobs(source.blobs, target.blobs, say=say))
    compare(written, await summed(target, say=say), shown=target.shown)
    await target.stand(msgspec.structs.replace(mark, state=VERIFIED))
    moved = msgspec.structs.replace(
        mark, state=MOVED, place=target.url, at=now(), incarnation=incarnation, reason=reason
    )
    await source.stand(moved)  # from here on the source takes no work, and the target does from the next step on
    await target.open_up(msgspec.structs.replace(found, incarnation=incarnation))
    await pass_on(source, target, place)
    return Moved(
        source=source.shown,
        target=target.shown,
        did="move",
        rows={name: sum_.rows for name, sum_ in written.items()},
        payloads=payloads,
        incarnation=incarnation,
    )


async def _finish(source: WholeStore, target_url: str, place: BlobPlace, marked: Standing) -> Moved:
    """Open the target of a move that was cut off behind the mark. Raises StoreError when it is another one."""
    if not exists(target_url):
        raise refusal_of(marked, source.shown, url=source.url)
    async with closing(await hold(target_url, make=False)) as target:
        did = await _left_to_do(source, target, marked)
        if did == "finish":
            found = await source.position()
            await target.open_up(msgspec.structs.replace(found, incarnation=marked.incarnation))
        await pass_on(source, target, place)
        counts = await counts_of(target)
        return Moved(
            source=source.shown,
            target=target.shown,
            did=did,
            rows=counts,
            payloads=len(await target.blobs.names()),
            incarnation=(await target.position()).incarnation,
        )


async def _left_to_do(source: WholeStore, target: WholeStore, marked: Standing) -> str:
    mark = await target.standing()
    if mark is not None and mark.state == VERIFIED and mark.token == marked.token:
        return "finish"
    if mark is None and (await target.position()).identity == (await source.position()).identity:
        return "nothing"
    raise refusal_of(marked, source.shown, url=source.url)


async def _refuse_unfit(source: WholeStore, target: WholeStore) -> None:
    """Raise Refusal, StoreError unless ``target`` is empty, or holds what a move from ``source`` left half done."""
    mark = await target.standing()
    if mark is None:
        refuse_work(await counts_of(target), target.shown, remedy=ELSEWHERE)
    elif mark.state != FILLING and not await _is_left_behind(source, target, mark):
        raise refusal_of(mark, target.shown, url=target.url)


async def _is_left_behind(source: WholeStore, target: WholeStore, mark: Standing) -> bool:
    """Say whether what is in ``target`` is all in ``source`` as well: half of a move from it, or an earlier state of it."""
    if mark.place != source.url:
        return False
    if mark.state == VERIFIED:
        return True
    here, there = await source.position(), await target.position()
    return mark.state == MOVED and here.identity == there.identity and here.number >= there.number


async def take_back(url: str) -> Moved:
    """Have a store that was moved take work again, as it was when it was moved.

    The workers and leases of before are fenced, and so is who got them from the other store. Raises Conflict for one that
    was not moved, StoreError.
    """
    async with closing(await hold(url, make=False)) as store:
        marked, found = await store.standing(), await store.position()
        if marked is None or marked.state != MOVED:
            raise Conflict(
                "precondition_failed", f"{store.shown} was not moved.", remedy="There is nothing to take back."
            )
        incarnation = raised(found.incarnation, marked.incarnation)
        await store.stand(None, lease_step=lease_step(), incarnation=incarnation)
        return Moved(
            source=marked.place,
            target=store.shown,
            did="take_back",
            rows=await counts_of(store),
            payloads=len(await store.blobs.names()),
            incarnation=incarnation,
        )


def _refuse_same(source_url: str, target_url: str) -> None:
    same = source_url == target_url
    if not same and not is_postgres(source_url) and not is_postgres(target_url):
        same = _real(source_url) == _real(target_url)
    if same:
        raise Invalid("invalid_request", "Source and target are the same store.", remedy="Name two stores.")


def _real(url: str) -> str:
    return url if url.startswith("memory:") else str(Path(path_of(url)).resolve())


def _refuse_held(url: str) -> None:
    if not is_postgres(url) and not url.startswith("memory:"):
        refuse_held(path_of(url))
