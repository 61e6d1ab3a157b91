"""What the outside world wrote down: who asked for what, what was answered, which handlers ran. Checkers believe nothing else."""

from dataclasses import dataclass, field

from outlast.core.inputs import Request
from outlast.core.replies import Reply


@dataclass(slots=True, eq=False)
class Entry:
    """One call of a client. ``reply`` None with ``ended_at`` set: nobody knows what became of it.

    ``attempts`` counts what was sent.
    """

    client: str
    namespace: str
    request: Request
    invoked_at: int
    ended_at: int = 0
    reply: Reply | None = None
    attempts: int = 0
    floor: int = 0  # number of the last batch that was known to be committed when the call began


@dataclass(slots=True, eq=False)
class HandlerRun:
    """One run of a handler, by true time. ``ended_at`` 0: it never came to an end."""

    task_id: str
    lease: int
    attempt: int
    worker: str
    operation_id: str
    once: bool
    started_at: int
    ended_at: int = 0


@dataclass(slots=True)
class Ledger:
    """Everything that clients and workers saw."""

    entries: list[Entry] = field(default_factory=list[Entry])
    handler_runs: list[HandlerRun] = field(default_factory=list[HandlerRun])
    open_calls: int = 0
