"""A PostgreSQL database as a whole: one session that keeps every owner out, or reads one state beside them."""

import contextlib
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Final, Self

import asyncpg

from outlast.core.errors import NotFound
from outlast.store.base import StoreError
from outlast.store.postgres import claiming, opening, standing
from outlast.store.postgres.address import Address, address_of
from outlast.store.postgres.connection import FAILURES, WRITER, Opened, Session, close, connect, said
from outlast.store.postgres.forms import SHARD, form_of, names
from outlast.store.postgres.opening import LOCK
from outlast.store.postgres.words import RUN_TROUBLE, TASK_TROUBLE
from outlast.store.standing import MOVED, Standing
from outlast.store.whole import BATCH_BYTES, BATCH_ROWS, INTAKE, KINDS, Blobs, Kind, Position, Row

OWNER: Final = "outlast move"  # what the shard's row says of who has it
MARK_MILLISECONDS: Final = 60_000  # how long who has enqueued is waited for, so that a copy is not for nothing
FETCHED: Final = 200  # rows of one answer: each may have some hundred KB
# A state is read as long as it takes; what is filled takes rows from us alone.
SETTINGS: Final = {**WRITER, "idle_in_transaction_session_timeout": "0", "outlast.filling": "on"}

# What the store finds rows by while they live; a batch of the engine's keeps the same (parts.py).
DERIVED: Final = {
    "open_runs": "SELECT shard, namespace, workflow_id, run_id FROM outlast.runs WHERE closed_at = 0",
    "ready_runs": "SELECT shard, ready_at, run_id FROM outlast.runs WHERE ready_at > 0 AND closed_at = 0",
    "ready_tasks": "SELECT shard, namespace, queue, type, order_key, task_id, greatest(enqueued_at, run_at) "
    "FROM outlast.tasks WHERE ready = 1",
    "leased_tasks": "SELECT shard, task_id FROM outlast.tasks WHERE state = 'leased'",
    "troubles": f"SELECT shard, namespace, 'run', status, started_at, run_id FROM outlast.runs WHERE {RUN_TROUBLE} UNION ALL "
    f"SELECT shard, namespace, 'task', state, enqueued_at, task_id FROM outlast.tasks WHERE {TASK_TROUBLE}",
}
# A look through all of a table is what is wanted here, and nowhere else.
_SCAN: Final = "SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_hashjoin = on"
_HELD: Final = "SELECT incarnation, epoch, last_number, last_at FROM outlast.shards WHERE shard = $1"
_META: Final = "SELECT identity, incarnation FROM outlast.meta"
_OTHERS: Final = "SELECT count(*) FROM outlast.shards WHERE shard <> $1 AND last_number > 0"
_FENCED: Final = f"{_HELD} AND incarnation = $2 AND epoch = $3 FOR UPDATE"
_LEFT: Final = "SELECT count(*), max(place) FROM outlast.intake"
_WHO: Final = """
    SELECT concat('PID ', pid, ' of ', usename, nullif(concat(' (', application_name, ')'), ' ()'), ', ' || state, ' since '
        || to_char(state_change AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC')
    FROM pg_stat_activity WHERE pid IN (
        SELECT pid FROM pg_locks WHERE granted AND relation = 'outlast.intake'::regclass AND mode LIKE '%Exclusive%'
            AND mode <> 'ShareUpdateExclusiveLock' AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) ORDER BY pid
"""
_NEXT_PLACE: Final = """
    SELECT setval(pg_get_serial_sequence('outlast.intake', 'place'), max(place)) FROM outlast.intake HAVING max(place) > 0
"""
_OPEN_UP: Final = """
    UPDATE outlast.shards SET incarnation = $2, epoch = $3, owner = '', lease_until = 0, last_number = $4, last_at = $5
    WHERE shard = $1
"""


