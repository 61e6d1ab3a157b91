"""A gateway over an engine in memory, and a client that knows the table of routes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

from outlast.gateway.app import Gateway, Policy
from outlast.gateway.route import Route
from tests.engine.doubles import FaultyStore, running
from tests.gateway.asgi import AsgiClient, Response


class TableClient(AsgiClient):
    """Sends what the table gives as an example."""

    async def example(self, route: Route, task: str = "") -> Response:
        """Return the answer to the example of ``route``; ``task`` is the id of a task that is there."""
        return await self.send(route.method, target_of(route, task), json=route.example.get("body"))


def target_of(route: Route, task: str = "", namespace: str = "default") -> str:
    """Return the address of the example of ``route``."""
    root = "/api/v1/" if route.global_ else f"/api/v1/namespaces/{quote(namespace, safe='')}/"
    path = route.path
    for part in route.path.split("/"):
        if part.startswith("{"):
            path = path.replace(part, quote(route.example.get(part[1:-1], task), safe=""))
    query = urlencode(route.example.get("query", {}))
    return f"{root}{path}{'?' if query else ''}{query}"


@asynccontextmanager
async def served(
    store: FaultyStore | None = None, *, token: str = "", policy: Policy | None = None, **settings: Any
) -> AsyncGenerator[tuple[TableClient, Any]]:
    """Give a client of a gateway and a transport to its engine."""
    async with running(store or FaultyStore(), **settings) as (engine, transport):
        yield TableClient(Gateway(engine, token=token, policy=policy)), transport
