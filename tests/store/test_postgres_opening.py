"""What a PostgreSQL database is refused for, before anything is written to it; what is said never holds a password."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast.store.base import StoreError
from outlast.store.postgres import connection
from outlast.store.postgres.address import address_of
from outlast.store.postgres.store import PostgresStore
from tests.store.cluster import Cluster


def refusal(url: str, *, allow_weak: bool = True) -> StoreError:
    """Return why the store at ``url`` cannot be opened."""

    async def attempt() -> None:
        store = PostgresStore(url, allow_weak=allow_weak)
        try:
            await store.open()
        finally:
            await store.close()

    with pytest.raises(StoreError) as caught, asyncio.Runner() as runner:
        runner.run(attempt())
    assert caught.value.remedy
    return caught.value


@pytest.fixture
def empty(cluster: Cluster) -> Generator[str]:
    """The name of a database without our schema."""
    name = cluster.empty_database()
    yield name
    cluster.drop(name)


def test_a_database_that_is_not_there_is_named(cluster: Cluster) -> None:
    found = refusal(cluster.url("nowhere"))

    assert (found.code, "nowhere" in found.fact, "createdb" in found.remedy) == ("unavailable", True, True)


def test_a_user_that_is_not_known_is_refused_without_its_password(cluster: Cluster) -> None:
    found = refusal(f"postgresql://nobody:hush-hush@/postgres?host={cluster.socket}")

    assert found.code == "denied"
    assert "hush" not in f"{found} {found.fact} {found.remedy}"


def test_a_server_that_is_not_reached_is_named_without_the_password() -> None:
    found = refusal("postgresql://me:hush-hush@127.0.0.1:1/work")

    assert found.code == "unavailable"
    assert "127.0.0.1:1" in found.fact
    assert "hush" not in f"{found} {found!r} {found.fact} {found.remedy}"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host",
        "postgresql://host/",
        "mysql://host/db",
        "postgresql://me:hush@host:x/db",
        "postgresql://h/a/b",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        address_of(url)

    assert caught.value.code == "invalid_request"
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql://me:hush@h:5433/work", "postgresql://me@h:5433/work"),
        ("postgres://me@/work?host=/run/pg&port=5433", "postgresql://me@/work?host=/run/pg&port=5433"),
        ("postgresql:///work?host=a,b&password=hush&sslmode=require", "postgresql:///work?host=a,b&sslmode=require"),
        ("postgresql://h/work?allow_weak_durability=yes", "postgresql://h/work?allow_weak_durability=yes"),
    ],
)
def test_an_address_is_named_so_that_a_command_takes_it_and_without_its_secrets(url: str, named: str) -> None:
    found = address_of(url)

    assert found.named == named
    assert address_of(named).named == named
    assert "hush" not in found.named + found.shown


@pytest.mark.parametrize("option", ["nonsense=1", "sslmode=bogus"])
def test_an_option_that_is_not_right_is_a_fault_of_the_address(option: str, cluster: Cluster, empty: str) -> None:
    found = refusal(f"{cluster.url(empty)}&{option}")

    assert (found.code, "has an option that is not right" in found.fact) == ("invalid_request", True)


def test_a_store_that_could_not_be_opened_tells_readers_why() -> None:
    async def asked() -> tuple[StoreError, StoreError]:
        store = PostgresStore("postgresql://me@127.0.0.1:1/work")
        with pytest.raises(StoreError) as opening:
            await store.open()
        with pytest.raises(StoreError) as reading:
            await store.read_namespaces()
        return opening.value, reading.value

    opening, reading = asyncio.run(asked())

    assert reading.fact == opening.fact
    assert "cannot be reached" in reading.fact


def test_an_encoding_that_cannot_hold_every_text_is_refused(cluster: Cluster) -> None:
    cluster.run("CREATE DATABASE old_texts ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        found = refusal(cluster.url("old_texts"))
    finally:
        cluster.drop("old_texts")

    assert "LATIN1" in found.fact


def test_a_server_older_than_what_works_is_refused(
    cluster: Cluster, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OLDEST_VERSION", 990_000)

    found = refusal(cluster.url(empty))

    assert "PostgreSQL 18; 99 is the oldest" in found.fact


def test_a_user_without_rights_is_told_which_it_needs(cluster: Cluster, empty: str) -> None:
    cluster.run("CREATE ROLE guest LOGIN")
    try:
        found = refusal(cluster.url(empty, user="guest"))
    finally:
        cluster.run("DROP ROLE guest")

    assert found.code == "denied"
    assert "GRANT CREATE" in found.remedy


def test_a_schema_of_somebody_else_is_left_alone(cluster: Cluster, empty: str) -> None:
    cluster.run("CREATE SCHEMA outlast", "CREATE TABLE outlast.theirs (n int)", database=empty)

    assert refusal(cluster.url(empty)).code == "store_damaged"
    assert cluster.run("SELECT count(*) FROM outlast.theirs", database=empty)[0][0] == 0


def test_a_schema_of_a_newer_version_is_left_alone(cluster: Cluster) -> None:
    with cluster.database() as url:
        name = address_of(url).database
        cluster.run("INSERT INTO outlast.migrations (number, name, checksum) VALUES (99, 'later', '')", database=name)
        found = refusal(url)
        cluster.run("DELETE FROM outlast.migrations WHERE number = 99", database=name)

    assert (found.code, "schema 99" in found.fact) == ("store_newer", True)


def test_a_database_that_can_only_be_read_is_refused(cluster: Cluster, empty: str) -> None:
    cluster.run(f"ALTER DATABASE {empty} SET default_transaction_read_only = on")

    assert "read only" in refusal(cluster.url(empty)).fact


def test_a_server_that_may_lose_commits_is_refused_and_says_by_which_settings(cluster: Cluster, empty: str) -> None:
    cluster.run(f"ALTER DATABASE {empty} SET synchronous_commit = off")

    found = refusal(cluster.url(empty), allow_weak=False)

    assert "fsync is off, full_page_writes is off, synchronous_commit is off" in found.fact
    assert "allow_weak_durability" in found.remedy


def test_the_address_may_allow_weak_durability_and_the_store_then_shows_it(cluster: Cluster, empty: str) -> None:
    async def opened() -> tuple[str, ...]:
        store = PostgresStore(f"{cluster.url(empty)}&allow_weak_durability=yes")
        await store.open()
        assert store.server is not None
        await store.close()
        return store.server.weak

    with asyncio.Runner() as runner:
        assert "fsync is off" in runner.run(opened())


def test_two_that_open_an_empty_database_at_once_make_one_schema(cluster: Cluster, empty: str) -> None:
    async def both() -> None:
        stores = [PostgresStore(cluster.url(empty), allow_weak=True) for _ in range(2)]
        await asyncio.gather(*(store.open() for store in stores))
        for store in stores:
            await store.close()

    with asyncio.Runner() as runner:
        runner.run(both())
    assert cluster.run("SELECT count(*) FROM outlast.shards", database=empty)[0][0] == 1


# Something in between that gives one connection to several callers tells each a key of its own.


def another_key(data: bytes) -> bytes:
    """Return what a server says with another process number in its key."""
    at = data.find(b"K\x00\x00\x00\x0c")
    return data if at < 0 else data[: at + 5] + struct.pack("!i", 4711) + data[at + 9 :]


@asynccontextmanager
async def between(socket: str, change: Callable[[bytes], bytes]) -> AsyncGenerator[int]:
    """Stand between callers on a loopback port and the server; ``change`` what the server says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_unix_connection(Path(socket, ".s.PGSQL.5432"))

        async def carry(source: asyncio.StreamReader, to: asyncio.StreamWriter, by: Callable[[bytes], bytes]) -> None:
            while data := await source.read(65_536):
                to.write(by(data))
                await to.drain()
            to.close()

        tasks.append(asyncio.current_task())
        await asyncio.gather(carry(reader, outer, bytes), carry(inner, writer, change), return_exceptions=True)
        for end in (outer, writer):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    tasks: list[asyncio.Task[None] | None] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*(task for task in tasks if task is not None))


