"""A store's address to a store: ``sqlite:///FILE``, ``postgresql://…`` or ``memory:``. Here alone stores are named."""

import asyncio
import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from outlast.core import limits
from outlast.core.errors import Conflict, Invalid, NotFound
from outlast.protocol.addresses import masked
from outlast.server.clock import SystemEntropy
from outlast.server.places import BESIDE, BlobPlace, blobs_at
from outlast.store.base import BlobStore, Store, StoreError
from outlast.store.blobs import BESIDE as IN_FOLDER

if TYPE_CHECKING:
    from outlast.store.postgres.store import PostgresStore

FORMS: Final = "Write sqlite:///FILE (relative), sqlite:////ABSOLUTE/FILE, postgresql://HOST/DATABASE, or memory:."
POSTGRES: Final = ("postgresql://", "postgres://")
OWNER_DIGITS: Final = 32  # of the hash in an owner's id


@dataclass(slots=True, frozen=True)
class Stores:
    """Rows and blobs of one engine; ``path`` is the database's file, empty when there is none.

    ``lease``: how long the owner of the shard has it before it must renew; 0 where a lock of the system keeps others out.
    """

    store: Store
    blobs: BlobStore
    path: str = ""
    lease: int = 0


def open_stores(url: str, blobs: BlobPlace = BESIDE) -> Stores:
    """Return the stores that ``url`` names, with payloads at ``blobs``, not opened yet. Raises Invalid."""
    if url in {"memory:", "memory://"}:
        from outlast.store.memory.blobs import MemoryBlobStore
        from outlast.store.memory.store import MemoryStore
        from outlast.store.memory.tables import Tables

        identity = _fresh_identity()
        place = MemoryBlobStore() if not blobs.url else blobs_at(blobs, beside="", owner=lambda: _as_owner(identity))
        return Stores(MemoryStore(tables=Tables(identity=identity)), place)
    if is_postgres(url):
        store = postgres_store(url)
        return Stores(store, blobs_of_database(store, blobs), lease=limits.SHARD_LEASE)
    path = path_of(url)
    from outlast.store.sqlite.store import SqliteStore

    return Stores(SqliteStore(path), blobs_of(path, blobs), path)


def _fresh_identity() -> int:
    """Return what tells a store from every other one; a file gets its own when it is made."""
    return UUID(SystemEntropy().new_id()).int & (2**62 - 1)


def is_postgres(url: str) -> bool:
    """Say whether ``url`` names a PostgreSQL database."""
    return url.startswith(POSTGRES)


def postgres_store(url: str) -> "PostgresStore":
    """Return the store in the database at ``url``, not opened yet. Raises Invalid."""
    try:
        from outlast.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise Invalid(
            "invalid_request", "The driver of PostgreSQL is not installed.", remedy='pip install "outlast[postgres]"'
        ) from None
    try:
        return PostgresStore(url)
    except StoreError as error:
        raise Invalid("invalid_request", error.fact, remedy=error.remedy) from None


def blobs_of_database(store: "PostgresStore", place: BlobPlace = BESIDE) -> BlobStore:
    """Return the blobs of a database: in a table of it, unless ``place`` names another."""
    from outlast.store.postgres.blobs import PostgresBlobStore

    return blobs_at(place, beside="", owner=lambda: owner_in(store)) if place.url else PostgresBlobStore(store)


def shown(url: str) -> str:
    """Return ``url`` as people may see it: without its password."""
    return masked(url)


