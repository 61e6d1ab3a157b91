"""The sessions that read: a few, made when they are needed, each used by one reader at a time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from outlast.store.base import StoreError
from outlast.store.postgres.connection import Opened, Session, close

READERS: Final = 4  # sessions of one store that read


class Reads:
    """What reads ask of a session. Every statement has the shard as its first parameter."""

    __slots__ = ("_session", "_shard", "spoiled")

    def __init__(self, session: Session, shard: int) -> None:
        self._session = session
        self._shard = shard
        self.spoiled = False

    async def fetch(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        """Return the rows of a statement."""
        return await self._session.fetch(sql, self._shard, *values)

    async def execute(self, sql: str) -> None:
        """Run a statement without parameters."""
        await self._session.execute(sql)

    async def change(self, sql: str, *values: Any) -> int:
        """Run a statement that writes; return how many rows it wrote."""
        done = await self._session.execute(sql, self._shard, *values)
        return int(done.rsplit(" ", 1)[1])


class Readers:
    """Up to so many sessions. What fails while it is used is closed, and made anew when it is needed."""

    def __init__(self, make: Callable[[], Awaitable[Opened]], shard: int, *, places: int = READERS) -> None:
        self._make = make
        self._shard = shard
        self._free: list[Session] = []
        self._places = asyncio.Semaphore(places)
        self._used: set[Session] = set()
        self._stale: set[Session] = set()  # used, and of an owner before
        self._closed = False

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Reads]:
        """Give a session; waits while all are used. Raises StoreError when none can be had."""
        async with self._places:
            session = await self._take()
            reads = Reads(session, self._shard)
            self._used.add(session)
            try:
                yield reads
            except asyncpg.PostgresError:
                self._put_back(session, good=not reads.spoiled)
                raise
            except BaseException:
                # A cancelled read leaves its statement running: the session would be busy with it.
                self._put_back(session, good=False)
                raise
            self._put_back(session, good=not reads.spoiled)

    async def renew(self) -> None:
        """Use no session again that was made before: each may speak to a server that is the shard's no more."""
        self._stale |= self._used
        old, self._free = self._free, []
        for session in old:
            await close(session)

    async def close(self) -> None:
        """End all sessions, also those that are used at the moment."""
        self._closed = True
        for session in list(self._used):
            session.terminate()
        while self._free:
            await close(self._free.pop())

    async def _take(self) -> Session:
        while self._free:
            session = self._free.pop()
            if not session.is_closed():
                return session
        session = (await self._make()).session
        if self._closed:
            session.terminate()
            raise StoreError("unavailable", "The store was closed.", remedy="Open it first.")
        return session

    def _put_back(self, session: Session, *, good: bool) -> None:
        self._used.discard(session)
        good = good and session not in self._stale
        self._stale.discard(session)
        if good and not self._closed and not session.is_closed():
            self._free.append(session)
        else:
            session.terminate()
