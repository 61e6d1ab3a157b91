"""The way from the verbs to an engine: sends a request until it is answered, with the same ids, from any thread."""

import os
import socket
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

import uuid_utils

from outlast.core.errors import SteppedDown, Unavailable
from outlast.core.inputs import Request, RetryTasks
from outlast.core.replies import Reply
from outlast.protocol.again import patience
from outlast.protocol.transport import Transport
from outlast.sdk.converter import Converter
from outlast.sdk.durations import Duration, seconds_of
from outlast.sdk.pause import Pause
from outlast.sdk.portal import Portal

K = TypeVar("K")

PATIENCE: Final = 30.0  # seconds for which a request that changes something is sent again before its caller is told
PAUSE_FIRST: Final = 0.02
PAUSE_MAX: Final = 2.0


class Home(Protocol):
    """What a declared task or workflow belongs to."""

    namespace: str
    converter: Converter

    def connect(self) -> "Client":
        """Return the way to the engine.

        Raises:
            NotStarted: there is none at the moment.
        """
        ...


class Client:
    """Sends requests over ``transport`` from the loop of ``portal``."""

    def __init__(self, transport: Transport, converter: Converter, portal: Portal, *, identity: str = "") -> None:
        self.transport = transport
        self.converter = converter
        self.portal = portal
        self.identity = identity or default_identity()
        # A transport that holds nothing for a loop is called where its caller is: that saves two hand-overs.
        self._from_any_loop: bool = getattr(transport, "from_any_loop", False)

    def ask(self, request: Request, kind: type[K], *, instead: str, timeout: float | None = PATIENCE) -> K:
        """Send ``request`` and return its reply, blocking. ``instead`` names the async twin for the error."""
        return self.portal.run(self.send(request, kind, timeout), instead=instead)

    async def aask(self, request: Request, kind: type[K], *, instead: str, timeout: float | None = PATIENCE) -> K:
        """Send ``request`` and return its reply. May be awaited on any loop."""
        return await self.arun(self.send(request, kind, timeout), instead=instead)

    async def arun(self, work: Coroutine[Any, Any, K], *, instead: str) -> K:
        """Return what ``work``, which sends by this client, returns. May be awaited on any loop."""
        if not self._from_any_loop:
            return await self.portal.arun(work, instead=instead)
        try:
            self.portal.check()
        except BaseException:
            work.close()
            raise
        return await work

    async def send(self, request: Request, kind: type[K], timeout: float | None) -> K:
        """Send until answered, on the client's loop: the ids in the request make a repeat happen once.

        Raises:
            Refusal: it was refused, or the engine could not be reached within ``timeout`` seconds. What people must mend
                first, such as a full disk, is said after about a second.
        """
        began = time.monotonic()
        deadline = None if timeout is None else began + timeout
        pause = Pause(PAUSE_FIRST, PAUSE_MAX)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                reply: Reply = await self.transport.call(request, timeout=left)
            except Unavailable as error:
                span = patience(request, error.code, timeout)
                if span is not None and (error.code == "timeout" or time.monotonic() + pause.next >= began + span):
                    raise
            else:
                if not isinstance(reply, kind):
                    raise SteppedDown("internal", f"The answer is a {type(reply).__name__}, not a {kind.__name__}.")
                return reply
            await pause.wait()


def retry_request(client: Client, task_ids: tuple[str, ...], reason: str) -> RetryTasks:
    """Return the request that brings tasks back."""
    return RetryTasks(task_ids=task_ids, request_id=mint(), reason=reason, identity=client.identity)


def mint() -> str:
    """Return a fresh id that sorts by time."""
    return str(uuid_utils.uuid7())


def default_identity() -> str:
    """Return "process@host": who asks, for people."""
    return f"{os.getpid()}@{socket.gethostname()}"


def seconds(timeout: Duration | None) -> float | None:
    """Return ``timeout`` in seconds; None waits for ever."""
    return None if timeout is None else seconds_of(timeout, name="timeout")
