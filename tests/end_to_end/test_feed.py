"""A reader of the feed over kills of the server: what it was told is what the histories say, no gap and no double."""

import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.end_to_end.processes import Program, serving, wait_until

KILLS = 5
ENDS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class Reader:
    """Reads the stream for as long as it runs, and comes back with the id of the last whole event."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.told: list[dict[str, Any]] = []
        self.last = ""
        self.streams = 0

    async def run(self) -> None:
        """Read for ever."""
        async with aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(*ENDS):
                    await self._read(session)
                await asyncio.sleep(0.02)

    async def _read(self, session: aiohttp.ClientSession) -> None:
        headers = {"accept": "text/event-stream", **({"last-event-id": self.last} if self.last else {})}
        async with session.get(f"{self.address}/api/v1/feed", headers=headers) as response:
            assert response.status == 200, await response.text()
            self.streams += 1
            id_, data = "", ""
            async for line in response.content:
                text = line.decode().rstrip("\n")
                if text.startswith("id: "):
                    id_ = text.removeprefix("id: ")
                elif text.startswith("data: "):
                    data = text.removeprefix("data: ")
                elif not text:
                    if data:
                        self.told.append(json.loads(data))
                    self.last = id_ or self.last
                    id_, data = "", ""


async def sent(session: aiohttp.ClientSession, address: str, path: str, body: Any, key: str) -> None:
    """Send a request with its key until it is answered."""
    while True:
        with contextlib.suppress(*ENDS):
            async with session.post(
                f"{address}/api/v1/{path}",
                json=body,
                headers={"idempotency-key": key},
                timeout=aiohttp.ClientTimeout(total=5),
            ) as response:
                if response.status < 500:
                    assert response.status < 300, await response.text()
                    return
        await asyncio.sleep(0.02)


async def write(address: str, number: int, names: list[str], enough: asyncio.Event) -> None:
    """Start runs, signal them and enqueue tasks, one after the other, until ``enough``; nothing is on its way then."""
    async with aiohttp.ClientSession() as session:
        n = 0
        while not enough.is_set():
            name = f"o-{number}-{n}"
            await sent(session, address, "workflows", {"type": "order", "id": name, "input": [n]}, f"start {name}")
            names.append(name)
            for again in range(3):
                await sent(session, address, f"workflows/{name}/signal", {"name": "go"}, f"signal {name} {again}")
            await sent(session, address, "tasks", {"type": "resize"}, f"task {name}")
            n += 1


async def got(session: aiohttp.ClientSession, address: str, path: str) -> Any:
    """Return what is at ``path``."""
    async with session.get(f"{address}/api/v1/{path}") as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def whole_feed(session: aiohttp.ClientSession, address: str) -> list[dict[str, Any]]:
    """Return every event, page after page."""
    events: list[dict[str, Any]] = []
    after = ""
    while True:
        page = await got(session, address, f"feed?after={after}")
        events += page["items"]
        after = page["next"]
        if not page["more"]:
            return events


async def killed_and_read(folder: Path, chance: random.Random) -> tuple[Reader, list[dict[str, Any]], dict[str, Any]]:
    """Kill the server under writers and a reader; return the reader, the whole feed, and the histories."""
    names: list[str] = []
    enough = asyncio.Event()
    with serving(folder, name="first") as (engine, address):
        port = address.rpartition(":")[2]
        reader = Reader(address)
        reading = asyncio.create_task(reader.run())
        writing = [asyncio.create_task(write(address, n, names, enough)) for n in range(4)]
        current: Program = engine
        for life in range(KILLS):
            await asyncio.sleep(chance.uniform(0.3, 1.0))
            current.kill()
            current = await asyncio.to_thread(_served, folder, port, f"life-{life}")
        try:
            await asyncio.sleep(0.5)
            enough.set()
            async with asyncio.timeout(60):
                await asyncio.gather(*writing)
            async with aiohttp.ClientSession() as session:
                whole = await whole_feed(session, address)
                histories = {
                    name: (await got(session, address, f"workflows/{name}/history"))["events"] for name in names
                }
            await asyncio.to_thread(wait_until, lambda: len(reader.told) >= len(whole))
        finally:
            current.kill()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    return reader, whole, histories


def _served(folder: Path, port: str, name: str) -> Program:
    file = folder / f"{name}.address"
    program = Program(folder, "-m", "outlast.cli", "serve", "--port", port, "--announce-file", str(file), name=name)
    wait_until(file.exists, program.said, program.process)
    return program


@pytest.mark.slow
def test_a_reader_sees_every_event_once_and_in_order_over_kills_of_the_server(tmp_path: Path) -> None:
    reader, whole, histories = asyncio.run(killed_and_read(tmp_path, random.Random(7)))

    assert reader.streams >= KILLS
    assert reader.told == whole
    for name, history in histories.items():
        told = [
            {field: event[field] for field in ("event_id", "at", "kind", "fields", "schemas")}
            for event in reader.told
            if event["workflow_id"] == name
        ]
        assert told == history
    keys = [(event["commit"], event["cursor"]) for event in whole]
    assert len(set(keys)) == len(keys)
    assert sum(event["kind"] == "TaskEnqueued" for event in whole) == len(histories)
