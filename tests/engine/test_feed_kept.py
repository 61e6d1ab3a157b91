"""Pages of the feed that are kept for readers at one place: never longer than what they show."""

import asyncio

import pytest

from outlast.core.admin import Forget
from outlast.core.feed import Place
from outlast.core.inputs import TerminateWorkflow
from outlast.core.shard.config import ShardConfig
from outlast.store.base import FeedFound
from tests.engine.doubles import FaultyStore, run, running
from tests.engine.test_feed import a_run


class SlowFeed:
    """A feed that gives what it has read only when it is let."""

    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        self.has_read, self.may_give = asyncio.Event(), asyncio.Event()

    async def read_feed(self, namespace: str, *, after: Place, events_max: int, bytes_max: int) -> FeedFound:
        found = await self.store.read_feed(namespace, after=after, events_max=events_max, bytes_max=bytes_max)
        self.has_read.set()
        await self.may_give.wait()
        return found


@pytest.mark.parametrize("by", ["forgetting", "dropping"])
def test_a_page_that_was_read_before_its_events_went_is_not_kept(by: str) -> None:
    async def work() -> None:
        store = FaultyStore()
        async with running(store, config=ShardConfig(idempotency_window=1)) as (engine, transport):
            run_id = await a_run(transport, "o-1", signals=1)
            await transport.call(TerminateWorkflow(workflow_id="o-1", request_id="r"))
            slow = SlowFeed(store)
            engine.feeds._store = slow
            reading = asyncio.create_task(engine.feeds.read("default", after="", limit=100))
            await slow.has_read.wait()
            if by == "forgetting":
                await engine._ask(Forget(runs=(run_id,), closed_before=engine.clock.now() + 1), "default")
            else:
                engine._sweeper.feed_age = -1
                await engine._sweeper.sweep()
            slow.may_give.set()
            old = await reading
            page = await engine.feeds.read("default", after="", limit=100)

            assert old.events
            assert not any(event.gone for event in old.events)
            assert all(event.gone for event in page.events if event.run_id == run_id)

    run(work)
