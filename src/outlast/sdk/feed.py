"""The feed as iterators: page after page by cursor, held while there is nothing new."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from outlast.core.errors import Unavailable
from outlast.core.events import Event
from outlast.core.limits import FEED_PAGE_EVENTS
from outlast.core.units import MICROSECOND
from outlast.protocol.transport import Attempt, FeedEvent, FeedPage
from outlast.sdk.client import PATIENCE, Client
from outlast.sdk.pause import Pause
from outlast.sdk.recorded import EPOCH

HELD: Final = 20.0  # seconds for which one request is held: less than an answer may take
PAUSE_FIRST: Final = 0.05
PAUSE_MAX: Final = 2.0
INSTEAD: Final = "app.afeed(…)"


@dataclass(frozen=True, slots=True)
class CommittedEvent:
    """One event of a feed: of the history of a run, or of a task."""

    cursor: str  # given as ``after`` it goes on behind this event
    commit: int  # number of the commit that wrote it: greater for a later one
    at: datetime  # when it happened
    kind: str  # "TimerStarted" and the like, or one of tasks: "TaskEnqueued", "TaskClosed" and so on
    type: str  # of the workflow or task
    workflow_id: str  # also of the workflow that an activity belongs to
    run_id: str  # as ``workflow_id``
    event_id: int  # its place in the history; 0 for an event of a task
    task_id: str  # of the task or activity; "" for an event of a history
    queue: str  # of the task
    state: str  # that a task has closed in
    attempt: Attempt | None  # how a lease ended, or who brought a task back
    event: Event | None  # as the history has it; a payload above 256 KB is a reference here
    gone: bool  # its run or task has been forgotten: nothing but its ids is left


@dataclass(slots=True)
class Follower:
    """One reading of a feed. ``after`` moves on with what was given out; ``follow``: wait for more at the end."""

    connect: Callable[[], Client]
    after: str
    follow: bool

    def events(self) -> Iterator[CommittedEvent]:
        """Yield events, blocking while there are none."""
        while True:
            client = self.connect()
            page = client.portal.run(self._page(client), instead=INSTEAD)
            yield from map(_event, page.events)
            if self._is_over(page):
                return

    async def aevents(self) -> AsyncIterator[CommittedEvent]:
        """Yield events, waiting while there are none."""
        while True:
            client = self.connect()
            page = await client.arun(self._page(client), instead=INSTEAD)
            for event in page.events:
                yield _event(event)
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


def _event(event: FeedEvent) -> CommittedEvent:
    return CommittedEvent(
        cursor=event.cursor,
        commit=event.commit,
        at=EPOCH + timedelta(microseconds=event.at // MICROSECOND),
        kind=event.kind,
        type=event.type,
        workflow_id=event.workflow_id,
        run_id=event.run_id,
        event_id=event.event_id,
        task_id=event.task_id,
        queue=event.queue,
        state=event.state,
        attempt=event.attempt,
        event=event.event,
        gone=event.gone,
    )
