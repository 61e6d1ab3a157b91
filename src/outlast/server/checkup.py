"""What can be said of a machine and a store's file before anything runs: each finding with its fact and a way out."""

import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from outlast.core.errors import NotFound, Refusal
from outlast.protocol.opening import ENCRYPT
from outlast.server.payloads import is_open_to_all, opener_from
from outlast.server.places import place_from
from outlast.server.sources import Sources
from outlast.server.stores import open_stores
from outlast.store.base import StoreError
from outlast.store.owning import OWNER

ROWS_NAMED: Final = 5  # ids that a finding lists
WAL_BYTES_MAX: Final = 256 * 1024 * 1024  # above it something keeps old pages from being written back
DISK_BYTES_MIN: Final = 1024 * 1024 * 1024  # below it a burst of work fills the disk
DISK_BYTES_OUT: Final = 64 * 1024 * 1024  # below it the next commits fail
OLDEST_PYTHON: Final = (3, 11)
CHOSEN_FOR_SERVE: Final = ("store", "http.listen", "token", "worker.build")


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` is for programs and never changes its meaning; ``area`` is what it is about in a word."""

    code: str
    area: str
    level: Level
    fact: str
    remedy: str = ""


def check_python() -> Iterator[Finding]:
    """Say which Python runs this."""
    said = f"Python {platform.python_version()} on {sys.platform}"
    if sys.version_info < OLDEST_PYTHON:
        yield Finding("python_old", "python", Level.PROBLEM, said, "Use Python 3.11 or newer.")
    else:
        yield Finding("python", "python", Level.OK, said)


def check_settings(sources: Sources) -> Iterator[Finding]:
    """Say which settings are misspelt, and which that matter for a server nobody has chosen."""
    strangers = sources.strangers()
    for name, near in strangers:
        yield Finding("setting_unknown", "settings", Level.PROBLEM, f"{name} is no setting", f"Did you mean {near}?")
    left = [name for name in CHOSEN_FOR_SERVE if not sources.find(name).chosen]
    if left:
        yield Finding(
            "setting_default", "settings", Level.NOTE, f"default, not chosen: {', '.join(left)}",
            "Choose them in outlast.toml before others depend on this; see: outlast config show --origin",
        )  # fmt: skip
    elif not strangers:
        yield Finding("settings", "settings", Level.OK, f"from {sources.file.path or 'flags and environment'}")


def check_payloads(sources: Sources) -> Iterator[Finding]:
    """Say how values are coded, and whether the keys for it are here and kept from others; no key is told."""
    codecs, keys = sources.names("payloads.codecs"), sources.text("payloads.keys")
    if not codecs:
        return
    try:
        opener_from(sources)
    except Refusal as error:
        yield Finding("keys_missing", "payloads", Level.PROBLEM, error.fact, error.remedy)
        return
    if is_open_to_all(keys):
        path = keys.partition(":")[2]
        yield Finding(
            "keys_open_to_all", "payloads", Level.PROBLEM, f"{path} can be read by everybody", f"chmod 600 {path}"
        )
    elif ENCRYPT in codecs and not keys:
        yield Finding(
            "keys_none", "payloads", Level.NOTE, "values are encrypted and no keys are given here: they stay closed",
            "Set payloads.keys where REST and commands are to show and send values.",
        )  # fmt: skip
    else:
        yield Finding("payloads", "payloads", Level.OK, f"coded by {', '.join(codecs)}")


async def check_blobs(sources: Sources, url: str) -> list[Finding]:
    """Say whether the store at ``url`` can keep large payloads where settings say; nothing for beside the store."""
    place = place_from(sources)
    if not place.url:
        return []
    try:
        blobs = open_stores(url, place).blobs
        check, owner = getattr(blobs, "check", None), getattr(blobs, "owner", None)
        if check is not None:
            await check()
        found = "" if owner is None else await owner()
        if found and found != await _owner_said(url, otherwise=found):
            return [
                Finding(
                    "blobs_of_another", "blobs", Level.PROBLEM,
                    f"{place.url} is another store's, or this is a copy of the store it belongs to: nothing is swept there",
                    f"Give each store a place of its own, or remove {OWNER} there when the other is gone.",
                )
            ]  # fmt: skip
    except (StoreError, Refusal) as error:
        return [Finding("blobs_unusable", "blobs", Level.PROBLEM, error.fact, error.remedy)]
    return [Finding("blobs", "blobs", Level.OK, f"{place.url} can be used")]


async def _owner_said(url: str, *, otherwise: str) -> str:
    """Return the id of the store at ``url``, "" when there is none yet, ``otherwise`` when it cannot be opened."""
    from outlast.server.looking import owner_of_store

    try:
        return await owner_of_store(url)
    except NotFound:
        return ""
    except (StoreError, Refusal, OSError):
        return otherwise  # what is wrong with it is said where the store is looked at


def check_store(path: str) -> Iterator[Finding]:
    """Look at the store's file, its disk and its rights; without taking it from whoever has it."""
    file = Path(path)
    from outlast.server.looking import check_past

    try:
        check_past(path)
    except StoreError as error:
        yield Finding(error.code, "store", Level.PROBLEM, error.fact, error.remedy)
        yield from _check_disk(file)
        return
    if not file.exists():
        yield Finding(
            "store_missing", "store", Level.NOTE, f"there is no {path}", "Start something: outlast dev app.py"
        )
        yield from _check_disk(file)
        return
    yield from _check_content(path)
    wal = Path(f"{path}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size > WAL_BYTES_MAX:
        yield Finding(
            "store_wal_large", "store", Level.PROBLEM, f"{wal.name} has {megabytes(size)}",
            "A reader keeps old pages alive, or no engine runs: close database browsers, start an engine.",
        )  # fmt: skip
    yield from _check_rights(file)
    yield from _check_disk(file)


def _check_content(path: str) -> Iterator[Finding]:
    from outlast.server.looking import integrity_of, schema_known, schema_of

    try:
        schema = schema_of(path)
        integrity_of(path)
    except (StoreError, Refusal) as error:
        yield Finding(error.code, "store", Level.PROBLEM, error.fact, error.remedy)
        return
    known = schema_known()
    said = f"{path}, schema {schema}, {megabytes(Path(path).stat().st_size)}, integrity ok"
    if schema < known:
        yield Finding(
            "store_schema_old", "store", Level.PROBLEM, f"{said}; this version has {known}", "outlast migrate"
        )
    elif schema > known:
        yield Finding(
            "store_newer", "store", Level.PROBLEM, f"{said}; this version knows {known}", "Use the newer Outlast."
        )
    else:
        yield Finding("store", "store", Level.OK, said)
        yield from _check_rows(path)


def _check_rows(path: str) -> Iterator[Finding]:
    from outlast.server.looking import unreadable_in

    for noun, ids in unreadable_in(path).items():
        if ids:
            shown = ", ".join(ids[:ROWS_NAMED]) + (" …" if len(ids) > ROWS_NAMED else "")
            yield Finding(
                "store_row_damaged", "store", Level.PROBLEM, f"{len(ids):,} {noun} cannot be read: {shown}",
                "They stand still and the rest is served. Use the version that wrote them, or restore the store's copy.",
            )  # fmt: skip


def _check_rights(file: Path) -> Iterator[Finding]:
    for one in (file, file.parent):
        if not os.access(one, os.W_OK):
            yield Finding(
                "store_read_only", "store", Level.PROBLEM, f"{one} cannot be written by this user",
                f"Give the right to the user that runs the engine: chown or chmod {one}",
            )  # fmt: skip
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & stat.S_IWOTH:
        yield Finding(
            "store_open_to_all",
            "store",
            Level.PROBLEM,
            f"{file} can be written by everybody ({mode:o})",
            f"chmod 640 {file}",
        )


def _check_disk(file: Path) -> Iterator[Finding]:
    from outlast.server.looking import network_file_system

    kind = network_file_system(str(file))
    if kind:
        yield Finding(
            "store_network_disk", "disk", Level.PROBLEM, f"{file.parent} is on a network file system ({kind})",
            "Use a local disk.",
        )  # fmt: skip
    free = shutil.disk_usage(file.parent.resolve()).free
    if free < DISK_BYTES_MIN:
        level = Level.PROBLEM if free < DISK_BYTES_OUT else Level.NOTE
        yield Finding("disk_low", "disk", level, f"{megabytes(free)} free for {file}", "Free space on its disk.")
    elif not kind:
        yield Finding("disk", "disk", Level.OK, f"{megabytes(free)} free")


def megabytes(size: int) -> str:
    """Return a size for people."""
    if size < 1024 * 1024:
        return f"{size / 1024:,.0f} KB"
    return f"{size / 1024 / 1024:,.0f} MB"
