"""Inputs on their way through a shard: requests with their caller, and what the passing of time brings."""

from dataclasses import dataclass

from outlast.core.inputs import Request


@dataclass(slots=True, frozen=True)
class TimerDue:
    """A timer's row has come up."""

    fire_at: int
    timer_id: str
    kind: str
    target: str


@dataclass(slots=True, frozen=True)
class LeaseEnded:
    """The lease with this number has run out, unless something was heard since."""

    task_id: str
    lease: int


@dataclass(slots=True, frozen=True)
class RunOverLimit:
    """The history of this run has grown past its limit."""

    run_id: str


Internal = TimerDue | LeaseEnded | RunOverLimit


@dataclass(slots=True, frozen=True)
class Admitted:
    """An input with the context it came in by. Internal ones have no ticket. ``size``: its bytes on the wire."""

    ticket: object
    input: Request | Internal
    namespace: str
    principal: str
    size: int = 0
