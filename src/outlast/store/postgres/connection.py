"""Sessions: all are made here, each is looked at before it is used.

A session is refused when something stands between us and the database that hands one connection to several callers, when
the server may lose what it acknowledged, when it is a copy that cannot be written, or too old.
"""

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg.exceptions import ClientConfigurationError, TargetServerAttributeNotMatched

from outlast.store.base import StoreError
from outlast.store.postgres.address import FORM, Address, without_secrets

OLDEST_VERSION: Final = 140_000  # as PostgreSQL numbers them
CONNECT_SECONDS: Final = 10.0
LOCK_MILLISECONDS: Final = 5_000  # how long a statement waits for a lock of somebody else
READ_MILLISECONDS: Final = 30_000  # of one read
SEND_BYTES: Final = 4 * 1024 * 1024  # that may wait in the system: a batch of some 6,000 starts
STATEMENTS_KEPT: Final = 100  # prepared, per session; those that were not used for longest are dropped
TAKES_WRITES: Final = (
    "Name the primary, of several hosts by ?host=A,B&port=5432,5432&target_session_attrs=read-write. "
    "Or, if it is the user's setting: ALTER ROLE … RESET default_transaction_read_only."
)
IDLE_MILLISECONDS: Final = 30_000  # of a claim that is not finished: it holds the lock of the shard's row

FAILURES: Final = (  # what a session raises; the third when it was ended in the middle of an exchange
    asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError,
)  # fmt: skip

if TYPE_CHECKING:
    Session = asyncpg.Connection[asyncpg.Record]
else:
    Session = asyncpg.Connection

