"""A client that speaks ASGI to an application in this process."""

import asyncio
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from outlast.gateway.app import Gateway


@dataclass(slots=True)
class Response:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class AsgiClient:
    """Sends one request at a time, each as a connection of its own."""

    def __init__(self, app: Gateway, *, headers: dict[str, str] | None = None) -> None:
        self.app = app
        self._headers = {"host": "127.0.0.1:7070", **(headers or {})}

    async def send(
        self,
        method: str,
        target: str,
        *,
        json: Any = None,
        body: bytes | list[bytes] = b"",
        headers: dict[str, str] | None = None,
        hang_up: asyncio.Event | None = None,
        slow: bool = False,
        on_piece: Callable[[bytes], None] | None = None,
    ) -> Response:
        """Return the response; with ``hang_up`` the connection closes when that is set; ``slow`` never ends the body.

        ``on_piece`` is told the body so far, with each piece of it.
        """
        parts = body if isinstance(body, list) else [body]
        sent = {**self._headers, **(headers or {})}
        if json is not None:
            parts = [msgspec.json.encode(json)]
            sent.setdefault("content-type", "application/json")
        split = urlsplit(target)
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "method": method,
            "path": split.path,
            "raw_path": split.path.encode(),
            "query_string": split.query.encode(),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()],
        }
        messages = [
            {"type": "http.request", "body": part, "more_body": n + 1 < len(parts)} for n, part in enumerate(parts)
        ]
        response = Response()
        silent = asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            if messages and not (slow and len(messages) == 1):
                return messages.pop(0)
            await (hang_up or silent).wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                response.status = message["status"]
                response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                response.body += message["body"]
                if on_piece is not None:
                    on_piece(response.body)

        await self.app(scope, receive, send)
        return response
