"""uvicorn's fast protocol with a bound on the head of a request, which it lets grow without end."""

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
REFUSAL: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedHead(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not end within HEAD_BYTES_MAX and what one read brings."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._in_head = True
        self._head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless the head is too long already."""
        if self._in_head:
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.write(REFUSAL)
                self.transport.close()
                return
            self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A new request begins on the connection."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()
        # A reader that takes nothing would be waited for when its connection is closed in good order.
        self.scope["outlast.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]

    def on_headers_complete(self) -> None:
        """What follows is the body, which the gateway bounds."""
        self._in_head = False
        super().on_headers_complete()
