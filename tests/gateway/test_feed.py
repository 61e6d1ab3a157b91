"""The feed over REST: pages that are held, and a stream that goes on behind any event."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from outlast.engine.frontend import Engine
from outlast.gateway.app import Gateway
from outlast.store.memory.tables import Tables
from tests.engine.doubles import FaultyStore, run, running
from tests.gateway.asgi import AsgiClient, Response
from tests.gateway.serving import TableClient, served
from tests.gateway.test_streams import messages_of

FEED = "/api/v1/feed"
STREAM = {"accept": "text/event-stream"}


async def a_reader_waits(engine: Engine) -> None:
    """Return when somebody waits for events of a namespace."""
    while not engine.feeds._readers:  # noqa: ASYNC110 - nobody tells of a reader
        await asyncio.sleep(0.01)


async def work_of(client: AsgiClient, name: str, signals: int = 0) -> None:
    """Start a workflow, send it signals, and enqueue a task."""
    await client.send("POST", "/api/v1/workflows", json={"type": "order", "id": name, "input": [{"amount": 12}]})
    for n in range(signals):
        await client.send("POST", f"/api/v1/workflows/{name}/signal", json={"name": "go", "input": [n]})
    await client.send("POST", "/api/v1/tasks", json={"type": "resize"})


async def stream_until(
    client: AsgiClient, enough: Callable[[bytes], bool], target: str = FEED, last: str = ""
) -> Response:
    """Read the stream until ``enough`` of it has come, then hang up."""
    hang_up = asyncio.Event()

    def look(body: bytes) -> None:
        if enough(body):
            hang_up.set()

    headers = {**STREAM, **({"last-event-id": last} if last else {})}
    return await client.send("GET", target, headers=headers, hang_up=hang_up, on_piece=look)


def events_of(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream."""
    return [msgspec.json.decode(message["data"]) for message in messages_of(body)]


def at_least(count: int) -> Callable[[bytes], bool]:
    """Return what says whether so many events have come."""
    return lambda body: len(messages_of(body)) >= count


def test_a_page_has_events_as_the_histories_show_them() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await work_of(client, "o-1", signals=2)
            page = (await client.send("GET", FEED)).json()
            history = (await client.send("GET", "/api/v1/workflows/o-1/history")).json()

            assert [
                {name: item[name] for name in ("event_id", "at", "kind", "fields", "schemas")}
                for item in page["items"]
                if item["event_id"]
            ] == history["events"]
            assert [item["kind"] for item in page["items"] if item["task_id"]] == ["TaskEnqueued"]
            assert page["more"] is False

    run(work)


def test_following_the_links_reads_all_of_it_once() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await work_of(client, "o-1", signals=4)
            whole = (await client.send("GET", FEED)).json()["items"]
            seen: list[Any] = []
            target = f"{FEED}?limit=2"
            while True:
                reply = await client.send("GET", target)
                if not reply.json()["items"]:
                    break
                seen += reply.json()["items"]
                target = reply.headers["link"].partition("<")[2].partition(">")[0]

            assert seen == whole

    run(work)


def test_a_stream_gives_what_the_pages_give_each_with_its_cursor() -> None:
    async def work() -> None:
        async with served() as (client, _):
            await work_of(client, "o-1", signals=2)
            whole = (await client.send("GET", FEED)).json()["items"]
            stream = await stream_until(client, at_least(len(whole)))

            assert stream.headers["content-type"] == "text/event-stream"
            assert events_of(stream.body) == whole
            assert [message["id"] for message in messages_of(stream.body)] == [item["cursor"] for item in whole]

    run(work)


