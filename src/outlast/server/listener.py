"""The HTTP listener on the engine's loop."""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any, Final

from outlast.core.errors import Unavailable

BACKLOG: Final = 2048
DRAIN: Final = 5.0  # seconds that a stop gives to answers on their way
KEEP_ALIVE: Final = 75  # seconds


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one. Raises Unavailable when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise Unavailable(
            "unavailable",
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            remedy="Another server may have it: see outlast doctor. Or choose another with --port, 0 for a free one.",
        ) from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Return where clients of this machine reach ``listening``."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


class Listener:
    """Serves an ASGI application until it is stopped."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        import uvicorn

        from outlast.server.head import BoundedHead

        class Quiet(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Generator[None]:
                # Signals are the program's, not the listener's.
                yield

        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            http=BoundedHead,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=int(DRAIN),
        )
        self.address = address_of(listening)
        self._server = Quiet(config)
        self._socket = listening
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to serve; returns when connections are taken."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http-listener")
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 - uvicorn has a mark and no event
            await asyncio.sleep(0.001)
        if self._task.done():
            self._task.result()

    def begin_stop(self) -> None:
        """Take no more connections; answers on their way are still given."""
        self._server.should_exit = True

    async def stop(self) -> None:
        """Return when it has stopped; what is not answered by then is cut off."""
        self.begin_stop()
        if self._task is None:
            self._socket.close()
            return
        done, _ = await asyncio.wait({self._task}, timeout=DRAIN + 1)
        if not done:
            self._server.force_exit = True
            await asyncio.wait({self._task}, timeout=1)
            self._task.cancel()
        self._socket.close()