@pytest.mark.parametrize("pooled", [True, False])
def test_a_pooler_in_between_is_noticed(cluster: Cluster, empty: str, pooled: bool) -> None:
    async def attempt() -> str:
        async with between(cluster.socket, another_key if pooled else bytes) as port:
            store = PostgresStore(f"postgresql://outlast@127.0.0.1:{port}/{empty}?sslmode=disable", allow_weak=True)
            try:
                await store.open()
            except StoreError as error:
                return error.fact
            finally:
                await store.close()
            return ""

    with asyncio.Runner() as runner:
        assert ("shares its connections" in runner.run(attempt())) is pooled


def test_a_session_by_a_unix_socket_has_room_for_more_than_the_system_gives_by_itself(
    cluster: Cluster, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    widened: list[tuple[int, int]] = []
    widen = connection._widen

    def watched(session: connection.Session) -> None:
        wire = getattr(session, "_transport").get_extra_info("socket")  # noqa: B009 - it is the driver's own
        before = wire.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        widen(session)
        widened.append((before, wire.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)))

    async def open_and_close() -> None:
        store = PostgresStore(cluster.url(empty), allow_weak=True)
        await store.open()
        await store.close()

    monkeypatch.setattr(connection, "_widen", watched)
    with asyncio.Runner() as runner:
        runner.run(open_and_close())

    assert widened
    assert all(after > before for before, after in widened)
