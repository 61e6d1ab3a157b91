"""Events of a run as a stream: in order, none lost and none twice over any cut, and no reader costs more than its place."""

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from outlast.core import limits
from outlast.gateway.app import Gateway
from outlast.server.listener import Listener, bind
from outlast.store.memory.tables import Tables
from tests.engine.doubles import FaultyStore, run, running
from tests.gateway.asgi import AsgiClient, Response
from tests.gateway.serving import TableClient, served

EVENTS = "/api/v1/workflows/o-1/events"


def messages_of(body: bytes) -> list[dict[str, str]]:
    """Return the messages of a stream, comments and what is not whole left out."""
    found: list[dict[str, str]] = []
    for block in body.decode().split("\n\n")[:-1]:
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        message = {name: value for name, _, value in lines}
        if "data" in message:
            found.append(message)
    return found


def ids_of(body: bytes) -> list[int]:
    """Return the ids of the events in a stream."""
    return [
        msgspec.json.decode(message["data"])["event_id"]
        for message in messages_of(body)
        if message.get("event") != "closed"
    ]


async def a_run(client: AsgiClient, signals: int) -> None:
    """Start workflow o-1 and send it signals."""
    await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
    for n in range(signals):
        await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "go", "input": [n]})


async def watch_until(client: AsgiClient, enough: Callable[[bytes], bool], **sent: Any) -> Response:
    """Read a stream until ``enough`` of it has come, then hang up."""
    hang_up = asyncio.Event()

    def look(body: bytes) -> None:
        if enough(body):
            hang_up.set()

    return await client.send("GET", EVENTS, hang_up=hang_up, on_piece=look, **sent)


def test_a_stream_gives_the_history_and_ends_with_closed() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 3)
            await client.send("POST", "/api/v1/workflows/o-1/terminate")
            stream = await client.send("GET", EVENTS)
            history = (await client.send("GET", "/api/v1/workflows/o-1/history")).json()

            messages = messages_of(stream.body)
            assert stream.headers["content-type"] == "text/event-stream"
            assert [msgspec.json.decode(message["data"]) for message in messages[:-1]] == history["events"]
            assert messages[-1]["event"] == "closed"
            assert history["closed"] is True

    run(work)


def test_who_comes_back_with_any_event_gets_exactly_the_rest() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 4)
            await client.send("POST", "/api/v1/workflows/o-1/terminate")
            whole = messages_of((await client.send("GET", EVENTS)).body)
            rests = [
                messages_of((await client.send("GET", EVENTS, headers={"last-event-id": message["id"]})).body)
                for message in whole[:-1]
            ]

            assert rests == [whole[n + 1 :] for n in range(len(whole) - 1)]

    run(work)


def test_who_has_seen_the_end_is_told_to_stay_away() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 0)
            await client.send("POST", "/api/v1/workflows/o-1/terminate")
            last = messages_of((await client.send("GET", EVENTS)).body)[-1]["id"]
            again = await client.send("GET", EVENTS, headers={"last-event-id": last})

            assert (again.status, again.body) == (204, b"")

    run(work)


def test_events_come_as_they_are_committed() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 0)
            watching = asyncio.create_task(client.send("GET", EVENTS))
            await a_run(client, 3)
            await client.send("POST", "/api/v1/workflows/o-1/terminate")
            stream = await watching

            assert ids_of(stream.body) == list(range(1, len(ids_of(stream.body)) + 1))
            assert stream.body.count(b"WorkflowExecutionSignaled") == 3

    run(work)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_doubled_over_cuts_and_new_engines(seed: int) -> None:
    chance = random.Random(seed)
    tables = Tables()
    seen: list[int] = []

    async def life(last: str, signals: int, end: bool) -> str:
        """Serve the same rows by an engine of its own, watch a while, and return the id of the last whole message."""
        async with running(FaultyStore(tables)) as (engine, _):
            client = TableClient(Gateway(engine))
            wanted = chance.randint(1, 3)
            headers = {"last-event-id": last} if last else {}
            watching = asyncio.create_task(
                client.send("GET", EVENTS, headers=headers)
                if end
                else watch_until(client, lambda body: len(messages_of(body)) >= wanted, headers=headers)
            )
            await a_run(client, signals)
            if end:
                await client.send("POST", "/api/v1/workflows/o-1/terminate")
            stream = await watching
            # A cut takes away what was on its way: any tail of what came.
            whole = messages_of(stream.body)
            kept = whole if end else whole[: chance.randint(1, len(whole))]
            seen.extend(
                msgspec.json.decode(message["data"])["event_id"] for message in kept if message.get("event") != "closed"
            )
            return kept[-1]["id"]

    async def work() -> None:
        async with running(FaultyStore(tables)) as (engine, _):
            await a_run(TableClient(Gateway(engine)), 1)
        last = ""
        for _ in range(5):
            last = await life(last, signals=4, end=False)
        await life(last, signals=1, end=True)

        assert seen == list(range(1, 25))  # started, 1 + 5 * 4 + 1 signals, terminated

    run(work)


