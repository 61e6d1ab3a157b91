"""Who waits for an answer. The core carries tickets and never looks inside."""

import asyncio
from typing import Final, Protocol

from outlast.core.inputs import ShardRequest
from outlast.core.replies import Refused, Reply

STOPPING: Final = Refused(
    code="unavailable",
    fact="The engine is stopping.",
    remedy="Send it again when an engine is up.",
    retryable=True,
)


class Ticket(Protocol):
    """One caller that waits."""

    @property
    def gone(self) -> bool:
        """Whether nobody takes the answer any more."""
        ...

    def settle(self, reply: Reply) -> bool:
        """Hand ``reply`` over. Returns False when the caller has gone; the reply is then lost."""
        ...


class FutureTicket:
    """A caller on the engine's own loop."""

    __slots__ = ("future", "namespace", "request")

    def __init__(self, future: "asyncio.Future[Reply]", request: ShardRequest, namespace: str) -> None:
        self.future = future
        self.request = request
        self.namespace = namespace

    @property
    def gone(self) -> bool:
        """Whether the future was cancelled."""
        return self.future.done()

    def settle(self, reply: Reply) -> bool:
        """Resolve the future, unless it was cancelled."""
        if self.future.done():
            return False
        self.future.set_result(reply)
        return True


class NobodyWaits:
    """The ticket of a request that the engine makes itself."""

    __slots__ = ()
    gone = False

    def settle(self, reply: Reply) -> bool:  # noqa: ARG002 - nobody reads it
        """Let the reply go."""
        return True