class PostgresWhole:
    """The database at ``address``. Made by ``hold`` or ``look``."""

    def __init__(self, address: Address, opened: Opened) -> None:
        self.shown, self.url = address.shown, address.named
        self.takes_intake = True
        self.blobs: Blobs = _BlobTable(opened.session, address)
        self._address = address
        self._opened = opened
        self._session: Session = opened.session
        self._fence = (0, 0)
        self._left: Row = (0, None)  # how many rows the intake had when it was read, and the last of them

    @classmethod
    async def hold(cls, url: str, *, make: bool) -> Self:
        """Return the database with every owner kept out for as long as this lives. Raises StoreError.

        "not_owner" while an engine has the shard. With ``make`` the schema is made or brought to the newest form.
        """
        self = await cls._connected(url)
        try:
            with self._saying():
                if make:
                    await opening.migrate(self._session, self._opened.server)
                await self._require_schema()
                if make:
                    await opening.add_shard(self._session, SHARD)
                await self._keep_out()
        except BaseException:
            self._session.terminate()
            raise
        return self

    @classmethod
    async def look(cls, url: str) -> Self:
        """Return the database for reading, in the state of this moment, whoever has it. Raises StoreError."""
        self = await cls._connected(url)
        try:
            with self._saying():
                await self._require_schema()
                await self._session.transaction(isolation="repeatable_read", readonly=True).start()
                await self._session.fetch(_META)  # the state that is read begins here
        except BaseException:
            self._session.terminate()
            raise
        return self

    @classmethod
    async def _connected(cls, url: str) -> Self:
        address = address_of(url)
        opened = await connect(address, name=OWNER, settings=SETTINGS, allow_weak=address.allow_weak)
        return cls(address, opened)

    async def _require_schema(self) -> None:
        found = max(await opening.look(self._session), default=0)
        known = opening.schema_known()
        if not found:
            raise NotFound(
                "store_not_found",
                f"{self.shown} holds no store of Outlast.",
                remedy="Name the database that has the work.",
            )
        if found != known:
            raise StoreError(
                "unavailable" if found < known else "store_newer",
                f"{self.shown} has schema {found}; this version of Outlast works with schema {known}.",
                remedy="Run: outlast migrate" if found < known else "Use the newer version of Outlast.",
            )

    async def _keep_out(self) -> None:
        # Whoever claims takes this lock first; it is given back with the session, however that ends.
        if not await self._session.fetchval(f"SELECT pg_try_advisory_lock({LOCK}, {SHARD + 1})"):
            raise StoreError(
                "store_locked",
                f"Somebody is taking over or moving what is in {self.shown}.",
                remedy="Wait for the end of the other outlast move, restore or start of an engine.",
            )
        if await self._session.fetchval(_OTHERS, SHARD):
            raise StoreError(
                "unavailable",
                f"{self.shown} holds several shards; what moves, keeps and restores handles one.",
                remedy="Use pg_dump and pg_restore into a new database.",
            )
        now = time.time_ns()  # noqa: TID251 - an engine's lease is by the clock of its machine
        claim, _ = await claiming.claim(self._opened, SHARD, owner=OWNER, now=now, lease_until=0, to_work=False)
        self._fence = claim.fence.incarnation, claim.fence.epoch

    async def close(self) -> None:
        """End the session, and with it what keeps others out."""
        await close(self._session)

    def marks(self) -> tuple[int, ...]:
        """Return what tells the database from copies of it."""
        return self._opened.server.cluster, self._opened.server.number

    async def position(self) -> Position:
        """Return which store it is, and how far."""
        with self._saying():
            ((identity, incarnation),) = await self._session.fetch(_META)
            found = await self._session.fetchrow(_HELD, SHARD)
        held, epoch, number, at = found.values() if found is not None else (incarnation, 0, 0, 0)
        return Position(identity=identity, incarnation=max(incarnation, held), epoch=epoch, number=number, at=at)

    async def standing(self) -> Standing | None:
        """Return the row that says why it may not be worked on, None when it may."""
        with self._saying():
            return await standing.read(self._session)

    async def count(self, kind: Kind) -> int:
        """Return how many rows of a kind there are."""
        with self._saying():
            async with self._scanning():
                return int(await self._session.fetchval(f"SELECT count(*) FROM {form_of(kind).source}"))

    async def rows(self, kind: Kind) -> AsyncIterator[Sequence[Row]]:
        """Give the rows of a kind in order of its key."""
        form = form_of(kind)
        statement = f"SELECT {', '.join(form.read)} FROM {form.source} ORDER BY {names(kind.key)}"
        batch: list[Row] = []
        size = count = 0
        row: Row = (None,)
        with self._saying():
            async with self._scanning():
                async for record in self._session.cursor(statement, prefetch=FETCHED):
                    row = form.given(tuple(record))
                    batch.append(row)
                    count += 1
                    size += kind.weight(row)
                    if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                        yield batch
                        batch, size = [], 0
        if batch:
            yield batch
        if kind is INTAKE:
            self._left = count, row[0]

    async def begin(self, row: Standing) -> None:
        """Remove every row and take the standing ``row``, in one commit."""
        tables = ", ".join(f"outlast.{name}" for name in (*(kind.name for kind in KINDS), *DERIVED, "blobs"))
        async with self._commit():
            await self._session.execute(f"TRUNCATE {tables}")
            await standing.write(self._session, row)

    async def write(self, kind: Kind, rows: Sequence[Row]) -> None:
        """Add rows in a commit of their own."""
        form = form_of(kind)
        with self._saying():
            await self._session.copy_records_to_table(
                kind.name, schema_name="outlast", columns=form.columns, records=map(form.kept, rows)
            )

    async def settle(self) -> None:
        """Fill the narrow tables that rows are found by, and have the planner know all of them."""
        async with self._commit():
            await self._session.execute(_SCAN)
            for table, rows in DERIVED.items():
                await self._session.execute(f"DELETE FROM outlast.{table}")
                await self._session.execute(f"INSERT INTO outlast.{table} {rows}")
            await self._session.execute(_NEXT_PLACE)
        with self._saying():
            for table in (*(kind.name for kind in KINDS), *DERIVED):
                await self._session.execute(f"ANALYZE outlast.{table}")

    async def stand(self, row: Standing | None, *, lease_step: int = 0, incarnation: int = 0) -> None:
        """Take the standing ``row`` in one commit, under the fence of ``hold``."""
        async with self._commit():
            if row is not None and row.state == MOVED:
                await self._refuse_left()
            if lease_step:
                await self._session.execute("UPDATE outlast.tasks SET lease = lease + $1", lease_step)
            if incarnation:
                await self._session.execute("UPDATE outlast.meta SET incarnation = $1", incarnation)
                await self._session.execute("UPDATE outlast.shards SET incarnation = $1", incarnation)
            await standing.write(self._session, row)
        if incarnation:
            self._fence = incarnation, self._fence[1]

    async def _refuse_left(self) -> None:
        """Raise StoreError when transactions left something since the intake was read; those under way are waited for."""
        await self._session.execute(f"SET LOCAL lock_timeout = {MARK_MILLISECONDS}")
        try:
            async with self._session.transaction():
                await self._session.execute("LOCK TABLE outlast.intake IN SHARE ROW EXCLUSIVE MODE")
        except asyncpg.LockNotAvailableError as error:
            who = ", ".join(line for (line,) in await self._session.fetch(_WHO)) or "nobody is seen to, by now"
            raise StoreError(
                "unavailable",
                f"Transactions that enqueued in {self.shown} were waited for {MARK_MILLISECONDS // 1000} s and are still open:"
                f" {who}.",
                remedy="End them, or the sessions: SELECT pg_terminate_backend(PID). Then move again; nothing is marked yet.",
            ) from error
        if tuple(await self._session.fetchrow(_LEFT) or ()) != self._left:
            raise StoreError(
                "unavailable",
                f"Something was enqueued by transactions in {self.shown} while it was moved.",
                remedy="Stop the programs that enqueue there, then move again; nothing is marked yet.",
            )

    async def open_up(self, position: Position) -> None:
        """Become the store of ``position``, fit to be worked on."""
        async with self._commit():
            await self._session.execute(
                "UPDATE outlast.meta SET identity = $1, incarnation = $2", position.identity, position.incarnation
            )
            await self._session.execute(
                _OPEN_UP, SHARD, position.incarnation, position.epoch, position.number, position.at
            )
            await standing.write(self._session, None)
        self._fence = position.incarnation, position.epoch

    @contextlib.asynccontextmanager
    async def _commit(self) -> AsyncGenerator[None]:
        """Commit what is done within, if the shard is still held under the fence of ``hold``."""
        with self._saying():
            async with self._session.transaction():
                if await self._session.fetchrow(_FENCED, SHARD, *self._fence) is None:
                    raise StoreError(
                        "not_owner",
                        f"Somebody has taken over what is in {self.shown} meanwhile.",
                        remedy="Stop the engines on it, then begin anew.",
                    )
                yield

    @contextlib.asynccontextmanager
    async def _scanning(self) -> AsyncGenerator[None]:
        async with self._session.transaction():
            await self._session.execute(_SCAN)
            yield

    @contextlib.contextmanager
    def _saying(self) -> Any:
        try:
            yield
        except FAILURES as error:
            raise said(error, self._address) from error