_ALL: Final = {
    "idle_session_timeout": "0",
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
    "search_path": "pg_catalog",
    "jit": "off",
    # Keys are all that rows are found by. Small tables look to the planner as if reading them whole were cheaper, and a plan
    # that is made while they are small would be kept.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # A peer that has vanished is noticed within half a minute; without meaning on a Unix socket.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
WRITER: Final = {
    **_ALL,
    "statement_timeout": "0",  # a COMMIT that is cut short may have happened all the same
    "lock_timeout": str(LOCK_MILLISECONDS),
    "idle_in_transaction_session_timeout": str(IDLE_MILLISECONDS),
    "default_transaction_read_only": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
READER: Final = {
    **_ALL,
    "statement_timeout": str(READ_MILLISECONDS),
    "idle_in_transaction_session_timeout": str(IDLE_MILLISECONDS),
    "default_transaction_read_only": "on",
}

_LOOK: Final = """
    SELECT current_setting('server_version_num')::int AS version, current_setting('server_encoding') AS encoding,
        pg_backend_pid() AS pid, pg_is_in_recovery() AS recovering, current_setting('fsync') AS fsync,
        current_setting('full_page_writes') AS full_page_writes,
        current_setting('synchronous_commit') AS synchronous_commit,
        current_setting('synchronous_standby_names') AS standbys,
        current_setting('transaction_read_only') AS read_only
"""
_TIMELINE: Final = """
    SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint AS timeline,
        (SELECT system_identifier FROM pg_control_system())::numeric AS cluster,
        (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS number
"""


@dataclass(slots=True)
class Server:
    """What a session found at the other end. ``weak``: the settings by which an acknowledged commit may be lost.

    ``number`` is the database's own in its cluster: another one holds what was restored from a dump.
    """

    version: int
    timeline: int
    cluster: int
    number: int
    weak: tuple[str, ...]

    @property
    def history(self) -> tuple[int, int, int]:
        """What two sessions agree in that see the same commits."""
        return self.timeline, self.cluster, self.number


@dataclass(slots=True)
class Opened:
    """A session, what it found, and the notices that came since they were last cleared."""

    session: Session
    server: Server
    shown: str  # what people may see of the address
    notices: list[str] = field(default_factory=list[str])


async def connect(address: Address, *, name: str, settings: dict[str, str], allow_weak: bool) -> Opened:
    """Return a session that is fit to be used, shown to the database as ``name``. Raises StoreError."""
    try:
        session: Session = await asyncpg.connect(
            address.url,
            timeout=CONNECT_SECONDS,
            server_settings={"application_name": name},
            statement_cache_size=STATEMENTS_KEPT,
            max_cached_statement_lifetime=0,  # as long as the session
            max_cacheable_statement_size=0,  # of any length
        )
    except Exception as error:
        raise said(error, address) from error
    try:
        server = await _examine(session, address, allow_weak=allow_weak)
        known = {**settings, "transaction_timeout": "0"} if server.version >= 170_000 else settings  # noqa: PLR2004
        await session.execute(_settings(known))
    except BaseException as error:
        session.terminate()
        if isinstance(error, FAILURES):
            raise said(error, address) from error
        raise
    _widen(session)
    opened = Opened(session, server, address.shown)
    session.add_log_listener(lambda _, message: opened.notices.append(str(message)))
    return opened


def _widen(session: Session) -> None:
    """Let a whole statement go out at once. The rest of one waits for our loop to come round to it, and the database waits too.

    Over TCP the system finds the size by itself, up to as much, and would stop doing so. It gives less where its own bound is
    lower, and nothing fails for it.
    """
    transport: asyncio.Transport | None = getattr(session, "_transport", None)  # the driver has no public way to it
    wire: socket.socket | None = transport.get_extra_info("socket") if transport is not None else None
    if wire is not None and wire.family is getattr(socket, "AF_UNIX", None):
        with contextlib.suppress(OSError):
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)


async def _examine(session: Session, address: Address, *, allow_weak: bool) -> Server:
    found = await session.fetchrow(_LOOK)
    assert found is not None
    if found["pid"] != session.get_server_pid():
        raise StoreError(
            "unavailable",
            f"Something between here and {address.shown} shares its connections among callers, as PgBouncer does.",
            remedy="Name the database's own host and port: the shard's owner needs a session of its own.",
        )
    if found["version"] < OLDEST_VERSION:
        raise StoreError(
            "unavailable",
            f"{address.shown} is PostgreSQL {found['version'] // 10_000}; {OLDEST_VERSION // 10_000} is the oldest that works.",
            remedy="Upgrade the server.",
        )
    if found["encoding"] != "UTF8":
        raise StoreError(
            "unavailable",
            f"The database {address.database} has encoding {found['encoding']}; texts need UTF8.",
            remedy=f"Make one: CREATE DATABASE {address.database} ENCODING 'UTF8' TEMPLATE template0.",
        )
    if found["recovering"] or found["read_only"] == "on":
        raise StoreError(
            "unavailable",
            f"{address.shown} can be read only: it is a standby, or its default is read-only transactions.",
            remedy=TAKES_WRITES,
        )
    weak = _weak(found)
    if weak and not allow_weak:
        raise StoreError(
            "unavailable",
            f"{address.shown} may lose commits that it acknowledged: {', '.join(weak)}.",
            remedy="Set them to on, or add allow_weak_durability=yes to the address if this data may be lost.",
        )
    line = await session.fetchrow(_TIMELINE)
    assert line is not None
    # From here on as it was found: a reload of the server's settings would else weaken this session without a word.
    await session.execute(f"SET synchronous_commit = '{found['synchronous_commit']}'")
    return Server(found["version"], line["timeline"], int(line["cluster"]), line["number"], weak)


def _weak(found: asyncpg.Record) -> tuple[str, ...]:
    weak = [f"{name} is {found[name]}" for name in ("fsync", "full_page_writes") if found[name] != "on"]
    if found["synchronous_commit"] == "off" or (found["synchronous_commit"] == "local" and found["standbys"]):
        weak.append(f"synchronous_commit is {found['synchronous_commit']}")
    return tuple(weak)


def _settings(settings: dict[str, str]) -> str:
    return "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())


async def close(session: Session) -> None:
    """End a session: politely when the server answers within a second, else by dropping its connection."""
    if session.is_closed():
        return
    with contextlib.suppress(Exception):
        await session.close(timeout=1.0)
    session.terminate()


def said(error: BaseException, address: Address) -> StoreError:
    """Return ``error`` as what a user can act on."""
    place = address.shown
    if isinstance(error, StoreError):
        return error
    match error:
        case asyncpg.InvalidCatalogNameError():
            return StoreError(
                "unavailable",
                f"There is no database {address.database} at {place}.",
                remedy=f"Make it there, as a user who may: createdb --encoding=UTF8 {address.database}",
            )
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return StoreError(
                "denied",
                f"{place} does not let this user in: {_text(error, address)}.",
                remedy="Look at the user and its password (PGPASSWORD, ~/.pgpass), and at the server's pg_hba.conf.",
            )
        case asyncpg.InsufficientPrivilegeError():
            return StoreError(
                "denied",
                f"The user may not do what the store needs at {place}: {_text(error, address)}.",
                remedy=f"GRANT CREATE, CONNECT ON DATABASE {address.database} to it, or let it own the schema outlast.",
            )
        case asyncpg.TooManyConnectionsError():
            return StoreError(
                "unavailable",
                f"{place} has as many connections as it may.",
                remedy="Raise max_connections, or close some.",
            )
        case asyncpg.DiskFullError():
            return StoreError("store_full", f"There is no room to write at {place}.", remedy="Free space on its disk.")
        case asyncpg.LockNotAvailableError():
            return StoreError(
                "unavailable",
                f"Somebody else has the tables at {place} locked.",
                remedy="End the session that pg_stat_activity shows to hold the lock.",
            )
        case asyncpg.QueryCanceledError():
            return StoreError(
                "limit_exceeded",
                f"Reading took longer than {READ_MILLISECONDS // 1000} s and was ended.",
                remedy="Narrow the list by type, workflow id, or a later place to begin at.",
            )
        case asyncpg.DataCorruptedError() | asyncpg.IndexCorruptedError():
            return StoreError(
                "store_damaged",
                f"The database at {place} is damaged: {_text(error, address)}.",
                remedy="Stop the engine, keep the files as they are, and restore the last backup.",
            )
        case asyncpg.ProtocolViolationError() if "startup parameter" in str(error):
            return StoreError(
                "unavailable",
                f"Something between here and {place} does not speak as PostgreSQL does: {_text(error, address)}.",
                remedy="Name the database's own host and port, without a pooler in between.",
            )
        case OSError() | TimeoutError() | asyncio.TimeoutError() | ssl.SSLError():
            return StoreError(
                "unavailable",
                f"{place} cannot be reached: {_text(error, address) or type(error).__name__}.",
                remedy="Look whether the server runs and listens there, and at the network in between.",
            )
        case _:
            return _said_of_session(error, address)


def _said_of_session(error: BaseException, address: Address) -> StoreError:
    """Return what is said of a session that was not had, or broke off."""
    place = address.shown
    match error:
        case asyncpg.CannotConnectNowError():
            return StoreError(
                "unavailable",
                f"{place} does not take connections: {_text(error, address)}.",
                remedy="It starts or stops: send it again in a moment.",
            )
        case ClientConfigurationError():
            return StoreError(
                "invalid_request",
                f"The address {place} has an option that is not right: {_text(error, address)}.",
                remedy=FORM,
            )
        case asyncpg.UndefinedObjectError() if "configuration parameter" in str(error):
            return StoreError(
                "invalid_request",
                f"The address {place} has an option that is not right: {_text(error, address)}.",
                remedy=FORM,
            )
        case TargetServerAttributeNotMatched():
            return StoreError("unavailable", f"None of the servers at {place} takes writes.", remedy=TAKES_WRITES)
        case asyncpg.InterfaceError() | asyncpg.InternalClientError() | asyncpg.ConnectionDoesNotExistError():
            return StoreError(
                "unavailable",
                f"The connection to {place} broke off: {_text(error, address)}.",
                remedy="Look whether the server runs, then say it again.",
            )
        case _:
            return StoreError(
                "unavailable",
                f"{place} failed: {type(error).__name__}: {_text(error, address)}.",
                remedy="Look at the server's log.",
            )


def _text(error: BaseException, address: Address) -> str:
    first: Any = str(error).strip().split("\n")[0]
    return without_secrets(first.rstrip("."), address)
