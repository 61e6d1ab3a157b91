"""How a worker of the simulation reads a history: by the SDK's own code, each page a message to a node and one back."""

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any, TypeVar, cast

from outlast.core.events import Timed
from outlast.core.replies import QueryTask, WorkflowTask
from outlast.protocol.transport import HistoryPage, Transport
from outlast.sdk.errors import HistoryGap
from outlast.sdk.history import whole_history
from outlast.sdk.queries import events_of
from outlast.sim.calls import Caller, PageAsked
from outlast.sim.coverage import Coverage
from outlast.sim.violation import Violation

Result = TypeVar("Result")


@coroutine
def _page(asked: PageAsked) -> Generator[PageAsked, HistoryPage, HistoryPage]:
    return (yield asked)


class _Pages:
    """What the SDK reads from. Whoever drives its coroutine fetches the pages."""

    async def read_history(
        self, workflow_id: str, run_id: str, *, first_event_id: int = 1, wait: float = 0.0
    ) -> HistoryPage:
        del wait
        return await _page(PageAsked(workflow_id, run_id, first_event_id))


@dataclass(slots=True, frozen=True)
class Histories:
    """Reads for one worker. ``done`` gets None when a page did not come."""

    caller: Caller
    coverage: Coverage

    def complete(
        self, namespace: str, task: WorkflowTask, done: Callable[[WorkflowTask | None], None], *, from_event_id: int
    ) -> None:
        """Read what ``task`` has not come with, from ``from_event_id`` on."""
        self._drive(namespace, whole_history(_transport, task, from_event_id=from_event_id), done)

    def of_query(self, namespace: str, query: QueryTask, done: Callable[[tuple[Timed, ...] | None], None]) -> None:
        """Read the history that ``query`` asks about."""
        self._drive(namespace, events_of(_transport, query), done)

    def _drive(
        self, namespace: str, reading: Coroutine[Any, Any, Result], done: Callable[[Result | None], None]
    ) -> None:
        pages = 0

        def go_on(page: HistoryPage | None) -> None:
            nonlocal pages
            try:
                asked: PageAsked = reading.send(page)
            except StopIteration as end:
                if pages > 1:
                    self.coverage.hit("history_read_in_pages")
                done(end.value)
            except HistoryGap as gap:
                raise Violation(30, "history_shorter_than_told", str(gap)) from gap
            else:
                pages += 1
                self.caller.fetch(namespace, asked, fetched)

        def fetched(page: HistoryPage | None) -> None:
            if page is None:
                reading.close()
                done(None)
            else:
                go_on(page)

        go_on(None)


_transport = cast("Transport", _Pages())
