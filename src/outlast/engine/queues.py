"""How full the queues of a namespace are: from the counters that commits keep and bounded reads of the index of ready tasks."""

from dataclasses import dataclass, field
from typing import Protocol

from outlast.core import limits
from outlast.core.counters import TASKS, counted_by
from outlast.core.replies import TaskState
from outlast.core.task import TERMINAL
from outlast.protocol.transport import QueueInfo, Queues, QueueType
from outlast.store.base import Turns, Waiting


class Depths(Protocol):
    """Where depths are read."""

    async def read_counters(self, namespace: str) -> dict[str, int]: ...

    async def read_waiting(self, namespace: str, queue: str) -> list[Waiting]: ...

    async def read_turns(self) -> list[Turns]: ...


@dataclass(slots=True)
class _Queue:
    states: dict[str, int] = field(default_factory=dict[str, int])
    turns: list[Turns] = field(default_factory=list[Turns])


async def queues_of(store: Depths, namespace: str, queue: str = "") -> Queues:
    """Return the queues that have open work, by name; only ``queue`` if it is given, then also when it is empty."""
    queues: dict[str, _Queue] = {queue: _Queue()} if queue else {}
    for name, value in (await store.read_counters(namespace)).items():
        of, of_queue, state = counted_by(name)
        if of == TASKS and value > 0 and state not in TERMINAL and queue in {"", of_queue}:
            queues.setdefault(of_queue, _Queue()).states[state] = value
    for turns in await store.read_turns():
        if turns.namespace == namespace and queue in {"", turns.queue}:
            queues.setdefault(turns.queue, _Queue()).turns.append(turns)
    shown = sorted(queues)[: limits.QUEUES_SHOWN_MAX]
    items = [_info(name, queues[name], await store.read_waiting(namespace, name)) for name in shown]
    return Queues(items=tuple(items), more=len(shown) < len(queues))


def _info(name: str, queue: _Queue, waiting: list[Waiting]) -> QueueInfo:
    states = queue.states
    queued = states.get(TaskState.ENQUEUED, 0) + states.get(TaskState.RETRY_WAIT, 0)
    counted = sum(one.ready for one in waiting)
    more = any(one.more for one in waiting)
    # The counters and the index are read one after the other: what has moved between them must not show as less than none.
    ready = queued if more else min(counted, queued)
    return QueueInfo(
        queue=name,
        ready=ready,
        delayed=queued - ready,
        leased=states.get(TaskState.LEASED, 0),
        held=states.get(TaskState.HELD, 0),
        uncertain=states.get(TaskState.UNCERTAIN, 0),
        turns=sum(one.ready for one in queue.turns),
        oldest_at=min([one.since for one in waiting] + [one.since for one in queue.turns], default=0),
        types=tuple(QueueType(type=one.type, ready=one.ready, oldest_at=one.since, more=one.more) for one in waiting),
        approximate=more,
    )
