"""The feed of a namespace as a stream of server-sent events, which ends with the engine or with the policy that let it in.

The id of each event is its cursor: who comes back with the last one goes on behind it. A comment that breaks the silence
carries an id too, so that a reader to whom nothing happens does not fall behind what is kept.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import closing
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from outlast.core import limits
from outlast.core.errors import Refusal
from outlast.gateway.exchange import Exchange, StreamAnswer
from outlast.gateway.giving import feed_event_out
from outlast.gateway.watching import EVENT_STREAM, RETRY, Silence
from outlast.protocol.opening import Opener
from outlast.protocol.transport import FeedPage
from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.gateway")

# Readers at one place get the same page, and the same bytes of it if it is opened for them by the same keys.
_pieces_of: Final[WeakKeyDictionary[Opener, WeakKeyDictionary[FeedPage, bytes]]] = WeakKeyDictionary()


async def feed_stream(exchange: Exchange, *, after: str) -> StreamAnswer:
    """Return the events behind Last-Event-ID or ``after``, then each as it is committed. Raises Busy, Invalid."""
    after = exchange.headers.get("last-event-id", "") or after
    page = await _read(exchange, after)  # what is wrong with the cursor is said with a status
    exchange.streams.enter()
    return StreamAnswer(_pieces(exchange, page), EVENT_STREAM, on_end=exchange.streams.leave)


async def _pieces(exchange: Exchange, page: FeedPage) -> AsyncGenerator[bytes]:
    """Give one piece for each page, and after a while of silence the place that was come to."""
    yield RETRY
    feeds, namespace = exchange.engine.feeds, exchange.namespace
    try:
        with feeds.watch(namespace) as moved, closing(Silence(exchange, moved)) as silence:
            moved.set()  # what was committed since the page was read
            while not exchange.over:
                if page.events:
                    yield _piece(exchange, page)
                    silence.broken()
                told = page.more or await silence.ended()
                moved.clear()
                page = await _read(exchange, page.next)
                if not told and not page.events:
                    yield b": still here\nid: %s\n\n" % page.next.encode()
                    silence.broken()
    except (Refusal, StoreError) as error:
        # The reader comes back with its cursor and is told then what is wrong.
        LOG.info("stream_ended request=%s code=%s", exchange.request_id, error.code)


async def _read(exchange: Exchange, after: str) -> FeedPage:
    return await exchange.engine.feeds.read(exchange.namespace, after=after, limit=limits.FEED_PAGE_EVENTS)


def _piece(exchange: Exchange, page: FeedPage) -> bytes:
    pieces = _pieces_of.setdefault(exchange.opener, WeakKeyDictionary())
    piece = pieces.get(page)
    if piece is None:
        encode = msgspec.json.encode
        events = exchange.opener.open(page).events
        piece = b"".join(
            b"id: %s\ndata: %s\n\n" % (event.cursor.encode(), encode(feed_event_out(event))) for event in events
        )
        pieces[page] = piece
    return piece
