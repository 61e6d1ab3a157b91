"""Inputs on their way through a shard: requests with their caller, and what the passing of time brings.

They are Structs, since those are made faster than dataclasses, and one is made for each input.
"""

import msgspec

from outlast.core.inputs import ShardRequest


class TimerDue(msgspec.Struct, frozen=True, gc=False):
    """A timer's row has come up."""

    fire_at: int
    timer_id: str
    kind: str
    target: str


class LeaseEnded(msgspec.Struct, frozen=True, gc=False):
    """The lease with this number has run out, unless something was heard since."""

    task_id: str
    lease: int


class RunOverLimit(msgspec.Struct, frozen=True, gc=False):
    """The history of this run has grown past its limit."""

    run_id: str


Internal = TimerDue | LeaseEnded | RunOverLimit


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """An input with the context it came in by. Internal ones have no ticket. ``size``: its bytes on the wire."""

    ticket: object
    input: ShardRequest | Internal
    namespace: str
    principal: str
    size: int = 0
