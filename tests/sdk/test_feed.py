"""The feed from the app: an iterator that waits, or ends; resumed by the cursor of any event."""

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest

from outlast import App, CommittedEvent
from outlast.core.errors import Invalid, Unavailable
from outlast.core.events import WorkflowExecutionCompleted
from outlast.engine.inprocess import InProcessTransport
from outlast.protocol.transport import FeedPage
from outlast.sdk.feed import Follower
from tests.sdk.apps import eventually


@pytest.fixture
def app() -> Iterator[App]:
    made = App("memory:", threads=4, drain="5s")
    with made:
        yield made


def work_on(app: App) -> None:
    """Run a workflow with an activity, and a task."""

    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.workflow
    async def order(n: int) -> int:
        return await double.execute(n)

    assert order.using(id="o-1").start(21).result(timeout="10s") == 42
    assert double.enqueue(4).result(timeout="10s") == 8


def test_the_feed_tells_what_a_workflow_and_a_task_came_to(app: App) -> None:
    work_on(app)
    events = list(app.feed(follow=False))

    of_run = [event for event in events if event.event_id]
    assert [event.event_id for event in of_run] == list(range(1, len(of_run) + 1))
    assert isinstance(of_run[-1].event, WorkflowExecutionCompleted)
    assert {(event.workflow_id, event.type) for event in of_run} == {("o-1", "order")}
    attempts = [event for event in events if event.attempt is not None]
    assert [(event.workflow_id, event.type) for event in attempts] == [("o-1", "double"), ("", "double")]
    assert [event.state for event in events if event.kind == "TaskClosed"] == ["succeeded"]
    assert of_run == [event for event in of_run if event.at.tzinfo is not None]
    assert [(event.event_id, event.kind, event.at) for event in of_run] == [
        (event.event_id, event.kind, event.at) for event in app.get_workflow("o-1").history()
    ]


def test_who_goes_on_behind_any_event_gets_exactly_the_rest(app: App) -> None:
    work_on(app)
    whole = list(app.feed(follow=False))

    async def rest(cursor: str) -> list[CommittedEvent]:
        return [event async for event in app.afeed(cursor, follow=False)]

    for n, event in enumerate(whole):
        assert list(app.feed(event.cursor, follow=False)) == whole[n + 1 :]
        assert asyncio.run(rest(event.cursor)) == whole[n + 1 :]


def test_an_iterator_that_follows_waits_for_what_comes(app: App) -> None:
    @app.task
    def note(n: int) -> int:
        return n

    async def follow() -> list[str]:
        told: list[str] = []
        async for event in app.afeed("now"):
            told.append(event.kind)
            if event.kind == "TaskClosed":
                return told
            await asyncio.sleep(0)
        return told

    async def both() -> list[str]:
        following = asyncio.create_task(follow())
        transport = app.connect().transport
        assert isinstance(transport, InProcessTransport)
        await asyncio.to_thread(eventually, lambda: transport._engine.feeds._readers)  # "now" is a place from here on
        await note.aenqueue(1)
        return await asyncio.wait_for(following, 10)

    assert asyncio.run(both()) == ["TaskEnqueued", "TaskAttemptEnded", "TaskClosed"]


def test_a_follower_may_be_left_at_any_event(app: App) -> None:
    work_on(app)
    following = app.feed()

    first = list(islice(following, 2))
    second = list(islice(following, 3))

    assert [*first, *second] == list(app.feed(follow=False))[:5]


def test_a_cursor_of_another_store_is_refused(app: App) -> None:
    work_on(app)
    cursor = next(iter(app.feed())).cursor

    with pytest.raises(Invalid, match="no feed gave"):
        list(app.feed("nonsense", follow=False))
    with App("memory:", worker=False) as other, pytest.raises(Invalid, match="another store"):
        list(other.feed(cursor, follow=False))


def test_an_engine_that_is_away_is_waited_for(app: App) -> None:
    work_on(app)
    whole = list(app.feed(follow=False))
    client = app.connect()
    read, failing = client.transport.read_feed, [True, True]

    async def read_feed(*, after: str = "", limit: int = 0, wait: float = 0.0) -> FeedPage:
        if failing:
            failing.pop()
            raise Unavailable("unavailable", "The engine is away.")
        return await read(after=after, limit=limit, wait=wait)

    client.transport.read_feed = read_feed  # type: ignore[method-assign]

    assert list(Follower(app.connect, "", follow=False).events()) == whole
    assert not failing
    eventually(lambda: True)
