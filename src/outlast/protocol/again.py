"""Which refusals are answered by sending the same request again, how soon, and for how long.

All requests carry ids that make a repeat harmless, so a lost answer and a shard that is being loaded are waited out. What a
person should hear of at once (too much waiting, a full disk) is not, except for workers, whose word must not be lost.
"""

from typing import Final

from outlast.core.inputs import (
    AnswerQueries,
    AwaitTask,
    AwaitWorkflow,
    Begin,
    CompleteTasks,
    CompleteWorkflowTasks,
    Heartbeat,
    Poll,
    QueryWorkflow,
    Request,
    ReturnTasks,
)
from outlast.core.replies import Refused, Reply

PAUSE_FIRST: Final = 0.02  # seconds, doubling
PAUSE_MAX: Final = 2.0
SOON: Final = 1.0  # seconds after which a client hears of what people must mend; it may have been for an instant

_PASSING: Final = frozenset({"unavailable", "not_owner"})
_PASSING_FOR_WORKERS: Final = _PASSING | {"busy", "store_full", "store_locked"}
_FOR_PEOPLE: Final = frozenset({"store_full", "store_locked", "store_newer", "store_damaged"})
_OF_WORKERS: Final = (AnswerQueries, Begin, CompleteTasks, CompleteWorkflowTasks, Heartbeat, Poll, ReturnTasks)
_WAITING: Final = (AwaitTask, AwaitWorkflow, Poll, QueryWorkflow)


def send_again(request: Request, reply: Reply) -> bool:
    """Say whether ``reply`` is a refusal that will pass."""
    if not isinstance(reply, Refused):
        return False
    return reply.code in (_PASSING_FOR_WORKERS if isinstance(request, _OF_WORKERS) else _PASSING)


def patience(request: Request, code: str, timeout: float | None) -> float | None:
    """Return for how many of ``timeout`` seconds a client repeats a ``request`` that is refused with ``code``.

    A fault of ours is not repeated, as it may be the request that breaks whoever takes it. Who waits for a result goes on
    waiting: nobody is kept from work by that, and the result is not lost.
    """
    if code == "internal":
        return 0.0
    if code not in _FOR_PEOPLE or isinstance(request, AwaitTask | AwaitWorkflow):
        return timeout
    return SOON if timeout is None else min(SOON, timeout)


def may_wait(request: Request) -> bool:
    """Say whether the answer to ``request`` may be held back until something happens."""
    return isinstance(request, _WAITING)


def longer(pause: float) -> float:
    """Return the pause that follows ``pause``."""
    return min(pause * 2, PAUSE_MAX)
