"""The hash of the schema that a value was written with is shown where the value is."""

import asyncio
from typing import Any

from outlast.core.inputs import StartWorkflow
from outlast.core.payload import SCHEMA, Payload
from tests.gateway.serving import served


def test_a_history_tells_the_schemas_of_its_values_by_place() -> None:
    async def check() -> Any:
        async with served() as (client, transport):
            values = (Payload("json/plain", b"1"), Payload("json/plain", b"{}", {SCHEMA: b"3f2a9c0e11d2aa41"}))
            await transport.call(
                StartWorkflow(
                    type="order", queue="default", workflow_id="o", run_id="r-1", request_id="q", input=values
                )
            )
            return (await client.send("GET", "/api/v1/workflows/o/history")).json()["events"]

    events = asyncio.run(check())

    assert events[0]["schemas"] == {"input[1]": "3f2a9c0e11d2aa41"}
