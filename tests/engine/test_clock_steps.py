"""The shell tells the core when its clock was set ahead, so that nobody loses time that did not pass."""

import asyncio

from outlast.core.inputs import CompleteTasks, Completion, Heartbeat, HeartbeatItem, TaskSucceeded
from outlast.core.replies import CompletionsReply, Work
from outlast.core.units import HOUR, SECOND, Instant
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.store.memory.blobs import MemoryBlobStore
from tests.engine.doubles import ENTROPY, a_poll, a_task, run
from tests.engine.places import new_place


class SetClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1_700_000_000 * SECOND
        self.stepped = 0

    def now(self) -> Instant:
        return Instant(self.at)

    def step(self, span: int) -> None:
        self.at += span
        self.stepped += span


def test_an_attempt_goes_on_when_the_clock_is_set_ahead_of_its_end() -> None:
    async def work() -> None:
        clock = SetClock()
        engine = Engine(new_place().store(), MemoryBlobStore(), clock=clock, entropy=ENTROPY)
        await engine.start()
        transport = InProcessTransport(engine, namespace="default")
        await transport.call(a_task(task_id="t", start_to_close=600 * SECOND))
        polled = await transport.call(a_poll())
        assert isinstance(polled, Work)

        clock.step(2 * HOUR)
        await _quiet(transport)
        for _ in range(80):  # the fresh term of the lease after the pause passes, and more
            clock.at += SECOND // 2
            await _beat(transport, polled)
        done = Completion(token=polled.tasks[0].token, outcome=TaskSucceeded())
        reply = await transport.call(CompleteTasks(items=(done,), worker="w1"))

        assert reply == CompletionsReply(items=(None,))
        await engine.stop()

    run(work)


async def _quiet(transport: InProcessTransport) -> None:
    await transport.call(a_task())
    await asyncio.sleep(0)


async def _beat(transport: InProcessTransport, work: Work) -> None:
    await transport.call(Heartbeat(items=(HeartbeatItem(token=work.tasks[0].token),), worker="w1"))
