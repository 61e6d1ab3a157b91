"""One bad item of a batch refuses only itself: the rest goes on, and the answers are put together again."""

import msgspec

from outlast.core.inputs import CompleteTasks, EnqueueTasks, StartWorkflows
from outlast.core.replies import CompletionsReply, Refused, Reply, TasksEnqueued, WorkflowsStarted
from outlast.engine.ticket import Ticket

Batch = StartWorkflows | EnqueueTasks | CompleteTasks


class PartTicket:
    """The caller of a batch of which a part was refused at the door."""

    __slots__ = ("_faults", "_kind", "_size", "_ticket")

    def __init__(self, ticket: Ticket, kind: type, size: int, faults: dict[int, Refused]) -> None:
        self._ticket = ticket
        self._kind = kind
        self._size = size
        self._faults = faults

    @property
    def gone(self) -> bool:
        """Whether the caller has gone."""
        return self._ticket.gone

    def settle(self, reply: Reply) -> bool:
        """Give the whole batch its answer, item by item in order."""
        match reply:
            case WorkflowsStarted() | TasksEnqueued() | CompletionsReply():
                good = iter(reply.items)
                items = tuple(self._faults[n] if n in self._faults else next(good) for n in range(self._size))
                return self._ticket.settle(msgspec.structs.replace(reply, items=items))
            case _:
                return self._ticket.settle(reply)

    def settle_empty(self) -> None:
        """Answer a batch of which nothing is left."""
        items = tuple(self._faults[n] for n in range(self._size))
        if self._kind is StartWorkflows:
            self._ticket.settle(WorkflowsStarted(items=items))
        elif self._kind is EnqueueTasks:
            self._ticket.settle(TasksEnqueued(items=items))
        else:
            self._ticket.settle(CompletionsReply(items=items))


def part_of(ticket: Ticket, request: Batch, faults: dict[int, Refused]) -> tuple[Ticket, Batch | None]:
    """Return a ticket and the items of ``request`` without ``faults``; None when the batch was answered here."""
    if not faults:
        return ticket, request
    part = PartTicket(ticket, type(request), len(request.items), faults)
    good = tuple(item for n, item in enumerate(request.items) if n not in faults)
    if not good:
        part.settle_empty()
        return part, None
    return part, msgspec.structs.replace(request, items=good)
