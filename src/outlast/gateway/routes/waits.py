"""Many waits by one exchange: each reply is sent as soon as it is there, and the others are waited for."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from typing import Final

from outlast.core.errors import Invalid
from outlast.core.inputs import AwaitTask, AwaitWorkflow
from outlast.core.replies import Reply
from outlast.gateway.exchange import CallerGone, Exchange, StreamAnswer
from outlast.gateway.routes.worker import requests_in
from outlast.protocol.wire import MSGPACK, frame_of

HELD_MAX: Final = 20.0  # seconds after which the exchange ends; what has no reply by then is to be asked for again
ALIVE: Final = 5.0  # seconds without a reply after which a frame without any says that the server is there
FRAME_MAX: Final = 100  # replies in one frame, each of which may be large


async def waits(exchange: Exchange) -> StreamAnswer:
    """Several waits in the body; frames of (place in the body, reply) in the answer, as the replies come."""
    requests: list[AwaitTask | AwaitWorkflow] = []
    for request in requests_in(await exchange.body(), json=exchange.is_json()):
        if not isinstance(request, AwaitTask | AwaitWorkflow):
            raise Invalid(
                "invalid_request",
                f"A {type(request).__name__} is among waits for results.",
                remedy="Send it to worker/call or worker/calls.",
            )
        requests.append(request)
    return StreamAnswer(_as_they_come(exchange, requests), MSGPACK)


class _Gathering:
    """The replies that have come since the last frame."""

    __slots__ = ("arrived", "replies")

    def __init__(self) -> None:
        self.replies: list[tuple[int, Reply]] = []
        self.arrived = asyncio.Event()

    def take(self) -> list[tuple[int, Reply]]:
        taken, self.replies = self.replies, []
        self.arrived.clear()
        return taken


class _Wait:
    """The ticket of one of the waits."""

    __slots__ = ("_gathering", "_place", "gone")

    def __init__(self, place: int, gathering: _Gathering) -> None:
        self._place = place
        self._gathering = gathering
        self.gone = False  # it has its reply, or nobody waits for it any more

    def settle(self, reply: Reply) -> bool:
        if self.gone:
            return False
        self.gone = True
        self._gathering.replies.append((self._place, reply))
        self._gathering.arrived.set()
        return True


async def _as_they_come(exchange: Exchange, requests: list[AwaitTask | AwaitWorkflow]) -> AsyncGenerator[bytes]:
    engine, loop = exchange.engine, asyncio.get_running_loop()
    gathering = _Gathering()
    tickets = [_Wait(place, gathering) for place in range(len(requests))]
    watching = asyncio.ensure_future(exchange.closed())
    watching.add_done_callback(lambda _: gathering.arrived.set())
    ends = loop.time() + HELD_MAX
    left = len(tickets)
    held = ExitStack()
    held.enter_context(exchange.term.lasting(gathering.arrived.set))
    try:
        for ticket, request in zip(tickets, requests, strict=True):
            engine.post(ticket, request, namespace=exchange.namespace, principal=exchange.principal)
        while left and (span := ends - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(span, ALIVE)):
                    await gathering.arrived.wait()
            if watching.done():
                raise CallerGone
            if exchange.term.over:
                return
            replies = gathering.take()
            left -= len(replies)
            for first in range(0, len(replies) or 1, FRAME_MAX):
                part = replies[first : first + FRAME_MAX]
                yield frame_of([(place, exchange.shown(reply)) for place, reply in part])
    finally:
        watching.cancel()
        held.close()
        for ticket in tickets:
            if not ticket.gone:
                ticket.gone = True
                engine.forget(ticket)
