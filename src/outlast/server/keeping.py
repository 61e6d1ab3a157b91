"""Backups: one file in the form of the SQLite store, whatever store it was made of, with the payloads in a folder beside it.

A backup says of itself that it is one, and what must be in it: it is read, but not worked on. To restore is to fill a store
from it, under a new incarnation and with lease numbers that were never given out, so that whoever worked on the store in the
meantime is refused.
"""

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from outlast.core.errors import Conflict, Invalid, NotFound
from outlast.server.places import BlobPlace
from outlast.server.stores import is_postgres, path_of, refuse_held, shown
from outlast.server.wholes import (
    blobs_of_whole,
    closing,
    counts_of,
    exists,
    hold,
    lease_step,
    looked_at,
    now,
    raised,
    refuse_left,
    refuse_memory,
    refuse_work,
)
from outlast.store.base import StoreError
from outlast.store.blobs import BESIDE, FileBlobStore
from outlast.store.standing import BACKUP, FILLING, Standing, refusal_of, refuse_half
from outlast.store.whole import TASKS, Change, Kind, Row, Say, Sum, WholeStore, carry, carry_blobs, compare, summed

PART: Final = ".part"  # of a backup that is being made
BEFORE: Final = ".before-restore"  # what a file is kept as that a restore replaces


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says is in it: sums by kind of row, and the names of payloads."""

    schema: int
    sums: dict[str, Sum]
    payloads: tuple[str, ...]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was made, or would be."""

    store: str
    backup: str
    rows: dict[str, int]
    payloads: int
    size: int  # of the file, in bytes


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A store that was filled from a backup, or would be. ``before``: what the replaced file is kept as."""

    backup: str
    store: str
    rows: dict[str, int]
    payloads: int
    incarnation: int
    before: str
    verified: bool  # the backup said what must be in it, and it was


# To keep.


async def plan_backup(url: str, file: str, place: BlobPlace) -> Kept:
    """Return what ``backup`` would keep, having written nothing. Raises Refusal, StoreError."""
    _refuse_present(file)
    async with closing(await looked_at(url)) as source:
        refuse_half(await source.standing(), source.shown, url=source.url)
        counts = await counts_of(source)
        payloads = len(await blobs_of_whole(source, place, await source.position()).names())
        return Kept(store=source.shown, backup=file, rows=counts, payloads=payloads, size=0)


async def backup(url: str, file: str, place: BlobPlace, *, say: Say) -> Kept:
    """Keep one state of the store at ``url`` in ``file``, whoever works on it. Raises Refusal, StoreError.

    There is a file of that name only when it is whole.
    """
    _refuse_present(file)
    part = file + PART
    kept = FileBlobStore(file + BESIDE)
    gone: set[str] = set()
    async with closing(await looked_at(url)) as source:
        refuse_half(await source.standing(), source.shown, url=source.url)
        await asyncio.to_thread(_begin, part)
        # Payloads before rows: one that a row names now might be swept once the row has gone. Those that came since follow.
        names = await carry_blobs(blobs_of_whole(source, place, await source.position()), kept, say=say, gone=gone)
    async with closing(await looked_at(url)) as source:
        sums = await (_copy_rows(source, part, say) if is_postgres(url) else _copy_file(source, part, say))
        blobs = blobs_of_whole(source, place, await source.position())
        names |= await carry_blobs(blobs, kept, say=say, gone=gone)
        await asyncio.to_thread(_refuse_named, part, gone - names, source.shown)
        payloads = tuple(sorted(names))
        from outlast.server.looking import schema_known
        from outlast.store.sqlite.whole import finish_backup

        facts = msgspec.json.encode(Facts(schema=schema_known(), sums=sums, payloads=payloads)).decode()
        found = await source.position()
        mark = Standing(state=BACKUP, place=source.url, at=now(), incarnation=found.incarnation, facts=facts)
        await asyncio.to_thread(finish_backup, part, mark)
        await asyncio.to_thread(_name, part, file)
        size = await asyncio.to_thread(os.path.getsize, file)
        rows = {name: sum_.rows for name, sum_ in sums.items()}
        return Kept(store=source.shown, backup=file, rows=rows, payloads=len(payloads), size=size)


def _refuse_named(part: str, gone: set[str], shown: str) -> None:
    """Raise StoreError when a row that was copied names a payload that has ``gone``: only what none names is ever swept."""
    from outlast.store.sqlite.whole import named_in

    named = named_in(part, gone) if gone else gone
    if named:
        raise StoreError(
            "store_damaged",
            f"{len(named)} payloads that rows of {shown} name were removed while they were copied: {min(named)}.",
            remedy="Look for what removes them, other than Outlast; outlast doctor says more. Then back up again.",
        )


async def _copy_file(source: WholeStore, part: str, say: Say) -> dict[str, Sum]:
    """Copy page by page what is read; return what was read back."""
    from outlast.store.sqlite.whole import SqliteWhole

    assert isinstance(source, SqliteWhole)
    await asyncio.to_thread(source.copy_to, part)
    wanted = await counts_of(source)
    async with closing(await asyncio.to_thread(SqliteWhole.look, part)) as copy:
        sums = await summed(copy, say=say)
        compare({name: msgspec.structs.replace(sums[name], rows=wanted[name]) for name in sums}, sums, shown=part)
    return sums


async def _copy_rows(source: WholeStore, part: str, say: Say) -> dict[str, Sum]:
    from outlast.store.sqlite.whole import SqliteWhole

    async with closing(await asyncio.to_thread(lambda: SqliteWhole.hold(part, make=True))) as copy:
        await copy.begin(Standing(state=FILLING, place=source.url, at=now()))
        sums = await carry(source, copy, say=say)
        compare(sums, await summed(copy, say=say), shown=part)
        await copy.open_up(await source.position())
    return sums


# To restore.


async def plan_restore(file: str, url: str, *, replace: bool, say: Say) -> Restored:
    """Return what ``restore`` would do, having verified the backup and changed nothing. Raises what it would raise."""
    _refuse_itself(file, url)
    with tempfile.TemporaryDirectory(prefix="outlast-restore-") as folder:
        async with closing(await _opened(file, folder)) as source:
            verified, sums = await _verified(source, file, say)
            found = await source.position()
            target_shown, incarnation = shown(url), raised(found.incarnation)
            aside = await asyncio.to_thread(_unusable, url, replace=replace)
            before = aside or ""
            with contextlib.suppress(NotFound):
                if aside is not None or not exists(url):
                    raise NotFound("store_not_found", "It is made by the restore.")
                async with closing(await looked_at(url)) as target:
                    target_shown = target.shown
                    before = await _refuse_unfit(target, url, replace=replace)
                    incarnation = raised(incarnation, (await target.position()).incarnation)
            payloads = await FileBlobStore(file + BESIDE).names()
            return Restored(
                backup=file,
                store=target_shown,
                rows={name: sum_.rows for name, sum_ in sums.items()},
                payloads=len(payloads),
                incarnation=incarnation,
                before=before,
                verified=verified,
            )


async def restore(file: str, url: str, place: BlobPlace, *, replace: bool, say: Say) -> Restored:
    """Fill the store at ``url`` from the backup ``file``, once that was verified. Raises Refusal, StoreError.

    With ``replace`` work that is there makes room; a file is kept as it was. The store takes no work until all is in it.
    """
    _refuse_itself(file, url)
    with tempfile.TemporaryDirectory(prefix="outlast-restore-") as folder:
        async with closing(await _opened(file, folder)) as source:
            verified, _ = await _verified(source, file, say)
            aside = await asyncio.to_thread(_unusable, url, replace=replace)
            opening = hold(url, make=True) if aside is None else asyncio.to_thread(_begun_anew, url, aside, file)
            async with closing(await opening) as target:
                before = aside or await _refuse_unfit(target, url, replace=replace)
                await refuse_left(source, target)
                if before and not aside:
                    await asyncio.to_thread(_keep, target, before)
                return await _restore(source, target, file, place, before=before, verified=verified, say=say)


async def _restore(
    source: WholeStore, target: WholeStore, file: str, place: BlobPlace, *, before: str, verified: bool, say: Say
) -> Restored:
    found = await source.position()
    incarnation = raised(found.incarnation, (await target.position()).incarnation)
    position = msgspec.structs.replace(found, incarnation=incarnation)
    from_ = await asyncio.to_thread(os.path.realpath, file)
    await target.begin(Standing(state=FILLING, place=from_, at=now(), incarnation=found.incarnation))
    written = await carry(source, target, say=say, change=_fencing(lease_step()))
    payloads = len(await carry_blobs(FileBlobStore(file + BESIDE), blobs_of_whole(target, place, position), say=say))
    compare(written, await summed(target, say=say), shown=target.shown)
    await target.open_up(position)
    return Restored(
        backup=file,
        store=target.shown,
        rows={name: sum_.rows for name, sum_ in written.items()},
        payloads=payloads,
        incarnation=incarnation,
        before=before,
        verified=verified,
    )


def _fencing(step: int) -> Change:
    """Return what raises the lease number of every task: what was given out since the backup is never given again."""
    place = TASKS.place_of("lease")

    def change(kind: Kind, rows: Sequence[Row]) -> Sequence[Row]:
        if kind is not TASKS:
            return rows
        return [(*row[:place], row[place] + step, *row[place + 1 :]) for row in rows]

    return change


async def _opened(file: str, folder: str) -> WholeStore:
    """Return the backup for reading; one of an older schema is brought to the newest in a copy below ``folder``."""
    if not await asyncio.to_thread(os.path.isfile, file):
        raise NotFound(
            "store_not_found", f"There is no backup at {file}.", remedy="Name a file that outlast backup has written."
        )
    try:
        return await _looked_at(file, folder)
    except StoreError as error:
        if error.code != "store_damaged":
            raise
        raise StoreError(error.code, error.fact, remedy="Take another backup; the store is as it was.") from error


async def _looked_at(file: str, folder: str) -> WholeStore:
    from outlast.server.looking import schema_known, schema_of
    from outlast.store.sqlite.whole import SqliteWhole, migrate_copy

    if schema_of(file) < schema_known():
        newer = str(Path(folder, "backup.db"))
        await asyncio.to_thread(shutil.copyfile, file, newer)
        await asyncio.to_thread(migrate_copy, newer)
        return await asyncio.to_thread(SqliteWhole.look, newer)
    return await asyncio.to_thread(SqliteWhole.look, file)


async def _verified(source: WholeStore, file: str, say: Say) -> tuple[bool, dict[str, Sum]]:
    """Return whether the backup said what must be in it, and what is. Raises StoreError when the two differ."""
    mark = await source.standing()
    if mark is not None and mark.state != BACKUP:
        raise refusal_of(mark, file, url=file)
    sums = await summed(source, say=say)
    payloads = FileBlobStore(file + BESIDE)
    there = await payloads.names()
    for n, name in enumerate(sorted(there), 1):
        await payloads.get(name)  # it raises when it is not what its name says
        say("verify payloads", n)
    if mark is None:
        return False, sums
    from outlast.server.looking import schema_known

    facts = msgspec.json.decode(mark.facts, type=Facts)
    if missing := len(set(facts.payloads) - there):
        raise Conflict(
            "store_damaged",
            f"{missing} of the {len(facts.payloads)} payloads that were kept with the backup are not in {file}{BESIDE}.",
            remedy=f"Bring the folder {Path(file).name}{BESIDE} beside the file, as it was made.",
        )
    if facts.schema != schema_known():
        return False, sums  # rows of another form have other sums
    compare(facts.sums, sums, shown=file)
    return True, sums


async def _refuse_unfit(target: WholeStore, url: str, *, replace: bool) -> str:
    """Return what the file that is replaced is to be kept as, "" for none. Raises Conflict, StoreError without ``replace``."""
    mark, counts = await target.standing(), await counts_of(target)
    if mark is not None and mark.state == FILLING:
        return ""  # a restore or a move that was cut off: what it left is no work
    if not replace:
        if mark is not None:
            raise refusal_of(mark, target.shown, url=target.url)
        refuse_work(
            counts, target.shown, remedy="Restore into another store, or say --replace: what is there makes room."
        )
    if is_postgres(url) or not any(counts.values()):
        return ""
    return _free_name(f"{path_of(url)}{BEFORE}")


def _unusable(url: str, *, replace: bool) -> str | None:
    """Return what a file that no engine could start on is to be kept as, "" for one that has gone; None for one that is well.

    Raises StoreError without ``replace``, and when somebody has the file.
    """
    if is_postgres(url) or url.startswith("memory:"):
        return None
    from outlast.server.looking import check_past, integrity_of

    path = path_of(url)
    refuse_held(path)
    try:
        check_past(path)
        if exists(url):
            integrity_of(path)
    except StoreError as error:
        if error.code != "store_damaged":
            raise
        if not exists(url):
            return ""
        if not replace:
            remedy = "Say --replace: it is kept as it is, and the backup goes into a new file in its place."
            raise StoreError(error.code, error.fact, remedy=remedy) from error
        return _free_name(f"{path}{BEFORE}")
    return None


def _begun_anew(url: str, aside: str, file: str) -> WholeStore:
    from outlast.store.sqlite.whole import SqliteWhole

    row = Standing(state=FILLING, place=os.path.realpath(file), at=now())
    return SqliteWhole.begin_anew(path_of(url), aside=aside, row=row)


def _free_name(name: str) -> str:
    return next(found for found in (f"{name}-{n}" for n in itertools.count(1)) if not Path(found).exists())


def _keep(target: WholeStore, before: str) -> None:
    from outlast.store.sqlite.whole import SqliteWhole

    assert isinstance(target, SqliteWhole)
    _begin(before + PART)
    target.copy_to(before + PART)
    _name(before + PART, before)


def _refuse_itself(file: str, url: str) -> None:
    refuse_memory(url)
    if not is_postgres(url) and Path(path_of(url)).resolve() == Path(file).resolve():
        raise Invalid("invalid_request", f"{file} is the store itself.", remedy="Name another store with --store.")


def _refuse_present(file: str) -> None:
    if Path(file).exists():
        raise Conflict("store_not_empty", f"There is {file} already.", remedy="Name a new file, or remove the old one.")
    if not Path(file).parent.is_dir():
        raise NotFound(
            "store_not_found", f"There is no folder {Path(file).parent}.", remedy="Make it, or name another."
        )


def _begin(path: str) -> None:
    """Make an empty file that others may not read, in the place of what a backup that was cut off has left."""
    for end in ("", "-wal", "-shm", "-journal", ".lock"):
        Path(path + end).unlink(missing_ok=True)
    Path(path).touch(mode=0o600)


def _name(part: str, name: str) -> None:
    """Give a file that is whole its name."""
    with Path(part).open("rb") as file:
        os.fsync(file.fileno())
    Path(part).replace(name)
    for end in ("-wal", "-shm", ".lock"):
        Path(part + end).unlink(missing_ok=True)
    if os.name != "nt":
        handle = os.open(Path(name).parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
