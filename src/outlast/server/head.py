"""uvicorn's fast protocol with bounds on the head of a request, which it lets grow, and come as slowly, without end."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
HEAD_WITHIN: Final = 30.0  # seconds for the next request's head: who sends more slowly holds a connection for nothing
REFUSAL: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedHead(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not end in HEAD_WITHIN, or in HEAD_BYTES_MAX and a read."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._in_head = True
        self._head_bytes = 0
        self._patience: asyncio.TimerHandle | None = None  # set while the client is waited for by nothing else

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEAD_WITHIN, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless the head is too long already."""
        if self._in_head:
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.write(REFUSAL)
                self.transport.close()
                return
            self._head_bytes += len(data)
        super().data_received(data)
        if self._patience is None and self.timeout_keep_alive_task is None and not self._answering():
            # Whatever came ended the wait for a next request, and is none yet.
            self._patience = self.loop.call_later(HEAD_WITHIN, self._too_slow)

    def on_message_begin(self) -> None:
        """A new request begins on the connection."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()
        # A reader that takes nothing would be waited for when its connection is closed in good order.
        self.scope["outlast.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]

    def on_headers_complete(self) -> None:
        """What follows is the body, which the gateway bounds."""
        self._in_head = False
        self._wait_no_longer()
        super().on_headers_complete()

    def _answering(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _too_slow(self) -> None:
        self._patience = None
        if not self.transport.is_closing():
            if self._head_bytes:
                self.transport.write(TOO_SLOW)
            self.transport.close()

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
