"""Reply gating: no answer leaves before the batch whose state it saw has committed (ARCHITECTURE §1.1).

Every answer goes this way, positive or negative, reads and repeats included: early acknowledgement hides in duplicates.
"""

from collections import deque
from dataclasses import dataclass, field

from outlast.core.replies import Reply
from outlast.core.shard.outputs import Answer, Output


@dataclass(slots=True)
class Gate:
    committed: int  # number of the last batch known to be committed
    waiting: deque[tuple[int, Answer]] = field(default_factory=deque[tuple[int, Answer]])  # by number, ascending

    def answer(self, outputs: list[Output], ticket: object, reply: Reply, *, saw: int) -> None:
        """Let ``reply`` go once batch number ``saw`` has committed."""
        if saw <= self.committed:
            outputs.append(Answer(ticket, reply))
        else:
            self.waiting.append((saw, Answer(ticket, reply)))

    def commit(self, outputs: list[Output], number: int) -> None:
        """Note that batch ``number`` has committed and let go what waited for it."""
        self.committed = number
        waiting = self.waiting
        while waiting and waiting[0][0] <= number:
            outputs.append(waiting.popleft()[1])

    def drain(self) -> list[object]:
        """Return the tickets that were never answered, and forget them."""
        tickets = [answer.ticket for _, answer in self.waiting]
        self.waiting.clear()
        return tickets
