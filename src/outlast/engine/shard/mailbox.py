"""The bounded queue before a shard, with lanes: what frees work has reserved room, only new work is told Busy."""

from collections import deque
from typing import Final, NamedTuple

from outlast.core import limits
from outlast.core.inputs import (
    Begin,
    CompleteTasks,
    CompleteWorkflowTasks,
    EnqueueTasks,
    Heartbeat,
    Request,
    ReturnTasks,
    StartWorkflows,
    StopWorker,
)
from outlast.engine.ticket import Ticket

# Refusing one of these would keep work from ending, and so keep the mailbox full.
RESERVED: Final[frozenset[type]] = frozenset(
    {Begin, CompleteTasks, CompleteWorkflowTasks, Heartbeat, ReturnTasks, StopWorker}
)


class Letter(NamedTuple):
    """One input on its way to the core."""

    ticket: Ticket
    request: Request
    namespace: str
    principal: str
    weight: int


class Mailbox:
    """First in, first out over all lanes, so that what arrived earlier is applied earlier."""

    __slots__ = ("_letters", "_room", "_weight")

    def __init__(self, *, room: int = limits.MAILBOX_MAX, reserved: int = limits.MAILBOX_RESERVED) -> None:
        self._letters: deque[Letter] = deque()
        self._room = (room, room + reserved)
        self._weight = 0

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, ticket: Ticket, request: Request, *, namespace: str, principal: str) -> bool:
        """Keep a letter. Returns False, keeping nothing, when its lane is full."""
        weight = weight_of(request)
        if self._weight + weight > self._room[type(request) in RESERVED]:
            return False
        self._weight += weight
        self._letters.append(Letter(ticket, request, namespace, principal, weight))
        return True

    def take(self) -> Letter:
        """Return the oldest letter. Raises IndexError when there is none."""
        letter = self._letters.popleft()
        self._weight -= letter.weight
        return letter


def weight_of(request: Request) -> int:
    """Return how many entities ``request`` is about: what it costs to handle."""
    match request:
        case EnqueueTasks() | StartWorkflows() | CompleteTasks() | Heartbeat():
            return len(request.items) or 1
        case CompleteWorkflowTasks():
            return len(request.done) + len(request.not_done) or 1
        case _:
            return 1
