"""The events of a run for those who look at it: read from the store, or followed as they come."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from outlast.core.events import Event, WorkflowExecutionContinuedAsNew
from outlast.core.units import MICROSECOND
from outlast.sdk.client import Client

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HELD: Final = 20.0  # seconds for which one look waits for a new event


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One recorded event of a run: what happened, when, and its place; ids count from 1 in each run."""

    run_id: str  # of the run whose event it is; a chain has several
    event_id: int  # 1, 2, 3 … in the run
    at: datetime  # when it was recorded, by the engine's clock
    event: Event  # what happened, with its fields: see the events by number

    @property
    def kind(self) -> str:
        """The name of what happened, such as "TimerStarted"."""
        return type(self.event).__name__


@dataclass(slots=True)
class Reading:
    """Where somebody who reads the events of a workflow is. With ``follow`` it goes on until the last run has closed."""

    connect: Callable[[], Client]
    workflow_id: str
    run_id: str
    following: int
    follow: bool
    instead: str
    ended: bool = False

    def events(self) -> Iterator[HistoryEvent]:
        """Yield events in order, blocking."""
        while not self.ended:
            client = self.connect()
            yield from client.portal.run(self._page(client), instead=self.instead)

    async def aevents(self) -> AsyncIterator[HistoryEvent]:
        """Yield events in order, without blocking the loop."""
        while not self.ended:
            client = self.connect()
            for event in await client.arun(self._page(client), instead=self.instead):
                yield event

    async def _page(self, client: Client) -> list[HistoryEvent]:
        wait = HELD if self.follow else 0.0
        page = await client.transport.read_history(
            self.workflow_id, self.run_id, first_event_id=self.following, wait=wait
        )
        page = client.converter.opened(page)
        self.run_id = page.run_id
        events = [
            HistoryEvent(page.run_id, page.first_event_id + n, EPOCH + timedelta(microseconds=at // MICROSECOND), event)
            for n, (at, event) in enumerate(page.events)
        ]
        self.following = page.next_event_id or page.first_event_id + len(events)
        if page.next_event_id:
            return events
        last = events[-1].event if events else None
        if self.follow and isinstance(last, WorkflowExecutionContinuedAsNew):
            self.run_id, self.following = last.new_run_id, 1
        else:
            self.ended = page.closed or not self.follow
        return events