def path_of(url: str) -> str:
    """Return the file of a ``sqlite:`` address. Raises Invalid for any other, and for a folder that is not there."""
    scheme, colon, rest = url.partition(":")
    if not colon and url.endswith((".db", ".sqlite", ".sqlite3")):
        raise Invalid("invalid_request", f'The store is "{url}".', remedy=f"Write sqlite:///{url}.")
    if scheme in {"postgres", "postgresql"}:
        raise Invalid("invalid_request", "This needs a store in a file; the one given is PostgreSQL.", remedy=FORMS)
    if scheme != "sqlite" or not rest.startswith("///") or len(rest) == len("///"):
        raise Invalid("invalid_request", f'The store is "{url}".', remedy=FORMS)
    path = Path(rest.removeprefix("///"))
    if not path.parent.is_dir():
        raise Invalid("invalid_request", f"There is no folder {path.parent}.", remedy="Make it, or name another.")
    if path.is_dir():
        raise Invalid("invalid_request", f"{path} is a folder.", remedy="Name a file in it.")
    if path.exists() and not path.is_file():
        raise Invalid("invalid_request", f"{path} is a device or a pipe.", remedy="Name a file.")
    if path.is_symlink():
        path = path.resolve()
        if not path.parent.is_dir():
            raise Invalid("invalid_request", f"There is no folder {path.parent}.", remedy="Make it, or name another.")
    return str(path)


def blobs_of(path: str, place: BlobPlace = BESIDE) -> BlobStore:
    """Return the blobs of the database at ``path``: beside it unless ``place`` names another. Raises Invalid."""
    return blobs_at(place, beside=f"{path}{IN_FOLDER}", owner=lambda: asyncio.to_thread(owner_of, path))


def owner_of(path: str) -> str:
    """Return the id under which the database at ``path`` owns a place for payloads. Raises NotFound, StoreError.

    It is of what the database says it is and of which file that is: a copy says the same and is another file, so it does
    not have the id. Nor has a database that was brought to another disk: then nothing is swept until somebody says so.
    """
    from outlast.store.sqlite.identity import identity_of, marks_of

    if not Path(path).is_file():
        raise NotFound("store_not_found", f"There is no store at {path}.", remedy="Start an engine on it first.")
    identity, incarnation = identity_of(path)
    return owner_id(identity, incarnation, *marks_of(path))


async def owner_in(store: "PostgresStore") -> str:
    """Return the id under which a database owns a place for payloads; ``store`` is open. Raises StoreError.

    A database that was restored elsewhere, or was promoted, has another.
    """
    return owner_id(*await store.identity())


def owner_id(identity: int, *more: int) -> str:
    """Return the id of a store of this identity; ``more`` tells it from its copies."""
    said = "/".join(map(str, (identity, *more)))
    return f"{identity:016x}-{hashlib.sha256(said.encode()).hexdigest()[:OWNER_DIGITS]}"


async def _as_owner(identity: int) -> str:
    return owner_id(identity)


def holder_of(path: str) -> str:
    """Return the address of the engine that has the database at ``path``; empty when there is none, or it serves none."""
    from outlast.store.sqlite.lock import read_holder

    holder = read_holder(path)
    return holder.address if holder is not None else ""


def refuse_held(path: str) -> None:
    """Raise StoreError, naming the process and its address, when somebody has the database at ``path``; "" is nobody's."""
    from outlast.store.sqlite import lock

    if path:
        lock.refuse_held(path)


def serving_process(path: str) -> int:
    """Return the process id of the ``outlast serve`` of this machine that has the database at ``path``.

    Raises NotFound when nobody has it, Conflict when who has it is no server that hears SIGHUP: the signal would end it.
    """
    from outlast.store.sqlite.lock import read_holder

    holder = read_holder(path)
    if holder is None or not holder.pid:
        raise NotFound("store_not_found", f"No engine has {path}.", remedy="Start one: outlast serve")
    if holder.host != socket.gethostname():
        raise Conflict(
            "denied", f"{path} is held by a process of {holder.host}.", remedy=f"Run the command on {holder.host}."
        )
    if not hears_hangup(holder.pid):
        raise Conflict(
            "denied",
            f"{path} is held by process {holder.pid}, which is no outlast serve as far as this system tells.",
            remedy=f"If it is one: kill -HUP {holder.pid}; other programs read settings when they start.",
        )
    return holder.pid


def hears_hangup(pid: int) -> bool:
    """Say whether the process is an ``outlast serve`` with a handler for SIGHUP, as far as the system tells."""
    folder = Path(f"/proc/{pid}")
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        status = (folder / "status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return b"serve" in words and bool(int(caught, 16) & 1)
