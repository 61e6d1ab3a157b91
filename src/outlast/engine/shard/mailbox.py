"""The bounded queue before a shard, with lanes: what frees work has reserved room, only new work is told Busy."""

from collections import deque
from typing import Final, NamedTuple

from outlast.core import limits
from outlast.core.inputs import (
    AnswerQueries,
    AwaitTask,
    AwaitWorkflow,
    Begin,
    CompleteTasks,
    CompleteWorkflowTasks,
    DescribeTask,
    DescribeWorkflow,
    EnqueueTasks,
    Heartbeat,
    RetryTasks,
    ReturnTasks,
    ShardRequest,
    StartWorkflows,
    StopWorker,
)
from outlast.engine.ticket import Ticket

# Refusing one of these would keep work from ending, and so keep the mailbox full.
RESERVED: Final[frozenset[type]] = frozenset(
    {AnswerQueries, Begin, CompleteTasks, CompleteWorkflowTasks, Heartbeat, ReturnTasks, StopWorker}
)


# These add nothing to a batch.
ONLY_READS: Final[frozenset[type]] = frozenset({AwaitTask, AwaitWorkflow, DescribeTask, DescribeWorkflow})


class Letter(NamedTuple):
    """One input on its way to the core."""

    ticket: Ticket
    request: ShardRequest
    namespace: str
    principal: str
    weight: int
    size: int


class Mailbox:
    """First in, first out over all lanes, so that what arrived earlier is applied earlier. Bytes are bounded as letters are."""

    __slots__ = ("_bytes", "_letters", "_room", "_room_bytes", "_weight")

    def __init__(
        self,
        *,
        room: int = limits.MAILBOX_MAX,
        reserved: int = limits.MAILBOX_RESERVED,
        room_bytes: int = limits.MAILBOX_BYTES_MAX,
    ) -> None:
        self._letters: deque[Letter] = deque()
        self._room = (room, room + reserved)
        self._room_bytes = (room_bytes, 2 * room_bytes)
        self._weight = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, ticket: Ticket, request: ShardRequest, *, namespace: str, principal: str, size: int = 0) -> bool:
        """Keep a letter of ``size`` bytes. Returns False, keeping nothing, when its lane is full."""
        weight = weight_of(request)
        lane = type(request) in RESERVED
        if self._weight + weight > self._room[lane] or self._bytes + size > self._room_bytes[lane]:
            return False
        self._weight += weight
        self._bytes += size
        self._letters.append(Letter(ticket, request, namespace, principal, weight, size))
        return True

    def take(self) -> Letter:
        """Return the oldest letter. Raises IndexError when there is none."""
        letter = self._letters.popleft()
        self._weight -= letter.weight
        self._bytes -= letter.size
        return letter


def weight_of(request: ShardRequest) -> int:
    """Return how many entities ``request`` is about: what it costs to handle."""
    if type(request) in ONLY_READS:
        return 1  # most are
    match request:
        case EnqueueTasks() | StartWorkflows() | CompleteTasks() | Heartbeat() | AnswerQueries():
            return len(request.items) or 1
        case RetryTasks():
            return len(request.task_ids) or 1
        case CompleteWorkflowTasks():
            return len(request.done) + len(request.not_done) or 1
        case _:
            return 1
