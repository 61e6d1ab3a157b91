"""A proxy of a PostgreSQL server that cuts the connection of the shard's owner in the midst of a commit."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

PORT = ".s.PGSQL.5432"  # what a server's socket is called
CLAIMS = b"outlast owner of shard"  # who says so is the owner from then on
READY = b"Z\x00\x00\x00\x05I"  # how the answer to a statement ends that was done, outside of a transaction
BYTES = 65_536

When = Literal["", "before", "after"]
"""Cut before the server hears of a statement, or when it has done it and before its answer is heard."""


class Cutter:
    """Cuts the owner's next statement ``when`` it says, once; counts how often it has."""

    def __init__(self) -> None:
        self.when: When = ""
        self.cuts = 0
        self._owners: set[asyncio.StreamWriter] = set()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Path) -> None:
        """Serve one connection until either side ends it, or it is cut."""
        from_server, to_server = await asyncio.open_unix_connection(server)
        try:
            asking = asyncio.create_task(self._ask(reader, writer, to_server))
            answering = asyncio.create_task(self._answer(from_server, writer))
            await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
            for task in (asking, answering):
                task.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)
        finally:
            self._owners.discard(writer)
            for end in (to_server, writer):
                end.close()

    async def _ask(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(BYTES):
            if CLAIMS in data:
                self._owners.add(client)
            elif self.when == "before" and client in self._owners:
                self._count()
                return
            server.write(data)
            await server.drain()

    async def _answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await server.read(BYTES):
            if self.when == "after" and client in self._owners and data.endswith(READY):
                self._count()
                return
            client.write(data)
            await client.drain()

    def _count(self) -> None:
        self.when = ""
        self.cuts += 1


@asynccontextmanager
async def cutting(folder: Path, server: str) -> AsyncGenerator[tuple[Cutter, str]]:
    """Give a proxy of the server whose socket is in the folder ``server``, and the folder of its own socket."""
    cutter = Cutter()
    forward: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = lambda reader, writer: (  # noqa: E731
        cutter.forward(reader, writer, Path(server, PORT))
    )
    listening = await asyncio.start_unix_server(forward, folder / PORT)
    try:
        yield cutter, str(folder)
    finally:
        listening.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(listening.wait_closed(), 1.0)