@pytest.mark.parametrize("by", ["last-event-id", "after"])
def test_a_stream_goes_on_behind_any_event(by: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            await work_of(client, "o-1", signals=2)
            whole = (await client.send("GET", FEED)).json()["items"]
            for n in range(len(whole) - 1):
                cursor, rest = whole[n]["cursor"], whole[n + 1 :]
                target, last = (FEED, cursor) if by == "last-event-id" else (f"{FEED}?after={cursor}", "")
                stream = await stream_until(client, at_least(len(rest)), target, last)

                assert events_of(stream.body) == rest

    run(work)


@pytest.mark.parametrize("seed", range(4))
def test_no_event_is_lost_or_doubled_over_cuts_and_new_engines(seed: int) -> None:
    chance = random.Random(seed)
    tables = Tables()
    seen: list[dict[str, Any]] = []

    async def life(number: int, last: str) -> str:
        async with running(FaultyStore(tables)) as (engine, _):
            client = TableClient(Gateway(engine))
            watching = asyncio.create_task(stream_until(client, at_least(chance.randint(1, 5)), last=last))
            await work_of(client, f"o-{number}", signals=4)
            whole = messages_of((await watching).body)
            # A cut takes away what was on its way: any tail of what came.
            kept = whole[: chance.randint(1, len(whole))]
            seen.extend(msgspec.json.decode(message["data"]) for message in kept)
            return kept[-1]["id"]

    async def work() -> None:
        last = ""
        for number in range(5):
            last = await life(number, last)
        async with running(FaultyStore(tables)) as (engine, _):
            client = TableClient(Gateway(engine))
            whole = (await client.send("GET", FEED)).json()["items"]
            rest = (await client.send("GET", f"{FEED}?after={last}")).json()["items"]

            assert [*seen, *rest] == whole
            for number in range(5):
                history = (await client.send("GET", f"/api/v1/workflows/o-{number}/history")).json()["events"]
                told = [item for item in whole if item["workflow_id"] == f"o-{number}"]
                assert [item["fields"] for item in told] == [event["fields"] for event in history]

    run(work)


def test_silence_is_broken_by_a_comment_with_the_place_that_was_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.gateway.watching.HEARTBEAT", 0.05)

    async def work() -> None:
        async with served(namespaces=frozenset({"default", "shop"})) as (client, _):
            await client.send("POST", "/api/v1/namespaces/shop/tasks", json={"type": "resize"})
            stream = await stream_until(client, lambda body: body.count(b": still here\nid: ") >= 2)
            place = stream.body.rpartition(b"id: ")[2].split()[0].decode()
            await work_of(client, "o-1")
            rest = (await client.send("GET", f"{FEED}?after={place}")).json()["items"]

            assert events_of(stream.body) == []
            assert len(rest) == 2

    run(work)


def test_a_page_is_held_until_there_is_an_event() -> None:
    async def work() -> None:
        async with served() as (client, _):
            empty = (await client.send("GET", f"{FEED}?after=now")).json()
            held = asyncio.create_task(client.send("GET", f"{FEED}?after={empty['next']}&wait=20s"))
            await asyncio.sleep(0.02)
            await client.send("POST", "/api/v1/tasks", json={"type": "resize"})

            assert empty["items"] == []
            assert [item["kind"] for item in (await held).json()["items"]] == ["TaskEnqueued"]

    run(work)


def test_who_hangs_up_while_a_page_is_held_is_waited_for_no_longer() -> None:
    async def work() -> None:
        async with running() as (engine, _):
            client = AsgiClient(Gateway(engine))
            hang_up = asyncio.Event()
            held = asyncio.create_task(client.send("GET", f"{FEED}?wait=20s", hang_up=hang_up))
            await a_reader_waits(engine)
            hang_up.set()
            async with asyncio.timeout(5):
                await held

            assert not engine.feeds._readers

    run(work)


def test_a_stream_ends_with_the_engine() -> None:
    async def work() -> None:
        async with running() as (engine, _):
            client = AsgiClient(Gateway(engine))
            stream = asyncio.create_task(client.send("GET", FEED, headers=STREAM))
            await a_reader_waits(engine)
            async with asyncio.timeout(5):
                await engine.stop()
                await stream

            assert stream.result().status == 200

    run(work)


def test_a_place_behind_which_events_are_gone_is_410_for_pages_and_streams() -> None:
    async def work() -> None:
        async with running() as (engine, _):
            client = AsgiClient(Gateway(engine))
            await work_of(client, "o-1", signals=3)
            first = (await client.send("GET", FEED)).json()["items"][0]["cursor"]
            engine._sweeper.feed_age = -1
            await engine._sweeper.sweep()
            page = await client.send("GET", f"{FEED}?after={first}")
            stream = await client.send("GET", FEED, headers={**STREAM, "last-event-id": first})

            assert (page.status, page.json()["code"]) == (410, "cursor_expired")
            assert (stream.status, stream.json()["code"]) == (410, "cursor_expired")
            assert "Begin anew" in page.json()["remedy"]

    run(work)


@pytest.mark.parametrize(
    ("target", "headers", "status", "code"),
    [
        (f"{FEED}?after=nonsense", {}, 400, "invalid_cursor"),
        (FEED, {**STREAM, "last-event-id": "nonsense"}, 400, "invalid_cursor"),
        (f"{FEED}?limit=0", {}, 400, "invalid_request"),
        (f"{FEED}?limit=100000", {}, 400, "invalid_request"),
        (f"{FEED}?wait=1h", {}, 400, "invalid_request"),
        (FEED, {"accept": "text/html"}, 406, "not_acceptable"),
        ("/api/v1/namespaces/nope/feed", {}, 404, "namespace_not_found"),
    ],
    ids=str,
)
def test_what_is_asked_wrongly_is_refused(target: str, headers: dict[str, str], status: int, code: str) -> None:
    async def work() -> None:
        async with served() as (client, _):
            reply = await client.send("GET", target, headers=headers)

            assert (reply.status, reply.json()["code"]) == (status, code)

    run(work)
