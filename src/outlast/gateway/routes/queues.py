"""Queues and workers over REST: how much waits, and who takes it."""

from outlast.core.admin import DescribeWorkers, WorkersInfo
from outlast.gateway.exchange import Answer, Exchange, answer
from outlast.gateway.given import QueuesOut, WorkersOut
from outlast.gateway.giving import queue_out, worker_out
from outlast.gateway.taken import WorkersQuery


async def list_(exchange: Exchange) -> Answer:
    """The queues that have open work."""
    found = await exchange.engine.reader.list_queues(exchange.namespace)
    return answer(QueuesOut(items=tuple(queue_out(info) for info in found.items), more=found.more))


async def get(exchange: Exchange) -> Answer:
    """One queue; a queue is there as soon as it is asked for, and may be empty."""
    found = await exchange.engine.reader.list_queues(exchange.namespace, queue=exchange.params["name"])
    return answer(queue_out(found.items[0]))


async def workers(exchange: Exchange) -> Answer:
    """Who polls, or has polled since the engine has the shard."""
    found = await exchange.expect(DescribeWorkers(queue=exchange.asked(WorkersQuery).queue), WorkersInfo)
    return answer(WorkersOut(items=tuple(worker_out(info) for info in found.items), more=found.more))