class _BlobTable:
    """The blobs of the database, by the session that keeps others out."""

    def __init__(self, session: Session, address: Address) -> None:
        self._session = session
        self._address = address

    async def names(self) -> set[str]:
        """Return the names of all."""
        try:
            return {digest for (digest,) in await self._session.fetch("SELECT digest FROM outlast.blobs")}
        except FAILURES as error:
            raise said(error, self._address) from error

    async def put(self, digest: str, data: bytes) -> None:
        """Keep ``data``; it is committed when this returns."""
        try:
            await self._session.execute(
                "INSERT INTO outlast.blobs (digest, data) VALUES ($1, $2) ON CONFLICT (digest) DO UPDATE SET put_at = now()",
                digest,
                data,
            )
        except FAILURES as error:
            raise said(error, self._address) from error

    async def get(self, digest: str) -> bytes:
        """Return the data. Raises StoreError "store_damaged" when it is missing or does not have this hash."""
        try:
            data = await self._session.fetchval("SELECT data FROM outlast.blobs WHERE digest = $1", digest)
        except FAILURES as error:
            raise said(error, self._address) from error
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(
                "store_damaged",
                f"The payload {digest} {'is missing' if data is None else 'is not what its name says'}.",
                remedy="Restore the last backup of the database.",
            )
        return bytes(data)
