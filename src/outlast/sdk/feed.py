"""The feed as iterators: page after page by cursor, held while there is nothing new."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from outlast.core.errors import Unavailable
from outlast.core.limits import FEED_PAGE_EVENTS
from outlast.protocol.transport import FeedEvent, FeedPage
from outlast.sdk.client import PATIENCE, Client
from outlast.sdk.pause import Pause

HELD: Final = 20.0  # seconds for which one request is held: less than an answer may take
PAUSE_FIRST: Final = 0.05
PAUSE_MAX: Final = 2.0
INSTEAD: Final = "app.afeed(…)"


@dataclass(slots=True)
class Follower:
    """One reading of a feed. ``after`` moves on with what was given out; ``follow``: wait for more at the end."""

    connect: Callable[[], Client]
    after: str
    follow: bool

    def events(self) -> Iterator[FeedEvent]:
        """Yield events, blocking while there are none."""
        while True:
            client = self.connect()
            page = client.portal.run(self._page(client), instead=INSTEAD)
            yield from page.events
            if self._is_over(page):
                return

    async def aevents(self) -> AsyncIterator[FeedEvent]:
        """Yield events, waiting while there are none."""
        while True:
            client = self.connect()
            page = await client.arun(self._page(client), instead=INSTEAD)
            for event in page.events:
                yield event
            if self._is_over(page):
                return

    async def _page(self, client: Client) -> FeedPage:
        """Return the next page; an engine that is away is waited for as long as any request waits."""
        ends = time.monotonic() + PATIENCE
        pause = Pause(PAUSE_FIRST, PAUSE_MAX)
        wait = HELD if self.follow else 0.0
        while True:
            try:
                page = await client.transport.read_feed(after=self.after, limit=FEED_PAGE_EVENTS, wait=wait)
                return client.converter.opened(page)
            except Unavailable:
                if time.monotonic() + pause.next >= ends:
                    raise
            await pause.wait()

    def _is_over(self, page: FeedPage) -> bool:
        self.after = page.next
        return not page.more and not self.follow
