"""What a route is: one row of the table from which dispatch, the OpenAPI document and the list of acts are made."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from outlast.gateway.exchange import Answer, Exchange, StreamAnswer
from outlast.gateway.taken import NoQuery

Handler = Callable[[Exchange], Awaitable[Answer | StreamAnswer]]


class Right(StrEnum):
    """What a caller must be allowed in the namespace."""

    NONE = "none"  # whoever may call at all
    READ = "read"
    PAYLOADS = "payloads"  # see values and texts of errors as well, not just that there is work
    OPERATE = "operate"
    WORK = "work"
    ADMINISTER = "administer"


@dataclass(slots=True, frozen=True, kw_only=True)
class Gives:
    """One kind of answer. ``shape`` None means that there is no body; text is what is not JSON.

    ``also`` is another content type, for who asks for it (Accept).
    """

    says: str
    shape: type[msgspec.Struct] | None = None
    content_type: str = "application/json"
    also: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class Route:
    """``path`` is below the namespace, or below /api/v1 for what is ``global_``; braces match one part of any text.

    ``act`` is what it is called in the SDK and on the command line as well: "workflow.start". ``refusals`` are the codes
    that are this route's own; those of the door (bad request, denied, busy …) stand in ``DOOR_CODES``. ``inner`` are shapes
    that its body holds undecoded. ``etag``: its answers have a tag; ``matched``: a change may name one.
    ``resumed``: as a stream it goes on behind Last-Event-ID.
    """

    method: str
    path: str
    operation: str
    act: str
    needs: Right
    handler: Handler
    summary: str
    gives: Mapping[int, Gives]
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    body_needed: bool = True
    refusals: tuple[str, ...] = ()
    keyed: bool = False
    etag: bool = False
    matched: bool = False
    stream: bool = False
    resumed: bool = False
    inner: tuple[type[msgspec.Struct], ...] = ()
    global_: bool = False
    of_namespace: bool = False  # its {name} is a namespace: the right is needed in that one
    wire: bool = False  # of the worker protocol: MessagePack, with a number of its own, not in the OpenAPI document
    example: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_change(self) -> bool:
        """Whether it may change something."""
        return self.method not in {"GET", "HEAD"}


DOOR_CODES = (
    "invalid_request",
    "unknown_field",
    "limit_exceeded",  # of the length of an id or a name
    "unauthenticated",
    "denied",
    "namespace_not_found",
    "not_acceptable",
    "rate_limited",
    "busy",
    "internal",
    "unavailable",
    "store_full",
    "store_damaged",
    "timeout",
)
BODY_CODES = ("malformed_body", "unsupported_encoding", "body_too_large", "payload_too_large")
