"""Queries at the worker: asking runs in memory, or rebuilt from their histories, on the threads of turns."""

from collections.abc import Sequence
from typing import Final

from outlast.core.events import Timed
from outlast.core.inputs import QueryAnswer
from outlast.core.replies import QueryTask
from outlast.protocol.transport import Transport
from outlast.sdk.attempt import recorded
from outlast.sdk.backlog import taken_once
from outlast.sdk.converter import Converter
from outlast.sdk.definition import WorkflowDefinition
from outlast.sdk.errors import HistoryGap
from outlast.sdk.replay import WorkflowRun

QUESTION_MAX: Final = 2.0  # seconds for one question: a query method only tells
EVENTS_PER_SECOND: Final = 2000  # further time for the events that are replayed first, on a machine that is busy


class QueriesInHand:
    """The questions to one run: the run in memory, or the events to build one from, and what it said."""

    __slots__ = (
        "answers", "converter", "definition", "end", "events", "kept", "limit", "namespace", "queries", "run",
        "started_at", "thread", "ticket",
    )  # fmt: skip

    def __init__(
        self,
        queries: Sequence[QueryTask],
        definition: WorkflowDefinition,
        converter: Converter,
        run: WorkflowRun | None,
        *,
        namespace: str,
        events: tuple[Timed, ...] = (),
    ) -> None:
        self.queries = queries
        self.definition = definition
        self.converter = converter
        self.run = run
        self.kept = run is not None  # it goes back to memory
        self.namespace = namespace
        self.events = events
        self.answers: list[QueryAnswer] = []
        self.limit = QUESTION_MAX * len(queries) + len(events) / EVENTS_PER_SECOND
        self.started_at = 0.0  # monotonic seconds
        self.thread: int = 0
        self.ticket = [True]
        self.end = [True]

    def claim(self) -> bool:
        """Return True to one caller only: it may ask. From any thread."""
        return taken_once(self.ticket)

    def settle(self) -> bool:
        """Return True to one caller only: it says what came of it. From any thread."""
        return taken_once(self.end)

    def execute(self) -> None:
        """Ask. Never raises: what the code raises is the answer."""
        try:
            run = self.run
            if run is None:
                first = self.queries[0]
                run = self.run = WorkflowRun(
                    self.definition,
                    self.converter,
                    namespace=self.namespace,
                    workflow_id=first.workflow_id,
                    run_id=first.token.run_id,
                )
                run.replay(self.events)
        except BaseException as error:  # noqa: BLE001 - the answer, not the thread's end
            self.fail(error)
            return
        self.answers = [_ask(run, query) for query in self.queries]

    def fail(self, error: BaseException) -> None:
        """Give ``error`` as the answer to all."""
        failure = self.converter.sealed(recorded(error))
        self.answers = [QueryAnswer(token=query.token, failure=failure) for query in self.queries]


def _ask(run: WorkflowRun, query: QueryTask) -> QueryAnswer:
    try:
        return QueryAnswer(token=query.token, result=run.query(query.name, query.input))
    except BaseException as error:  # noqa: BLE001 - the answer, not the thread's end
        return QueryAnswer(token=query.token, failure=run.converter.sealed(recorded(error)))


async def events_of(transport: Transport, query: QueryTask) -> tuple[Timed, ...]:
    """Return the history of the run that ``query`` asks.

    Raises:
        Refusal: it cannot be read now.
        HistoryGap: it ends before what the answer is to tell of.
    """
    events: list[Timed] = []
    while len(events) < query.last_event_id:
        page = await transport.read_history(query.workflow_id, query.token.run_id, first_event_id=len(events) + 1)
        fresh = page.events[len(events) + 1 - page.first_event_id :]
        if not fresh:
            raise HistoryGap(f"The history of workflow {query.workflow_id} has no event {len(events) + 1}.")
        events.extend(fresh)
    return tuple(events)