def test_a_commit_wakes_whoever_watches_its_run() -> None:
    async def work() -> None:
        async with running() as (engine, _):
            client = AsgiClient(Gateway(engine))
            await a_run(client, 0)
            stream = asyncio.create_task(client.send("GET", EVENTS))
            page = asyncio.create_task(client.send("GET", "/api/v1/workflows/o-1/history?after=1&wait=20s"))
            await asyncio.sleep(0.05)
            await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "go"})
            await client.send("POST", "/api/v1/workflows/o-1/terminate")
            async with asyncio.timeout(5):
                told, held = await stream, await page

            assert ids_of(told.body) == [1, 2, 3]
            assert held.json()["events"][0]["event_id"] == 2
            assert not engine.watches._events  # nobody watches any more, nothing is kept

    run(work)


def test_silence_is_broken_by_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.gateway.watching.HEARTBEAT", 0.05)

    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 0)
            stream = await watch_until(client, lambda body: body.count(b"\n: still here\n") >= 2)

            assert ids_of(stream.body) == [1]

    run(work)


@pytest.mark.parametrize(
    ("target", "headers", "status", "code"),
    [
        (EVENTS, {"last-event-id": "nonsense"}, 400, "invalid_cursor"),
        (EVENTS, {"last-event-id": "x:1:2"}, 400, "invalid_cursor"),
        (EVENTS, {"last-event-id": "x:" + "9" * 30}, 400, "invalid_cursor"),
        (EVENTS, {"last-event-id": "x:1"}, 404, "workflow_not_found"),
        (EVENTS + "?run_id=a", {"last-event-id": "b:1"}, 400, "invalid_cursor"),
        (EVENTS + "?after=99", {}, 400, "invalid_cursor"),
        ("/api/v1/workflows/o-1/history?after=99", {}, 400, "invalid_cursor"),
        ("/api/v1/workflows/nope/events", {}, 404, "workflow_not_found"),
    ],
    ids=str,
)
def test_a_place_that_is_none_is_refused_before_the_stream_begins(
    target: str, headers: dict[str, str], status: int, code: str
) -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 1)
            reply = await client.send("GET", target, headers=headers)

            assert (reply.status, reply.json()["code"]) == (status, code)

    run(work)


def test_a_stream_over_the_bound_is_refused_and_each_place_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS_MAX", 2)

    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 0)
            hang_up = asyncio.Event()
            open_ = [asyncio.create_task(client.send("GET", EVENTS, hang_up=hang_up)) for _ in range(2)]
            await asyncio.sleep(0)
            refused = await client.send("GET", EVENTS)
            hang_up.set()
            await asyncio.gather(*open_)
            again = await watch_until(client, lambda body: bool(messages_of(body)))

            assert (refused.status, refused.json()["code"]) == (429, "too_many_streams")
            assert again.status == 200

    run(work)


def test_a_question_about_the_head_of_a_stream_ends_at_once() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 0)
            reply = await client.send("HEAD", EVENTS)

            assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"", "text/event-stream")

    run(work)


def test_a_history_is_held_until_there_is_a_new_event() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 0)
            held = asyncio.create_task(client.send("GET", "/api/v1/workflows/o-1/history?after=1&wait=20s"))
            await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "go"})
            page = (await held).json()
            empty = (await client.send("GET", "/api/v1/workflows/o-1/history?after=2&wait=20ms")).json()

            assert [event["kind"] for event in page["events"]] == ["WorkflowExecutionSignaled"]
            assert (empty["events"], empty["last"], empty["closed"]) == ([], 2, False)

    run(work)


def test_pages_of_a_history_follow_each_other_by_their_links() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await a_run(client, 6)
            target, seen = "/api/v1/workflows/o-1/history?limit=3", list[int]()
            while target:
                page = await client.send("GET", target)
                seen += [event["event_id"] for event in page.json()["events"]]
                target = page.headers.get("link", "").partition(">")[0].removeprefix("<")

            assert seen == [1, 2, 3, 4, 5, 6, 7]

    run(work)


def test_a_reader_that_takes_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("outlast.gateway.app.SEND_WITHIN", 0.3)
    caplog.set_level("INFO", logger="outlast.gateway")

    async def work() -> None:
        async with running(FaultyStore()) as (engine, _):
            gateway = Gateway(engine)
            client = TableClient(gateway)
            await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": "o-1"})
            big = "x" * 200_000
            for _ in range(60):
                await client.send("POST", "/api/v1/workflows/o-1/signal", json={"name": "go", "input": [big]})
            listener = Listener(gateway, bind("127.0.0.1", 0))
            await listener.start()
            host, _, port = listener.address.removeprefix("http://").partition(":")
            narrow = socket.socket()
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the system would else take all of it in
            narrow.setblocking(False)
            await asyncio.get_running_loop().sock_connect(narrow, (host, int(port)))
            reader, writer = await asyncio.open_connection(sock=narrow, limit=1024)
            writer.write(f"GET {EVENTS} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            await reader.readline()
            while not any("stream_cut" in record.getMessage() for record in caplog.records):  # noqa: ASYNC110 - a log line has no event
                await asyncio.sleep(0.02)
            # The connection is closed behind the line in the log; until then the stream counts.
            while b"outlast_streams_open 0.0" not in (await client.send("GET", "/metrics")).body:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
            writer.close()
            await listener.stop()

    run(work)
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == []
