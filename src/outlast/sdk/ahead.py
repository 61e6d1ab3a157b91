"""Waits of the handles of one batch: who waits for the first has those of the next few hundred sent along.

So a plain loop over ``handle.result()`` runs at the speed of a batch. What was sent along is only a shortcut: an answer that
is none (a refusal, an engine that went away) is dropped, and the handle asks for itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from outlast.core.inputs import Request
from outlast.core.replies import Refused, Reply
from outlast.sdk.client import Client

Id = TypeVar("Id")

AHEAD_MAX: Final = 500  # waits of one batch that are under way beyond the one that somebody waits for


class Held(Protocol):
    """A request under way; its future belongs to the loop that asked."""

    @property
    def future(self) -> "asyncio.Future[Reply]": ...


class Asks(Protocol):
    """A transport by which many waits cost little."""

    def ask(self, request: Request) -> Held:
        """Send ``request`` from the running loop."""
        ...

    def forget(self, asked: Any) -> None:
        """Say that nobody waits for the answer. From any thread."""
        ...


class Ahead:
    """The waits of one batch, by the place of their handle; ``request_of`` makes one from what is in ``ids`` there."""

    __slots__ = ("_ids", "_loop", "_request_of", "_transport", "_under_way")

    def __init__(self, ids: Sequence[Id], request_of: Callable[[Id], Request]) -> None:
        self._ids: Sequence[Any] = ids
        self._request_of: Callable[[Any], Request] = request_of
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: Asks | None = None
        self._under_way: dict[int, Held] = {}

    def __del__(self) -> None:
        # No handle is left: nobody can ask for these answers any more.
        if self._transport is not None:
            for asked in self._under_way.values():
                self._transport.forget(asked)

    def ready(self, place: int) -> Reply | None:
        """Return the answer for ``place`` if it has come already, once. From any thread."""
        asked = self._under_way.get(place)
        if asked is None or not asked.future.done():
            return None
        self._under_way.pop(place, None)
        return _answer(asked.future)

    async def reply(self, place: int, client: Client, timeout: float | None) -> Reply | None:
        """Return the answer for ``place``, or None when its handle has to ask for itself.

        Raises:
            TimeoutError: it has not come within ``timeout`` seconds.
        """
        if not hasattr(client.transport, "ask"):
            return None
        transport = cast("Asks", client.transport)
        loop = asyncio.get_running_loop()
        if not self._under_way:
            self._loop, self._transport = loop, transport
        if self._loop is not loop or self._transport is not transport:
            return None
        if place not in self._under_way:
            self._send(place, transport)
        asked = self._under_way.pop(place, None)
        if asked is None:
            return None
        future = asked.future
        try:
            if not future.done():
                await (future if timeout is None else asyncio.wait_for(future, timeout))
        except (asyncio.CancelledError, TimeoutError):
            transport.forget(asked)
            raise
        return _answer(future)

    def _send(self, place: int, transport: Asks) -> None:
        under_way = self._under_way
        for n in range(place, min(place + AHEAD_MAX - len(under_way), len(self._ids))):
            if n not in under_way:
                under_way[n] = transport.ask(self._request_of(self._ids[n]))


def _answer(future: "asyncio.Future[Reply]") -> Reply | None:
    if future.cancelled() or future.exception() is not None:
        return None
    reply = future.result()
    return None if isinstance(reply, Refused) else reply
