"""The listener against what may come over a socket."""

import asyncio
import contextlib

import pytest

from outlast.core.errors import Unavailable
from outlast.gateway.app import Gateway
from outlast.server import head
from outlast.server.listener import Listener, address_of, bind
from tests.engine.doubles import FaultyStore, run, running

READY = b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n"


async def _exchange(address: str, *parts: bytes) -> bytes:
    """Send ``parts`` one by one and return what came until the other side closed."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answer = b""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        answer = await reader.read()
    except ConnectionError:
        pass  # it was closed while we were still sending
    finally:
        writer.close()
    return answer


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([READY + b"connection: close\r\n\r\n"], b"200"),
        ([READY + b"x: ", *([b"a" * 50_000] * 6)], b"431"),
        ([b"GET /" + b"a" * 60_000, *([b"a" * 60_000] * 4)], b"431"),
        ([b"garbage\r\n\r\n"], b"400"),
        ([b"POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n"], b"400"),
    ],
    ids=["whole", "endless header", "endless address", "no HTTP", "negative length"],
)
def test_each_kind_of_connection_gets_its_answer_and_ends(parts: list[bytes], status: bytes) -> None:
    async def work() -> None:
        async with running(FaultyStore()) as (engine, _):
            listener = Listener(Gateway(engine), bind("127.0.0.1", 0))
            await listener.start()
            answer = await _exchange(listener.address, *parts)
            still = await _exchange(listener.address, READY + b"connection: close\r\n\r\n")
            await listener.stop()

            assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"431" and not answer)
            assert still.startswith(b"HTTP/1.1 200")

    run(work)


def test_two_requests_on_one_connection_are_both_answered() -> None:
    async def work() -> None:
        async with running(FaultyStore()) as (engine, _):
            listener = Listener(Gateway(engine), bind("127.0.0.1", 0))
            await listener.start()
            answer = await _exchange(listener.address, READY + b"\r\n", READY + b"connection: close\r\n\r\n")
            await listener.stop()

            assert answer.count(b"HTTP/1.1 200") == 2

    run(work)


@pytest.mark.parametrize(
    ("before", "trickled"),
    [
        ([], b""),
        ([], READY[:1]),
        ([READY], b"x"),
        ([READY + b"\r\n"], b"\r\n"),
        ([READY + b"\r\n"], b"G"),
        ([READY + b"content-length: 1000\r\n\r\n"], b"x"),
    ],
    ids=["nothing", "a letter", "a header", "lines behind an answer", "a second head", "a body behind its answer"],
)
def test_who_sends_no_whole_head_in_time_is_not_waited_for(
    before: list[bytes], trickled: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trickle(address: str) -> bytes:
        host, _, port = address.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        reading = asyncio.create_task(reader.read())
        with contextlib.suppress(ConnectionError):
            for part in before:
                writer.write(part)
            while not reading.done():
                await asyncio.sleep(0.02)
                writer.write(trickled)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            return await reading
        return b""

    async def work() -> None:
        async with running(FaultyStore()) as (engine, _):
            listener = Listener(Gateway(engine), bind("127.0.0.1", 0))
            await listener.start()
            answer = await asyncio.wait_for(trickle(listener.address), 20)
            await listener.stop()

            assert answer.count(b"HTTP/1.1 200") == sum(part.endswith(b"\r\n\r\n") for part in before)

    monkeypatch.setattr(head, "HEAD_WITHIN", 0.3)
    run(work)


def test_a_port_that_is_taken_is_said_so() -> None:
    listening = bind("127.0.0.1", 0)
    port = int(address_of(listening).rpartition(":")[2])
    try:
        with pytest.raises(Unavailable) as refused:
            bind("127.0.0.1", port)
    finally:
        listening.close()

    assert str(port) in refused.value.fact
    assert refused.value.remedy
