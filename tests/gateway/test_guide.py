"""The page on REST: each request on it is answered as it says, in the order of the page."""

from typing import Any

import msgspec

from tests.engine.doubles import run
from tests.gateway.serving import served
from tests.house.sources import ROOT
from tools.readme import blocks_of

PAGE = ROOT / "docs" / "guides" / "rest.md"


def parts_of(block: str) -> tuple[str, str, dict[str, str], Any, str]:
    """Return method, target, headers, body and what is answered."""
    head, *body, answered = block.strip().split("\n\n")
    first, *lines = head.splitlines()
    method, target = first.split(" ")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return method, target, headers, msgspec.json.decode(body[0]) if body else None, answered


def test_every_request_on_the_page_is_answered_as_it_says() -> None:
    blocks = [block.text for block in blocks_of(PAGE.read_text()) if block.kind == "http"]

    async def work() -> None:
        async with served() as (client, _):
            for block in blocks:
                method, target, headers, body, answered = parts_of(block)
                reply = await client.send(method, target, headers=headers, json=body)
                code = f" {reply.json()['code']}" if reply.status >= 400 else ""

                assert f"{reply.status}{code}" == answered, block

    run(work)
    assert len(blocks) >= 7
